/* bench_tokenizer.c - encodes documents with a tokenizer.json, and measures the speed.
 *
 *   thinwire-tokenizer-bench TOKENIZER DOCUMENTS [IDS [plain]]
 *
 * DOCUMENTS is a file of documents, each a 32-bit little-endian length and its bytes. The bench
 * encodes all of them three times on one core and prints the best rate. With IDS, it decodes the
 * tokens, counts the documents that changed, and writes each document to IDS: the number of its
 * tokens, then the tokens, all 32-bit little-endian. With "plain", special tokens spelled out in
 * the text are encoded as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "worker/tokenizer/tokenizer_text.h"

struct text {
    uint8_t *bytes;
    size_t size;
};

static int fail(const char *what, const char *why) {
    (void)fprintf(stderr, "thinwire-tokenizer-bench: %s: %s\n", what, why);
    return 1;
}

static struct text read_file(const char *path) {
    struct text text = {.bytes = NULL};
    FILE *const file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return text;
    const long size = ftell(file);
    rewind(file);
    text.bytes = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (text.bytes != NULL) text.size = fread(text.bytes, 1, (size_t)size, file);
    (void)fclose(file);
    return text;
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the document of text at *at, and moves *at behind it. */
static struct text next(struct text text, size_t *at) {
    const size_t size = tw_get_u32(text.bytes + *at);
    struct text document = {text.bytes + *at + 4, size};
    *at += 4 + size;
    return document;
}

static int is_whole(struct text text) {
    size_t at = 0;
    while (text.size - at >= 4 && text.size - at - 4 >= tw_get_u32(text.bytes + at)) {
        at += 4 + tw_get_u32(text.bytes + at);
    }
    return at == text.size;
}

/* Encodes all documents. Returns the seconds, and the number of tokens in *tokens_count. */
static double encode_all(struct tw_encoder *encoder, struct text text, enum tw_encode_flags flags,
                         size_t *tokens_count) {
    struct tw_tokens tokens = {.tokens = NULL};
    struct tw_error err;
    const double start_s = now_s();
    *tokens_count = 0;
    for (size_t at = 0; at < text.size;) {
        const struct text document = next(text, &at);
        tokens.count = 0;
        if (tw_encoder_append(encoder, document.bytes, document.size, flags, &tokens, &err) !=
            TW_OK) {
            (void)fail("encode", err.message);
            break;
        }
        *tokens_count += tokens.count;
    }
    tw_tokens_deinit(&tokens);
    return now_s() - start_s;
}

static void put_u32(uint32_t value, FILE *to) {
    uint8_t bytes[4];
    tw_put_u32(bytes, value);
    (void)fwrite(bytes, 1, 4, to);
}

/* Writes the tokens. Returns the number of documents that do not decode to their text. */
static size_t write_all(const struct tw_tokenizer *tokenizer, struct tw_encoder *encoder,
                        struct text text, enum tw_encode_flags flags, FILE *to) {
    struct tw_tokens tokens = {.tokens = NULL};
    size_t changed = 0;
    for (size_t at = 0; at < text.size;) {
        const struct text document = next(text, &at);
        uint8_t *const back = malloc(document.size + 1);
        tokens.count = 0;
        if (back == NULL || tw_encoder_append(encoder, document.bytes, document.size, flags,
                                              &tokens, NULL) != TW_OK) {
            free(back);
            break;
        }
        const size_t size =
            tw_tokenizer_join(tokenizer, tokens.tokens, tokens.count, back, document.size);
        changed += size != document.size || memcmp(back, document.bytes, size) != 0;
        free(back);
        put_u32((uint32_t)tokens.count, to);
        for (size_t i = 0; i < tokens.count; i++) put_u32(tokens.tokens[i], to);
    }
    tw_tokens_deinit(&tokens);
    return changed;
}

int main(int argc, char **argv) {
    struct tw_tokenizer *tokenizer;
    struct tw_encoder *encoder;
    struct tw_error err;
    if (argc < 3) return fail("usage", "TOKENIZER DOCUMENTS [IDS [plain]]");
    const enum tw_encode_flags flags = argc > 4 ? TW_ENCODE_PLAIN : (enum tw_encode_flags)0;
    const struct text text = read_file(argv[2]);
    if (text.bytes == NULL || !is_whole(text)) return fail(argv[2], "no file of documents");
    const double start_s = now_s();
    if (tw_tokenizer_create_file(&tokenizer, argv[1], &err) != TW_OK) return fail("", err.message);
    const double load_s = now_s() - start_s;
    if (tw_encoder_create(&encoder, tokenizer, &err) != TW_OK) return fail("", err.message);
    double best_s = 1e9;
    size_t count = 0;
    for (int i = 0; i < 3; i++) {
        const double took_s = encode_all(encoder, text, flags, &count);
        if (took_s < best_s) best_s = took_s;
    }
    size_t changed = 0;
    FILE *const ids = argc > 3 ? fopen(argv[3], "wb") : NULL;
    if (ids != NULL) changed = write_all(tokenizer, encoder, text, flags, ids);
    if (ids != NULL && fclose(ids) != 0) return fail(argv[3], "it cannot be written");
    (void)printf("{\"load_s\": %.3f, \"mb_per_s\": %.2f, \"tokens\": %zu, \"is_exact\": %s, "
                 "\"changed\": %zu, \"lost_bytes\": %llu}\n",
                 load_s, (double)text.size / 1e6 / best_s, count,
                 tw_tokenizer_is_exact(tokenizer) ? "true" : "false", changed,
                 (unsigned long long)tw_encoder_lost_bytes(encoder));
    tw_encoder_destroy(encoder);
    tw_tokenizer_destroy(tokenizer);
    free(text.bytes);
    return 0;
}
