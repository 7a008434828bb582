#include "worker/files/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "proto/run/model_config.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_text.h"

enum { TW_GGUF_NAME_BYTES = 64 }; /* length of a key or tensor name, including NUL */

/* ---- keys and values ------------------------------------------------------------------------- */

void tw_gguf_head_deinit(struct tw_gguf_head *head) {
    free(head->bytes);
    *head = (struct tw_gguf_head){.architecture = head->architecture};
}

/* These append raw values: array elements, and data outside key-value pairs. */
static void gguf_put(struct tw_gguf_head *head, const void *bytes, size_t size) {
    if (head->is_out_of_memory || size == 0) return;
    if (size > head->capacity - head->size) {
        const size_t capacity = 2 * head->capacity + size + 4096;
        uint8_t *const grown = realloc(head->bytes, capacity);
        if (grown == NULL) {
            head->is_out_of_memory = true;
            return;
        }
        head->bytes = grown;
        head->capacity = capacity;
    }
    memcpy(head->bytes + head->size, bytes, size);
    head->size += size;
}

static void put_u32(struct tw_gguf_head *head, uint32_t value) {
    uint8_t bytes[4];
    tw_put_u32(bytes, value);
    gguf_put(head, bytes, sizeof(bytes));
}

static void put_u64(struct tw_gguf_head *head, uint64_t value) {
    uint8_t bytes[8];
    tw_put_u64(bytes, value);
    gguf_put(head, bytes, sizeof(bytes));
}

static void put_text(struct tw_gguf_head *head, const char *text, size_t size) {
    put_u64(head, size);
    gguf_put(head, text, size);
}

static void put_string(struct tw_gguf_head *head, const char *text) {
    put_text(head, text, strlen(text));
}

static void put_key(struct tw_gguf_head *head, const char *key, enum tw_gguf_type type) {
    char name[TW_GGUF_NAME_BYTES];
    const char *const at = strstr(key, "%s");
    if (at == NULL) {
        (void)snprintf(name, sizeof(name), "%s", key);
    } else {
        (void)snprintf(name, sizeof(name), "%s%s", head->architecture, at + 2);
    }
    put_string(head, name);
    put_u32(head, type);
    head->pairs_count++;
}

/* These append a key with its value. */
static void pair_u32(struct tw_gguf_head *head, const char *key, uint32_t value) {
    put_key(head, key, TW_GGUF_U32);
    put_u32(head, value);
}

static void pair_f32(struct tw_gguf_head *head, const char *key, double value) {
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    put_key(head, key, TW_GGUF_F32);
    put_u32(head, bits);
}

static void pair_bool(struct tw_gguf_head *head, const char *key, bool value) {
    const uint8_t byte = value ? 1 : 0;
    put_key(head, key, TW_GGUF_BOOL);
    gguf_put(head, &byte, 1);
}

static void pair_string(struct tw_gguf_head *head, const char *key, const char *value) {
    put_key(head, key, TW_GGUF_STRING);
    put_string(head, value);
}

