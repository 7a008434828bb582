/* data.h - training text: a plain file, mapped; a held-out end that is never trained on; random
 * windows whose order depends on (seed, cursor) alone.
 *
 * With the tokenizer `bytes` a byte is a token. With `ids` the file holds token numbers: 16-bit
 * little-endian when the vocabulary has at most 65536, else 32-bit; or a token shard of llm.c,
 * known by its header (magic 20240520: 16-bit, 20240801: 32-bit). */
#ifndef TW_WORKER_DATA_H
#define TW_WORKER_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run.h"

struct tw_data {
    const uint8_t
        *text; /* whole file, mapped read-only: what the caller hashes against data.sha256 */
    size_t bytes;
    const uint8_t *tokens; /* the first of them, within text */
    uint32_t token_bytes;  /* 1, 2 or 4 */
    uint64_t tokens_count;
    uint64_t train_count; /* [0, train_count) is trained on, the rest is held out */
    uint32_t context;
};

/* Maps the file and splits it. TW_DATA names the file and the way out: missing, not a regular file,
 * too short for one window on either side of the split, or with a token outside the vocabulary. The
 * text may change under the map only if somebody overwrites it in place: don't. */
enum tw_status tw_data_open(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err);
void tw_data_close(struct tw_data *data);

/* Draws `sequences_count` training windows into tokens (sequences_count, context + 1) and advances
 * *cursor by sequences_count * context tokens. The cursor is all there is to save: the same (seed,
 * cursor) draws the same windows. */
void tw_data_draw(const struct tw_data *data, uint64_t seed, uint64_t *cursor,
                  uint32_t sequences_count, uint32_t *tokens);

/* Held-out windows that do not overlap in their targets; window i of `count` evenly spaced ones
 * into tokens (context + 1). i < count <= tw_data_heldout_count(). */
uint64_t tw_data_heldout_count(const struct tw_data *data);
void tw_data_heldout(const struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens);

#endif
