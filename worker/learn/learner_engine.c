#include "worker/learn/learner_engine.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine/generate.h"
#include "worker/merge/merge_memory.h"

enum { TW_EVAL_TOKENS = 4096, TW_EVAL_WINDOWS_MIN = 8 };

enum {
    TW_TEXT_SAMPLE_US = 1000 * 1000,  /* a sample that takes longer ends early */
    TW_TEXT_SAMPLE_CACHE = 256 << 20, /* most bytes of a key/value cache for samples */
};

struct tw_text_sampler_source {
    struct tw_engine *engine; /* the engine whose theta generates text; tw_engine_watch also ends a
                                 sample */
    struct tw_data *data;
    const char *data_path; /* folder of the dataset's shards and its tokenizer.json */
};

/* ---- batches --------------------------------------------------------------------------------- */

/* Draws the batch of the next step. An error is found again, and reported, when that step begins.
 */
static const uint32_t *draw_next(void *self) {
    struct tw_batches *batches = self;
    batches->next.begin = batches->next.end = batches->reached;
    batches->next.files_here = batches->data->files_here;
    batches->next.is_drawn = tw_data_draw(batches->data, batches->seed, &batches->next.end,
                                          batches->batch, batches->next.tokens, NULL) == TW_OK;
    return batches->next.is_drawn ? batches->next.tokens : NULL;
}

enum tw_status tw_batches_open(struct tw_batches *batches, struct tw_engine *engine,
                               struct tw_data *data, uint64_t seed, struct tw_error *err) {
    const size_t tokens = (size_t)engine->run->train.batch * (engine->run->model.context + 1);
    *batches = (struct tw_batches){.data = data, .seed = seed, .batch = engine->run->train.batch};
    batches->tokens = calloc(tokens, sizeof(*batches->tokens));
    batches->next.tokens = calloc(tokens, sizeof(*batches->next.tokens));
    if (batches->tokens == NULL || batches->next.tokens == NULL) {
        tw_batches_close(batches);
        return tw_fail(err, TW_NOMEM, "no memory for a batch of tokens");
    }
    tw_engine_look_ahead(engine, draw_next, batches);
    return TW_OK;
}

void tw_batches_close(struct tw_batches *batches) {
    free(batches->next.tokens);
    free(batches->tokens);
    memset(batches, 0, sizeof(*batches));
}

/* Makes the batch drawn ahead the current one, if it is the one at this cursor. After new files
 * have arrived, another batch may be there. */
static bool take_next(struct tw_batches *batches, uint64_t cursor) {
    const bool is_same = batches->next.is_drawn && batches->next.begin == cursor &&
                         batches->next.files_here == batches->data->files_here;
    batches->next.is_drawn = false;
    if (!is_same) return false;
    uint32_t *const tokens = batches->tokens;
    batches->tokens = batches->next.tokens;
    batches->next.tokens = tokens;
    return true;
}

enum tw_status tw_batches_draw(struct tw_batches *batches, uint64_t *cursor, struct tw_error *err) {
    if (take_next(batches, *cursor)) {
        *cursor = batches->next.end;
    } else {
        TW_TRY(tw_data_draw(batches->data, batches->seed, cursor, batches->batch, batches->tokens,
                            err));
    }
    batches->reached = *cursor;
    return TW_OK;
}

/* ---- loss on held-out data ------------------------------------------------------------------- */

enum { GROUP_MAX = 8, GROUPS_WANTED = 16 };

/* Sums over groups of windows, for mean and standard error in one pass.
 *
 *     m_g = mean loss of group g,  w_g = scored tokens of g / all scored tokens
 *     mean = sum w_g * m_g
 *     error^2 = n / (n - 1) * sum (w_g * (m_g - mean))^2  over n groups
 *
 * squares, cross and weights are the sums of (w_g * m_g)^2, w_g^2 * m_g and w_g^2. Until `finish`,
 * w_g is the number of scored tokens. */
struct sums {
    double mean, squares, cross, weights;
    uint64_t groups, scored;
};