/* Begins an array; the caller must then append `count` values of `type`. */
static void pair_array(struct tw_gguf_head *head, const char *key, enum tw_gguf_type type,
                       uint64_t count) {
    put_key(head, key, TW_GGUF_ARRAY);
    put_u32(head, type);
    put_u64(head, count);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

enum { GGUF_NORMAL = 1, GGUF_CONTROL = 3, GGUF_USER = 4, GGUF_UNUSED = 5 };

static void put_bytes_tokenizer(struct tw_gguf_head *head) {
    pair_string(head, "tokenizer.ggml.model", "gpt2");
    pair_string(head, "tokenizer.ggml.pre", "gpt-2");
    pair_array(head, "tokenizer.ggml.tokens", TW_GGUF_STRING, 256);
    for (unsigned byte = 0; byte < 256; byte++) {
        char token[TW_BYTE_TOKEN_BYTES];
        (void)tw_byte_token((uint8_t)byte, token);
        put_string(head, token);
    }
    pair_array(head, "tokenizer.ggml.token_type", TW_GGUF_I32, 256);
    for (unsigned byte = 0; byte < 256; byte++) put_u32(head, GGUF_NORMAL);
    pair_array(head, "tokenizer.ggml.merges", TW_GGUF_STRING, 0);
}

/* Spells a token as GGUF expects it: model tokens in GPT-2's characters for bytes, added tokens as
 * they appear in text. */
enum { SPELLED_BYTES = 2 * TW_TOKEN_BYTES_MAX };

static size_t spell_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                          char text[SPELLED_BYTES]) {
    size_t bytes, size = 0;
    const uint8_t *const from = tw_tokenizer_token(tokenizer, token, &bytes);
    if (tw_tokenizer_kind(tokenizer, token) != TW_TOKEN_NORMAL) {
        memcpy(text, from, bytes);
        return bytes;
    }
    for (size_t i = 0; i < bytes; i++) {
        char one[TW_BYTE_TOKEN_BYTES];
        const size_t length = tw_byte_token(from[i], one);
        memcpy(text + size, one, length);
        size += length;
    }
    return size;
}

static void put_tokens(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                       uint32_t vocab) {
    char text[SPELLED_BYTES];
    pair_array(head, "tokenizer.ggml.tokens", TW_GGUF_STRING, vocab);
    for (uint32_t token = 0; token < vocab; token++) {
        if (tw_tokenizer_kind(tokenizer, token) == TW_TOKEN_UNUSED) {
            (void)snprintf(text, sizeof(text), "[PAD%u]", token);
            put_string(head, text);
        } else {
            put_text(head, text, spell_token(tokenizer, token, text));
        }
    }
    pair_array(head, "tokenizer.ggml.token_type", TW_GGUF_I32, vocab);
    for (uint32_t token = 0; token < vocab; token++) {
        static const uint32_t TYPES[] = {[TW_TOKEN_UNUSED] = GGUF_UNUSED,
                                         [TW_TOKEN_NORMAL] = GGUF_NORMAL,
                                         [TW_TOKEN_CONTROL] = GGUF_CONTROL,
                                         [TW_TOKEN_USER] = GGUF_USER};
        put_u32(head, TYPES[tw_tokenizer_kind(tokenizer, token)]);
    }
}

