/* tokenizer_steps.c - reads the stages of a tokenizer.json before and after its model. */
#include <stdlib.h>
#include <string.h>

#include "worker/tokenizer/tokenizer_json.h"

/* GPT-2's pattern, which ByteLevel uses unless use_regex is false. */
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Patterns of Llama 3 and Qwen 2, which differ only in the number of digits per piece. */
#define LLAMA3_PATTERN(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static bool is_type(const json_t *part, const char *type) {
    return strcmp(tw_tokenizer_word(part, "type"), type) == 0;
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
    if (!is_type(part, "NFC")) return tw_tokenizer_refuse(err, "normalizer", part, SUPPORTED);
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
    const char *const behavior = tw_tokenizer_word(part, "behavior");
    const bool is_inverted = tw_tokenizer_flag(part, "invert", false);
    const bool is_removed = strcmp(behavior, "Removed") == 0;
    if (strcmp(behavior, "Isolated") != 0 && !(is_removed && is_inverted)) {
        return tw_tokenizer_refuse(err, "Split.behavior", json_object_get(part, "behavior"),
                                   "Isolated is, and Removed with invert");
    }
    if (regex != NULL) return add_step(tokenizer, regex, is_removed, err);
    char quoted[4096];
    const size_t size =
        literal != NULL ? tw_bpe_pattern_quote(literal, quoted, sizeof(quoted) - 1) : 0;
    if (size == 0) {
        return tw_tokenizer_refuse(err, "Split.pattern", pattern,
                                   "{\"Regex\": ...} and a short {\"String\": ...} are");
    }
    quoted[size] = 0;
    return add_step(tokenizer, quoted, is_removed, err);
}

static enum tw_status read_byte_level(struct tw_tokenizer *tokenizer, const json_t *part,
                                      struct tw_error *err) {
    if (tw_tokenizer_flag(part, "add_prefix_space", true)) {
        tokenizer->prefix_step = tokenizer->steps_count;
        tokenizer->is_exact = false;
    }
    if (!tw_tokenizer_flag(part, "use_regex", true)) return TW_OK;
    return add_step(tokenizer, GPT2_PATTERN, false, err);
}

static enum tw_status read_step(struct tw_tokenizer *tokenizer, const json_t *part, bool is_last,
                                struct tw_error *err) {
    static const char *const SUPPORTED =
        "ByteLevel is, as the last step, and Split and Digits before it";
    if (is_last && is_type(part, "ByteLevel")) return read_byte_level(tokenizer, part, err);
    if (!is_last && is_type(part, "Split")) return read_split(tokenizer, part, err);
    if (!is_last && is_type(part, "Digits")) {
        const bool is_each = tw_tokenizer_flag(part, "individual_digits", false);
        return add_step(tokenizer, is_each ? "\\p{N}" : "\\p{N}+", false, err);
    }
    return tw_tokenizer_refuse(err, "pre_tokenizer", part, SUPPORTED);
}

/* Implements tw_tokenizer_split_name. A name of llama.cpp also implies whether a word that is
 * itself a token is merged. */
static const char *split_name(const struct tw_tokenizer *tokenizer, const json_t *part) {
    const json_t *const list = json_object_get(part, "pretokenizers");
    const size_t count = json_array_size(list);
    const json_t *const first = count == 2 ? json_array_get(list, 0) : NULL;
    const json_t *const last = count == 0 ? part : json_array_get(list, count - 1);
    const bool has_regex = tw_tokenizer_flag(last, "use_regex", true);
    const bool is_whole = tokenizer->has_whole_words;
    if (tokenizer->prefix_step != UINT32_MAX || count > 2) return NULL;
    if (first == NULL) return count < 2 && has_regex && !is_whole ? "gpt-2" : NULL;
    if (is_type(first, "Digits")) {
        const bool is_each = tw_tokenizer_flag(first, "individual_digits", false);
        return is_each && has_regex && !is_whole ? "smollm" : NULL;
    }
    const json_t *const pattern = json_object_get(first, "pattern");
    const char *const regex = json_string_value(json_object_get(pattern, "Regex"));
    if (regex == NULL || has_regex || strcmp(tw_tokenizer_word(first, "behavior"), "Isolated") != 0)
        return NULL;
    if (is_whole && strcmp(regex, LLAMA3_PATTERN("\\p{N}{1,3}")) == 0) return "llama-bpe";
    return !is_whole && strcmp(regex, LLAMA3_PATTERN("\\p{N}")) == 0 ? "qwen2" : NULL;
}

static enum tw_status read_pre_tokenizer(struct tw_tokenizer *tokenizer, const json_t *part,
                                         struct tw_error *err) {
    if (!is_type(part, "Sequence")) return read_step(tokenizer, part, true, err);
    const json_t *const list = json_object_get(part, "pretokenizers");
    const size_t count = json_array_size(list);
    if (count == 0) return tw_tokenizer_refuse(err, "pre_tokenizer", part, "ByteLevel is");
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
    const char *const name = tw_tokenizer_word(json_object_get(item, "SpecialToken"), "id");
    const json_t *const specials = json_object_get(part, "special_tokens");
    const json_t *const ids = json_object_get(json_object_get(specials, name), "ids");
    uint32_t *const to = is_after ? tokenizer->after : tokenizer->before;
    uint32_t *const count = is_after ? &tokenizer->after_count : &tokenizer->before_count;
    json_t *id;
    size_t index;
    if (json_array_size(ids) == 0) {
        return tw_tokenizer_refuse(err, "TemplateProcessing", item,
                                   "special tokens and one sequence A are");
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
        } else if (is_after || strcmp(tw_tokenizer_word(sequence, "id"), "A") != 0) {
            return tw_tokenizer_refuse(err, "TemplateProcessing", item, "one sequence A is");
        } else {
            is_after = true;
        }
    }
    if (is_after) return TW_OK;
    return tw_tokenizer_refuse(err, "TemplateProcessing", list, "a list with one sequence A is");
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
            return tw_tokenizer_refuse(err, "post_processor", one, SUPPORTED);
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
    return tw_tokenizer_refuse(err, "decoder", part, "ByteLevel is");
}

enum tw_status tw_tokenizer_read_steps(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err) {
    TW_TRY(read_normalizer(tokenizer, tw_tokenizer_part(root, "normalizer"), err));
    TW_TRY(read_pre_tokenizer(tokenizer, tw_tokenizer_part(root, "pre_tokenizer"), err));
    tokenizer->split_name = split_name(tokenizer, tw_tokenizer_part(root, "pre_tokenizer"));
    TW_TRY(read_post_processor(tokenizer, tw_tokenizer_part(root, "post_processor"), err));
    return check_decoder(tw_tokenizer_part(root, "decoder"), err);
}
