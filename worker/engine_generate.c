/* thinwire-engine generate: text from a model, streamed as it is made. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "worker/engine_verb.h"
#include "worker/generate.h"
#include "worker/interrupt.h"
#include "worker/json_text.h"
#include "worker/tokenizer.h"
#include "worker/utf8.h"

enum { PROMPT_BYTES_MAX = 1024 * 1024 };

struct text {
    struct tw_generator generator;
    bool is_ids, is_terminal, json;
    uint32_t *tokens; /* (prompt_count + options->tokens) */
    size_t prompt_count, count;
    struct tw_utf8_stream stream;
    double took_s; /* making tokens, prompts included */
    uint64_t made;
};

/* ---- the prompt ------------------------------------------------------------------------------ */

/* "12 7 4096": token numbers, where the tokenizer is somebody else's. */
static enum tw_status read_ids(struct text *text, const char *prompt, uint32_t vocab,
                               struct tw_error *err) {
    for (text->prompt_count = 0; *prompt != 0;) {
        char *end;
        const unsigned long id = strtoul(prompt, &end, 10);
        if (end == prompt || *prompt == '-' || id >= vocab) {
            return tw_fail(err, TW_CONFIG,
                           "--prompt: `%.20s` is no token number below %u; this model's tokenizer "
                           "is not built in, so prompts are token numbers: --prompt \"12 7 40\"",
                           prompt, vocab);
        }
        text->tokens[text->prompt_count++] = (uint32_t)id;
        prompt = end + strspn(end, " ,\n\t");
    }
    if (text->prompt_count == 0) text->tokens[text->prompt_count++] = 0;
    return TW_OK;
}

