/* tokenizer_json.c - reads a tokenizer.json: vocabulary and merges, the steps before and after
 * them, added tokens. */
#include "worker/tokenizer/tokenizer_inner.h"

#include <stdlib.h>
#include <string.h>

#include "worker/support/hf_json.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_text.h"

_Static_assert(TW_TOKENIZER_JSON_BYTES_MAX < UINT32_MAX / 2, "all its texts have 32-bit offsets");

/* Fails with the message "WHAT VALUE is not supported: SUPPORTED". */
static enum tw_status refuse(struct tw_error *err, const char *what, const json_t *value,
                             const char *supported) {
    char shown[TW_HF_SHOWN_BYTES];
    return tw_fail(err, TW_CONFIG, "%s %s is not supported: %s", what, tw_hf_show(value, shown),
                   supported);
}

/* Returns object[key], or NULL if it is missing or null. object may be NULL. */
static const json_t *part_of(const json_t *object, const char *key) {
    const json_t *const part = json_object_get(object, key);
    return json_is_null(part) ? NULL : part;
}

/* ---- reads the model of a tokenizer.json: vocabulary and merges. Both spell tokens in characters
 * that stand for bytes ---- */

enum {
    MERGES_MAX = 1 << 21,
    CODES = 324, /* above every character that stands for a byte: U+0021 to U+0143 */
    TEXT_BYTES_MAX = 2 * TW_BPE_TOKEN_BYTES_MAX, /* size of a token if each byte is written as a
                                                    two-byte character */
};

/* Maps a character to the byte it stands for; 256: none. */
struct alphabet {
    uint16_t bytes[CODES];
};

static void fill_alphabet(struct alphabet *alphabet) {
    for (size_t i = 0; i < CODES; i++) alphabet->bytes[i] = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[TW_BYTE_TOKEN_BYTES];
        const size_t size = tw_byte_token((uint8_t)byte, text);
        const unsigned a = (uint8_t)text[0];
        const unsigned code = size == 1 ? a : (a & 31) << 6 | ((uint8_t)text[1] & 63u);
        alphabet->bytes[code] = (uint16_t)byte;
    }
}

/* Decodes text into out[TW_BPE_TOKEN_BYTES_MAX]. Returns the number of bytes, or 0 if the text has
 * other characters or is too long. */
static size_t to_bytes(const struct alphabet *alphabet, const char *text, size_t size,
                       uint8_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned code = (uint8_t)text[i];
        if (code >= 0x80) { /* jansson's strings are valid UTF-8 */
            if ((code & 0xE0) != 0xC0) return 0;
            code = (code & 31) << 6 | ((uint8_t)text[++i] & 63u);
        }
        if (code >= CODES || alphabet->bytes[code] == 256) return 0;
        if (count == TW_BPE_TOKEN_BYTES_MAX) return 0;
        out[count++] = (uint8_t)alphabet->bytes[code];
    }
    return count;
}

/* ---- requirements on the model --------------------------------------------------------------- */

