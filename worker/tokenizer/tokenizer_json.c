/* tokenizer_json.c - reads the parts of a tokenizer.json in order of their dependencies. */
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

/* Finds the first of these added tokens that exists. tokenizer.json does not say which token begins
 * or ends a text; these are the usual names in published files. The bars in DeepSeek's names are
 * U+FF5C. Other files of a model are more reliable: text_ends.h. */
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

/* ---- other files of tokenizers --------------------------------------------------------------- */

#define SAVE                                                                                       \
    "python3 -c \"from transformers import AutoTokenizer as T; "                                   \
    "T.from_pretrained('FOLDER').save_pretrained('OUT')\""

/* Explains a file that is not a JSON object. */
static enum tw_status refuse_bytes(const char *bytes, size_t size, const char *why,
                                   struct tw_error *err) {
    const size_t head = size < 64 ? size : 64;
    if (size > 0 && bytes[0] == '\n' && memmem(bytes, head, "<unk>", strlen("<unk>")) != NULL) {
        return tw_fail(err, TW_CONFIG,
                       "it is a model of sentencepiece, which is not read: make token numbers of "
                       "texts with its library, for --prompt or a run with data.tokenizer=ids");
    }
    if (size >= 9 && memcmp(bytes, "#version:", 9) == 0) {
        return tw_fail(err, TW_CONFIG,
                       "it is a list of merges; this makes a tokenizer.json: " SAVE);
    }
    if (size >= 7 && memcmp(bytes, "IQ== 0\n", 7) == 0) {
        return tw_fail(err, TW_CONFIG,
                       "it is a list of tiktoken; this makes a tokenizer.json: " SAVE);
    }
    return tw_fail(err, TW_CONFIG, "it is not a tokenizer.json: %.200s", why);
}

/* Refuses a JSON object without a model, and explains it. */
static enum tw_status check_object(const json_t *root, struct tw_error *err) {
    if (json_object_get(root, "model") != NULL) return TW_OK;
    if (json_object_get(root, "tokenizer_class") != NULL ||
        json_object_get(root, "eos_token") != NULL) {
        return tw_fail(err, TW_CONFIG,
                       "it is a tokenizer_config.json: name the tokenizer.json beside it");
    }
    const json_t *const first = json_object_iter_value(json_object_iter((json_t *)root));
    if (json_is_integer(first)) {
        return tw_fail(err, TW_CONFIG,
                       "it is a vocabulary without merges; this makes a tokenizer.json: " SAVE);
    }
    return tw_fail(err, TW_CONFIG, "it is not a tokenizer.json: it has no \"model\"");
}

/* ---- entry point ----------------------------------------------------------------------------- */

enum tw_status tw_tokenizer_read(struct tw_tokenizer *tokenizer, const char *json, size_t size,
                                 struct tw_error *err) {
    json_t *root;
    struct tw_error why;
    enum tw_status status =
        tw_hf_json_parse_exact(&root, json, size, TW_TOKENIZER_JSON_BYTES_MAX, &why);
    if (status != TW_OK) {
        size_t at = 0;
        while (at < size && strchr(" \t\r\n", json[at]) != NULL && json[at] != 0) at++;
        if (at == size || json[at] != '{') return refuse_bytes(json, size, why.message, err);
        return tw_fail(err, status, "it is not a tokenizer.json: %.200s", why.message);
    }
    status = check_object(root, err);
    if (status != TW_OK) {
        json_decref(root);
        return status;
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
