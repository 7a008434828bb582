#include "worker/learn/text_sampler.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/engine/generate.h"

enum { PROMPT_SHARE = 3 }; /* the prompt is about a third of the sample's bytes */

/* The defaults of `thinwire generate`. */
static const struct tw_sample_config CONFIG = {.temperature = 0.8f, .top_k = 40};

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Opens the tokenizer of the run's data, once. A tokenizer that cannot be read is treated as
 * absent: samples are only for people to read. */
static void open_tokenizer(struct tw_text_sampler *sampler,
                           const struct tw_text_sampler_source *source) {
    char path[PATH_MAX];
    struct tw_error why;
    if (sampler->is_open) return;
    sampler->is_open = true;
    if (source->engine->run->data.tokenizer == TW_TOKENIZER_BYTES) {
        (void)tw_tokenizer_create_bytes(&sampler->tokenizer, &why);
        return;
    }
    const int n = snprintf(path, sizeof(path), "%s/tokenizer.json", source->data_path);
    if (n >= (int)sizeof(path) || access(path, R_OK) != 0) return;
    (void)tw_tokenizer_create_file(&sampler->tokenizer, path, &why);
}

/* ---- pieces of text ------------------------------------------------------------------------- */

/* A text that grows by whole characters, without NUL, up to `room` bytes. */
struct piece {
    char *text;
    size_t room, size;
    bool is_full;
    struct tw_decoder decoder;
};

static void add_bytes(struct piece *piece, const uint8_t *bytes, size_t size) {
    for (size_t at = 0; at < size && !piece->is_full;) {
        const size_t one = (size_t)tw_utf8_size(bytes + at, size - at);
        piece->is_full = piece->size + one >= piece->room;
        if (piece->is_full) return;
        memcpy(piece->text + piece->size, bytes + at, one);
        piece->size += bytes[at] == 0 ? 0 : one;
        at += one;
    }
}

static void add_token(struct piece *piece, uint32_t token) {
    uint8_t out[TW_DECODER_BYTES_MAX];
    add_bytes(piece, out, tw_decoder_take(&piece->decoder, token, out));
}

/* Drops the torn character at the start: a window may begin inside a character. */
static void drop_torn_begin(struct piece *piece) {
    static const char TORN[] = "\xEF\xBF\xBD"; /* U+FFFD */
    size_t torn = 0;
    while (strncmp(piece->text + torn, TORN, sizeof(TORN) - 1) == 0) torn += sizeof(TORN) - 1;
    memmove(piece->text, piece->text + torn, piece->size - torn + 1);
    piece->size -= torn;
}

/* Returns whether the last character still lacks bytes. */
static bool is_within_character(const struct piece *piece) {
    return piece->decoder.stream.held_bytes > 0;
}

/* Appends a window's tokens to the prompt until it has `bytes` bytes and ends with a whole
 * character. Returns the number of tokens, at most `most`. */
static uint32_t add_prompt(struct piece *prompt, const uint32_t *tokens, uint32_t most,
                           uint32_t bytes) {
    uint32_t count = 0;
    while (count < most && !prompt->is_full &&
           (prompt->size < bytes || is_within_character(prompt))) {
        add_token(prompt, tokens[count++]);
    }
    return count;
}

/* ---- the sample ------------------------------------------------------------------------------ */

static bool must_end(const struct tw_text_sampler_source *source, uint64_t end_us) {
    const _Atomic bool *const stop = source->engine->stop;
    if (stop != NULL && atomic_load(stop)) return true;
    return now_us() >= end_us;
}

/* Adds the model's tokens until there are `bytes` bytes, the text ends, or the time limit is
 * reached. */
static enum tw_status add_text(struct piece *text, struct tw_generator *generator,
                               const struct tw_text_sampler_source *source, uint32_t bytes,
                               struct tw_error *err) {
    const uint64_t end_us = now_us() + TW_TEXT_SAMPLE_US;
    const uint32_t eos = tw_tokenizer_eos(text->decoder.tokenizer);
    while (!text->is_full && (text->size < bytes || is_within_character(text)) &&
           !must_end(source, end_us)) {
        uint32_t token;
        TW_TRY(tw_generator_next(generator, &token, err));
        if (token == eos) return TW_OK;
        add_token(text, token);
    }
    return TW_OK;
}

static enum tw_status continue_window(const struct tw_text_sampler *sampler,
                                      const struct tw_text_sampler_source *source, uint32_t bytes,
                                      const uint32_t *window, struct tw_wmsg_sample *sample,
                                      struct tw_error *err) {
    const uint32_t half = (source->data->context + 1) / 2;
    struct tw_generator generator = {0};
    struct piece prompt = {.text = sample->prompt,
                           .room = sizeof(sample->prompt),
                           .decoder = {.tokenizer = sampler->tokenizer}};
    struct piece text = {.text = sample->text,
                         .room = sizeof(sample->text),
                         .decoder = {.tokenizer = sampler->tokenizer}};
    const uint32_t count = add_prompt(&prompt, window, half, bytes / PROMPT_SHARE);
    drop_torn_begin(&prompt);
    TW_TRY(tw_generator_open(&generator, source->engine, &CONFIG, err));
    enum tw_status status =
        tw_generator_begin(&generator, sampler->taken_count, window, count, err);
    if (status == TW_OK) status = add_text(&text, &generator, source, bytes, err);
    tw_generator_close(&generator);
    return status;
}

enum tw_status tw_text_sampler_take(struct tw_text_sampler *sampler,
                                    const struct tw_text_sampler_source *source, uint32_t bytes,
                                    struct tw_wmsg_sample *sample, struct tw_error *err) {
    const uint64_t windows = tw_data_heldout_count(source->data);
    open_tokenizer(sampler, source);
    if (sampler->tokenizer == NULL || windows == 0 ||
        tw_engine_cache_bytes(source->engine) > TW_TEXT_SAMPLE_CACHE) {
        return tw_fail(err, TW_AGAIN, "no sample of text can be taken of this run");
    }
    uint32_t *const window = malloc((source->data->context + (size_t)1) * sizeof(*window));
    if (window == NULL) return tw_fail(err, TW_NOMEM, "no memory for a sample of text");
    /* The windows chosen lie far apart, so that each sample begins elsewhere. */
    const uint64_t index = sampler->taken_count++ * UINT64_C(0x9E3779B97F4A7C15) % windows;
    memset(sample, 0, sizeof(*sample));
    enum tw_status status = tw_data_heldout(source->data, index, windows, window, err);
    if (status == TW_OK) status = continue_window(sampler, source, bytes, window, sample, err);
    free(window);
    return status;
}

void tw_text_sampler_close(struct tw_text_sampler *sampler) {
    tw_tokenizer_destroy(sampler->tokenizer);
    memset(sampler, 0, sizeof(*sampler));
}