static enum tw_status check_model(const json_t *model, struct tw_error *err) {
    static const char *const BPE = "byte-level BPE is";
    const char *const type = tw_hf_word(model, "type");
    if (!json_is_object(model)) return tw_fail(err, TW_CORRUPT, "it has no \"model\": { ... }");
    if (strcmp(type, "BPE") != 0 && (type[0] != 0 || json_object_get(model, "merges") == NULL)) {
        return refuse(err, "model.type", json_object_get(model, "type"), BPE);
    }
    if (tw_hf_flag(model, "byte_fallback", false)) {
        return tw_fail(err, TW_CONFIG, "model.byte_fallback is not supported: %s", BPE);
    }
    const json_t *const dropout = part_of(model, "dropout");
    if (dropout != NULL && !(json_number_value(dropout) == 0.0 && json_is_number(dropout))) {
        return refuse(err, "model.dropout", dropout, "none is");
    }
    static const char *const AFFIXES[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *const affix = part_of(model, AFFIXES[i]);
        if (affix != NULL && (!json_is_string(affix) || json_string_length(affix) > 0)) {
            return refuse(err, AFFIXES[i], affix, "none is");
        }
    }
    return TW_OK;
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

/* Returns a token's id, or TW_TOKEN_NONE if `value` is not a valid id. */
static uint32_t id_of(const json_t *value) {
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < TW_BPE_VOCAB_MAX ? (uint32_t)id : TW_TOKEN_NONE;
}

static enum tw_status measure_vocab(const json_t *vocab, const json_t *added, uint32_t *count_out,
                                    size_t *bytes_out, struct tw_error *err) {
    const char *text;
    json_t *value;
    size_t index, bytes = 0;
    uint32_t count = 0;
    json_object_foreach((json_t *)vocab, text, value) {
        const uint32_t id = id_of(value);
        if (id == TW_TOKEN_NONE) {
            return refuse(err, "a token's number", value, "0 to 1048575 are");
        }
        if (id >= count) count = id + 1;
        bytes += strlen(text);
    }
    json_array_foreach(added, index, value) {
        const uint32_t id = id_of(json_object_get(value, "id"));
        if (id == TW_TOKEN_NONE) {
            return refuse(err, "an added token's number", json_object_get(value, "id"),
                          "0 to 1048575 are");
        }
        if (id >= count) count = id + 1;
        bytes += strlen(tw_hf_word(value, "content"));
    }
    *count_out = count;
    *bytes_out = bytes;
    return TW_OK;
}

static enum tw_status read_vocab(struct tw_tokenizer *tokenizer, const json_t *vocab,
                                 const struct alphabet *alphabet, struct tw_error *err) {
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)vocab, text, value) {
        uint8_t bytes[TW_BPE_TOKEN_BYTES_MAX];
        const uint32_t id = id_of(value);
        const size_t size = strlen(text), count = to_bytes(alphabet, text, size, bytes);
        if ((tokenizer->vocab.tokens[id].flags & TW_BPE_TOKEN_SET) != 0) {
            return tw_fail(err, TW_CORRUPT, "model.vocab: two tokens have the id %u", id);
        }
        if (count > 0) {
            TW_TRY(tw_bpe_vocab_set(&tokenizer->vocab, id, bytes, count,
                                    (enum tw_bpe_token_flags)(TW_BPE_TOKEN_SET | TW_BPE_TOKEN_WORD),
                                    err));
            if (count == 1) tokenizer->byte_tokens[bytes[0]] = id;
        } else {
            TW_TRY(tw_bpe_vocab_set(&tokenizer->vocab, id, (const uint8_t *)text, size,
                                    TW_BPE_TOKEN_SET, err));
        }
    }
    for (size_t i = 0; i < 256; i++) {
        if (tokenizer->byte_tokens[i] == TW_TOKEN_NONE) tokenizer->is_exact = false;
    }
    return TW_OK;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Splits a merge, written "a b" or ["a", "b"], into two strings. Returns false if it is
 * malformed. */
static bool take_pair(const json_t *merge, char left[TEXT_BYTES_MAX], char right[TEXT_BYTES_MAX]) {
    const char *a, *b;
    size_t a_size, b_size;
    if (json_is_string(merge)) {
        a = json_string_value(merge);
        const char *const space = strchr(a, ' ');
        if (space == NULL) return false;
        a_size = (size_t)(space - a);
        b = space + 1;
        b_size = strlen(b);
        if (strchr(b, ' ') != NULL) return false;
    } else {
        if (json_array_size(merge) != 2) return false;
        a = json_string_value(json_array_get(merge, 0));
        b = json_string_value(json_array_get(merge, 1));
        if (a == NULL || b == NULL) return false;
        a_size = strlen(a);
        b_size = strlen(b);
    }
    if (a_size == 0 || b_size == 0 || a_size + b_size >= TEXT_BYTES_MAX) return false;
    memcpy(left, a, a_size);
    left[a_size] = 0;
    memcpy(right, b, b_size + 1);
    return true;
}

