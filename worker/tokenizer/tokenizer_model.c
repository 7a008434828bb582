/* tokenizer_model.c - reads the model of a tokenizer.json: vocabulary and merges. Both spell tokens
 * in characters that stand for bytes. */
#include <string.h>

#include "worker/support/utf8.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_json.h"

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

/* ---- requirements on the model ----------------------------------------------------------------
 */

static enum tw_status check_model(const json_t *model, struct tw_error *err) {
    static const char *const BPE = "byte-level BPE is";
    const char *const type = tw_tokenizer_word(model, "type");
    if (!json_is_object(model)) return tw_fail(err, TW_CORRUPT, "it has no \"model\": { ... }");
    if (strcmp(type, "BPE") != 0 && (type[0] != 0 || json_object_get(model, "merges") == NULL)) {
        return tw_tokenizer_refuse(err, "model.type", json_object_get(model, "type"), BPE);
    }
    if (tw_tokenizer_flag(model, "byte_fallback", false)) {
        return tw_fail(err, TW_CONFIG, "model.byte_fallback is not supported: %s", BPE);
    }
    const json_t *const dropout = tw_tokenizer_part(model, "dropout");
    if (dropout != NULL && !(json_number_value(dropout) == 0.0 && json_is_number(dropout))) {
        return tw_tokenizer_refuse(err, "model.dropout", dropout, "none is");
    }
    static const char *const AFFIXES[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *const affix = tw_tokenizer_part(model, AFFIXES[i]);
        if (affix != NULL && (!json_is_string(affix) || json_string_length(affix) > 0)) {
            return tw_tokenizer_refuse(err, AFFIXES[i], affix, "none is");
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
            return tw_tokenizer_refuse(err, "a token's number", value, "0 to 1048575 are");
        }
        if (id >= count) count = id + 1;
        bytes += strlen(text);
    }
    json_array_foreach(added, index, value) {
        const uint32_t id = id_of(json_object_get(value, "id"));
        if (id == TW_TOKEN_NONE) {
            return tw_tokenizer_refuse(err, "an added token's number", json_object_get(value, "id"),
                                       "0 to 1048575 are");
        }
        if (id >= count) count = id + 1;
        bytes += strlen(tw_tokenizer_word(value, "content"));
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
        return tw_tokenizer_refuse(err, "model.merges", json_is_array(merges) ? NULL : merges,
                                   "a list of at most 2097152 is");
    }
    TW_TRY(tw_bpe_init(&tokenizer->bpe, count, err));
    for (size_t i = 0; i < count; i++) {
        TW_TRY(read_merge(tokenizer, vocab, json_array_get(merges, i), (uint32_t)i, err));
    }
    return TW_OK;
}

/* ---- entry point -------------------------------------------------------------------------------
 */

enum tw_status tw_tokenizer_read_model(struct tw_tokenizer *tokenizer, const json_t *root,
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
    const char *const unknown = tw_tokenizer_word(model, "unk_token");
    if (unknown[0] != 0) {
        tokenizer->unknown = id_of(json_object_get(vocab, unknown));
        /* If every byte has a token, the unknown token is never needed. */
        if (tokenizer->unknown == TW_TOKEN_NONE && !tokenizer->is_exact) {
            return tw_fail(err, TW_CORRUPT, "model.unk_token is not in the vocabulary");
        }
    }
    tokenizer->is_unknown_fused = tw_tokenizer_flag(model, "fuse_unk", false);
    tokenizer->has_whole_words = tw_tokenizer_flag(model, "ignore_merges", false);
    return TW_OK;
}
