/* hf_texts.h - the text files of a Hugging Face folder beside config.json: the tokenizer, and the
 * tokens that begin, end and pad a text.
 *
 * A file of the source is copied unchanged. Where the source has no such file, one is written: a
 * reader would guess by the kind of model otherwise, and add tokens that the model does not have.
 */
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
    const char *model;          /* the source's folder, or NULL */
    const char *tokenizer_path; /* path of its tokenizer.json; NULL: the model has none, such as a
                                   model on bytes */
    const char *tokenizer_text; /* (tokenizer_bytes) content of that file, or NULL */
    size_t tokenizer_bytes;
    const struct tw_tokenizer
        *tokenizer; /* that tokenizer as read; NULL: its kind is not supported, or there is none */
    const struct tw_text_ends *ends;
    bool is_eos_chosen; /* the user chose the end token, so the source's generation_config.json is
                           not copied */
};

/* The names of all files that tw_hf_texts_make can make. Ends with NULL. */
extern const char *const TW_HF_TEXT_NAMES[];

/* Fills *texts, which the caller frees, also after a failure. TW_IO, TW_CORRUPT (a file is too
 * large), TW_NOMEM. */
enum tw_status tw_hf_texts_make(struct tw_hf_texts *texts, const struct tw_run *run,
                                const struct tw_hf_texts_source *source, struct tw_error *err);
void tw_hf_texts_free(struct tw_hf_texts *texts);

#endif
