/* prepare_write.h - the writer of `prepare`: turns ordered blocks into shards and a resumable
 * state. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_WRITE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_WRITE_H

#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/prepare/prepare_inputs.h"
#include "worker/data/prepare/prepare_shards.h"
#include "worker/data/prepare/prepare_state.h"

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