static enum tw_status read_merge(struct tw_tokenizer *tokenizer, const json_t *vocab,
                                 const json_t *merge, uint32_t rank, struct tw_error *err) {
    char left[TEXT_BYTES_MAX], right[TEXT_BYTES_MAX];
    char shown[TW_HF_SHOWN_BYTES];
    if (!take_pair(merge, left, right)) {
        return tw_fail(err, TW_CORRUPT,
                       "model.merges: %s is not a merge: write \"a b\" or [\"a\", \"b\"]",
                       tw_hf_show(merge, shown));
    }
    struct tw_bpe_merge made = {.rank = rank};
    made.left = id_of(json_object_get(vocab, left));
    made.right = id_of(json_object_get(vocab, right));
    memcpy(left + strlen(left), right, strlen(right) + 1);
    made.token = id_of(json_object_get(vocab, left));
    if (made.left == TW_TOKEN_NONE || made.right == TW_TOKEN_NONE || made.token == TW_TOKEN_NONE) {
        return tw_fail(err, TW_CORRUPT,
                       "model.merges: %s: one of these tokens or the merged token is not in the "
                       "vocabulary",
                       tw_hf_show(merge, shown));
    }
    tw_bpe_put(&tokenizer->bpe, made);
    return TW_OK;
}

static enum tw_status read_merges(struct tw_tokenizer *tokenizer, const json_t *vocab,
                                  const json_t *merges, struct tw_error *err) {
    const size_t count = json_array_size(merges);
    if (!json_is_array(merges) || count > MERGES_MAX) {
        return refuse(err, "model.merges", json_is_array(merges) ? NULL : merges,
                      "a list of at most 2097152 is");
    }
    TW_TRY(tw_bpe_init(&tokenizer->bpe, count, err));
    for (size_t i = 0; i < count; i++) {
        TW_TRY(read_merge(tokenizer, vocab, json_array_get(merges, i), (uint32_t)i, err));
    }
    return TW_OK;
}

/* Reads vocabulary and merges. Fails with TW_CONFIG, TW_CORRUPT or TW_NOMEM. */
static enum tw_status read_model(struct tw_tokenizer *tokenizer, const json_t *root,
                                 struct tw_error *err) {
    const json_t *const model = json_object_get(root, "model");
    const json_t *const vocab = json_object_get(model, "vocab");
    struct alphabet alphabet;
    uint32_t count = 0;
    size_t bytes = 0;
    TW_TRY(check_model(model, err));
    if (!json_is_object(vocab)) return tw_fail(err, TW_CORRUPT, "it has no \"model.vocab\"");
    TW_TRY(measure_vocab(vocab, json_object_get(root, "added_tokens"), &count, &bytes, err));
    if (count == 0) return tw_fail(err, TW_CORRUPT, "its vocabulary is empty");
    fill_alphabet(&alphabet);
    for (size_t i = 0; i < 256; i++) tokenizer->byte_tokens[i] = TW_TOKEN_NONE;
    TW_TRY(tw_bpe_vocab_init(&tokenizer->vocab, count, bytes, err));
    TW_TRY(read_vocab(tokenizer, vocab, &alphabet, err));
    TW_TRY(read_merges(tokenizer, vocab, json_object_get(model, "merges"), err));
    const char *const unknown = tw_hf_word(model, "unk_token");
    if (unknown[0] != 0) {
        tokenizer->unknown = id_of(json_object_get(vocab, unknown));
        /* If every byte has a token, the unknown token is never needed. */
        if (tokenizer->unknown == TW_TOKEN_NONE && !tokenizer->is_exact) {
            return tw_fail(err, TW_CORRUPT, "model.unk_token is not in the vocabulary");
        }
    }
    tokenizer->is_unknown_fused = tw_hf_flag(model, "fuse_unk", false);
    tokenizer->has_whole_words = tw_hf_flag(model, "ignore_merges", false);
    return TW_OK;
}

/* ---- reads the stages of a tokenizer.json before and after its model ------------------------- */

/* GPT-2's pattern, which ByteLevel uses unless use_regex is false. */
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Patterns of Llama 3 and Qwen 2, which differ only in the number of digits per piece. */
#define LLAMA3_PATTERN(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static bool is_type(const json_t *part, const char *type) {
    return strcmp(tw_hf_word(part, "type"), type) == 0;
}

/* ---- normalizer ------------------------------------------------------------------------------ */