static enum tw_status put_merges(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 struct tw_error *err) {
    const size_t count = tw_tokenizer_merges(tokenizer, NULL);
    struct tw_token_pair *const pairs = calloc(count > 0 ? count : 1, sizeof(*pairs));
    if (pairs == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu merges", count);
    (void)tw_tokenizer_merges(tokenizer, pairs);
    pair_array(head, "tokenizer.ggml.merges", TW_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        char text[2 * SPELLED_BYTES + 1];
        size_t size = spell_token(tokenizer, pairs[i].left, text);
        text[size++] = ' ';
        size += spell_token(tokenizer, pairs[i].right, text + size);
        put_text(head, text, size);
    }
    free(pairs);
    return TW_OK;
}

/* ---- the ends of a text ---------------------------------------------------------------------- */

/* llama.cpp stops at each of these tokens. If the file names no eos, llama.cpp assumes token 11,
 * which is a comma in GPT-2. */
static const char *const STOPS[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                    "tokenizer.ggml.eom_token_id"};

enum { STOPS_COUNT = sizeof(STOPS) / sizeof(STOPS[0]) };

/* `first`: the token that the template puts after a text, or TW_TOKEN_NONE. It is written as the
 * eos. */
static enum tw_status put_stops(struct tw_gguf_head *head, uint32_t first,
                                const struct tw_end_ids *ids, struct tw_error *err) {
    uint32_t count = 0;
    if (first != TW_TOKEN_NONE) pair_u32(head, STOPS[count++], first);
    for (uint32_t i = 0; i < ids->eos_count; i++) {
        if (ids->eos[i] == first) continue;
        if (count == STOPS_COUNT) {
            return tw_fail(err, TW_CONFIG,
                           "%u tokens end a text of this model, and GGUF has room for %d: name one "
                           "with --eos, or export with --format hf",
                           ids->eos_count, STOPS_COUNT);
        }
        pair_u32(head, STOPS[count++], ids->eos[i]);
    }
    if (count > 0) return TW_OK;
    return tw_fail(
        err, TW_CONFIG,
        "nothing says which token ends a text, and llama.cpp would take a comma: name it "
        "with --eos, as text or number");
}

/* If the model has no begin token, the end token of a previous text serves as one. */
static enum tw_status put_ends(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                               const struct tw_text_ends *ends, struct tw_error *err) {
    static const struct tw_end_ids ZERO = {
        .eos = {0}, .eos_count = 1, .bos = 0, .pad = TW_TOKEN_NONE};
    const struct tw_end_ids *const ids = ends != NULL ? &ends->generation : &ZERO;
    const bool has_bos = tokenizer != NULL && tw_tokenizer_puts_bos(tokenizer);
    const bool has_eos = tokenizer != NULL && tw_tokenizer_puts_eos(tokenizer);
    uint32_t bos = tokenizer != NULL ? tw_tokenizer_bos(tokenizer) : TW_TOKEN_NONE;
    TW_TRY(put_stops(head, has_eos ? tw_tokenizer_last(tokenizer) : TW_TOKEN_NONE, ids, err));
    if (bos == TW_TOKEN_NONE) bos = ids->bos != TW_TOKEN_NONE ? ids->bos : ids->eos[0];
    pair_u32(head, "tokenizer.ggml.bos_token_id", bos);
    if (ids->pad != TW_TOKEN_NONE) {
        pair_u32(head, "tokenizer.ggml.padding_token_id", ids->pad);
    }
    pair_bool(head, "tokenizer.ggml.add_bos_token", has_bos);
    pair_bool(head, "tokenizer.ggml.add_eos_token", has_eos);
    return TW_OK;
}

/* Refuses features that llama.cpp would silently ignore. */
static enum tw_status check_plain(const struct tw_tokenizer *tokenizer, struct tw_error *err) {
    const uint32_t strips = tw_tokenizer_strips(tokenizer);
    const uint32_t known =
        (tw_tokenizer_puts_bos(tokenizer) ? 1u : 0u) + (tw_tokenizer_puts_eos(tokenizer) ? 1u : 0u);
    if (tw_tokenizer_template_size(tokenizer) != known) {
        return tw_fail(
            err, TW_CONFIG,
            "the template of this tokenizer puts several tokens before or behind a text, "
            "and GGUF has room for one each: export with --format hf");
    }
    if (strips == TW_TOKEN_NONE) return TW_OK;
    size_t size;
    const uint8_t *const text = tw_tokenizer_token(tokenizer, strips, &size);
    return tw_fail(
        err, TW_CONFIG,
        "the added token %.*s of this tokenizer strips white space or matches whole words "
        "only (lstrip, rstrip, single_word), which GGUF cannot say: export with --format "
        "hf",
        (int)(size < 40 ? size : 40), (const char *)text);
}

enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, const struct tw_text_ends *ends,
                                 struct tw_error *err) {
    if (tokenizer == NULL) {
        put_bytes_tokenizer(head);
        return put_ends(head, NULL, ends, err);
    }
    const char *const split = tw_tokenizer_split_name(tokenizer);
    if (tw_tokenizer_vocab(tokenizer) > vocab) {
        return tw_fail(err, TW_CONFIG,
                       "the tokenizer has %u tokens and the model %u: it is not this model's",
                       tw_tokenizer_vocab(tokenizer), vocab);
    }
    if (split == NULL) {
        return tw_fail(
            err, TW_CONFIG,
            "GGUF has no name for how this tokenizer splits text (those of GPT-2, Llama "
            "3, Qwen 2 and SmolLM have one): export without --tokenizer, or --format hf");
    }
    TW_TRY(check_plain(tokenizer, err));
    pair_string(head, "tokenizer.ggml.model", "gpt2");
    pair_string(head, "tokenizer.ggml.pre", split);
    put_tokens(head, tokenizer, vocab);
    TW_TRY(put_merges(head, tokenizer, err));
    return put_ends(head, tokenizer, ends, err);
}

