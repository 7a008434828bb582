/* hf_texts.h - the text files of a Hugging Face folder beside config.json: the tokenizer, and the
 * tokens that begin, end and pad a text.
 *
 * A file of the source is copied unchanged. If the source lacks a file, one is written. Otherwise,
 * readers would guess from the kind of model and add tokens that the model does not have. */
#ifndef TW_WORKER_FILES_HF_TEXTS_H
#define TW_WORKER_FILES_HF_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "worker/tokenizer/text_ends.h"

enum { TW_HF_TEXTS_MAX = 9 };

struct tw_hf_text {
    const char *name; /* name of the file, borrowed */
    char *text;       /* owned */
    size_t bytes;
};

struct tw_hf_texts {
    struct tw_hf_text list[TW_HF_TEXTS_MAX];
    uint32_t count;
};

struct tw_hf_texts_source {
    const char *model;          /* folder of the source model, or NULL */
    const char *tokenizer_path; /* path of the model's tokenizer.json; NULL if it has none, such as
                                   a model on bytes */
    const char *tokenizer_text; /* (tokenizer_bytes) content of that file, or NULL */
    size_t tokenizer_bytes;
    const struct tw_tokenizer *tokenizer; /* tokenizer that was read; NULL if there is none, or its
                                             kind is not supported */
    const struct tw_text_ends *ends;
    bool is_eos_chosen; /* the user chose the end token, so the source's generation_config.json is
                           not copied */
};

/* Names of all files that tw_hf_texts_make can make, ended by NULL. */
extern const char *const TW_HF_TEXT_NAMES[];

/* Fills *texts, which the caller frees, also after a failure. Fails with TW_IO, TW_CORRUPT (a file
 * is too large) or TW_NOMEM. */
enum tw_status tw_hf_texts_make(struct tw_hf_texts *texts, const struct tw_run *run,
                                const struct tw_hf_texts_source *source, struct tw_error *err);
void tw_hf_texts_free(struct tw_hf_texts *texts);

#endif