static enum tw_status read_normalizer(struct tw_tokenizer *tokenizer, const json_t *part,
                                      struct tw_error *err) {
    static const char *const SUPPORTED = "none and NFC are";
    if (part == NULL) return TW_OK;
    if (is_type(part, "Sequence")) {
        const json_t *const list = json_object_get(part, "normalizers");
        if (json_is_array(list) && json_array_size(list) == 0) return TW_OK;
        if (json_array_size(list) == 1) part = json_array_get(list, 0);
    }
    if (!is_type(part, "NFC")) return refuse(err, "normalizer", part, SUPPORTED);
    tokenizer->nfc = tw_bpe_nfc_table();
    tokenizer->is_exact = false;
    return TW_OK;
}

/* ---- pre-tokenizer --------------------------------------------------------------------------- */

static enum tw_status add_step(struct tw_tokenizer *tokenizer, const char *regex,
                               bool is_rest_dropped, struct tw_error *err) {
    if (tokenizer->steps_count == TW_TOKENIZER_STEPS_MAX) {
        return tw_fail(err, TW_CONFIG, "pre_tokenizer: more than %d steps are not supported",
                       TW_TOKENIZER_STEPS_MAX);
    }
    struct tw_split_step *const step = &tokenizer->steps[tokenizer->steps_count];
    TW_TRY(tw_bpe_pattern_compile(&step->pattern, regex, err));
    step->is_rest_dropped = is_rest_dropped;
    if (is_rest_dropped) tokenizer->is_exact = false;
    tokenizer->steps_count++;
    return TW_OK;
}

static enum tw_status read_split(struct tw_tokenizer *tokenizer, const json_t *part,
                                 struct tw_error *err) {
    const json_t *const pattern = json_object_get(part, "pattern");
    const char *const regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *const literal = json_string_value(json_object_get(pattern, "String"));
    const char *const behavior = tw_hf_word(part, "behavior");
    const bool is_inverted = tw_hf_flag(part, "invert", false);
    const bool is_removed = strcmp(behavior, "Removed") == 0;
    if (strcmp(behavior, "Isolated") != 0 && !(is_removed && is_inverted)) {
        return refuse(err, "Split.behavior", json_object_get(part, "behavior"),
                      "Isolated is, and Removed with invert");
    }
    if (regex != NULL) return add_step(tokenizer, regex, is_removed, err);
    char quoted[4096];
    const size_t size =
        literal != NULL ? tw_bpe_pattern_quote(literal, quoted, sizeof(quoted) - 1) : 0;
    if (size == 0) {
        return refuse(err, "Split.pattern", pattern,
                      "{\"Regex\": ...} and a short {\"String\": ...} are");
    }
    quoted[size] = 0;
    return add_step(tokenizer, quoted, is_removed, err);
}

static enum tw_status read_byte_level(struct tw_tokenizer *tokenizer, const json_t *part,
                                      struct tw_error *err) {
    if (tw_hf_flag(part, "add_prefix_space", true)) {
        tokenizer->prefix_step = tokenizer->steps_count;
        tokenizer->is_exact = false;
    }
    if (!tw_hf_flag(part, "use_regex", true)) return TW_OK;
    return add_step(tokenizer, GPT2_PATTERN, false, err);
}

static enum tw_status read_step(struct tw_tokenizer *tokenizer, const json_t *part, bool is_last,
                                struct tw_error *err) {
    static const char *const SUPPORTED =
        "ByteLevel is, as the last step, and Split and Digits before it";
    if (is_last && is_type(part, "ByteLevel")) return read_byte_level(tokenizer, part, err);
    if (!is_last && is_type(part, "Split")) return read_split(tokenizer, part, err);
    if (!is_last && is_type(part, "Digits")) {
        const bool is_each = tw_hf_flag(part, "individual_digits", false);
        return add_step(tokenizer, is_each ? "\\p{N}" : "\\p{N}+", false, err);
    }
    return refuse(err, "pre_tokenizer", part, SUPPORTED);
}

/* Implements tw_tokenizer_split_name. A name of llama.cpp also implies whether a word that is
 * itself a token is merged. */
