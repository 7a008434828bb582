/* thinwire-engine generate: text from exported weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine_verb.h"
#include "worker/generate.h"
#include "worker/tokenizer.h"
#include "worker/weights.h"

enum { PROMPT_BYTES_MAX = 64 * 1024 };

/* Length of the well-formed UTF-8 sequence at text, or 0. Overlong forms and surrogates pass no
 * reader that matters here: their lead bytes are refused. */
static size_t utf8_size(const uint8_t *text, size_t left) {
    const size_t size = text[0] < 0x80                       ? 1
                        : text[0] >= 0xC2 && text[0] <= 0xDF ? 2
                        : text[0] >= 0xE0 && text[0] <= 0xEF ? 3
                        : text[0] >= 0xF0 && text[0] <= 0xF4 ? 4
                                                             : 0;
    if (size == 0 || size > left) return 0;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    if (text[0] == 0xE0 && text[1] < 0xA0) return 0;
    if (text[0] == 0xED && text[1] > 0x9F) return 0;
    if (text[0] == 0xF0 && text[1] < 0x90) return 0;
    if (text[0] == 0xF4 && text[1] > 0x8F) return 0;
    return size;
}

static void print_json_string(const uint8_t *text, size_t bytes) {
    (void)putchar('"');
    for (size_t i = 0; i < bytes;) {
        const size_t size = utf8_size(text + i, bytes - i);
        if (size == 0) {
            (void)fputs("\\ufffd", stdout);
        } else if (size == 1 && (text[i] < 32 || text[i] == '"' || text[i] == '\\')) {
            (void)printf("\\u%04x", text[i]);
        } else {
            (void)fwrite(text + i, 1, size, stdout);
        }
        i += size == 0 ? 1 : size;
    }
    (void)putchar('"');
}

/* A model may say anything; a terminal shall not obey it. */
static void print_byte(uint8_t byte, bool is_terminal) {
    const bool is_control = (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
    (void)putchar(is_terminal && is_control ? '?' : byte);
    if (is_terminal) (void)fflush(stdout);
}

static enum tw_exit sample(struct engine_bench *bench, const float *params, uint32_t *tokens,
                           size_t prompt, size_t *count) {
    const struct engine_options *const options = bench->options;
    const struct tw_generate_config config = {(float)options->temperature, options->top_k};
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    struct tw_rng rng;
    struct tw_error err;
    tw_rng_seed(&rng, options->seed);
    for (size_t i = 0; !options->json && i < prompt; i++) {
        print_byte((uint8_t)tokens[i], is_terminal);
    }
    for (*count = prompt; *count < prompt + options->tokens; (*count)++) {
        uint8_t byte;
        if (tw_generate_next(bench->engine, params, config, &rng, tokens, *count, &tokens[*count],
                             &err) != TW_OK) {
            return engine_fail(&err);
        }
        (void)tw_tokenizer_decode(&tokens[*count], 1, &byte);
        if (!options->json) print_byte(byte, is_terminal);
    }
    if (!options->json) (void)putchar('\n');
    return TW_EXIT_OK;
}

enum tw_exit engine_generate(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    const char *const prompt = options->prompt[0] != 0 ? options->prompt : "\n";
    const size_t prompt_bytes = strlen(prompt);
    struct tw_error err;
    if (prompt_bytes > PROMPT_BYTES_MAX) {
        (void)tw_fail(&err, TW_CONFIG, "--prompt has more than %d KiB", PROMPT_BYTES_MAX / 1024);
        return engine_fail(&err);
    }
    const size_t capacity = prompt_bytes + options->tokens;
    uint32_t *const tokens = malloc(capacity * sizeof(*tokens));
    uint8_t *const text = malloc(capacity);
    enum tw_exit rc = TW_EXIT_FAILURE;
    if (tokens == NULL || text == NULL) {
        (void)tw_fail(&err, TW_NOMEM, "no memory for %zu tokens", capacity);
        rc = engine_fail(&err);
    } else if (tw_weights_load(options->file, &bench->layout, options->part, bench->engine->theta,
                               &err) != TW_OK) {
        rc = engine_fail(&err);
    } else {
        const double start_s = engine_now_s();
        size_t count = 0;
        const size_t prompted = tw_tokenizer_encode((const uint8_t *)prompt, prompt_bytes, tokens);
        rc = sample(bench, bench->engine->theta, tokens, prompted, &count);
        if (rc == TW_EXIT_OK && options->json) {
            const size_t bytes = tw_tokenizer_decode(tokens + prompted, count - prompted, text);
            (void)printf("{\"prompt\": ");
            print_json_string((const uint8_t *)prompt, prompt_bytes);
            (void)printf(", \"text\": ");
            print_json_string(text, bytes);
            (void)printf(", \"tokens\": %zu, \"took_s\": %.3f}\n", count - prompted,
                         engine_now_s() - start_s);
        }
    }
    free(text);
    free(tokens);
    return rc;
}
