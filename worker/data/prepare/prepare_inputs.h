/* prepare_inputs.h - the files that `prepare` reads, in the order it reads them. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_INPUTS_H
#define TW_WORKER_DATA_PREPARE_PREPARE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/text_stream.h"

struct tw_prepare_file {
    char *path;
    uint64_t bytes; /* on the disk */
    int64_t changed_ns;
    uint64_t device, inode;
    uint32_t source;
    bool is_named; /* by the user; else found in a folder, where other things may lie too */
    bool is_records;
    bool is_tokens; /* a shard of llm.c, or the .bin of a pair of Megatron's */
    enum tw_packing packing;
};

struct tw_prepare_inputs {
    struct tw_prepare_file *files; /* (count) */
    size_t count, capacity;
    uint64_t bytes;
    uint64_t hidden; /* files, folders and special files passed over */
};

/* Sources in their order, inputs of a source in theirs, folders by the bytes of their names.
 * `options->out` is passed over where it lies within an input. TW_IO: what cannot be looked at;
 * TW_DATA: nothing there; TW_CONFIG: a file that was named twice; TW_LIMIT; TW_NOMEM. To be
 * deinited in any case. */
enum tw_status tw_prepare_inputs_find(struct tw_prepare_inputs *inputs,
                                      const struct tw_prepare_options *options,
                                      struct tw_error *err);
void tw_prepare_inputs_deinit(struct tw_prepare_inputs *inputs);

/* What pins the list: a line for each file. *text is the caller's to free. TW_NOMEM. */
enum tw_status tw_prepare_inputs_text(const struct tw_prepare_inputs *inputs, char **text,
                                      size_t *size, struct tw_error *err);

#endif
