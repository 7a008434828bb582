/* Tests of worker/tokenizer/tokenizer_text.c and its parts. tests/golden/make_tokenizers.py trains
 * small tokenizers of real layouts; these must give the same tokens as Hugging Face's tokenizers
 * package. */
#include "worker/tokenizer/tokenizer_text.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/test.h"
#include "worker/tokenizer/bpe.h"
#include "worker/tokenizer/byte_tokenizer.h"

static const char *const LAYOUTS[] = {"gpt2", "llama3", "qwen2", "smollm", "flags"};
enum { LAYOUTS_COUNT = 5 };

static const char *folder;
static struct tw_tokenizer *golden[LAYOUTS_COUNT];
static json_t *cases;
static struct tw_error err;

static const uint8_t *bytes_of(const char *text) {
    return (const uint8_t *)text;
}

static struct tw_tokenizer *create(const char *json) {
    struct tw_tokenizer *tokenizer = NULL;
    if (tw_tokenizer_create_json(&tokenizer, json, strlen(json), &err) != TW_OK) {
        fail_msg("%s", err.message);
    }
    return tokenizer;
}

static struct tw_encoder *encoder_of(const struct tw_tokenizer *tokenizer) {
    struct tw_encoder *encoder = NULL;
    assert_int_equal(tw_encoder_create(&encoder, tokenizer, &err), TW_OK);
    return encoder;
}

/* ---- tokens of the package ------------------------------------------------------------------- */

static void assert_ids(const struct tw_tokens *tokens, const json_t *wanted, const char *layout,
                       size_t index) {
    const size_t count = json_array_size(wanted);
    for (size_t i = 0; i < count || i < tokens->count; i++) {
        const json_int_t id = json_integer_value(json_array_get(wanted, i));
        if (i >= count || i >= tokens->count || id != (json_int_t)tokens->tokens[i]) {
            fail_msg("%s, text %zu: token %zu of %zu differs from %zu", layout, index, i,
                     tokens->count, count);
        }
    }
}

static void assert_all(const char *kind, enum tw_encode_flags flags) {
    const json_t *const texts = json_object_get(cases, "texts");
    for (size_t k = 0; k < LAYOUTS_COUNT; k++) {
        const json_t *wanted = json_object_get(json_object_get(cases, kind), LAYOUTS[k]);
        if (wanted == NULL) wanted = json_object_get(json_object_get(cases, "plain"), LAYOUTS[k]);
        struct tw_encoder *const encoder = encoder_of(golden[k]);
        assert_int_equal(json_array_size(wanted), json_array_size(texts));
        for (int again = 0; again < 12; again++) { /* later iterations use the cache */
            for (size_t i = 0; i < json_array_size(texts); i++) {
                const json_t *const text = json_array_get(texts, i);
                struct tw_tokens tokens = {.tokens = NULL};
                assert_int_equal(tw_encoder_append(encoder, bytes_of(json_string_value(text)),
                                                   json_string_length(text), flags, &tokens, &err),
                                 TW_OK);
                assert_ids(&tokens, json_array_get(wanted, i), LAYOUTS[k], i);
                tw_tokens_deinit(&tokens);
            }
        }
        tw_encoder_destroy(encoder);
    }
}

TEST(tokens_are_those_of_the_package) {
    assert_all("plain", (enum tw_encode_flags)0);
}

TEST(templates_are_those_of_the_package) {
    assert_all("template", TW_ENCODE_TEMPLATE);
}

/* ---- round trip -------------------------------------------------------------------------------
 */

static void assert_back(const struct tw_tokenizer *tokenizer, struct tw_encoder *encoder,
                        const uint8_t *text, size_t bytes) {
    struct tw_tokens tokens = {.tokens = NULL};
    uint8_t *const back = malloc(bytes + 1);
    assert_non_null(back);
    for (int plain = 0; plain < 2; plain++) {
        /* long texts are encoded only once, as the flag makes no difference */
        if (plain == 1 && bytes > 1000) break;
        tokens.count = 0;
        assert_int_equal(
            tw_encoder_append(encoder, text, bytes, (enum tw_encode_flags)plain, &tokens, &err),
            TW_OK);
        const size_t size = tw_tokenizer_join(tokenizer, tokens.tokens, tokens.count, back, bytes);
        assert_int_equal(size, bytes);
        assert_memory_equal(back, text, bytes);
    }
    free(back);
    tw_tokens_deinit(&tokens);
}