/* ---- file ------------------------------------------------------------------------------------ */

enum {
    ALIGN = 32, /* alignment of tensor data in bytes; the format's default */
    BLOCK_ELEMENTS = 1024 * 1024,
    COLUMNS_ELEMENTS = 16 * 1024 * 1024, /* number of elements read at a time for a transposition */
    MILLION = 1000000,
};

enum { GGML_F32 = 0, GGML_F16 = 1, GGML_BF16 = 30 }; /* tensor types of the format */

/* Order of a tensor's elements in GGUF. */
enum order { AS_IS, TRANSPOSED, ROTATED_PAIRS };

struct writer {
    const struct tw_model_feed *feed;
    enum tw_dtype dtype;
    struct tw_run_shape shape;
    const struct tw_tokenizer *tokenizer;
    const struct tw_text_ends *ends;
    const char *chat_template;
    struct tw_gguf_head head;
    float *block;   /* (BLOCK_ELEMENTS) */
    float *columns; /* columns of the tensor being transposed; NULL if no tensor needs it */
    uint32_t tensors_count;
    uint64_t data_bytes;
    struct tw_out_file file;
};

/* ---- the header ------------------------------------------------------------------------------ */

static enum tw_status put_tokenizer(struct writer *writer, struct tw_error *err) {
    const struct tw_run *const run = writer->feed->run;
    if (writer->tokenizer == NULL && run->data.tokenizer != TW_TOKENIZER_BYTES) {
        pair_string(&writer->head, "tokenizer.ggml.model", "none");
        return TW_OK;
    }
    if (writer->chat_template != NULL) {
        pair_string(&writer->head, "tokenizer.chat_template", writer->chat_template);
    }
    return tw_gguf_put_vocab(&writer->head, writer->tokenizer, run->model.vocab, writer->ends, err);
}