static void add_group(struct sums *sums, double mean, uint64_t scored) {
    const double weight = (double)scored;
    if (scored == 0) return;
    sums->scored += scored;
    sums->mean += weight * mean;
    sums->squares += weight * mean * weight * mean;
    sums->cross += weight * weight * mean;
    sums->weights += weight * weight;
    sums->groups++;
}

static void finish(struct sums *sums) {
    const double all = (double)sums->scored;
    sums->mean /= all;
    sums->squares /= all * all;
    sums->cross /= all * all;
    sums->weights /= all * all;
}

static double error_of(const struct sums *sums) {
    if (sums->groups < 2) return (double)NAN;
    const double n = (double)sums->groups, mean = sums->mean;
    const double apart = sums->squares - 2 * mean * sums->cross + mean * mean * sums->weights;
    return sqrt(fmax(apart, 0) * n / (n - 1));
}

/* Returns the number of windows per group: fewer if there are few windows, so that several groups
 * can be compared. */
static uint32_t group_of(uint64_t windows) {
    const uint64_t group = windows / GROUPS_WANTED;
    return group < 1 ? 1 : group > GROUP_MAX ? GROUP_MAX : (uint32_t)group;
}

uint64_t tw_eval_windows(const struct tw_run *run) {
    const uint64_t wanted = TW_EVAL_TOKENS / run->model.context;
    return wanted > TW_EVAL_WINDOWS_MIN ? wanted : TW_EVAL_WINDOWS_MIN;
}

enum tw_status tw_eval_heldout(struct tw_engine *engine, struct tw_data *data, const float *params,
                               uint64_t windows_count, struct tw_eval *eval, struct tw_error *err) {
    const struct tw_eval_wish wish = {.windows = windows_count};
    return tw_eval_heldout_shown(engine, data, params, &wish, eval, err);
}

enum tw_status tw_eval_heldout_shown(struct tw_engine *engine, struct tw_data *data,
                                     const float *params, const struct tw_eval_wish *wish,
                                     struct tw_eval *eval, struct tw_error *err) {
    const uint64_t there = tw_data_heldout_count(data);
    const uint64_t count = wish->windows == 0 || wish->windows > there ? there : wish->windows;
    if (count == 0) {
        return tw_fail(err, TW_DATA, "nothing is held out, or no held-out shard is here yet");
    }
    const size_t window = (size_t)data->context + 1;
    const uint32_t group = group_of(count);
    uint32_t *tokens = malloc(group * window * sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for held-out windows");
    enum tw_status status = TW_OK;
    struct sums sums = {.groups = 0};
    tw_engine_hold(engine, params);
    for (uint64_t i = 0; i < count && status == TW_OK;) {
        uint32_t taken = 0;
        for (; status == TW_OK && taken < group && i < count; taken++, i++) {
            status = tw_data_heldout(data, i, count, tokens + taken * window, err);
        }
        double loss = 0.0;
        if (status == TW_OK) {
            status = tw_engine_loss(engine, params, tokens, taken, &loss, err);
        }
        add_group(&sums, loss, tw_engine_scored(engine, tokens, taken));
        if (status == TW_OK && wish->progress != NULL) wish->progress(wish->user, i, count);
    }
    tw_engine_hold(engine, NULL);
    free(tokens);
    if (status != TW_OK) return status;
    if (sums.scored == 0) {
        return tw_fail(err, TW_DATA,
                       "the held-out windows hold no token of an answer: hold out "
                       "more, or train with a longer context");
    }
    finish(&sums);
    *eval = (struct tw_eval){.nats = sums.mean,
                             .standard_error = error_of(&sums),
                             .windows = count,
                             .tokens = sums.scored};
    return TW_OK;
}

/* ---- text samples ---------------------------------------------------------------------------- */

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

/* ---- pieces of text -------------------------------------------------------------------------- */

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

/* Generates a sample of about `bytes` bytes. Fills prompt and text of *sample with well-formed
 * UTF-8. The tokenizer is opened at the first call. Returns TW_AGAIN if no sample can be generated:
 * there is no tokenizer, nothing is held out, or keys and values need too much memory. Other
 * errors: TW_NOMEM, TW_DATA, TW_CORRUPT, TW_DEVICE. */
static enum tw_status sampler_take(struct tw_text_sampler *sampler,
                                   const struct tw_text_sampler_source *source, uint32_t bytes,
                                   struct tw_wmsg_sample *sample, struct tw_error *err) {
    const uint64_t windows = tw_data_heldout_count(source->data);
    open_tokenizer(sampler, source);
    if (sampler->tokenizer == NULL || windows == 0 ||
        tw_engine_cache_bytes(source->engine) > TW_TEXT_SAMPLE_CACHE) {
        return tw_fail(err, TW_AGAIN, "no sample of text can be taken of this run");
    }
    uint32_t *const window = calloc(source->data->context + (size_t)1, sizeof(*window));
    if (window == NULL) return tw_fail(err, TW_NOMEM, "no memory for a sample of text");
    /* The windows chosen lie far apart, so that each sample begins elsewhere. */
    const uint64_t index = sampler->taken_count++ * UINT64_C(0x9E3779B97F4A7C15) % windows;
    memset(sample, 0, sizeof(*sample));
    enum tw_status status = tw_data_heldout(source->data, index, windows, window, err);
    for (uint32_t i = 0; i <= source->data->context; i++) window[i] &= ~TW_TOKEN_UNSCORED;
    if (status == TW_OK) status = continue_window(sampler, source, bytes, window, sample, err);
    free(window);
    return status;
}

/* Accepts a zeroed sampler. */
static void sampler_close(struct tw_text_sampler *sampler) {
    tw_tokenizer_destroy(sampler->tokenizer);
    memset(sampler, 0, sizeof(*sampler));
}

/* ---- the learner ----------------------------------------------------------------------------- */

static void init(void *self, float *params) {
    const struct tw_learner_engine *real = self;
    tw_engine_init_params(real->run, real->engine->layout, params);
}

/* Looks for new shards, at most once a second: they may arrive during training. */
static void refresh(struct tw_learner_engine *real) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec == real->refreshed_s) return;
    real->refreshed_s = now.tv_sec;
    tw_data_refresh(&real->data);
}

