#include "worker/cli/convert_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/support/out_file.h"

void tw_engine_words_free(struct convert_words *words) {
    tw_tokenizer_destroy(words->tokenizer);
    free(words->text);
    words->tokenizer = NULL;
    words->text = NULL;
}

static enum tw_status read_text(struct convert_words *words,
                                const struct convert_words_source *source, struct tw_error *err) {
    const bool is_named = source->tokenizer != NULL;
    const int n = is_named ? snprintf(words->path, PATH_MAX, "%s", source->tokenizer)
                           : snprintf(words->path, PATH_MAX, "%s/tokenizer.json", source->from);
    const bool is_there =
        n < PATH_MAX && (is_named || (source->is_folder && access(words->path, F_OK) == 0));
    if (!is_there) {
        words->path[0] = 0;
        return TW_OK;
    }
    TW_TRY(tw_in_read_whole(words->path, TW_TOKENIZER_JSON_BYTES_MAX, &words->text, &words->bytes,
                            err));
    if (words->text[strspn(words->text, " \t\r\n")] == '{') return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s is not a tokenizer.json: name another one with --tokenizer",
                   words->path);
}

static enum tw_status read_tokenizer(struct convert_words *words, const struct tw_run *run,
                                     struct tw_error *err) {
    if (words->text == NULL) {
        return run->data.tokenizer == TW_TOKENIZER_BYTES
                   ? tw_tokenizer_create_bytes(&words->tokenizer, err)
                   : TW_OK;
    }
    const enum tw_status status =
        tw_tokenizer_create_json(&words->tokenizer, words->text, words->bytes, &words->why);
    if (status != TW_OK) words->tokenizer = NULL;
    return status == TW_NOMEM ? tw_fail(err, status, "%s", words->why.message) : TW_OK;
}

enum tw_status tw_engine_words_check(const struct tw_tokenizer *tokenizer, const char *path,
                                     uint32_t vocab, struct tw_error *err) {
    if (tokenizer == NULL || tw_tokenizer_normal_vocab(tokenizer) <= vocab) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%.160s has %u tokens and the model %u: it is not this model's; name the "
                   "model's with --tokenizer",
                   path[0] != 0 ? path : "the byte tokenizer", tw_tokenizer_normal_vocab(tokenizer),
                   vocab);
}

void tw_engine_words_hint(const char *folder) {
    static const char UNREAD[] =
        "which is not read: make token numbers of texts with its library, for --prompt or a run "
        "with data.tokenizer=ids";
    static const struct {
        const char *file, *hint;
    } OTHERS[] = {{"tokenizer.model", UNREAD},
                  {"spiece.model", UNREAD},
                  {"tekken.json", UNREAD},
                  {"vocab.json", "of which this makes a tokenizer.json"}};
    for (unsigned i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        char path[PATH_MAX];
        const int n = snprintf(path, sizeof(path), "%s/%s", folder, OTHERS[i].file);
        if (n >= (int)sizeof(path) || access(path, F_OK) != 0) continue;
        (void)fprintf(stderr, "thinwire: %s has no tokenizer.json but %s, %s\n", folder,
                      OTHERS[i].file, OTHERS[i].hint);
        if (OTHERS[i].hint != UNREAD) {
            (void)fprintf(stderr,
                          "  python3 -c \"from transformers import AutoTokenizer as T; "
                          "T.from_pretrained('%s').save_pretrained('OUT')\"\n",
                          folder);
        }
        return;
    }
}

enum tw_status tw_engine_words_read(struct convert_words *words, const struct tw_run *run,
                                    const struct convert_words_source *source,
                                    struct tw_error *err) {
    memset(words, 0, sizeof(*words));
    TW_TRY(read_text(words, source, err));
    if (words->text == NULL && source->is_folder) tw_engine_words_hint(source->from);
    TW_TRY(read_tokenizer(words, run, err));
    TW_TRY(tw_engine_words_check(words->tokenizer, words->path, run->model.vocab, err));
    const struct tw_text_ends_source ends = {.model = source->from,
                                             .tokenizer_path =
                                                 words->path[0] != 0 ? words->path : NULL,
                                             .tokenizer = words->tokenizer,
                                             .vocab = run->model.vocab,
                                             .eos = source->eos};
    TW_TRY(tw_text_ends_read(&words->ends, &ends, err));
    if (words->tokenizer != NULL) tw_tokenizer_set_ends(words->tokenizer, &words->ends);
    return TW_OK;
}
