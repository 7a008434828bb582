/* stream.h - the training windows of token files: which there are, and which of them is number n.
 *
 * Every file's tokens for training are cut into stretches, a stretch of N tokens into
 *
 *      W = max(1, floor(N / context) - 1) windows of context + 1 tokens, each sharing its last
 *          token with the next, from the offset o in [0, N - W context) on
 *
 * with o another in every epoch, so that windows differ between epochs and every token is reached.
 * Windows may cross documents, not stretches. W is known before a file has arrived: so the order is
 * that of the whole, and only what falls on a missing file is replaced. */
#ifndef TW_WORKER_DATA_STREAM_H
#define TW_WORKER_DATA_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/data/order.h"

enum { TW_STRETCH_TOKENS_MAX = 1 << 24 }; /* sorted at once for a curriculum: half a second */

struct tw_stretch {
    uint32_t file;         /* its number in the corpus */
    uint64_t first, count; /* tokens of the file */
    uint64_t windows;
    uint64_t before; /* windows of its source in stretches before it */
    bool is_here;
    uint32_t *easiest; /* (windows) easiest first, once a curriculum wanted it; owned */
};

struct tw_stream_source {
    uint32_t begin, end; /* its stretches */
    uint64_t windows;
    uint32_t here_begin, here_end; /* among those that are there */
};

struct tw_stream {
    uint32_t context;
    struct tw_stretch *stretches;
    uint32_t stretches_count, room;
    uint32_t sources_count;
    struct tw_stream_source sources[TW_DATASET_SOURCES_MAX];
    bool has_mixture;
    struct tw_order_mixture mixture;
    uint32_t *here;        /* (here_count) stretches that are there */
    uint64_t *here_before; /* (here_count + 1) windows of those before */
    uint32_t here_count;
};

/* Tokens [first, first + count) of a file; sources come in order. TW_NOMEM. */
enum tw_status tw_stream_add(struct tw_stream *stream, uint32_t source, uint32_t file,
                             uint64_t first, uint64_t count, struct tw_error *err);

/* After the last one. weights (sources_count) or NULL: by size, as one source. TW_NOMEM. */
enum tw_status tw_stream_finish(struct tw_stream *stream, const uint32_t *weights,
                                struct tw_error *err);

/* After is_here of some stretches changed. */
void tw_stream_update(struct tw_stream *stream);
void tw_stream_deinit(struct tw_stream *stream);

/* A window: `index` of a stretch, in an order that is `epoch` of its source. */
struct tw_window {
    uint32_t stretch;
    uint64_t index;
    uint64_t epoch_key;
};

/* Window number n for the node with this seed, in the plain order. Something must be there. */
struct tw_window tw_stream_window(const struct tw_stream *stream, uint64_t seed, uint64_t n);

/* The same among a share of the easiest, in millionths: `index` is now a place among the stretch's
 * windows from easy to hard. */
struct tw_window tw_stream_easy_window(const struct tw_stream *stream, uint64_t seed, uint64_t n,
                                       uint32_t share_millionths);

/* First token of a window of the plain order, in its file. */
uint64_t tw_stream_first(const struct tw_stream *stream, const struct tw_window *window);

#endif