TEST(any_bytes_come_back) {
    const uint64_t seed = 7;
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    const json_t *const texts = json_object_get(cases, "texts");
    for (size_t k = 0; k < LAYOUTS_COUNT; k++) {
        if (!tw_tokenizer_is_exact(golden[k])) continue;
        struct tw_encoder *const encoder = encoder_of(golden[k]);
        for (uint32_t round = 0; round < 200; round++) {
            uint8_t text[300];
            const json_t *const some =
                json_array_get(texts, tw_rng_below(&rng, json_array_size(texts)));
            size_t bytes = json_string_length(some);
            if (bytes > sizeof(text)) bytes = sizeof(text); /* the cut may split a character */
            memcpy(text, json_string_value(some), bytes);
            for (uint64_t i = tw_rng_below(&rng, 8); bytes > 0 && i > 0; i--) {
                text[tw_rng_below(&rng, bytes)] = (uint8_t)tw_rng_next(&rng);
            }
            assert_back(golden[k], encoder, text, bytes);
        }
        tw_encoder_destroy(encoder);
    }
}

TEST(exact_tokenizers_are_known) {
    assert_true(tw_tokenizer_is_exact(golden[0]));
    assert_true(tw_tokenizer_is_exact(golden[1]));
    assert_false(tw_tokenizer_is_exact(golden[2])); /* NFC */
    assert_true(tw_tokenizer_is_exact(golden[3]));
    /* this one adds a space in front and strips white space */
    assert_false(tw_tokenizer_is_exact(golden[4]));
}

TEST(a_byte_of_no_character_is_its_own_token) {
    /* Bytes that form no character separate the texts on both sides. */
    static const char *const TEXT = "the\xE2\x82 the\xFF";
    struct tw_encoder *const encoder = encoder_of(golden[0]);
    struct tw_tokens tokens = {.tokens = NULL}, apart = {.tokens = NULL};
    assert_int_equal(tw_encoder_append(encoder, bytes_of(TEXT), 10, 0, &tokens, &err), TW_OK);
    assert_int_equal(tw_encoder_append(encoder, bytes_of("the"), 3, 0, &apart, &err), TW_OK);
    for (size_t i = 0; i < 3; i++) {
        size_t size;
        const size_t at = i < 2 ? apart.count + i : tokens.count - 1;
        const uint8_t *const text = tw_tokenizer_token(golden[0], tokens.tokens[at], &size);
        assert_int_equal(size, 1);
        assert_int_equal(*text, bytes_of("\xE2\x82\xFF")[i]);
    }
    assert_memory_equal(tokens.tokens, apart.tokens, apart.count * sizeof(*apart.tokens));
    apart.count = 0;
    assert_int_equal(tw_encoder_append(encoder, bytes_of(" the"), 4, 0, &apart, &err), TW_OK);
    assert_memory_equal(tokens.tokens + tokens.count - 1 - apart.count, apart.tokens,
                        apart.count * sizeof(*apart.tokens));
    tw_tokens_deinit(&tokens);
    tw_tokens_deinit(&apart);
    tw_encoder_destroy(encoder);
}

TEST(special_tokens_of_strangers_are_text) {
    static const char *const TEXT = "a<|endoftext|>b";
    struct tw_encoder *const encoder = encoder_of(golden[0]);
    struct tw_tokens tokens = {.tokens = NULL};
    const uint32_t end = tw_tokenizer_find(golden[0], "<|endoftext|>");
    assert_int_not_equal(end, TW_TOKEN_NONE);
    assert_int_equal(tw_tokenizer_kind(golden[0], end), TW_TOKEN_CONTROL);
    assert_int_equal(tw_encoder_append(encoder, bytes_of(TEXT), 15, 0, &tokens, &err), TW_OK);
    assert_int_equal(tokens.count, 3);
    assert_int_equal(tokens.tokens[1], end);
    tokens.count = 0;
    assert_int_equal(tw_encoder_append(encoder, bytes_of(TEXT), 15, TW_ENCODE_PLAIN, &tokens, &err),
                     TW_OK);
    for (size_t i = 0; i < tokens.count; i++) assert_int_not_equal(tokens.tokens[i], end);
    tw_tokens_deinit(&tokens);
    tw_encoder_destroy(encoder);
}