static const char *split_name(const struct tw_tokenizer *tokenizer, const json_t *part) {
    const json_t *const list = json_object_get(part, "pretokenizers");
    const size_t count = json_array_size(list);
    const json_t *const first = count == 2 ? json_array_get(list, 0) : NULL;
    const json_t *const last = count == 0 ? part : json_array_get(list, count - 1);
    const bool has_regex = tw_hf_flag(last, "use_regex", true);
    const bool is_whole = tokenizer->has_whole_words;
    if (tokenizer->prefix_step != UINT32_MAX || count > 2) return NULL;
    if (first == NULL) return count < 2 && has_regex && !is_whole ? "gpt-2" : NULL;
    if (is_type(first, "Digits")) {
        const bool is_each = tw_hf_flag(first, "individual_digits", false);
        return is_each && has_regex && !is_whole ? "smollm" : NULL;
    }
    const json_t *const pattern = json_object_get(first, "pattern");
    const char *const regex = json_string_value(json_object_get(pattern, "Regex"));
    if (regex == NULL || has_regex || strcmp(tw_hf_word(first, "behavior"), "Isolated") != 0)
        return NULL;
    if (is_whole && strcmp(regex, LLAMA3_PATTERN("\\p{N}{1,3}")) == 0) return "llama-bpe";
    return !is_whole && strcmp(regex, LLAMA3_PATTERN("\\p{N}")) == 0 ? "qwen2" : NULL;
}

static enum tw_status read_pre_tokenizer(struct tw_tokenizer *tokenizer, const json_t *part,
                                         struct tw_error *err) {
    if (!is_type(part, "Sequence")) return read_step(tokenizer, part, true, err);
    const json_t *const list = json_object_get(part, "pretokenizers");
    const size_t count = json_array_size(list);
    if (count == 0) return refuse(err, "pre_tokenizer", part, "ByteLevel is");
    for (size_t i = 0; i < count; i++) {
        TW_TRY(read_step(tokenizer, json_array_get(list, i), i + 1 == count, err));
    }
    return TW_OK;
}

/* ---- post-processor and decoder -------------------------------------------------------------- */

/* Reads an item such as {"SpecialToken": {"id": "<s>"}}: adds special_tokens["<s>"].ids to the
 * template. */
static enum tw_status read_template_item(struct tw_tokenizer *tokenizer, const json_t *part,
                                         const json_t *item, bool is_after, struct tw_error *err) {
    const char *const name = tw_hf_word(json_object_get(item, "SpecialToken"), "id");
    const json_t *const specials = json_object_get(part, "special_tokens");
    const json_t *const ids = json_object_get(json_object_get(specials, name), "ids");
    uint32_t *const to = is_after ? tokenizer->after : tokenizer->before;
    uint32_t *const count = is_after ? &tokenizer->after_count : &tokenizer->before_count;
    json_t *id;
    size_t index;
    if (json_array_size(ids) == 0) {
        return refuse(err, "TemplateProcessing", item, "special tokens and one sequence A are");
    }
    json_array_foreach(ids, index, id) {
        const json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || number >= tokenizer->vocab.count || *count == TW_TOKENIZER_TEMPLATE_MAX) {
            return tw_fail(err, TW_CORRUPT,
                           "TemplateProcessing: token %lld of %u, of which at most %d are taken",
                           (long long)number, tokenizer->vocab.count, TW_TOKENIZER_TEMPLATE_MAX);
        }
        to[(*count)++] = (uint32_t)number;
    }
    return TW_OK;
}

static enum tw_status read_template(struct tw_tokenizer *tokenizer, const json_t *part,
                                    struct tw_error *err) {
    const json_t *const list = json_object_get(part, "single");
    bool is_after = false;
    json_t *item;
    size_t index;
    json_array_foreach(list, index, item) {
        const json_t *const sequence = json_object_get(item, "Sequence");
        if (sequence == NULL) {
            TW_TRY(read_template_item(tokenizer, part, item, is_after, err));
        } else if (is_after || strcmp(tw_hf_word(sequence, "id"), "A") != 0) {
            return refuse(err, "TemplateProcessing", item, "one sequence A is");
        } else {
            is_after = true;
        }
    }
    if (is_after) return TW_OK;
    return refuse(err, "TemplateProcessing", list, "a list with one sequence A is");
}

