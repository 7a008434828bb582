/* prepare_inputs.h - the list of files that `prepare` reads, in order. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_INPUTS_H
#define TW_WORKER_DATA_PREPARE_PREPARE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_block.h"

struct tw_prepare_file {
    char *path;
    uint64_t bytes; /* size on disk */
    int64_t changed_ns;
    uint64_t device, inode;
    uint32_t source;
    /* true: the user named the file; false: it was found in a folder, which may hold other kinds of
     * files */
    bool is_named;
    bool is_tokens; /* a shard of llm.c, or the .bin of a Megatron-LM pair */
};

struct tw_prepare_inputs {
    struct tw_prepare_file *files; /* (count) */
    size_t count, capacity;
    uint64_t bytes;
    uint64_t hidden; /* number of files, folders and special files skipped */
};

/* Lists the inputs: by source, then in the order given, folders sorted by the bytes of their names.
 * Skips `options->out` if it lies within an input. Deinitialise the result also after a failure.
 * Fails with TW_IO if an input cannot be examined, TW_DATA if nothing is found, TW_CONFIG if a file
 * was given twice, or with TW_LIMIT or TW_NOMEM. */
enum tw_status tw_prepare_inputs_find(struct tw_prepare_inputs *inputs,
                                      const struct tw_prepare_options *options,
                                      struct tw_error *err);
void tw_prepare_inputs_deinit(struct tw_prepare_inputs *inputs);

/* Returns the end of the path, short enough to leave room for the rest of a message. */
const char *tw_prepare_shown_path(const char *path);

/* Writes the list as text, one line per file. A later call compares it to detect changes. The
 * caller frees *text. Fails with TW_NOMEM. */
enum tw_status tw_prepare_inputs_text(const struct tw_prepare_inputs *inputs, char **text,
                                      size_t *size, struct tw_error *err);

/* ---- the reader thread of `prepare`: turns files into blocks of whole documents -------------- */

/* Start of a document: its file, and its offset in the file's text. */
struct tw_prepare_place {
    uint64_t file, at;
};

struct tw_prepare_reader {
    const struct tw_prepare_inputs *inputs;
    struct tw_blocks *blocks;
    struct tw_block *first; /* empty block that the reader fills first and then owns */
    struct tw_prepare_place from;
    enum tw_text_unit unit; /* how plain text is cut */
    bool is_plain, skip_bad;
    /* has_tokenizer and vocab are for token files, whose text has 4 bytes per token. */
    bool has_tokenizer;
    uint32_t vocab;
    int64_t separator; /* token that separates documents in token files without an index */
};

/* Reads from the place `from` to the end of the inputs, or until the queue is stopped. Without
 * skip_bad, an unusable file or an overlong document ends the reading. */
void tw_prepare_read(const struct tw_prepare_reader *reader);

#endif
