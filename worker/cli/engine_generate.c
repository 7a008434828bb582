/* engine_generate.c - thinwire-engine eval and generate: measures and samples a model. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/page.h"
#include "base/units.h"
#include "worker/cli/engine_verb.h"
#include "worker/engine/generate.h"
#include "worker/learn/learner_engine.h"
#include "worker/support/progress.h"
#include "worker/support/signals.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/text_ends.h"

/* ---- eval: held-out loss of a model ---------------------------------------------------------- */

static void show_progress(void *user, uint64_t done, uint64_t all) {
    struct tw_progress *const progress = user;
    progress->all = all;
    tw_progress_show(progress, done, engine_now_s());
}

enum tw_status engine_measure(struct engine_bench *bench, const float *params, const char *what,
                              struct tw_eval *eval, struct tw_error *err) {
    const char *const slash = strrchr(what, '/');
    struct tw_progress progress = {.is_shown = isatty(STDERR_FILENO) == 1 && !bench->options->json,
                                   .unit = "windows",
                                   .what = slash != NULL ? slash + 1 : what,
                                   .begin_s = engine_now_s()};
    const struct tw_eval_wish wish = {
        .windows = bench->options->windows, .progress = show_progress, .user = &progress};
    const enum tw_status status =
        tw_eval_heldout_shown(bench->engine, &bench->data, params, &wish, eval, err);
    tw_progress_end(&progress);
    return status;
}

static void print_loss_json(const struct engine_bench *bench, const struct tw_eval *eval,
                            double tokens_s) {
    const bool is_bytes = bench->run.data.tokenizer == TW_TOKENIZER_BYTES;
    (void)printf("{\"validation_nats\": %.6f", eval->nats);
    /* omitted if infinite, because JSON has no infinity */
    if (isfinite(exp(eval->nats))) (void)printf(", \"perplexity\": %.6g", exp(eval->nats));
    if (isfinite(eval->standard_error)) {
        (void)printf(", \"standard_error_nats\": %.6f", eval->standard_error);
    }
    if (is_bytes) (void)printf(", \"bits_per_byte\": %.6f", eval->nats / log(2));
    (void)printf(", \"windows\": %llu, \"tokens\": %llu, \"tokens_per_s\": %.6g, \"part\": "
                 "\"%s\"}\n",
                 (unsigned long long)eval->windows, (unsigned long long)eval->tokens, tokens_s,
                 bench->options->part);
}

static void print(const struct engine_bench *bench, const struct tw_eval *eval, double tokens_s) {
    char tokens[TW_UNITS_BYTES], windows[TW_UNITS_BYTES], speed[TW_UNITS_BYTES], engine[128];
    (void)printf("%.4f", eval->nats);
    if (isfinite(eval->standard_error)) (void)printf(" +- %.4f", eval->standard_error);
    (void)printf(" nats/token, perplexity %.2f", exp(eval->nats));
    if (bench->run.data.tokenizer == TW_TOKENIZER_BYTES) {
        (void)printf(", %.4f bits per byte", eval->nats / log(2));
    }
    tw_engine_describe(bench->engine, engine, sizeof(engine));
    (void)printf("\non %s%s tokens in %s window%s of %u; %s tokens/s, %s\n",
                 tw_units_count(tokens, (double)eval->tokens),
                 bench->options->is_whole ? "" : " held-out",
                 tw_units_count(windows, (double)eval->windows), tw_units_s((double)eval->windows),
                 bench->run.model.context, tw_units_short(speed, tokens_s), engine);
}

enum tw_exit engine_eval(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    struct tw_error err;
    struct tw_eval eval;
    enum tw_status status = engine_open(bench, ENGINE_EVAL, &err);
    if (status == TW_OK) status = engine_load(bench, options->file, &err);
    const double begin_s = engine_now_s();
    if (status == TW_OK) {
        status = engine_measure(bench, bench->engine->theta, options->file, &eval, &err);
    }
    if (status == TW_OK && !isfinite(eval.nats)) {
        status = tw_fail(&err, TW_CORRUPT,
                         "%s: the loss of this model is not finite: its parameters are damaged, "
                         "load another checkpoint",
                         options->file);
    }
    if (status != TW_OK) return engine_fail(&err);
    const double tokens_s = (double)eval.tokens / fmax(engine_now_s() - begin_s, 1e-9);
    if (options->json) {
        print_loss_json(bench, &eval, tokens_s);
    } else {
        print(bench, &eval, tokens_s);
    }
    return TW_EXIT_OK;
}