static enum tw_status put_pairs(struct writer *writer, struct tw_error *err) {
    struct tw_gguf_head *const head = &writer->head;
    const struct tw_run *const run = writer->feed->run;
    const double eps = run->model.norm_eps_millionths / 1e6;
    pair_string(head, "general.architecture", writer->head.architecture);
    pair_string(head, "general.type", "model");
    pair_string(head, "general.name", run->name);
    pair_u32(head, "general.file_type",
             writer->dtype == TW_DTYPE_F32   ? 0
             : writer->dtype == TW_DTYPE_F16 ? 1
                                             : 32);
    pair_u32(head, "%s.vocab_size", run->model.vocab);
    pair_u32(head, "%s.context_length", run->model.context);
    pair_u32(head, "%s.embedding_length", run->model.width);
    pair_u32(head, "%s.block_count", run->model.layers);
    pair_u32(head, "%s.feed_forward_length", writer->shape.ffn);
    pair_u32(head, "%s.attention.head_count", writer->shape.heads);
    if (run->model.family == TW_FAMILY_GPT2) {
        pair_f32(head, "%s.attention.layer_norm_epsilon", eps);
    } else {
        pair_u32(head, "%s.attention.head_count_kv", writer->shape.kv_heads);
        pair_f32(head, "%s.attention.layer_norm_rms_epsilon", eps);
        pair_u32(head, "%s.attention.key_length", writer->shape.head_size);
        pair_u32(head, "%s.attention.value_length", writer->shape.head_size);
        pair_u32(head, "%s.rope.dimension_count", writer->shape.head_size);
        pair_f32(head, "%s.rope.freq_base", run->model.rope_theta);
    }
    return put_tokenizer(writer, err);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const struct name {
    const char *ours, *theirs;
    enum order order; /* order of a matrix */
} NAMES[] = {
    {"model.embed_tokens.weight", "token_embd.weight", AS_IS},
    {"model.norm.weight", "output_norm.weight", AS_IS},
    {"wte.weight", "token_embd.weight", AS_IS},
    {"wpe.weight", "position_embd.weight", AS_IS},
    {"ln_f.weight", "output_norm.weight", AS_IS},
    {"ln_f.bias", "output_norm.bias", AS_IS},
    {"lm_head.weight", "output.weight", AS_IS},
};

/* Names of a layer's tensors: after "model.layers.N." or "h.N." in a layout, after "blk.N." in
 * GGUF. */
static const struct name LAYER_NAMES[] = {
    {"input_layernorm.weight", "attn_norm.weight", AS_IS},
    {"self_attn.q_proj.weight", "attn_q.weight", ROTATED_PAIRS},
    {"self_attn.k_proj.weight", "attn_k.weight", ROTATED_PAIRS},
    {"self_attn.v_proj.weight", "attn_v.weight", AS_IS},
    {"self_attn.q_proj.bias", "attn_q.bias", AS_IS},
    {"self_attn.k_proj.bias", "attn_k.bias", AS_IS},
    {"self_attn.v_proj.bias", "attn_v.bias", AS_IS},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", AS_IS},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", AS_IS},
    {"self_attn.o_proj.weight", "attn_output.weight", AS_IS},
    {"post_attention_layernorm.weight", "ffn_norm.weight", AS_IS},
    {"mlp.gate_proj.weight", "ffn_gate.weight", AS_IS},
    {"mlp.up_proj.weight", "ffn_up.weight", AS_IS},
    {"mlp.down_proj.weight", "ffn_down.weight", AS_IS},
    {"ln_1.weight", "attn_norm.weight", AS_IS},
    {"ln_1.bias", "attn_norm.bias", AS_IS},
    {"attn.c_attn.weight", "attn_qkv.weight", TRANSPOSED},
    {"attn.c_attn.bias", "attn_qkv.bias", AS_IS},
    {"attn.c_proj.weight", "attn_output.weight", TRANSPOSED},
    {"attn.c_proj.bias", "attn_output.bias", AS_IS},
    {"ln_2.weight", "ffn_norm.weight", AS_IS},
    {"ln_2.bias", "ffn_norm.bias", AS_IS},
    {"mlp.c_fc.weight", "ffn_up.weight", TRANSPOSED},
    {"mlp.c_fc.bias", "ffn_up.bias", AS_IS},
    {"mlp.c_proj.weight", "ffn_down.weight", TRANSPOSED},
    {"mlp.c_proj.bias", "ffn_down.bias", AS_IS},
};

static const struct name *look_up(const struct name *names, size_t count, const char *ours) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].ours, ours) == 0) return &names[i];
    }
    return NULL;
}

/* Sets name to the GGUF name of tensor `i`, and returns its order. The tables hold every name of
 * layout.c (asserted). */
static enum order name_of(const struct writer *writer, uint32_t i, char name[TW_GGUF_NAME_BYTES]) {
    static const char *const BELOW[] = {"model.layers.", "h."};
    const char *const ours = writer->feed->layout->tensors[i].name;
    const struct name *row = look_up(NAMES, sizeof(NAMES) / sizeof(NAMES[0]), ours);
    for (unsigned k = 0; k < 2; k++) {
        const size_t size = strlen(BELOW[k]);
        if (strncmp(ours, BELOW[k], size) != 0) continue;
        const char *const number = ours + size, *const rest = strchr(number, '.');
        TW_ASSERT(rest != NULL);
        row = look_up(LAYER_NAMES, sizeof(LAYER_NAMES) / sizeof(LAYER_NAMES[0]), rest + 1);
        TW_ASSERT(row != NULL);
        (void)snprintf(name, TW_GGUF_NAME_BYTES, "blk.%.*s.%s", (int)(rest - number), number,
                       row->theirs);
        const bool has_pairs = strcmp(writer->head.architecture, "llama") == 0;
        return row->order == ROTATED_PAIRS && !has_pairs ? AS_IS : row->order;
    }
    TW_ASSERT(row != NULL);
    (void)snprintf(name, TW_GGUF_NAME_BYTES, "%s", row->theirs);
    return row->order;
}

