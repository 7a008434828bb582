/* prepare_shards.h - fills one training shard and one held-out shard of one source at a time.
 *
 * If the work stops, the open training shard is lost, and a later call makes it again. Held-out
 * documents are so rare that their shard stays open over many training shards. Its documents are
 * therefore also appended to a file, NAME.pending. The state records the valid size of that
 * file. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H
#define TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/dataset.h"

struct tw_filling {
    uint8_t *tokens; /* (tokens_count x token_bytes), capacity_bytes allocated */
    size_t tokens_count, capacity_bytes;
    uint32_t *documents; /* (documents_count): first token of each */
    size_t documents_count, documents_capacity;
    uint32_t tokens_max; /* limit, exceeded only by a single longer document */
    uint32_t number;     /* number of the next shard on this side */
};

/* Held-out documents in the pending file. */
struct tw_pending {
    uint64_t documents, bytes, checksum;
};

struct tw_prepare_shards {
    const char *out;           /* output folder, borrowed */
    struct tw_dataset dataset; /* shards are owned, in the order they were written */
    uint32_t token_bytes, source;
    struct tw_filling train, heldout;
    struct tw_pending pending;
    uint32_t pending_oldest; /* lowest number of a pending file that may exist */
};

/* *dataset is copied, except its shards. */
void tw_prepare_shards_init(struct tw_prepare_shards *shards, const char *out,
                            const struct tw_dataset *dataset, uint32_t shard_tokens);
void tw_prepare_shards_deinit(struct tw_prepare_shards *shards);

/* Whether a document of this many tokens fits the open shard on this side. */
bool tw_prepare_shards_has_room(const struct tw_prepare_shards *shards, bool is_heldout,
                                uint32_t tokens_count);

/* Appends a document. TW_NOMEM. */
enum tw_status tw_prepare_shards_add(struct tw_prepare_shards *shards, bool is_heldout,
                                     const uint32_t *tokens, uint32_t tokens_count,
                                     struct tw_error *err);

/* Writes the open shard on this side, if it has documents. tw_prepare_shards_sort restores the
 * order of the index afterwards. TW_IO, TW_NOMEM, TW_LIMIT. */
enum tw_status tw_prepare_shards_close(struct tw_prepare_shards *shards, bool is_heldout,
                                       struct tw_error *err);

/* Starts the next source. Both shards must be closed. */
void tw_prepare_shards_next_source(struct tw_prepare_shards *shards, uint32_t source);

/* Sorts shards into the order of an index: by source, training before held-out. */
void tw_prepare_shards_sort(struct tw_dataset *dataset);

/* save: makes the open held-out documents durable; shards->pending then holds the values for the
 * state. forget: removes older pending files, after the state that needed them was replaced. */
enum tw_status tw_prepare_pending_save(struct tw_prepare_shards *shards, struct tw_error *err);
void tw_prepare_pending_forget(struct tw_prepare_shards *shards);

/* Restores the shards of `dataset` and the pending documents recorded in the state. TW_CORRUPT: the
 * pending file changed; TW_IO; TW_NOMEM. */
enum tw_status tw_prepare_shards_resume(struct tw_prepare_shards *shards,
                                        const struct tw_dataset *dataset, uint32_t source,
                                        struct tw_pending pending, struct tw_error *err);

#endif