/* ---- generate: samples text from a model and prints it token by token ------------------------ */

enum { PROMPT_BYTES_MAX = 1024 * 1024 };

struct text {
    struct tw_generator generator;
    struct tw_tokenizer *tokenizer; /* NULL: prompt and output are token numbers */
    struct tw_text_ends ends;
    struct tw_decoder decoder;
    bool is_terminal, json, is_interrupted;
    struct tw_tokens tokens; /* (prompt_count + options->tokens): prompt, then sampled tokens */
    size_t prompt_count, count;
    double took_s; /* time in seconds for all samples, prompts included */
    uint64_t made;
};

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Opens the tokenizer named by an option, or the model's own: the byte tokenizer, or a
 * tokenizer.json in its folder. */
static enum tw_status open_tokenizer(struct text *text, const struct engine_bench *bench,
                                     struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    char path[PATH_MAX] = "";
    if (options->tokenizer == NULL && bench->run.data.tokenizer == TW_TOKENIZER_BYTES) {
        TW_TRY(tw_tokenizer_create_bytes(&text->tokenizer, err));
    } else {
        const bool is_named = options->tokenizer != NULL;
        const int n = is_named ? snprintf(path, sizeof(path), "%s", options->tokenizer)
                               : snprintf(path, sizeof(path), "%s/tokenizer.json", options->file);
        if (n >= (int)sizeof(path) || (!is_named && access(path, F_OK) != 0)) {
            tw_engine_words_hint(options->file);
            return TW_OK;
        }
        struct tw_error why;
        const enum tw_status status = tw_tokenizer_create_file(&text->tokenizer, path, &why);
        /* tokenizer of an unsupported kind: use token numbers */
        if (status == TW_CONFIG && !is_named) {
            tw_page_say("%s; prompt and text are token numbers", why.message);
            return TW_OK;
        }
        if (status != TW_OK) return tw_fail(err, status, "%s", why.message);
        if (is_named) tw_engine_words_compare(options->file, path, text->tokenizer);
    }
    return tw_engine_words_check(text->tokenizer, path, bench->run.model.vocab, err);
}

/* Finds the tokens at which a text ends. Warns if no file names one. */
static enum tw_status read_ends(struct text *text, const struct engine_bench *bench,
                                struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    const uint32_t vocab = bench->run.model.vocab;
    const struct tw_text_ends_source source = {.model = options->file,
                                               .tokenizer_path = options->tokenizer,
                                               .tokenizer = text->tokenizer,
                                               .vocab = vocab,
                                               .eos = options->eos};
    TW_TRY(tw_text_ends_read(&text->ends, &source, err));
    if (text->tokenizer != NULL) tw_tokenizer_set_ends(text->tokenizer, &text->ends);
    engine_warn_ends(&text->ends, text->tokenizer, vocab);
    return TW_OK;
}

static enum tw_status add_token(struct tw_tokens *tokens, uint32_t token, struct tw_error *err) {
    if (tokens->count == tokens->capacity) {
        const size_t capacity = 2 * tokens->capacity + 64;
        uint32_t *const more = realloc(tokens->tokens, capacity * sizeof(*more));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu tokens", capacity);
        tokens->tokens = more;
        tokens->capacity = capacity;
    }
    tokens->tokens[tokens->count++] = token;
    return TW_OK;
}

/* Parses the prompt as token numbers, such as "12 7 4096". Used without a tokenizer. */
static enum tw_status read_ids(struct tw_tokens *tokens, const char *prompt, uint32_t vocab,
                               struct tw_error *err) {
    while (*prompt != 0) {
        char *end;
        const unsigned long id = strtoul(prompt, &end, 10);
        if (end == prompt || *prompt == '-' || id >= vocab) {
            return tw_fail(err, TW_CONFIG,
                           "--prompt: `%.20s` is not a token number below %u; name the model's "
                           "tokenizer.json with --tokenizer, or prompt with numbers: \"12 7 40\"",
                           prompt, vocab);
        }
        TW_TRY(add_token(tokens, (uint32_t)id, err));
        prompt = end + strspn(end, " ,\n\t");
    }
    return tokens->count > 0 ? TW_OK : add_token(tokens, 0, err);
}

/* Encodes the prompt. An empty prompt becomes the begin token, else the end token, else a new
 * line. */