/* Vectors stay float32. So do GPT-2's positions, because they are added to activations. */
static enum tw_dtype dtype_of(const struct writer *writer, uint32_t i) {
    const struct tw_tensor *const tensor = &writer->feed->layout->tensors[i];
    const bool is_single = tensor->shape.rank == 1 || strcmp(tensor->name, "wpe.weight") == 0;
    return is_single ? TW_DTYPE_F32 : writer->dtype;
}

static uint64_t padded(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Appends a tensor's entry. rows = 0 means a vector. The innermost size comes first. */
static void put_tensor(struct writer *writer, const char *name, uint64_t cols, uint64_t rows,
                       enum tw_dtype dtype) {
    struct tw_gguf_head *const head = &writer->head;
    put_string(head, name);
    put_u32(head, rows == 0 ? 1 : 2);
    put_u64(head, cols);
    if (rows != 0) put_u64(head, rows);
    put_u32(head, dtype == TW_DTYPE_F32 ? GGML_F32 : dtype == TW_DTYPE_F16 ? GGML_F16 : GGML_BF16);
    put_u64(head, writer->data_bytes);
    writer->data_bytes += padded(cols * (rows == 0 ? 1 : rows) * tw_dtype_bytes(dtype));
    writer->tensors_count++;
}

static bool has_scaling(const struct writer *writer) {
    return writer->feed->run->model.family == TW_FAMILY_LLAMA &&
           writer->feed->run->model.rope_factor_millionths != MILLION;
}

static void put_tensors(struct writer *writer) {
    const struct tw_layout *const layout = writer->feed->layout;
    if (has_scaling(writer)) {
        put_tensor(writer, "rope_freqs.weight", writer->shape.head_size / 2, 0, TW_DTYPE_F32);
    }
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *const tensor = &layout->tensors[i];
        char name[TW_GGUF_NAME_BYTES];
        const enum order order = name_of(writer, i, name);
        if (tensor->shape.rank == 1) {
            put_tensor(writer, name, tensor->rows, 0, dtype_of(writer, i));
        } else if (order == TRANSPOSED) {
            put_tensor(writer, name, tensor->rows, tensor->cols, dtype_of(writer, i));
        } else {
            put_tensor(writer, name, tensor->cols, tensor->rows, dtype_of(writer, i));
        }
    }
}

