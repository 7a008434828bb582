/* convert_words.h - reads the vocabulary of a model to export, and the tokens that end its
 * texts. */
#ifndef TW_WORKER_CLI_CONVERT_WORDS_H
#define TW_WORKER_CLI_CONVERT_WORDS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "worker/tokenizer/text_ends.h"

struct convert_words {
    char path[PATH_MAX]; /* path of the tokenizer.json, or "" if there is none */
    char *text;          /* (bytes) content of the tokenizer.json, or NULL if there is none */
    size_t bytes;
    struct tw_tokenizer *tokenizer; /* NULL if there is none, or its kind is not supported */
    struct tw_error why;            /* reason why the tokenizer is not supported */
    struct tw_text_ends ends;
};

struct convert_words_source {
    const char *from;      /* path of the model, a folder or a file */
    bool is_folder;        /* whether `from` is a folder, which may have a tokenizer.json */
    const char *tokenizer; /* the option --tokenizer, or NULL */
    const char *eos;       /* the option --eos, or NULL */
};

/* Reads the tokenizer.json named by the option, else the one in the folder. A model on bytes gets
 * the byte tokenizer. If the tokenizer's kind is not supported, the vocabulary stays empty, and an
 * export that needs one fails. Fails with TW_CONFIG also if the tokenizer has more tokens than the
 * model. Free *words also after a failure. */
enum tw_status tw_engine_words_read(struct convert_words *words, const struct tw_run *run,
                                    const struct convert_words_source *source,
                                    struct tw_error *err);

/* Checks that the tokenizer at `path` has no more tokens than a model's vocabulary. Fails with
 * TW_CONFIG. */
enum tw_status tw_engine_words_check(const struct tw_tokenizer *tokenizer, const char *path,
                                     uint32_t vocab, struct tw_error *err);

/* For a folder without tokenizer.json: prints which other file holds its tokenizer, and a
 * remedy. */
void tw_engine_words_hint(const char *folder);

void tw_engine_words_free(struct convert_words *words);

#endif
