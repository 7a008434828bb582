/* stream.h - cuts the tokens of training files into windows and finds window number n.
 *
 * The training tokens of every file are cut into stretches. A stretch of N > context tokens has
 *
 *      W = max(1, floor(N / context) - 1) windows of context + 1 tokens, each sharing its last
 *          token with the next, from the offset o in [0, N - W * context) on
 *
 * The offset o changes with every epoch, so windows differ between epochs and every token is
 * reached. Windows may cross document boundaries, but not stretches. W is known before a file has
 * arrived. The order of windows is therefore that of the complete data, and only windows of missing
 * files are replaced. */
#ifndef TW_WORKER_DATA_STREAM_H
#define TW_WORKER_DATA_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/data/order.h"

/* A curriculum sorts one stretch at a time. At this size, a sort takes half a second. */
enum { TW_STRETCH_TOKENS_MAX = 1 << 24 };

struct tw_stretch {
    uint32_t file;         /* index in the corpus */
    uint64_t first, count; /* range of tokens in the file */
    uint64_t windows;
    uint64_t before; /* number of windows in earlier stretches of the same source */
    bool is_here;
    uint32_t *easiest; /* (windows), owned: window numbers, easiest first; NULL until a curriculum
                          needs them */
};

struct tw_stream_source {
    uint32_t begin, end; /* range of the source's stretches */
    uint64_t windows;
    /* range of the source's present stretches in `here` */
    uint32_t here_begin, here_end;
};

struct tw_stream {
    uint32_t context;
    struct tw_stretch *stretches;
    uint32_t stretches_count, room;
    uint32_t sources_count;
    struct tw_stream_source sources[TW_DATASET_SOURCES_MAX];
    bool has_mixture;
    struct tw_order_mixture mixture;
    uint32_t *here;        /* (here_count): indices of the stretches that are present */
    uint64_t *here_before; /* (here_count + 1): running total of the windows of these stretches */
    uint32_t here_count;
};

/* Adds tokens [first, first + count) of a file. Calls must be in ascending order of `source`. Fails
 * with TW_NOMEM. */
enum tw_status tw_stream_add(struct tw_stream *stream, uint32_t source, uint32_t file,
                             uint64_t first, uint64_t count, struct tw_error *err);

/* Call after the last tw_stream_add. weights (sources_count); NULL: mix by size, as one source.
 * Fails with TW_NOMEM. */
enum tw_status tw_stream_finish(struct tw_stream *stream, const uint32_t *weights,
                                struct tw_error *err);

/* Call after is_here of any stretch changed. */
void tw_stream_update(struct tw_stream *stream);
void tw_stream_deinit(struct tw_stream *stream);

/* Window number `index` of a stretch. epoch_key determines the epoch's offset o. */
struct tw_window {
    uint32_t stretch;
    uint64_t index;
    uint64_t epoch_key;
};

/* Returns window number n for the node with this seed, in the order without a curriculum. At least
 * one stretch must be present. */
struct tw_window tw_stream_window(const struct tw_stream *stream, uint64_t seed, uint64_t n);

/* Returns window number n, drawn from the easiest share (in millionths) of the windows. `index` is
 * then a rank among the stretch's windows, from easy to hard. */
struct tw_window tw_stream_easy_window(const struct tw_stream *stream, uint64_t seed, uint64_t n,
                                       uint32_t share_millionths);

/* Returns the position in its file of the first token of a window from tw_stream_window. */
uint64_t tw_stream_first(const struct tw_stream *stream, const struct tw_window *window);

#endif