static enum tw_status read_post_processor(struct tw_tokenizer *tokenizer, const json_t *part,
                                          struct tw_error *err) {
    static const char *const SUPPORTED = "none, ByteLevel and one TemplateProcessing are";
    const bool is_sequence = is_type(part, "Sequence");
    const json_t *const list = json_object_get(part, "processors");
    const size_t count = is_sequence ? json_array_size(list) : part != NULL;
    bool has_template = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *const one = is_sequence ? json_array_get(list, i) : part;
        /* ByteLevel only changes offsets, which are unused here */
        if (is_type(one, "ByteLevel")) continue;
        if (!is_type(one, "TemplateProcessing") || has_template) {
            return refuse(err, "post_processor", one, SUPPORTED);
        }
        TW_TRY(read_template(tokenizer, one, err));
        has_template = true;
    }
    return TW_OK;
}

static enum tw_status check_decoder(const json_t *part, struct tw_error *err) {
    const json_t *const list = json_object_get(part, "decoders");
    if (is_type(part, "Sequence") && json_array_size(list) == 1) part = json_array_get(list, 0);
    if (part == NULL || is_type(part, "ByteLevel")) return TW_OK;
    return refuse(err, "decoder", part, "ByteLevel is");
}

/* Reads normalizer, pre-tokenizer, post-processor and decoder. Call after the model is read. */
static enum tw_status read_steps(struct tw_tokenizer *tokenizer, const json_t *root,
                                 struct tw_error *err) {
    TW_TRY(read_normalizer(tokenizer, part_of(root, "normalizer"), err));
    TW_TRY(read_pre_tokenizer(tokenizer, part_of(root, "pre_tokenizer"), err));
    tokenizer->split_name = split_name(tokenizer, part_of(root, "pre_tokenizer"));
    TW_TRY(read_post_processor(tokenizer, part_of(root, "post_processor"), err));
    return check_decoder(part_of(root, "decoder"), err);
}

/* ---- reads the added tokens of a tokenizer.json ---------------------------------------------- */

/* A word character as other tokenizers define it: \w of UTS #18. */
#define WORD_CHARACTER "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"

/* Sets the text of an id. If the id is also a token of the model, merges still use the model's
 * bytes, but decoding uses the text. The two can differ: in a model's vocabulary, "é" is byte
 * E9. */
static enum tw_status set_token(struct tw_tokenizer *tokenizer, uint32_t id, const char *text,
                                bool is_special, struct tw_error *err) {
    struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    struct tw_bpe_token *const held = &vocab->tokens[id];
    const size_t size = strlen(text);
    const unsigned flags = TW_BPE_TOKEN_ADDED | (is_special ? TW_BPE_TOKEN_SPECIAL : 0u);
    if ((held->flags & TW_BPE_TOKEN_ADDED) != 0) {
        return tw_fail(err, TW_CORRUPT, "added_tokens: two tokens have the id %u", id);
    }
    if ((held->flags & TW_BPE_TOKEN_SET) != 0 && held->bytes == size &&
        memcmp(vocab->arena + held->offset, text, size) == 0) {
        held->flags = (uint16_t)(held->flags | flags);
        return TW_OK;
    }
    if ((held->flags & TW_BPE_TOKEN_SET) != 0) tokenizer->is_exact = false;
    return tw_bpe_vocab_set(vocab, id, (const uint8_t *)text, size,
                            (enum tw_bpe_token_flags)(flags | TW_BPE_TOKEN_SET), err);
}

static enum tw_status check_normal(const struct tw_tokenizer *tokenizer, const char *text,
                                   struct tw_error *err) {
    struct tw_bpe_piece piece = {(const uint8_t *)text, strlen(text)};
    if (tokenizer->nfc == NULL) return TW_OK;
    struct tw_bpe_nfc_buffer *const buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL) return tw_fail(err, TW_NOMEM, "no memory to normalise");
    enum tw_status status = tw_bpe_nfc_apply(tokenizer->nfc, buffer, &piece, err);
    if (status == TW_OK && piece.text != (const uint8_t *)text &&
        (piece.bytes != strlen(text) || memcmp(piece.text, text, piece.bytes) != 0)) {
        status =
            tw_fail(err, TW_CONFIG,
                    "added_tokens: %.40s is normalized but not in form NFC: write it in NFC", text);
    }
    tw_bpe_nfc_buffer_deinit(buffer);
    free(buffer);
    return status;
}