TEST(a_long_word_takes_no_quadratic_time) {
    enum { BYTES = TW_WORD_BYTES_MAX + 1000 }; /* quadratic time would take hours */
    uint8_t *const text = malloc(BYTES);
    assert_non_null(text);
    struct tw_encoder *const encoder = encoder_of(golden[0]);
    for (size_t i = 0; i < BYTES; i++) text[i] = bytes_of("theinging")[i % 9];
    assert_back(golden[0], encoder, text, BYTES);
    memset(text, ' ', BYTES);
    assert_back(golden[0], encoder, text, BYTES);
    tw_encoder_destroy(encoder);
    free(text);
}

TEST(text_streams_in_whole_characters) {
    static const char *const TEXT = "\xE5\xA4\x9A\xE3\x81\x8F\xED\x95\x99 \xF0\x9F\x91\x8D";
    struct tw_encoder *const encoder = encoder_of(golden[0]);
    struct tw_tokens tokens = {.tokens = NULL};
    struct tw_decoder decoder = {.tokenizer = golden[0]};
    uint8_t out[TW_DECODER_BYTES_MAX + 1], back[64];
    size_t bytes = 0;
    assert_int_equal(tw_encoder_append(encoder, bytes_of(TEXT), strlen(TEXT), 0, &tokens, &err),
                     TW_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        const size_t size = tw_decoder_take(&decoder, tokens.tokens[i], out);
        for (size_t at = 0; at < size;) {
            const int one = tw_utf8_size(out + at, size - at);
            assert_true(one > 0);
            at += (size_t)one;
        }
        memcpy(back + bytes, out, size);
        bytes += size;
    }
    assert_int_equal(tw_decoder_end(&decoder, out), 0);
    assert_int_equal(bytes, strlen(TEXT));
    assert_memory_equal(back, TEXT, bytes);
    (void)tw_decoder_take(&decoder, tokens.tokens[0], out);
    assert_int_equal(tw_decoder_take(&decoder, 99999999, out), 0); /* unused id: no text */
    tw_tokens_deinit(&tokens);
    tw_encoder_destroy(encoder);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void assert_bytes(struct tw_tokenizer *tokenizer) {
    struct tw_encoder *const encoder = encoder_of(tokenizer);
    struct tw_tokens tokens = {.tokens = NULL};
    uint8_t text[256];
    for (size_t i = 0; i < 256; i++) text[i] = (uint8_t)(i * 37);
    assert_int_equal(tw_tokenizer_vocab(tokenizer), 256);
    assert_int_equal(tw_tokenizer_bos(tokenizer), TW_TOKEN_NONE);
    assert_int_equal(tw_encoder_append(encoder, text, 256, 0, &tokens, &err), TW_OK);
    assert_int_equal(tokens.count, 256);
    for (size_t i = 0; i < 256; i++) assert_int_equal(tokens.tokens[i], text[i]);
    assert_back(tokenizer, encoder, text, 256);
    tw_tokens_deinit(&tokens);
    tw_encoder_destroy(encoder);
    tw_tokenizer_destroy(tokenizer);
}

TEST(bytes_are_a_tokenizer_too) {
    struct tw_tokenizer *tokenizer;
    assert_int_equal(tw_tokenizer_create_bytes(&tokenizer, &err), TW_OK);
    assert_bytes(tokenizer);
}

TEST(our_file_for_bytes_reads_as_bytes) {
    char json[TW_BYTE_TOKENIZER_BYTES];
    (void)tw_byte_tokenizer_json(json);
    assert_bytes(create(json));
}

/* ---- files ----------------------------------------------------------------------------------- */

#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"?\":3},\"merges\":[\"a "    \
    "b\"]%s}"
#define PRE "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void assert_refused(enum tw_status status, const char *json, const char *why) {
    struct tw_tokenizer *tokenizer = NULL;
    if (tw_tokenizer_create_json(&tokenizer, json, strlen(json), &err) != status ||
        strstr(err.message, why) == NULL) {
        fail_msg("%s: %s", json, err.message);
    }
}