static enum tw_status encode(struct text *text, const char *prompt, struct tw_error *err) {
    const uint32_t bos = tw_tokenizer_bos(text->tokenizer), eos = tw_tokenizer_eos(text->tokenizer);
    if (prompt[0] == 0 && (bos != TW_TOKEN_NONE || eos != TW_TOKEN_NONE)) {
        return add_token(&text->tokens, bos != TW_TOKEN_NONE ? bos : eos, err);
    }
    if (prompt[0] == 0) prompt = "\n";
    struct tw_encoder *encoder = NULL;
    TW_TRY(tw_encoder_create(&encoder, text->tokenizer, err));
    const enum tw_status status = tw_encoder_append(
        encoder, (const uint8_t *)prompt, strlen(prompt), TW_ENCODE_TEMPLATE, &text->tokens, err);
    tw_encoder_destroy(encoder);
    return status;
}

static enum tw_status read_prompt(struct text *text, const struct engine_bench *bench,
                                  struct tw_error *err) {
    const char *const prompt = bench->options->prompt;
    const uint32_t vocab = bench->run.model.vocab;
    if (strlen(prompt) > PROMPT_BYTES_MAX) {
        return tw_fail(err, TW_CONFIG, "--prompt has more than %d KiB", PROMPT_BYTES_MAX / 1024);
    }
    TW_TRY(open_tokenizer(text, bench, err));
    TW_TRY(read_ends(text, bench, err));
    TW_TRY(text->tokenizer == NULL ? read_ids(&text->tokens, prompt, vocab, err)
                                   : encode(text, prompt, err));
    text->prompt_count = text->tokens.count;
    if (text->prompt_count == 0) {
        return tw_fail(err, TW_CONFIG,
                       "--prompt: the tokenizer has no token for any of its characters: is it this "
                       "model's tokenizer?");
    }
    for (size_t i = 0; i < text->prompt_count; i++) {
        if (text->tokens.tokens[i] < vocab) continue;
        return tw_fail(err, TW_CONFIG,
                       "--prompt: its token %u is outside the model's vocabulary of %u: is it this "
                       "model's tokenizer?",
                       text->tokens.tokens[i], vocab);
    }
    return TW_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* On a terminal, replaces control characters, because a model may output any byte. */
static void print_character(const struct text *text, const uint8_t *bytes, size_t size) {
    const bool is_control = (bytes[0] < 32 && bytes[0] != '\n' && bytes[0] != '\t') ||
                            bytes[0] == 127 || (bytes[0] == 0xC2 && size == 2 && bytes[1] < 0xA0);
    if (text->is_terminal && is_control) {
        (void)putchar('?');
    } else {
        (void)fwrite(bytes, 1, size, stdout);
    }
}

/* Prints complete characters and flushes the output, even if it is not a terminal. */
static void print_settled(const struct text *text, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size;) {
        const size_t one = (size_t)tw_utf8_size(bytes + i, size - i);
        print_character(text, bytes + i, one);
        i += one;
    }
    if (size > 0) (void)fflush(stdout);
}

static void print_token(struct text *text, uint32_t token) {
    uint8_t out[TW_DECODER_BYTES_MAX];
    if (text->json) return;
    if (text->tokenizer == NULL) {
        (void)printf("%u ", token);
        (void)fflush(stdout);
        return;
    }
    print_settled(text, out, tw_decoder_take(&text->decoder, token, out));
}

static void print_json_text(const struct text *text, const uint32_t *tokens, size_t count) {
    if (text->tokenizer == NULL) {
        (void)putchar('[');
        for (size_t i = 0; i < count; i++) (void)printf("%s%u", i > 0 ? ", " : "", tokens[i]);
        (void)putchar(']');
        return;
    }
    const size_t size = tw_tokenizer_join(text->tokenizer, tokens, count, NULL, 0);
    uint8_t *const bytes = malloc(size + 1);
    if (bytes != NULL) {
        (void)tw_tokenizer_join(text->tokenizer, tokens, count, bytes, size);
        tw_json_text_print(stdout, bytes, size);
    } else {
        (void)fputs("null", stdout);
    }
    free(bytes);
}