static enum tw_status read_one(struct tw_tokenizer *tokenizer, const json_t *token,
                               const json_t *vocab, struct tw_error *err) {
    const char *const text = tw_hf_word(token, "content");
    const uint32_t id = (uint32_t)json_integer_value(json_object_get(token, "id"));
    const json_t *const known = json_object_get(vocab, text);
    const bool is_special = tw_hf_flag(token, "special", false);
    const bool is_normalized = tw_hf_flag(token, "normalized", !is_special);
    if (text[0] == 0) return TW_OK; /* would never match */
    if (known != NULL && (uint32_t)json_integer_value(known) != id) {
        return tw_fail(err, TW_CORRUPT,
                       "added_tokens: %.40s has the id %u here and %lld in the vocabulary", text,
                       id, (long long)json_integer_value(known));
    }
    TW_TRY(set_token(tokenizer, id, text, is_special, err));
    if (is_normalized) TW_TRY(check_normal(tokenizer, text, err));
    struct tw_bpe_added *const added = &tokenizer->added[is_normalized];
    const struct tw_bpe_token *const held = &tokenizer->vocab.tokens[id];
    struct tw_bpe_added_token *const one = &added->tokens[added->count++];
    *one = (struct tw_bpe_added_token){
        .text = tokenizer->vocab.arena + held->offset,
        .bytes = held->bytes,
        .token = id,
        .is_special = is_special,
        .is_single_word = tw_hf_flag(token, "single_word", false),
        .is_left_strip = tw_hf_flag(token, "lstrip", false),
        .is_right_strip = tw_hf_flag(token, "rstrip", false),
    };
    if (one->is_left_strip || one->is_right_strip) tokenizer->is_exact = false;
    if (one->is_single_word && tokenizer->word.code == NULL) {
        return tw_bpe_pattern_compile_own(&tokenizer->word, WORD_CHARACTER, err);
    }
    return TW_OK;
}

static enum tw_status check_once(const struct tw_bpe_added *added, struct tw_error *err) {
    for (size_t i = 1; i < added->count; i++) {
        const struct tw_bpe_added_token *const a = &added->tokens[i - 1], *const b = a + 1;
        if (a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0) {
            return tw_fail(err, TW_CORRUPT, "added_tokens: %.*s is there twice",
                           (int)(a->bytes < 40 ? a->bytes : 40), (const char *)a->text);
        }
    }
    return TW_OK;
}

/* Reads added tokens. Call after the model and the normalizer are read. */
static enum tw_status read_added(struct tw_tokenizer *tokenizer, const json_t *root,
                                 struct tw_error *err) {
    const json_t *const list = part_of(root, "added_tokens");
    const json_t *const vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const size_t count = json_array_size(list);
    json_t *token;
    size_t index;
    if ((list != NULL && !json_is_array(list)) || count > TW_BPE_ADDED_MAX) {
        return tw_fail(err, TW_CONFIG, "added_tokens: a list of at most %d is supported",
                       TW_BPE_ADDED_MAX);
    }
    for (size_t set = 0; set < 2; set++) {
        struct tw_bpe_added *const added = &tokenizer->added[set];
        added->tokens = calloc(count > 0 ? count : 1, sizeof(*added->tokens));
        if (added->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for added tokens");
    }
    json_array_foreach(list, index, token) TW_TRY(read_one(tokenizer, token, vocab, err));
    for (size_t set = 0; set < 2; set++) {
        tw_bpe_added_index(&tokenizer->added[set]);
        TW_TRY(check_once(&tokenizer->added[set], err));
    }
    return TW_OK;
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
    status = read_model(tokenizer, root, err);
    if (status == TW_OK) status = read_steps(tokenizer, root, err);
    if (status == TW_OK) status = read_added(tokenizer, root, err);
    if (status == TW_OK) status = tw_bpe_vocab_index(&tokenizer->vocab, err);
    json_decref(root);
    if (status == TW_OK) name_ends(tokenizer);
    return status;
}