static enum tw_status make_header(struct writer *writer, struct tw_error *err) {
    static const uint8_t ZEROS[ALIGN];
    struct tw_gguf_head *const head = &writer->head;
    gguf_put(head, "GGUF", 4);
    put_u32(head, 3);
    put_u64(head, 0); /* zeros, replaced below by the number of tensors, then of pairs */
    put_u64(head, 0);
    TW_TRY(put_pairs(writer, err));
    put_tensors(writer);
    gguf_put(head, ZEROS, (size_t)(padded(head->size) - head->size));
    if (head->is_out_of_memory) return tw_fail(err, TW_NOMEM, "no memory for a header");
    tw_put_u64(head->bytes + 8, writer->tensors_count);
    tw_put_u64(head->bytes + 16, head->pairs_count);
    return TW_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

static enum tw_status store_block(struct writer *writer, uint32_t i, uint64_t count,
                                  struct tw_error *err) {
    const enum tw_dtype dtype = dtype_of(writer, i);
    TW_TRY(tw_model_feed_store(writer->feed, i, dtype, writer->block, count, err));
    return tw_out_write(&writer->file, writer->block, count * tw_dtype_bytes(dtype), err);
}

static enum tw_status write_as_is(struct writer *writer, uint32_t i, struct tw_error *err) {
    const struct tw_tensor *const tensor = &writer->feed->layout->tensors[i];
    const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
    for (uint64_t at = 0; at < count; at += BLOCK_ELEMENTS) {
        const uint64_t n = count - at < BLOCK_ELEMENTS ? count - at : BLOCK_ELEMENTS;
        TW_TRY(tw_model_feed_read(writer->feed, i, at, n, writer->block, err));
        TW_TRY(store_block(writer, i, n, err));
    }
    return TW_OK;
}

/* Writes q or k with the rows of each head reordered: row 2 * j + t in GGUF is row t * (head_size /
 * 2) + j of the tensor. */
static enum tw_status write_rotated(struct writer *writer, uint32_t i, struct tw_error *err) {
    const struct tw_tensor *const tensor = &writer->feed->layout->tensors[i];
    const uint32_t size = writer->shape.head_size, cols = tensor->cols;
    const uint32_t rows_max = BLOCK_ELEMENTS / cols;
    TW_ASSERT(rows_max > 0 && tensor->rows % size == 0);
    uint32_t held = 0;
    for (uint32_t row = 0; row < tensor->rows; row++) {
        const uint32_t within = row % size;
        const uint32_t from = row - within + within % 2 * (size / 2) + within / 2;
        TW_TRY(tw_model_feed_read(writer->feed, i, (uint64_t)from * cols, cols,
                                  writer->block + (size_t)held * cols, err));
        if (++held == rows_max || row + 1 == tensor->rows) {
            TW_TRY(store_block(writer, i, (uint64_t)held * cols, err));
            held = 0;
        }
    }
    return TW_OK;
}

/* Writes `count` columns of the tensor, which are rows in GGUF, from writer->columns. */
static enum tw_status write_columns(struct writer *writer, uint32_t i, uint32_t count,
                                    struct tw_error *err) {
    const uint32_t rows = writer->feed->layout->tensors[i].rows;
    const uint32_t columns_max = BLOCK_ELEMENTS / rows;
    TW_ASSERT(columns_max > 0);
    uint32_t held = 0;
    for (uint32_t column = 0; column < count; column++) {
        float *const to = writer->block + (size_t)held * rows;
        for (uint32_t row = 0; row < rows; row++) {
            to[row] = writer->columns[(size_t)row * count + column];
        }
        if (++held == columns_max || column + 1 == count) {
            TW_TRY(store_block(writer, i, (uint64_t)held * rows, err));
            held = 0;
        }
    }
    return TW_OK;
}

static enum tw_status write_transposed(struct writer *writer, uint32_t i, struct tw_error *err) {
    const struct tw_tensor *const tensor = &writer->feed->layout->tensors[i];
    const uint32_t most = COLUMNS_ELEMENTS / tensor->rows;
    TW_ASSERT(most > 0);
    for (uint32_t first = 0; first < tensor->cols; first += most) {
        const uint32_t count = tensor->cols - first < most ? tensor->cols - first : most;
        for (uint32_t row = 0; row < tensor->rows; row++) {
            TW_TRY(tw_model_feed_read(writer->feed, i, (uint64_t)row * tensor->cols + first, count,
                                      writer->columns + (size_t)row * count, err));
        }
        TW_TRY(write_columns(writer, i, count, err));
    }
    return TW_OK;
}

/* Writes the divisors of the rotary frequencies. A frequency with fewer than `low` turns within the
 * original context is divided by the factor, one with more than `high` turns by 1. In between, the
 * reciprocal is interpolated linearly. */
static enum tw_status write_scaling(struct writer *writer, struct tw_error *err) {
    const struct tw_run *const run = writer->feed->run;
    const double factor = run->model.rope_factor_millionths / 1e6;
    const double low = run->model.rope_low_millionths / 1e6;
    const double high = run->model.rope_high_millionths / 1e6;
    const uint32_t size = writer->shape.head_size;
    for (uint32_t i = 0; i < size / 2; i++) {
        const double frequency = pow((double)run->model.rope_theta, -2.0 * i / size);
        const double turns = run->model.rope_original * frequency / (2 * acos(-1.0));
        const double smooth = fmin(fmax((turns - low) / (high - low), 0), 1);
        writer->block[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    return tw_out_write(&writer->file, writer->block, size / 2 * sizeof(float), err);
}

static enum tw_status pad_tensor(struct writer *writer, struct tw_error *err) {
    static const uint8_t ZEROS[ALIGN];
    return tw_out_write(&writer->file, ZEROS, (size_t)(padded(writer->file.at) - writer->file.at),
                        err);
}

static enum tw_status write_data(struct writer *writer, struct tw_error *err) {
    if (has_scaling(writer)) {
        TW_TRY(write_scaling(writer, err));
        TW_TRY(pad_tensor(writer, err));
    }
    for (uint32_t i = 0; i < writer->feed->layout->tensors_count; i++) {
        char name[TW_GGUF_NAME_BYTES];
        switch (name_of(writer, i, name)) {
        case AS_IS: TW_TRY(write_as_is(writer, i, err)); break;
        case TRANSPOSED: TW_TRY(write_transposed(writer, i, err)); break;
        case ROTATED_PAIRS: TW_TRY(write_rotated(writer, i, err)); break;
        }
        TW_TRY(pad_tensor(writer, err));
    }
    return TW_OK;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static enum tw_status start_writer(struct writer *writer, struct tw_error *err) {
    const struct tw_run *const run = writer->feed->run;
    struct tw_model_kind kind;
    TW_TRY(tw_model_kind(run, &kind, err));
    writer->head.architecture = kind.type;
    writer->shape = tw_run_shape(run);
    if (has_scaling(writer) && strcmp(kind.type, "llama") != 0) {
        return tw_fail(err, TW_CONFIG,
                       "model.rope_factor with model.qkv_bias or model.qk_norm: GGUF has scaled "
                       "frequencies for plain Llama only; --format hf can hold this model");
    }
    writer->block = malloc(BLOCK_ELEMENTS * sizeof(*writer->block));
    if (run->model.family == TW_FAMILY_GPT2) {
        uint64_t most = 0; /* elements of the largest matrix */
        for (uint32_t i = 0; i < writer->feed->layout->tensors_count; i++) {
            const struct tw_tensor *const tensor = &writer->feed->layout->tensors[i];
            const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
            if (count > most) most = count;
        }
        if (most > COLUMNS_ELEMENTS) most = COLUMNS_ELEMENTS;
        writer->columns = malloc(most * sizeof(*writer->columns));
    }
    if (writer->block == NULL || (writer->columns == NULL && run->model.family == TW_FAMILY_GPT2)) {
        return tw_fail(err, TW_NOMEM, "no memory for a block");
    }
    return make_header(writer, err);
}

enum tw_status tw_gguf_write(const char *path, const struct tw_model_feed *feed,
                             const struct tw_gguf_options *options, uint64_t *bytes_out,
                             struct tw_error *err) {
    const enum tw_dtype dtype = options->dtype;
    struct writer writer = {.feed = feed,
                            .dtype = dtype,
                            .tokenizer = options->tokenizer,
                            .ends = options->ends,
                            .chat_template = options->chat_template,
                            .file = {.fd = -1, .seen_fd = -1}};
    TW_ASSERT((int)dtype != TW_FEED_KEEP);
    TW_TRY(tw_out_is_free(path, err));
    enum tw_status status = start_writer(&writer, err);
    const uint64_t bytes = writer.head.size + writer.data_bytes;
    if (status == TW_OK) status = tw_out_open(&writer.file, path, bytes, err);
    if (status == TW_OK) {
        status = tw_out_write(&writer.file, writer.head.bytes, writer.head.size, err);
    }
    if (status == TW_OK) status = write_data(&writer, err);
    if (status == TW_OK) {
        TW_ASSERT(writer.file.at == bytes);
        if (bytes_out != NULL) *bytes_out = bytes;
        status = tw_out_commit(&writer.file, err);
    } else {
        tw_out_abort(&writer.file);
    }
    tw_gguf_head_deinit(&writer.head);
    free(writer.columns);
    free(writer.block);
    return status;
}
