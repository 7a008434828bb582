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
#include "proto/dataset.h"

/* ---- the order in which windows are drawn, as pure functions of a seed and a number ---------- */

/* A resumed run needs only the cursor, any window is found in constant time, and nodes with
 * different seeds need no coordination. */

/* Pseudorandom number that depends on (seed, a, b) alone. */
uint64_t tw_order_key(uint64_t seed, uint64_t a, uint64_t b);

/* Pseudorandom bijection of [0, count) chosen by `key`, with i < count <= 2^62. A Feistel network
 * (Luby & Rackoff 1988) over the least even number of bits that holds count is iterated until the
 * result is below count (cycle walking, Black & Rogaway 2002). That takes at most four iterations
 * on average. */
uint64_t tw_order_permute(uint64_t key, uint64_t count, uint64_t i);

/* Mixes the windows of several sources by weight. Every block of TW_ORDER_BLOCK windows contains
 * each source's exact share, in a pseudorandom order. */
enum { TW_ORDER_BLOCK = 10000 };

struct tw_order_mixture {
    uint32_t sources_count;
    uint32_t ends[TW_DATASET_SOURCES_MAX]; /* end of each source's range in a block; the last end is
                                              TW_ORDER_BLOCK */
};

/* Computes each source's windows per block by largest remainder, at least 1 each. weights
 * (sources_count >= 1) must not be zero. */
void tw_order_mix(struct tw_order_mixture *mixture, const uint32_t *weights,
                  uint32_t sources_count);

/* Window number n of the mixture is window `rank` of `source`. Every rank occurs exactly once. */
struct tw_order_place {
    uint32_t source;
    uint64_t rank;
};
struct tw_order_place tw_order_place(const struct tw_order_mixture *mixture, uint64_t seed,
                                     uint64_t n);

/* Competence c: the share of windows, the easiest ones, from which the curriculum draws. Returned
 * in millionths, after `done` of `planned` curriculum tokens, done < planned; c0 = 0.1:
 *
 *     c = sqrt(done / planned * (1 - c0^2) + c0^2)
 *
 * Platanios et al. 2019, arXiv 1903.09848, equation 7. Integer arithmetic gives the same result on
 * every machine. */
uint32_t tw_order_competence(uint64_t done, uint64_t planned);

/* ---- stretches ------------------------------------------------------------------------------- */

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
