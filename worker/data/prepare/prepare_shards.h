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

#include "base/hash.h"
#include "base/id.h"
#include "base/status.h"
#include "proto/dataset.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/prepare/prepare_inputs.h"

/* ---- writes a small file in one call --------------------------------------------------------- */

/* Writes the parts, concatenated, to FOLDER/NAME. After a failure the file is unchanged
 * (out_file.h). Fails with TW_IO or TW_CONFIG. */
enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err);

/* ---- shards ---------------------------------------------------------------------------------- */

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

/* Restores the shards of `dataset` and the pending documents recorded in the state. Fails with
 * TW_CORRUPT if the pending file changed; also with TW_IO or TW_NOMEM. */
enum tw_status tw_prepare_shards_resume(struct tw_prepare_shards *shards,
                                        const struct tw_dataset *dataset, uint32_t source,
                                        struct tw_pending pending, struct tw_error *err);

/* ---- state ----------------------------------------------------------------------------------- */

/* The progress of `prepare`, a text file that is replaced after every training shard.
 *
 *      thinwire-prepare 3
 *      options <SHA-256>     of all options that affect shards
 *      inputs <SHA-256>      of prepare.inputs, the list of files
 *      next <file> <byte of its text> <line>
 *      counts ...            struct tw_prepare_counts, in its order
 *      pending <documents> <bytes> <checksum>
 *      first <sentence>      message of the first skipped document or file, or nothing
 *      done <0 or 1>
 *      <index of a dataset of the shards so far>
 *      sum <xxHash64 of all before> */

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

/* ---- the writer of `prepare`: turns ordered blocks into shards and a resumable state --------- */

struct tw_prepare_writer {
    const struct tw_prepare_options *options;
    const struct tw_prepare_inputs *inputs;
    struct tw_prepare_shards shards;
    struct tw_prepare_state state; /* state to save; its field `dataset` is set only on saving */
    uint64_t before_bytes;         /* total size on disk of the files before state.next.file */
    uint64_t taken_bytes;          /* bytes on disk of all files that were read so far */
    bool is_end;                   /* whether the end of the inputs was reached and all shards are
                                      written */
    bool can_skip;      /* whether the failure is at a document or file that skip_bad would skip */
    const char *binary; /* first binary file of the source; NULL: none */
    uint32_t binary_files; /* of the source */
};

/* Starts at the beginning, or at a loaded state whose shards are already restored in `shards`. */
void tw_prepare_writer_begin(struct tw_prepare_writer *writer);

/* Writes all documents of a block. Fails with TW_DATA for a bad document, named with its line, or
 * for a source with too little text; also with TW_IO, TW_NOMEM or TW_LIMIT. */
enum tw_status tw_prepare_write(struct tw_prepare_writer *writer, const struct tw_block *block,
                                struct tw_error *err);

/* Makes the current state durable. */
enum tw_status tw_prepare_save(struct tw_prepare_writer *writer, struct tw_error *err);

#endif
