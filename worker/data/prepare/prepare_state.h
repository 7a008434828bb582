/* prepare_state.h - where `prepare` stands, as a text that is replaced after every training shard.
 *
 *      thinwire-prepare 1
 *      options <SHA-256>     what would make other shards of the same inputs
 *      inputs <SHA-256>      of prepare.inputs, the list of files
 *      next <file> <byte of its text> <line>
 *      counts ...            struct tw_prepare_counts, in its order
 *      pending <documents> <bytes> <checksum>
 *      first <sentence>      the first that was skipped as bad, or nothing
 *      done <0 or 1>
 *      <the index of the dataset as it would be with the shards so far>
 *      sum <xxHash64 of all before> */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_STATE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_read.h"
#include "worker/data/prepare/prepare_shards.h"

struct tw_prepare_state {
    struct tw_id options, inputs;
    struct tw_prepare_place next;
    uint64_t line; /* of next, from 1 */
    struct tw_prepare_counts counts;
    struct tw_pending pending;
    char first_bad[sizeof(((struct tw_error *)NULL)->message)];
    bool is_done;
    struct tw_dataset dataset; /* shards: of what was decoded the caller's to free */
};

enum { TW_PREPARE_STATE_BYTES_MAX = TW_DATASET_BYTES_MAX + 4096 };

/* *text is the caller's to free. The shards are in an index's order. TW_NOMEM, TW_CONFIG, TW_LIMIT.
 */
enum tw_status tw_prepare_state_encode(const struct tw_prepare_state *state, char **text,
                                       size_t *size, struct tw_error *err);

/* Untrusted. TW_CORRUPT, TW_VERSION, TW_NOMEM; then nothing is to free. */
enum tw_status tw_prepare_state_decode(const char *text, size_t size,
                                       struct tw_prepare_state *state, struct tw_error *err);

#endif
