/* prepare_write.h - the writer of `prepare`: blocks in order, to shards and a state that can go on.
 */
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
    struct tw_prepare_state state; /* its dataset is set when it is saved */
    uint64_t before_bytes;         /* of the files before state.next.file, on the disk */
    uint64_t taken_bytes;          /* of all files, so far */
    bool is_end;                   /* of the inputs: all shards are there */
};

/* Where to begin, or to go on: from a state whose shards `shards` has already. */
void tw_prepare_writer_begin(struct tw_prepare_writer *writer);

/* All documents of a block. TW_DATA: one is bad, named with its line, or a source has too little;
 * TW_IO, TW_NOMEM, TW_LIMIT. */
enum tw_status tw_prepare_write(struct tw_prepare_writer *writer, const struct tw_block *block,
                                struct tw_error *err);

/* The state as it stands, to the disk. */
enum tw_status tw_prepare_save(struct tw_prepare_writer *writer, struct tw_error *err);

#endif
