/* prepare_shards.h - fills one training shard and one held-out shard of one source at a time.
 *
 * If the work stops, the open training shard is lost, and a later call makes it again. A held-out
 * shard stays open over many training shards, because held-out documents are rare. Its documents
 * are therefore also appended to a file, NAME.pending. The state records the valid size of that
 * file. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H
#define TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/dataset.h"

struct tw_filling {
    uint8_t *tokens; /* (tokens_count * token_bytes) used, of capacity_bytes allocated */
    size_t tokens_count, capacity_bytes;
    uint32_t *documents; /* (documents_count): first token of each document */
    size_t documents_count, documents_capacity;
    uint32_t tokens_max; /* limit of a shard; only a single longer document may exceed it */
    uint32_t number;     /* number of the next shard of this kind, training or held-out */
};

/* Held-out documents in the pending file. */
struct tw_pending {
    uint64_t documents, bytes, checksum;
};

struct tw_prepare_shards {
    const char *out;           /* output folder, borrowed */
    struct tw_dataset dataset; /* index in progress; owns its shards, in the order in which they
                                  were written */
    uint32_t token_bytes, source;
    struct tw_filling train, heldout;
    struct tw_pending pending;
    uint32_t pending_oldest; /* lowest number of the pending files that may exist */
};

/* Copies *dataset, except its shards. */
void tw_prepare_shards_init(struct tw_prepare_shards *shards, const char *out,
                            const struct tw_dataset *dataset, uint32_t shard_tokens);
void tw_prepare_shards_deinit(struct tw_prepare_shards *shards);

/* Whether a document of this many tokens fits the open training or held-out shard. */
bool tw_prepare_shards_has_room(const struct tw_prepare_shards *shards, bool is_heldout,
                                uint32_t tokens_count);

/* Appends a document to the open training or held-out shard. Fails with TW_NOMEM. */
enum tw_status tw_prepare_shards_add(struct tw_prepare_shards *shards, bool is_heldout,
                                     const uint32_t *tokens, uint32_t tokens_count,
                                     struct tw_error *err);

/* Writes the open training or held-out shard, if it has documents. Call tw_prepare_shards_sort
 * afterwards to restore the order of the index. Fails with TW_IO, TW_NOMEM or TW_LIMIT. */
enum tw_status tw_prepare_shards_close(struct tw_prepare_shards *shards, bool is_heldout,
                                       struct tw_error *err);

/* Starts the next source. Both shards must be closed. */
void tw_prepare_shards_next_source(struct tw_prepare_shards *shards, uint32_t source);

/* Sorts shards into the order of an index: by source, and training before held-out. */
void tw_prepare_shards_sort(struct tw_dataset *dataset);

/* save: makes the open held-out documents durable and sets shards->pending to the values that the
 * state records. forget: removes older pending files; call it once the state that refers to them is
 * replaced. */
enum tw_status tw_prepare_pending_save(struct tw_prepare_shards *shards, struct tw_error *err);
void tw_prepare_pending_forget(struct tw_prepare_shards *shards);

/* Restores the shards of `dataset` and the pending documents recorded in the state. Fails with
 * TW_CORRUPT if the pending file changed; also with TW_IO or TW_NOMEM. */
enum tw_status tw_prepare_shards_resume(struct tw_prepare_shards *shards,
                                        const struct tw_dataset *dataset, uint32_t source,
                                        struct tw_pending pending, struct tw_error *err);

#endif