static enum tw_status step(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err) {
    struct tw_learner_engine *real = self;
    const uint64_t begin = *cursor;
    refresh(real);
    TW_TRY(tw_batches_draw(&real->batches, cursor, err));
    const enum tw_status status =
        tw_engine_step(real->engine, real->batches.tokens, lr, result, err);
    if (status == TW_AGAIN) *cursor = begin; /* the same batch is drawn again later */
    return status;
}

static void watch(void *self, const _Atomic bool *stop) {
    struct tw_learner_engine *real = self;
    tw_engine_watch(real->engine, stop);
}

static enum tw_status heldout(void *self, const float *params, double *loss, struct tw_error *err) {
    struct tw_learner_engine *real = self;
    struct tw_eval eval;
    if (real->data_path[0] == '\0') return tw_fail(err, TW_AGAIN, "this worker reads no data");
    if (tw_data_heldout_count(&real->data) == 0) {
        return tw_fail(err, TW_AGAIN, "no held-out shard has arrived yet");
    }
    TW_TRY(
        tw_eval_heldout(real->engine, &real->data, params, tw_eval_windows(real->run), &eval, err));
    *loss = eval.nats;
    return TW_OK;
}

static uint64_t epoch_windows(void *self) {
    const struct tw_learner_engine *real = self;
    return real->data.train_count / real->run->model.context;
}

/* With a shard missing, this node would draw other windows than the node that has it. */
static bool has_all_data(void *self) {
    const struct tw_learner_engine *real = self;
    return real->data_path[0] != '\0' && real->data.files_here == real->data.files_count;
}