/* Checks that a file is refused that is complete except for one part. */
static void assert_part_refused(const char *part, const char *why) {
    char json[1024];
    const char *const pre = strstr(part, "pre_tokenizer") != NULL ? "" : PRE ",";
    (void)snprintf(json, sizeof(json), "{%s%s," MODEL "}", pre, part, "");
    assert_refused(TW_CONFIG, json, why);
}

static void assert_model_refused(enum tw_status status, const char *more, const char *why) {
    char json[1024];
    (void)snprintf(json, sizeof(json), "{" PRE "," MODEL "}", more);
    assert_refused(status, json, why);
}

/* The first bytes of files written by sentencepiece 0.2, GPT-2, tiktoken and transformers 5.24. */
TEST(other_files_of_tokenizers_are_named) {
    static const char SENTENCEPIECE[] = "\n\016\n\005<unk>\025\0\0\0\0\030\002\n\f\n\003<s>";
    struct tw_tokenizer *tokenizer = NULL;
    assert_int_equal(
        tw_tokenizer_create_json(&tokenizer, SENTENCEPIECE, sizeof(SENTENCEPIECE) - 1, &err),
        TW_CONFIG);
    assert_non_null(strstr(err.message, "a model of sentencepiece"));
    assert_refused(TW_CONFIG, "#version: 0.2\n\xC4\xA0 t\n", "AutoTokenizer");
    assert_refused(TW_CONFIG, "IQ== 0\nIg== 1\n", "a list of tiktoken");
    assert_refused(TW_CONFIG, "{\"!\": 0, \"\\\"\": 1}", "a vocabulary without merges");
    assert_refused(TW_CONFIG, "{\"add_prefix_space\": false, \"tokenizer_class\": \"X\"}",
                   "name the tokenizer.json beside it");
    assert_refused(TW_CONFIG, "{\"model_type\": \"gpt2\"}", "it has no \"model\"");
    assert_refused(TW_CONFIG, "", "not a tokenizer.json");
    assert_refused(TW_CONFIG, "In the beginning", "not a tokenizer.json");
    assert_refused(TW_CORRUPT, " {\"model\": {\"type\"", "not a tokenizer.json");
}

