/* prepare_shards.h - the shards that `prepare` fills: one for training, one that is held out, of
 * one source at a time.
 *
 * What is in a shard's memory when the work is stopped is lost and made again, but for held-out
 * documents: they come so rarely that their shard stays open over many training shards, and waits
 * in a file of its own, NAME.pending, of which the state says how much counts. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H
#define TW_WORKER_DATA_PREPARE_PREPARE_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/dataset.h"

struct tw_filling {
    uint8_t *tokens; /* (tokens_count x token_bytes), room for capacity_bytes */
    size_t tokens_count, capacity_bytes;
    uint32_t *documents; /* (documents_count): their first tokens */
    size_t documents_count, documents_capacity;
    uint32_t tokens_max; /* unless one document has more */
    uint32_t number;     /* of the next shard of this side */
};

/* What waits in the pending file. */
struct tw_pending {
    uint64_t documents, bytes, checksum;
};

struct tw_prepare_shards {
    const char *out;           /* folder, borrowed */
    struct tw_dataset dataset; /* shards are owned; in the order they were written */
    uint32_t token_bytes, source;
    struct tw_filling train, heldout;
    struct tw_pending pending;
    uint32_t pending_oldest; /* number of the first pending file that may be there */
};

/* dataset: all but shards, copied. */
void tw_prepare_shards_init(struct tw_prepare_shards *shards, const char *out,
                            const struct tw_dataset *dataset, uint32_t shard_tokens);
void tw_prepare_shards_deinit(struct tw_prepare_shards *shards);

/* Whether a document of so many tokens still belongs into the shard that is open on this side. */
bool tw_prepare_shards_has_room(const struct tw_prepare_shards *shards, bool is_heldout,
                                uint32_t tokens_count);

/* Adds a document. TW_NOMEM. */
enum tw_status tw_prepare_shards_add(struct tw_prepare_shards *shards, bool is_heldout,
                                     const uint32_t *tokens, uint32_t tokens_count,
                                     struct tw_error *err);

/* Makes the open shard of this side a file, if anything is in it. In the order that an index has:
 * train, then held out, source by source; held-out shards in between are put where they belong by
 * tw_prepare_shards_sort. TW_IO, TW_NOMEM, TW_LIMIT. */
enum tw_status tw_prepare_shards_close(struct tw_prepare_shards *shards, bool is_heldout,
                                       struct tw_error *err);

/* Both sides of the source are closed: the next one begins. */
void tw_prepare_shards_next_source(struct tw_prepare_shards *shards, uint32_t source);

/* The order of an index. */
void tw_prepare_shards_sort(struct tw_dataset *dataset);

/* Brings the open held-out documents to the disk; shards->pending says then what to remember.
 * Forget removes the pending files before, once the state that needed them is replaced. */
enum tw_status tw_prepare_pending_save(struct tw_prepare_shards *shards, struct tw_error *err);
void tw_prepare_pending_forget(struct tw_prepare_shards *shards);

/* After the shards of `dataset` and what the state says is pending: as at that time. TW_CORRUPT:
 * the pending file is not what it was; TW_IO; TW_NOMEM. */
enum tw_status tw_prepare_shards_resume(struct tw_prepare_shards *shards,
                                        const struct tw_dataset *dataset, uint32_t source,
                                        struct tw_pending pending, struct tw_error *err);

#endif
