/* prepare_state.h - the progress of `prepare`, a text file that is replaced after every training
 * shard.
 *
 *      thinwire-prepare 2
 *      options <SHA-256>     of all options that affect shards
 *      inputs <SHA-256>      of prepare.inputs, the list of files
 *      next <file> <byte of its text> <line>
 *      counts ...            struct tw_prepare_counts, in its order
 *      pending <documents> <bytes> <checksum>
 *      first <sentence>      message of the first skipped document or file, or nothing
 *      done <0 or 1>
 *      <index of a dataset of the shards so far>
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
    uint64_t line; /* line number at which `next` begins, counted from 1 */
    struct tw_prepare_counts counts;
    struct tw_pending pending;
    char first_bad[sizeof(((struct tw_error *)NULL)->message)];
    bool is_done;
    struct tw_dataset dataset; /* index of the shards so far; the caller frees the shards that
                                  decode allocates */
};

enum { TW_PREPARE_STATE_BYTES_MAX = TW_DATASET_BYTES_MAX + 4096 };

/* The caller frees *text. Shards must be in the order of an index. Fails with TW_NOMEM, TW_CONFIG
 * or TW_LIMIT. */
enum tw_status tw_prepare_state_encode(const struct tw_prepare_state *state, char **text,
                                       size_t *size, struct tw_error *err);

/* Parses untrusted text. Fails with TW_CORRUPT, TW_VERSION or TW_NOMEM; then nothing need be
 * freed. */
enum tw_status tw_prepare_state_decode(const char *text, size_t size,
                                       struct tw_prepare_state *state, struct tw_error *err);

#endif