TEST(unsupported_parts_are_named) {
    assert_part_refused("\"normalizer\":{\"type\":\"Lowercase\"}", "Lowercase");
    assert_part_refused("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                        "{\"type\":\"NFD\"}]}",
                        "none and NFC are");
    assert_part_refused("\"pre_tokenizer\":{\"type\":\"Metaspace\"}", "Metaspace");
    assert_part_refused("\"pre_tokenizer\":null", "ByteLevel is");
    assert_part_refused("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                        "\"ByteLevel\"},{\"type\":\"Digits\"}]}",
                        "as the last step");
    assert_part_refused("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                        "\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\"}]}",
                        "pre_tokenizer");
    assert_part_refused("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                        "\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\"},"
                        "{\"type\":\"ByteLevel\"}]}",
                        "Split.behavior \"Removed\"");
    assert_part_refused("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                        "\"Split\",\"pattern\":{\"Regex\":\"\\\\w\"},\"behavior\":\"Isolated\"},"
                        "{\"type\":\"ByteLevel\"}]}",
                        "split pattern, at \"\\w\"");
    assert_part_refused("\"post_processor\":{\"type\":\"RobertaProcessing\"}", "RobertaProcessing");
    assert_part_refused("\"decoder\":{\"type\":\"WordPiece\"}", "WordPiece");
    assert_model_refused(TW_CONFIG, ",\"byte_fallback\":true", "byte_fallback");
    assert_model_refused(TW_CONFIG, ",\"dropout\":0.1", "dropout");
    assert_model_refused(TW_CONFIG, ",\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix");
    assert_refused(TW_CONFIG, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram");
    assert_refused(TW_CONFIG, "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece");
}

TEST(malformed_tokenizer_is_refused) {
    assert_refused(TW_CONFIG, "", "line 1");
    assert_refused(TW_CONFIG, "[]", "object");
    assert_refused(TW_CONFIG, "{}", "model");
    assert_refused(TW_CORRUPT, "{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "vocab");
    assert_refused(TW_CORRUPT, "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}",
                   "empty");
    assert_refused(TW_CONFIG, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
                   "-1");
    assert_refused(TW_CONFIG,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1048576},\"merges\":[]}}",
                   "1048576");
    assert_refused(TW_CORRUPT,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
                   "id 1");
    assert_refused(TW_CORRUPT,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a\"]}}",
                   "one of these tokens");
    assert_refused(TW_CORRUPT,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"aa\"]}}",
                   "is not a merge");
    assert_model_refused(TW_CORRUPT, "},\"added_tokens\":[{\"id\":9,\"content\":\"a\"}],\"z\":{",
                         "id 9");
    assert_model_refused(TW_CORRUPT,
                         "},\"added_tokens\":[{\"id\":9,\"content\":\"x\"},{\"id\":9,\"content\":"
                         "\"y\"}],\"z\":{",
                         "two tokens have");
    assert_model_refused(TW_CORRUPT,
                         "},\"added_tokens\":[{\"id\":9,\"content\":\"x\"},{\"id\":8,\"content\":"
                         "\"x\"}],\"z\":{",
                         "twice");
}

TEST(a_byte_without_a_token_is_counted) {
    char json[1024];
    for (int has_unknown = 0; has_unknown < 2; has_unknown++) {
        (void)snprintf(json, sizeof(json), "{" PRE "," MODEL "}",
                       has_unknown ? ",\"unk_token\":\"?\",\"fuse_unk\":true" : "");
        struct tw_tokenizer *const tokenizer = create(json);
        struct tw_encoder *const encoder = encoder_of(tokenizer);
        struct tw_tokens tokens = {.tokens = NULL};
        assert_false(tw_tokenizer_is_exact(tokenizer));
        for (uint64_t again = 1; again < 5000; again++) { /* the cache must not change the result */
            tokens.count = 0;
            assert_int_equal(tw_encoder_append(encoder, bytes_of("abxxa"), 5, 0, &tokens, &err),
                             TW_OK);
            assert_int_equal(tokens.count, has_unknown ? 3 : 2);
            assert_int_equal(tokens.tokens[0], 2);
            assert_int_equal(tokens.tokens[tokens.count - 1], 0);
            assert_int_equal(tw_encoder_lost_bytes(encoder), 2 * again);
        }
        tw_tokens_deinit(&tokens);
        tw_encoder_destroy(encoder);
        tw_tokenizer_destroy(tokenizer);
    }
}

TEST(errors_name_the_file) {
    struct tw_tokenizer *tokenizer;
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, "nowhere/t.json", &err), TW_IO);
    assert_non_null(strstr(err.message, "nowhere/t.json"));
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, folder, &err), TW_IO);
    assert_non_null(strstr(err.message, "not a regular file"));
    char fifo[] = "/tmp/tw_fifo_XXXXXX"; /* a FIFO without a writer is refused, not waited for */
    (void)close(mkstemp(fifo));
    assert_int_equal(unlink(fifo), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, fifo, &err), TW_IO);
    assert_int_equal(unlink(fifo), 0);
}