static void print_json(const struct text *text, const struct engine_bench *bench, uint32_t sample,
                       double took_s) {
    const size_t made = text->count - text->prompt_count;
    (void)printf("{\"sample\": %u, \"prompt\": ", sample + 1);
    tw_json_string_print(stdout, bench->options->prompt);
    (void)printf(", \"text\": ");
    print_json_text(text, text->tokens.tokens + text->prompt_count, made);
    (void)printf(", \"tokens\": %zu, \"interrupted\": %s, \"took_s\": %.3f, "
                 "\"tokens_per_s\": %.6g}\n",
                 made, text->is_interrupted ? "true" : "false", took_s,
                 (double)made / fmax(took_s, 1e-9));
    (void)fflush(stdout);
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* Samples tokens up to the wanted number, or until an end token. */
static enum tw_status make_text(struct text *text, const struct engine_options *options,
                                struct tw_error *err) {
    text->tokens.count = text->count = text->prompt_count;
    while (text->count < text->prompt_count + options->tokens) {
        uint32_t token;
        text->is_interrupted = tw_signals_wanted();
        if (text->is_interrupted) return TW_OK;
        TW_TRY(tw_generator_next(&text->generator, &token, err));
        if (tw_text_ends_at(&text->ends, token)) return TW_OK;
        TW_TRY(add_token(&text->tokens, token, err));
        text->count++;
        print_token(text, token);
    }
    return TW_OK;
}

static enum tw_status make_sample(struct text *text, const struct engine_bench *bench,
                                  uint32_t sample, struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    const double begin_s = engine_now_s();
    uint8_t out[TW_DECODER_BYTES_MAX];
    TW_TRY(tw_generator_begin(&text->generator, options->seed + sample, text->tokens.tokens,
                              text->prompt_count, err));
    text->decoder = (struct tw_decoder){.tokenizer = text->tokenizer};
    if (!text->json && options->samples > 1) {
        (void)printf("%s--- %u, seed %llu\n", sample > 0 ? "\n" : "", sample + 1,
                     (unsigned long long)(options->seed + sample));
    }
    for (size_t i = 0; i < text->prompt_count; i++) print_token(text, text->tokens.tokens[i]);
    TW_TRY(make_text(text, options, err));
    const double took_s = engine_now_s() - begin_s;
    text->took_s += took_s;
    text->made += text->count - text->prompt_count;
    if (text->json) {
        print_json(text, bench, sample, took_s);
        return TW_OK;
    }
    if (text->tokenizer != NULL) print_settled(text, out, tw_decoder_end(&text->decoder, out));
    (void)putchar('\n');
    return TW_OK;
}

static enum tw_status generate(struct text *text, struct engine_bench *bench,
                               struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    const struct tw_sample_config config = {.temperature = (float)options->temperature,
                                            .top_k = options->top_p > 0 ? options->top_k : 1,
                                            .top_p = (float)options->top_p,
                                            .repeat_penalty = (float)options->repeat_penalty};
    TW_TRY(read_prompt(text, bench, err));
    TW_TRY(engine_open(bench, ENGINE_GENERATE, err));
    TW_TRY(engine_load(bench, options->file, err));
    TW_TRY(tw_generator_open(&text->generator, bench->engine, &config, err));
    for (uint32_t i = 0; i < options->samples && !text->is_interrupted; i++) {
        TW_TRY(make_sample(text, bench, i, err));
    }
    if (text->json) return TW_OK;
    char engine[128], speed[TW_UNITS_BYTES], made[TW_UNITS_BYTES];
    (void)fflush(stdout); /* Keeps the order of lines if standard output and standard error are the
                             same file. */
    tw_engine_describe(bench->engine, engine, sizeof(engine));
    (void)fprintf(stderr, "%s%s token%s, %s tokens/s on %s\n",
                  text->is_interrupted ? "interrupted after " : "",
                  tw_units_count(made, (double)text->made), tw_units_s((double)text->made),
                  tw_units_short(speed, (double)text->made / fmax(text->took_s, 1e-9)), engine);
    return TW_OK;
}

enum tw_exit engine_generate(struct engine_bench *bench) {
    struct text text = {.json = bench->options->json, .is_terminal = isatty(STDOUT_FILENO) == 1};
    struct tw_error err;
    tw_signals_catch(true);
    const enum tw_status status = generate(&text, bench, &err);
    tw_generator_close(&text.generator);
    tw_tokens_deinit(&text.tokens);
    tw_tokenizer_destroy(text.tokenizer);
    if (status != TW_OK) return engine_fail(&err);
    return text.is_interrupted ? TW_EXIT_INTERRUPTED : TW_EXIT_OK;
}
