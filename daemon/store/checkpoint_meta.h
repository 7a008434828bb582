/* checkpoint_meta.h - all values of a generation besides its tensors, as texts in __metadata__.
 * Private to checkpoint.c.
 *
 * Numbers are decimal, lists are joined by commas, bytes are lower-case hex. Each value has exactly
 * one spelling. */
#ifndef TW_DAEMON_STORE_CHECKPOINT_META_H
#define TW_DAEMON_STORE_CHECKPOINT_META_H

#include "daemon/store/checkpoint.h"
#include "proto/safetensors.h"
#include "sync/core/position.h"

enum {
    DIGEST_DIGITS = 64,                           /* of a SHA-256 in hex */
    NUMBER_BYTES = 21,                            /* size of a u64 in decimal, with NUL */
    LIST_BYTES = TW_FRAGMENTS_MAX * NUMBER_BYTES, /* size of TW_FRAGMENTS_MAX such numbers, with
                                                     commas */
};

/* The metadata as texts. */
struct meta {
    char generation[NUMBER_BYTES], step[NUMBER_BYTES], tokens[NUMBER_BYTES], updates[NUMBER_BYTES],
        cursor[NUMBER_BYTES], fragments[NUMBER_BYTES];
    char run[TW_ID_HEX_BYTES], digest[TW_ID_HEX_BYTES];
    char rng[LIST_BYTES], live_rounds[LIST_BYTES], judged[LIST_BYTES];
    char position[2 * TW_POSITION_BYTES_MAX + 1]; /* hex */
};

/* Writes all texts of `meta`. The header's digest is set to zeros. */
void tw_checkpoint_meta_encode(struct meta *meta, uint64_t generation, const struct tw_id *run,
                               const struct tw_checkpoint_state *state, uint32_t fragments_count);

/* Makes the texts and `hashes` the metadata of st, which borrows them. */
void tw_checkpoint_meta_list(struct tw_safetensors *st, const struct meta *meta, const char *hashes,
                             size_t hashes_size);

/* Recomputes the digest of the header from which st was parsed, and compares it. Overwrites it with
 * zeros in `header`. */
enum tw_status tw_checkpoint_meta_verify(const struct tw_safetensors *st, uint8_t *header,
                                         size_t header_size, struct tw_error *err);

enum tw_status tw_checkpoint_meta_generation(const struct tw_safetensors *st, uint64_t *generation,
                                             struct tw_id *run, struct tw_error *err);
enum tw_status tw_checkpoint_meta_state(const struct tw_safetensors *st, uint32_t fragments_count,
                                        struct tw_checkpoint_state *state, struct tw_error *err);

#endif