static enum tw_status drawn_losses(void *self, const float *params, uint64_t seed,
                                   const uint64_t *cursors, uint32_t count, double *losses,
                                   struct tw_error *err) {
    struct tw_learner_engine *real = self;
    if (!has_all_data(real)) return tw_fail(err, TW_AGAIN, "some of the data are not here");
    uint32_t *tokens = malloc(((size_t)real->run->model.context + 1) * sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a window");
    enum tw_status status = TW_OK;
    tw_engine_hold(real->engine, params);
    for (uint32_t i = 0; i < count && status == TW_OK; i++) {
        uint64_t cursor = cursors[i];
        status = tw_data_draw(&real->data, seed, &cursor, 1, tokens, err);
        if (status == TW_OK)
            status = tw_engine_loss(real->engine, params, tokens, 1, &losses[i], err);
    }
    tw_engine_hold(real->engine, NULL);
    free(tokens);
    return status;
}

static enum tw_status sample(void *self, uint32_t bytes, struct tw_wmsg_sample *sample,
                             struct tw_error *err) {
    struct tw_learner_engine *real = self;
    const struct tw_text_sampler_source source = {
        .engine = real->engine, .data = &real->data, .data_path = real->data_path};
    return sampler_take(&real->sampler, &source, bytes, sample, err);
}

static float lr(void *self, uint64_t clock_tokens) {
    const struct tw_learner_engine *real = self;
    return tw_schedule_lr(real->run, clock_tokens, real->engine->updates);
}

static enum tw_status pull(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    const struct tw_learner_engine *real = self;
    return tw_engine_pull(real->engine, arrays, begin, n, err);
}

static enum tw_status push(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    const struct tw_learner_engine *real = self;
    return tw_engine_push(real->engine, arrays, begin, n, err);
}

/* Fills the figures that users see. A GEMM rate that cannot be measured stays 0. */
static void fill_about(const struct tw_learner_engine *real, struct tw_wmsg_about *about) {
    const struct tw_engine_plan *const plan = &real->engine->plan;
    double peak = 0;
    tw_engine_describe(real->engine, about->engine, sizeof(about->engine));
    about->flops_token = tw_engine_flops_token(real->run);
    about->memory_bytes = plan->total;
    if (tw_engine_peak(plan, &peak, NULL) == TW_OK) about->peak_flops_s = (uint64_t)peak;
}

static enum tw_status create_engine(struct tw_learner_engine *real, struct tw_learner *learner,
                                    const struct tw_learner_config *config, struct tw_error *err) {
    const struct tw_run *run = config->run;
    const struct tw_engine_config engine = {
        .run = run,
        .layout = config->layout,
        .compute = config->compute,
        .sync_bytes = tw_merge_live_bytes(run, config->layout),
    };
    TW_TRY(tw_engine_create(&real->engine, &engine, err));
    TW_TRY(tw_batches_open(&real->batches, real->engine, &real->data, config->data_seed, err));
    *learner = (struct tw_learner){
        .self = real,
        .theta = real->engine->theta,
        .m = real->engine->m,
        .v = real->engine->v,
        .is_host_idle = real->engine->plan.is_on_gpu,
        .updates = &real->engine->updates,
        .tokens_per_step = (uint64_t)run->train.batch * run->model.context,
        .init = init,
        .step = step,
        .heldout = heldout,
        .sample = sample,
        .watch = watch,
        .drawn_losses = drawn_losses,
        .epoch_windows = epoch_windows,
        .has_all_data = has_all_data,
        .lr = lr,
        .pull = pull,
        .push = push,
    };
    fill_about(real, &learner->about);
    if (real->engine->plan.is_on_gpu)
        return tw_engine_vectors(real->engine, &learner->vectors, err);
    learner->vectors = tw_vectors_host(learner->theta, learner->m, learner->v);
    return TW_OK;
}

enum tw_status tw_learner_engine_open(struct tw_learner_engine *real, struct tw_learner *learner,
                                      const struct tw_learner_config *config,
                                      struct tw_error *err) {
    TW_TRY(tw_run_check_engine(config->run, err));
    memset(real, 0, sizeof(*real));
    real->run = config->run;
    real->data_path = config->data_path;
    if (config->data_path[0] != '\0')
        TW_TRY(tw_data_open(&real->data, config->data_path, config->run, err));
    const enum tw_status status = create_engine(real, learner, config, err);
    if (status != TW_OK) tw_learner_engine_close(real);
    return status;
}

void tw_learner_engine_close(struct tw_learner_engine *real) {
    sampler_close(&real->sampler);
    tw_engine_destroy(real->engine);
    tw_batches_close(&real->batches);
    tw_data_close(&real->data);
    memset(real, 0, sizeof(*real));
}