TEST(ends_of_texts_are_found) {
    assert_int_equal(tw_tokenizer_eos(golden[0]), tw_tokenizer_find(golden[0], "<|endoftext|>"));
    assert_int_equal(tw_tokenizer_bos(golden[0]), TW_TOKEN_NONE);
    assert_int_equal(tw_tokenizer_bos(golden[1]),
                     tw_tokenizer_find(golden[1], "<|begin_of_text|>"));
    assert_int_equal(tw_tokenizer_eos(golden[1]), tw_tokenizer_find(golden[1], "<|end_of_text|>"));
    assert_int_equal(tw_tokenizer_eos(golden[2]), tw_tokenizer_find(golden[2], "<|endoftext|>"));
    assert_int_equal(tw_tokenizer_find(golden[2], "<|end"), TW_TOKEN_NONE);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Returns the state of tw_bpe_hash after the first 8 of 16 bytes. */
static uint64_t half_hash(uint64_t eight) {
    const uint64_t mixed = ((0x9E3779B97F4A7C15u ^ 16) ^ eight) * 0xD6E8FEB86659FD93u;
    return mixed ^ mixed >> 32;
}

/* Finds two words of 16 ASCII characters with the same hash. The second halves cancel the
 * difference between the first halves. */
static void collide(uint64_t a[2], uint64_t b[2]) {
    memcpy(a, "two words, a has", 16);
    for (b[0] = 0x2020202020202020u;; b[0]++) {
        b[1] = a[1] ^ half_hash(a[0]) ^ half_hash(b[0]);
        if (((b[0] | b[1]) & 0x8080808080808080u) == 0) break;
    }
    assert_int_equal(tw_bpe_hash((const uint8_t *)a, 16), tw_bpe_hash((const uint8_t *)b, 16));
}

/* Appends a word as a JSON key. */
static void put_key(char *json, size_t room, const uint64_t word[2]) {
    for (size_t i = 0; i < 16; i++) {
        char text[TW_BYTE_TOKEN_BYTES];
        const size_t used = strlen(json);
        (void)tw_byte_token(((const uint8_t *)word)[i], text);
        const bool is_escaped = text[0] == '"' || text[0] == '\\';
        (void)snprintf(json + used, room - used, "%s%s", is_escaped ? "\\" : "", text);
    }
}

TEST(words_of_one_hash_are_told_apart) {
    uint64_t words[2][2];
    char json[512] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                     "\"use_regex\":false},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,"
                     "\"merges\":[],\"vocab\":{\"";
    collide(words[0], words[1]);
    put_key(json, sizeof(json), words[0]);
    (void)snprintf(json + strlen(json), sizeof(json) - strlen(json), "\":0,\"");
    put_key(json, sizeof(json), words[1]);
    (void)snprintf(json + strlen(json), sizeof(json) - strlen(json), "\":1}}}");
    struct tw_tokenizer *const tokenizer = create(json);
    struct tw_encoder *const encoder = encoder_of(tokenizer);
    struct tw_tokens tokens = {.tokens = NULL};
    for (uint32_t again = 0; again < 5000; again++) { /* enough calls to start the cache */
        tokens.count = 0;
        assert_int_equal(
            tw_encoder_append(encoder, (const uint8_t *)words[again % 2], 16, 0, &tokens, &err),
            TW_OK);
        assert_int_equal(tokens.count, 1);
        assert_int_equal(tokens.tokens[0], again % 2);
    }
    tw_tokens_deinit(&tokens);
    tw_encoder_destroy(encoder);
    tw_tokenizer_destroy(tokenizer);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *encode_many(void *argument) {
    const json_t *const texts = json_object_get(cases, "texts");
    struct tw_tokens *const tokens = argument;
    struct tw_encoder *encoder = NULL;
    if (tw_encoder_create(&encoder, golden[2], NULL) != TW_OK) return NULL;
    for (size_t round = 0; round < 5; round++) {
        tokens->count = 0;
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *const text = json_array_get(texts, i);
            (void)tw_encoder_append(encoder, bytes_of(json_string_value(text)),
                                    json_string_length(text), 0, tokens, NULL);
        }
    }
    tw_encoder_destroy(encoder);
    return NULL;
}

TEST(threads_share_a_tokenizer) {
    enum { THREADS = 3 };
    struct tw_tokens tokens[THREADS] = {{.tokens = NULL}};
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &tokens[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_true(tokens[i].count > 1000);
        assert_int_equal(tokens[i].count, tokens[0].count);
        assert_memory_equal(tokens[i].tokens, tokens[0].tokens,
                            tokens[0].count * sizeof(*tokens[0].tokens));
    }
    for (size_t i = 0; i < THREADS; i++) tw_tokens_deinit(&tokens[i]);
}

static int start(void **state) {
    char path[512];
    for (size_t k = 0; k < LAYOUTS_COUNT; k++) {
        (void)snprintf(path, sizeof(path), "%s/%s.json", folder, LAYOUTS[k]);
        if (tw_tokenizer_create_file(&golden[k], path, &err) == TW_OK) continue;
        print_message("%s\n", err.message);
        return 1;
    }
    (void)snprintf(path, sizeof(path), "%s/cases.json", folder);
    cases = json_load_file(path, JSON_ALLOW_NUL, NULL);
    return cases == NULL;
}

static int stop(void **state) {
    for (size_t k = 0; k < LAYOUTS_COUNT; k++) tw_tokenizer_destroy(golden[k]);
    json_decref(cases);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    return test_run(start, stop);
}
