/* Tests of worker/files/gguf_write.c: the vocabulary written matches the tokenizer.json it came
 * from. */
#include "worker/files/gguf_write.h"

#include <jansson.h>

#include "base/bytes.h"
#include "tests/test.h"

static const char *folder;
static struct tw_error err;

struct fixture {
    struct tw_tokenizer *tokenizer;
    json_t *json;
    struct tw_gguf_head head;
};

static void open_layout(struct fixture *f, const char *layout) {
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s.json", folder, layout);
    *f = (struct fixture){.json = json_load_file(path, 0, NULL)};
    assert_non_null(f->json);
    assert_int_equal(tw_tokenizer_create_file(&f->tokenizer, path, &err), TW_OK);
}

static void close_layout(struct fixture *f) {
    json_decref(f->json);
    tw_tokenizer_destroy(f->tokenizer);
    tw_gguf_head_deinit(&f->head);
}

/* Returns the start of a key's value. The key must exist. */
static const uint8_t *find(const struct tw_gguf_head *head, const char *key, uint32_t type) {
    const size_t length = strlen(key);
    for (size_t i = 0; i + 12 + length <= head->size; i++) {
        const uint8_t *const at = head->bytes + i;
        if (tw_get_u64(at) != length || memcmp(at + 8, key, length) != 0) continue;
        assert_int_equal(tw_get_u32(at + 8 + length), type);
        return at + 12 + length;
    }
    fail_msg("no %s", key);
    return NULL;
}

static void assert_text(const uint8_t **at, const char *text) {
    const size_t size = tw_get_u64(*at);
    if (size != strlen(text) || memcmp(*at + 8, text, size) != 0) {
        fail_msg("'%.*s' where '%s' should be", (int)size, (const char *)*at + 8, text);
    }
    *at += 8 + size;
}

static void assert_pair_text(const struct tw_gguf_head *head, const char *key, const char *text) {
    const uint8_t *at = find(head, key, TW_GGUF_STRING);
    assert_text(&at, text);
}

static const uint8_t *find_array(const struct tw_gguf_head *head, const char *key, uint32_t type,
                                 uint64_t count) {
    const uint8_t *const at = find(head, key, TW_GGUF_ARRAY);
    assert_int_equal(tw_get_u32(at), type);
    assert_int_equal(tw_get_u64(at + 4), count);
    return at + 12;
}

static void check_merges(const struct fixture *f) {
    const json_t *const merges = json_object_get(json_object_get(f->json, "model"), "merges");
    const uint8_t *at =
        find_array(&f->head, "tokenizer.ggml.merges", TW_GGUF_STRING, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *const merge = json_array_get(merges, i);
        char text[512];
        if (json_is_string(merge)) {
            (void)snprintf(text, sizeof(text), "%s", json_string_value(merge));
        } else {
            (void)snprintf(text, sizeof(text), "%s %s", json_string_value(json_array_get(merge, 0)),
                           json_string_value(json_array_get(merge, 1)));
        }
        assert_text(&at, text);
    }
}

/* Checks the name and kind of every token id against the JSON, where an added token overrides the
 * vocabulary. */
static void check_tokens(const struct fixture *f, uint32_t vocab) {
    static const char *names[4096];
    static uint32_t kinds[4096];
    char unused[16];
    const char *name;
    json_t *value;
    size_t i;
    assert_in_range(vocab, 1, 4096);
    for (i = 0; i < vocab; i++) names[i] = NULL;
    json_object_foreach(json_object_get(json_object_get(f->json, "model"), "vocab"), name, value) {
        names[json_integer_value(value)] = name;
        kinds[json_integer_value(value)] = 1;
    }
    json_array_foreach(json_object_get(f->json, "added_tokens"), i, value) {
        const json_int_t id = json_integer_value(json_object_get(value, "id"));
        names[id] = json_string_value(json_object_get(value, "content"));
        kinds[id] = json_is_true(json_object_get(value, "special")) ? 3 : 4;
    }
    const uint8_t *token = find_array(&f->head, "tokenizer.ggml.tokens", TW_GGUF_STRING, vocab);
    const uint8_t *kind = find_array(&f->head, "tokenizer.ggml.token_type", TW_GGUF_I32, vocab);
    for (i = 0; i < vocab; i++) {
        (void)snprintf(unused, sizeof(unused), "[PAD%zu]", i);
        assert_text(&token, names[i] != NULL ? names[i] : unused);
        assert_int_equal(tw_get_u32(kind + 4 * i), names[i] != NULL ? kinds[i] : 5);
    }
}

