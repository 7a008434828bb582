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
    struct tw_prepare_state state; /* the field state.dataset is set only when the state is saved */
    uint64_t before_bytes;         /* size on disk of the files before state.next.file */
    uint64_t taken_bytes;          /* bytes on disk of all files read so far */
    bool is_end;                   /* end of the inputs: all shards are written */
    bool can_skip; /* the failure is at a document or file that skip_bad passes over */
};

/* Starts at the beginning, or at a state whose shards `shards` has restored. */
void tw_prepare_writer_begin(struct tw_prepare_writer *writer);

/* Writes all documents of a block. TW_DATA: a bad document, named with its line, or a source with
 * too little text; TW_IO, TW_NOMEM, TW_LIMIT. */
enum tw_status tw_prepare_write(struct tw_prepare_writer *writer, const struct tw_block *block,
                                struct tw_error *err);

/* Makes the current state durable. */
enum tw_status tw_prepare_save(struct tw_prepare_writer *writer, struct tw_error *err);

#endif