static enum tw_status read_prompt(struct text *text, const struct engine_bench *bench,
                                  struct tw_error *err) {
    const char *prompt = bench->options->prompt;
    const size_t size = strlen(prompt);
    if (size > PROMPT_BYTES_MAX) {
        return tw_fail(err, TW_CONFIG, "--prompt has more than %d KiB", PROMPT_BYTES_MAX / 1024);
    }
    text->tokens = malloc((size + 1 + bench->options->tokens) * sizeof(*text->tokens));
    if (text->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for the text");
    text->is_ids = bench->run.data.tokenizer == TW_TOKENIZER_IDS;
    if (text->is_ids) return read_ids(text, prompt, bench->run.model.vocab, err);
    const uint8_t *const bytes = size > 0 ? (const uint8_t *)prompt : (const uint8_t *)"\n";
    text->prompt_count = tw_tokenizer_encode(bytes, size > 0 ? size : 1, text->tokens);
    return TW_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* A model may say anything; a terminal shall not obey it. */
static void print_character(const struct text *text, const uint8_t *bytes, size_t size) {
    const bool is_control = (bytes[0] < 32 && bytes[0] != '\n' && bytes[0] != '\t') ||
                            bytes[0] == 127 || (bytes[0] == 0xC2 && size == 2 && bytes[1] < 0xA0);
    if (text->is_terminal && is_control) {
        (void)putchar('?');
    } else {
        (void)fwrite(bytes, 1, size, stdout);
    }
}

/* On a terminal and into a pipe alike whole characters, at once. */
static void print_settled(const struct text *text, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size;) {
        const size_t one = (size_t)tw_utf8_size(bytes + i, size - i);
        print_character(text, bytes + i, one);
        i += one;
    }
    if (size > 0) (void)fflush(stdout);
}

static void print_token(struct text *text, uint32_t token) {
    uint8_t byte, out[TW_UTF8_TAKE_BYTES];
    if (text->json) return;
    if (text->is_ids) {
        (void)printf("%u ", token);
        (void)fflush(stdout);
        return;
    }
    (void)tw_tokenizer_decode(&token, 1, &byte);
    print_settled(text, out, tw_utf8_take(&text->stream, byte, out));
}

static void print_json(struct text *text, const struct engine_bench *bench, uint32_t sample,
                       double took_s) {
    const size_t made = text->count - text->prompt_count;
    const uint32_t *const tokens = text->tokens + text->prompt_count;
    (void)printf("{\"sample\": %u, \"prompt\": ", sample);
    tw_json_string_print(stdout, bench->options->prompt);
    (void)printf(", \"text\": ");
    if (text->is_ids) {
        (void)putchar('[');
        for (size_t i = 0; i < made; i++) (void)printf("%s%u", i > 0 ? ", " : "", tokens[i]);
        (void)putchar(']');
    } else {
        uint8_t *const bytes = malloc(made + 1);
        if (bytes != NULL) {
            tw_json_text_print(stdout, bytes, tw_tokenizer_decode(tokens, made, bytes));
        }
        free(bytes);
    }
    (void)printf(", \"tokens\": %zu, \"took_s\": %.3f, \"tokens_per_s\": %.6g}\n", made, took_s,
                 (double)made / fmax(took_s, 1e-9));
    (void)fflush(stdout);
}

/* ---- sampling -------------------------------------------------------------------------------- */

static enum tw_status make_sample(struct text *text, const struct engine_bench *bench,
                                  uint32_t sample, struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    const double begin_s = engine_now_s();
    uint8_t out[TW_UTF8_TAKE_BYTES];
    TW_TRY(tw_generator_begin(&text->generator, options->seed + sample, text->tokens,
                              text->prompt_count, err));
    if (!text->json && options->samples > 1) {
        (void)printf("%s--- %u, seed %llu\n", sample > 0 ? "\n" : "", sample + 1,
                     (unsigned long long)(options->seed + sample));
    }
    for (size_t i = 0; i < text->prompt_count; i++) print_token(text, text->tokens[i]);
    text->count = text->prompt_count;
    while (text->count < text->prompt_count + options->tokens && !tw_interrupt_wanted()) {
        TW_TRY(tw_generator_next(&text->generator, &text->tokens[text->count], err));
        print_token(text, text->tokens[text->count++]);
    }
    const double took_s = engine_now_s() - begin_s;
    text->took_s += took_s;
    text->made += text->count - text->prompt_count;
    if (text->json) {
        print_json(text, bench, sample, took_s);
    } else {
        print_settled(text, out, tw_utf8_end(&text->stream, out));
        (void)putchar('\n');
    }
    return TW_OK;
}

static enum tw_status generate(struct text *text, struct engine_bench *bench,
                               struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    const struct tw_sample_config config = {.temperature = (float)options->temperature,
                                            .top_k = options->top_k,
                                            .top_p = (float)options->top_p,
                                            .repeat_penalty = (float)options->repeat_penalty};
    TW_TRY(read_prompt(text, bench, err));
    TW_TRY(engine_open(bench, true, err));
    TW_TRY(engine_load(bench, options->file, err));
    TW_TRY(tw_generator_open(&text->generator, bench->engine, &config, err));
    for (uint32_t i = 0; i < options->samples && !tw_interrupt_wanted(); i++) {
        TW_TRY(make_sample(text, bench, i, err));
    }
    if (text->json) return TW_OK;
    char engine[128], speed[TW_UNITS_BYTES], made[TW_UNITS_BYTES];
    tw_engine_describe(bench->engine, engine, sizeof(engine));
    (void)fprintf(stderr, "%s tokens, %s tokens/s on %s\n",
                  tw_units_count(made, (double)text->made),
                  tw_units_short(speed, (double)text->made / fmax(text->took_s, 1e-9)), engine);
    return TW_OK;
}

enum tw_exit engine_generate(struct engine_bench *bench) {
    struct text text = {.json = bench->options->json, .is_terminal = isatty(STDOUT_FILENO) == 1};
    struct tw_error err;
    tw_interrupt_catch(true);
    const enum tw_status status = generate(&text, bench, &err);
    tw_generator_close(&text.generator);
    free(text.tokens);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}