static struct tw_text_ends read_ends(const struct fixture *f, const char *eos) {
    struct tw_text_ends ends;
    const struct tw_text_ends_source source = {
        .tokenizer = f->tokenizer, .vocab = tw_tokenizer_vocab(f->tokenizer), .eos = eos};
    assert_int_equal(tw_text_ends_read(&ends, &source, &err), TW_OK);
    return ends;
}

static uint32_t id_of(const struct tw_gguf_head *head, const char *key) {
    return tw_get_u32(find(head, key, TW_GGUF_U32));
}

TEST(every_layout_is_written_as_its_json_says) {
    static const struct {
        const char *layout, *split;
        bool puts_bos;
    } layouts[] = {{"gpt2", "gpt-2", false},
                   {"llama3", "llama-bpe", true},
                   {"qwen2", "qwen2", false},
                   {"smollm", "smollm", false}};
    for (size_t i = 0; i < 4; i++) {
        struct fixture f;
        open_layout(&f, layouts[i].layout);
        const uint32_t vocab = tw_tokenizer_vocab(f.tokenizer) + 7;
        const struct tw_text_ends ends = read_ends(&f, NULL);
        assert_int_equal(tw_gguf_put_vocab(&f.head, f.tokenizer, vocab, &ends, &err), TW_OK);
        assert_pair_text(&f.head, "tokenizer.ggml.model", "gpt2");
        assert_pair_text(&f.head, "tokenizer.ggml.pre", layouts[i].split);
        check_tokens(&f, vocab);
        check_merges(&f);
        assert_int_equal(*find(&f.head, "tokenizer.ggml.add_bos_token", TW_GGUF_BOOL),
                         layouts[i].puts_bos);
        assert_int_equal(tw_get_u32(find(&f.head, "tokenizer.ggml.eos_token_id", TW_GGUF_U32)),
                         tw_tokenizer_eos(f.tokenizer));
        close_layout(&f);
    }
}

TEST(a_tokenizer_of_another_model_is_refused) {
    struct fixture f;
    open_layout(&f, "gpt2");
    assert_int_equal(
        tw_gguf_put_vocab(&f.head, f.tokenizer, tw_tokenizer_vocab(f.tokenizer) - 1, NULL, &err),
        TW_CONFIG);
    assert_non_null(strstr(err.message, "it is not this model's"));
    close_layout(&f);
}

TEST(a_split_without_a_name_is_refused) {
    struct fixture f;
    open_layout(&f, "flags");
    assert_int_equal(tw_gguf_put_vocab(&f.head, f.tokenizer, 4096, NULL, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "GGUF has no name"));
    close_layout(&f);
}

/* If a file names no end token, llama.cpp uses token 11, which is a comma in GPT-2. */
TEST(every_token_that_ends_a_text_is_named) {
    struct fixture f;
    open_layout(&f, "gpt2");
    struct tw_text_ends ends = read_ends(&f, "5");
    const uint32_t vocab = tw_tokenizer_vocab(f.tokenizer);
    ends.generation.eos[1] = 6;
    ends.generation.eos[2] = 7;
    ends.generation.eos_count = 3;
    ends.generation.pad = 8;
    assert_int_equal(tw_gguf_put_vocab(&f.head, f.tokenizer, vocab, &ends, &err), TW_OK);
    assert_int_equal(id_of(&f.head, "tokenizer.ggml.eos_token_id"), 5);
    assert_int_equal(id_of(&f.head, "tokenizer.ggml.eot_token_id"), 6);
    assert_int_equal(id_of(&f.head, "tokenizer.ggml.eom_token_id"), 7);
    assert_int_equal(id_of(&f.head, "tokenizer.ggml.padding_token_id"), 8);
    assert_int_equal(id_of(&f.head, "tokenizer.ggml.bos_token_id"), 5);
    ends.generation.eos[3] = 9;
    ends.generation.eos_count = 4;
    assert_int_equal(tw_gguf_put_vocab(&f.head, f.tokenizer, vocab, &ends, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "4 tokens end a text"));
    ends.generation.eos_count = 0;
    assert_int_equal(tw_gguf_put_vocab(&f.head, f.tokenizer, vocab, &ends, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "name it with --eos"));
    close_layout(&f);
}

TEST(without_a_tokenizer_it_is_that_of_bytes) {
    struct tw_gguf_head head = {0};
    assert_int_equal(tw_gguf_put_vocab(&head, NULL, 256, NULL, &err), TW_OK);
    const uint8_t *at = find_array(&head, "tokenizer.ggml.tokens", TW_GGUF_STRING, 256);
    assert_text(&at, "\xc4\x80"); /* byte 0 is U+0100 */
    (void)find_array(&head, "tokenizer.ggml.merges", TW_GGUF_STRING, 0);
    tw_gguf_head_deinit(&head);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    return test_run(NULL, NULL);
}
