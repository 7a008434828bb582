/* convert_words.h - the vocabulary of an exported model, and the tokens that end its texts. */
#ifndef TW_WORKER_CLI_CONVERT_WORDS_H
#define TW_WORKER_CLI_CONVERT_WORDS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "worker/tokenizer/text_ends.h"

struct convert_words {
    char path[PATH_MAX]; /* path of the tokenizer.json; empty: none */
    char *text;          /* (bytes) content of the tokenizer.json; NULL: none */
    size_t bytes;
    struct tw_tokenizer *tokenizer; /* NULL: none, or of an unsupported kind */
    struct tw_error why;            /* why the tokenizer is not supported */
    struct tw_text_ends ends;
};

struct convert_words_source {
    const char *from;      /* the model: a folder or a file */
    bool is_folder;        /* that folder may have a tokenizer.json */
    const char *tokenizer; /* the option --tokenizer, or NULL */
    const char *eos;       /* the option --eos, or NULL */
};

/* Reads the tokenizer.json named by the option, else that of the folder. A model on bytes gets the
 * byte tokenizer. If the tokenizer is of an unsupported kind, the vocabulary stays empty, and an
 * export that needs one fails. TW_CONFIG also if the tokenizer has more tokens than the model. Free
 * *words also after a failure. */
enum tw_status tw_engine_words_read(struct convert_words *words, const struct tw_run *run,
                                    const struct convert_words_source *source,
                                    struct tw_error *err);

/* Checks that a model of this vocabulary can have the tokenizer at `path`. TW_CONFIG. */
enum tw_status tw_engine_words_check(const struct tw_tokenizer *tokenizer, const char *path,
                                     uint32_t vocab, struct tw_error *err);

/* Says which file without a tokenizer.json holds the tokenizer of this folder, and the way out. */
void tw_engine_words_hint(const char *folder);

void tw_engine_words_free(struct convert_words *words);

#endif
