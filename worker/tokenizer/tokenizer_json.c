/* tokenizer_json.c - reads a tokenizer.json: its parts, in order of their dependencies. */
#include <stdlib.h>
#include <string.h>

#include "worker/tokenizer/tokenizer_json.h"

_Static_assert(TW_TOKENIZER_JSON_BYTES_MAX < UINT32_MAX / 2, "all its texts have 32-bit offsets");

enum tw_status tw_tokenizer_refuse(struct tw_error *err, const char *what, const json_t *value,
                                   const char *supported) {
    char shown[TW_HF_SHOWN_BYTES];
    return tw_fail(err, TW_CONFIG, "%s %s is not supported: %s", what, tw_hf_show(value, shown),
                   supported);
}

const json_t *tw_tokenizer_part(const json_t *object, const char *key) {
    const json_t *const part = json_object_get(object, key);
    return json_is_null(part) ? NULL : part;
}

const char *tw_tokenizer_word(const json_t *object, const char *key) {
    const char *const word = json_string_value(json_object_get(object, key));
    return word != NULL ? word : "";
}

bool tw_tokenizer_flag(const json_t *object, const char *key, bool otherwise) {
    const json_t *const flag = json_object_get(object, key);
    return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}

/* Finds the first of these added tokens that exists. tokenizer.json does not say which token ends a
 * text; these are the usual names in published files. The bars of DeepSeek's are U+FF5C. Other
 * files of a model can say better: text_ends.h. */
static uint32_t find_first(const struct tw_tokenizer *tokenizer, const char *const *names) {
    for (; *names != NULL; names++) {
        const uint32_t token = tw_tokenizer_find(tokenizer, *names);
        if (token != TW_TOKEN_NONE) return token;
    }
    return TW_TOKEN_NONE;
}

static void name_ends(struct tw_tokenizer *tokenizer) {
    static const char *const BEGINS[] = {"<|begin_of_text|>",
                                         "<\xEF\xBD\x9C"
                                         "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                         "<s>", "<bos>", NULL};
    static const char *const ENDS[] = {"<|endoftext|>",
                                       "<|end_of_text|>",
                                       "<\xEF\xBD\x9C"
                                       "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                       "</s>",
                                       "<eos>",
                                       "<|im_end|>",
                                       "<|eot_id|>",
                                       NULL};
    const uint32_t last = tokenizer->after_count;
    tokenizer->bos =
        tokenizer->before_count > 0 ? tokenizer->before[0] : find_first(tokenizer, BEGINS);
    tokenizer->eos = last > 0 ? tokenizer->after[last - 1] : find_first(tokenizer, ENDS);
}

enum tw_status tw_tokenizer_read(struct tw_tokenizer *tokenizer, const char *json, size_t size,
                                 struct tw_error *err) {
    json_t *root;
    struct tw_error why;
    enum tw_status status =
        tw_hf_json_parse_exact(&root, json, size, TW_TOKENIZER_JSON_BYTES_MAX, &why);
    if (status != TW_OK) {
        return tw_fail(err, status, "it is not a tokenizer.json: %.200s", why.message);
    }
    tokenizer->is_exact = true;
    status = tw_tokenizer_read_model(tokenizer, root, err);
    if (status == TW_OK) status = tw_tokenizer_read_steps(tokenizer, root, err);
    if (status == TW_OK) status = tw_tokenizer_read_added(tokenizer, root, err);
    if (status == TW_OK) status = tw_bpe_vocab_index(&tokenizer->vocab, err);
    json_decref(root);
    if (status == TW_OK) name_ends(tokenizer);
    return status;
}
