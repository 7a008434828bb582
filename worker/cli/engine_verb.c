#include "worker/cli/engine_verb.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/nearest.h"
#include "base/page.h"
#include "base/units.h"
#include "worker/data/corpus.h"
#include "worker/files/model_source.h"
#include "worker/support/out_file.h"
#include "worker/support/utf8.h"

enum tw_exit engine_fail(const struct tw_error *err) {
    tw_page_say("%s", err->message);
    if (err->status == TW_DATA || err->status == TW_AGAIN) return TW_EXIT_DATA;
    if (err->status == TW_CORRUPT) return TW_EXIT_CORRUPT;
    if (err->status == TW_DEVICE) return TW_EXIT_DEVICE;
    return err->status == TW_CONFIG ? TW_EXIT_USAGE : TW_EXIT_FAILURE;
}

static void warn_text_token(const struct tw_tokenizer *tokenizer, uint32_t text) {
    size_t size = 0, shown_size = 0;
    char *shown = NULL;
    const char *const token = (const char *)tw_tokenizer_token(tokenizer, text, &size);
    FILE *const memory = open_memstream(&shown, &shown_size);
    if (memory == NULL) return;
    tw_json_text_print(memory, (const uint8_t *)token, size);
    if (fclose(memory) == 0)
        tw_page_say("the model's eos_token_id %u is the token %s, which is text; name the token "
                    "that ends a text with --eos",
                    text, shown);
    free(shown);
}

void engine_warn_ends(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer,
                      uint32_t vocab) {
    const char *const conflict = tw_text_ends_conflict(ends);
    if (conflict != NULL) tw_page_say("%s", conflict);
    const uint32_t text = tokenizer != NULL ? tw_text_ends_text(ends, tokenizer) : TW_TOKEN_NONE;
    if (ends->ignored != TW_TOKEN_NONE) {
        tw_page_say("the model's eos_token_id %u is outside its vocabulary of %u; name "
                    "the token that ends a text with --eos",
                    ends->ignored, vocab);
    } else if (text != TW_TOKEN_NONE) {
        warn_text_token(tokenizer, text);
    } else if (tokenizer != NULL && ends->generation.eos_count == 0) {
        tw_page_say("nothing says which token ends a text; name it with "
                    "--eos, as text or number");
    }
}

double engine_now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum tw_status engine_take_state(const char **model, const char **run, const char *part,
                                 struct tw_state_found *found, struct tw_error *err) {
    bool is_one = false;
    char age[TW_UNITS_BYTES] = "-";
    struct stat info;
    if (*model == NULL) return TW_OK;
    if (access(*model, R_OK) != 0 && errno == EACCES)
        return tw_fail(err, TW_IO, "%s: %s: a node's files are its user's; use sudo", *model,
                       strerror(errno));
    TW_TRY(tw_state_folder_find(*model, part, &is_one, found, err));
    if (!is_one) return TW_OK;
    if (stat(found->checkpoint, &info) == 0)
        (void)tw_units_duration(age, fmax(0, difftime(time(NULL), info.st_mtime)));
    tw_page_say("%s%suses %s, step %llu, saved %s ago (a running node saves a newer one "
                "on the command checkpoint)",
                found->refused, found->refused[0] != 0 ? "; " : "", found->checkpoint,
                (unsigned long long)found->step, age);
    *model = found->checkpoint;
    if (*run == NULL && found->manifest[0] != 0) *run = found->manifest;
    return TW_OK;
}

enum tw_status engine_open(struct engine_bench *bench, enum engine_verb verb,
                           struct tw_error *err) {
    const struct tw_engine_config config = {.run = &bench->run,
                                            .layout = &bench->layout,
                                            .compute = bench->compute,
                                            .is_inference = verb != ENGINE_TRAIN,
                                            .has_cache = verb == ENGINE_GENERATE};
    return tw_engine_create(&bench->engine, &config, err);
}

enum tw_status engine_read(const struct engine_bench *bench, const char *path, float *params,
                           struct tw_error *err) {
    struct tw_model_source source;
    TW_TRY(tw_engine_source_open(&source, path, &bench->run, &bench->layout, bench->options->part,
                                 err));
    enum tw_status status = TW_OK;
    if (bench->options->adapter != NULL) {
        status = tw_model_source_adapt(&source, bench->options->adapter, &bench->run, err);
    }
    for (uint32_t i = 0; status == TW_OK && i < bench->layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &bench->layout.tensors[i];
        status = tw_model_source_read(&source, i, 0, (uint64_t)tensor->rows * tensor->cols,
                                      params + tensor->offset, err);
    }
    tw_model_source_close(&source);
    return status;
}

enum tw_status engine_load(struct engine_bench *bench, const char *path, struct tw_error *err) {
    TW_TRY(engine_read(bench, path, bench->engine->theta, err));
    return tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err);
}

/* ---- options --------------------------------------------------------------------------------- */

enum type { TEXT, FLAG, U32, U64, REAL, BYTES, CHOICE, DEVICE, MICRO_BATCH };
static const char *const COMPUTES[] = {"auto", "fp32", "bf16", NULL};
static const char *const RECOMPUTES[] = {"auto", "off", "on", NULL};

enum {
    COMPUTE =
        ENGINE_TRAIN | ENGINE_EVAL | ENGINE_GENERATE | ENGINE_MODELS | ENGINE_MERGE | ENGINE_SPEED,
    ALL = COMPUTE | ENGINE_INFO,
    USE = ENGINE_EVAL | ENGINE_GENERATE | ENGINE_MERGE,
};

static const struct option {
    const char *name;
    unsigned verbs; /* bit set of the commands that accept the option */
    enum type type;
    size_t offset;
    double max; /* largest accepted number */
    const char *const *choices;
} OPTIONS[] = {
#define AT(member) offsetof(struct engine_options, member)
    {"--run", ENGINE_TRAIN | ENGINE_SPEED | USE, TEXT, AT(run), 0, NULL},
    {"--data", ENGINE_TRAIN | ENGINE_EVAL | ENGINE_MERGE, TEXT, AT(data), 0, NULL},
    {"--node", ENGINE_EVAL | ENGINE_GENERATE, TEXT, AT(node), 0, NULL},
    {"--node-data", ENGINE_EVAL | ENGINE_GENERATE, TEXT, AT(node_data), 0, NULL},
    {"--out", ENGINE_TRAIN | ENGINE_MERGE, TEXT, AT(out), 0, NULL},
    {"--from", ENGINE_TRAIN, TEXT, AT(from), 0, NULL},
    {"--part", ENGINE_TRAIN | USE, TEXT, AT(part), 0, NULL},
    {"--prompt", ENGINE_GENERATE, TEXT, AT(prompt), 0, NULL},
    {"--tokenizer", ENGINE_GENERATE, TEXT, AT(tokenizer), 0, NULL},
    {"--eos", ENGINE_GENERATE, TEXT, AT(eos), 0, NULL},
    {"--adapter", ENGINE_EVAL | ENGINE_GENERATE, TEXT, AT(adapter), 0, NULL},
    {"--steps", ENGINE_TRAIN, U64, AT(steps), 1e12, NULL},
    {"--eval-steps", ENGINE_TRAIN, U64, AT(eval_steps), 1e12, NULL},
    {"--save-every", ENGINE_TRAIN, U64, AT(save_steps), 1e12, NULL},
    {"--windows", ENGINE_EVAL | ENGINE_MERGE, U64, AT(windows), 1e12, NULL},
    {"--whole", ENGINE_EVAL, FLAG, AT(is_whole), 0, NULL},
    {"--trainers", ENGINE_MODELS, FLAG, AT(has_trainers), 0, NULL},
    {"--tokens", ENGINE_GENERATE, U64, AT(tokens), 1e7, NULL},
    {"--seed", ENGINE_TRAIN | ENGINE_GENERATE, U64, AT(seed), 1e15, NULL},
    {"--samples", ENGINE_GENERATE, U32, AT(samples), 1e6, NULL},
    {"-n", ENGINE_GENERATE, U32, AT(samples), 1e6, NULL},
    {"--top-k", ENGINE_GENERATE, U32, AT(top_k), 1e6, NULL},
    {"--top-p", ENGINE_GENERATE, REAL, AT(top_p), 1, NULL},
    {"--temperature", ENGINE_GENERATE, REAL, AT(temperature), 100, NULL},
    {"--repeat-penalty", ENGINE_GENERATE, REAL, AT(repeat_penalty), 100, NULL},
    {"--device", ALL, DEVICE, AT(compute.device), 0, NULL},
    {"--threads", COMPUTE, U32, AT(compute.threads), 256, NULL},
    {"--compute", COMPUTE, CHOICE, AT(compute.compute), 0, COMPUTES},
    {"--recompute", ENGINE_TRAIN | ENGINE_SPEED, CHOICE, AT(compute.recompute), 0, RECOMPUTES},
    {"--micro-batch", ENGINE_TRAIN | ENGINE_SPEED, MICRO_BATCH, AT(compute.micro_batch), 65536,
     NULL},
    {"--memory", COMPUTE, BYTES, AT(compute.memory_bytes), 0, NULL},
    {"--weights", ENGINE_MERGE, TEXT, AT(weights), 0, NULL},
    {"--temperature", ENGINE_MERGE, REAL, AT(merge_temperature), 100, NULL},
    {"--ablate", ENGINE_MERGE, FLAG, AT(is_ablation), 0, NULL},
    {"--plan", ENGINE_TRAIN | ENGINE_SPEED, FLAG, AT(is_plan), 0, NULL},
    {"--profile", ENGINE_TRAIN, FLAG, AT(is_profiled), 0, NULL},
    {"--json", ALL, FLAG, AT(json), 0, NULL},
};
enum { OPTIONS_COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };

static enum tw_status set_number(const struct option *option, void *field, const char *text,
                                 struct tw_error *err) {
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    const bool is_good =
        end != text && *end == 0 && errno == 0 && value >= 0 && value <= option->max;
    const uint64_t whole = is_good ? (uint64_t)value : 0;
    if (!is_good || (option->type != REAL && (double)whole != value)) {
        return tw_fail(err, TW_CONFIG, "%s %s: a %s from 0 to %.15g", option->name, text,
                       option->type == REAL ? "number" : "whole number", option->max);
    }
    const uint32_t narrow = (uint32_t)whole;
    if (option->type == REAL) memcpy(field, &value, sizeof(value));
    if (option->type == U64) memcpy(field, &whole, sizeof(whole));
    if (option->type == U32 || option->type == MICRO_BATCH) memcpy(field, &narrow, sizeof(narrow));
    return TW_OK;
}

static enum tw_status set_choice(const struct option *option, void *field, const char *text,
                                 struct tw_error *err) {
    unsigned i = 0;
    while (option->choices[i] != NULL && strcmp(option->choices[i], text) != 0) i++;
    if (option->choices[i] == NULL) {
        return tw_fail(err, TW_CONFIG, "%s %s: it is %s, %s or %s", option->name, text,
                       option->choices[0], option->choices[1], option->choices[2]);
    }
    memcpy(field, &i, sizeof(i));
    return TW_OK;
}

static enum tw_status set(struct engine_options *options, const struct option *option,
                          const char *text, struct tw_error *err) {
    void *const field = (char *)options + option->offset;
    if (option->offset == AT(seed)) options->has_seed = true;
    switch (option->type) {
    case TEXT:
        if (text[0] == 0 && option->offset != AT(prompt)) break;
        memcpy(field, &text, sizeof(text));
        return TW_OK;
    case CHOICE: return set_choice(option, field, text, err);
    case MICRO_BATCH:
        if (strcmp(text, "auto") == 0) text = "0";
        return set_number(option, field, text, err);
    case DEVICE:
        if (tw_device_parse(text, field, NULL) == TW_OK) return TW_OK;
        return tw_fail(err, TW_CONFIG, "--device %.40s: it is auto, cpu, cuda or cuda:N", text);
    case BYTES:
        if (tw_units_parse_bytes(text, field)) return TW_OK;
        return tw_fail(err, TW_CONFIG, "%s %s: a size such as 8GB or 512MiB", option->name, text);
    case U32:
    case U64:
    case REAL: return set_number(option, field, text, err);
    case FLAG: break;
    }
    return tw_fail(err, TW_CONFIG, "%s %s", option->name,
                   option->type == FLAG ? "takes no value" : "wants a value");
}

static enum tw_status unknown(const char *argument, enum engine_verb verb, struct tw_error *err) {
    const char *names[OPTIONS_COUNT];
    size_t count = 0;
    for (unsigned i = 0; i < OPTIONS_COUNT; i++) {
        if ((OPTIONS[i].verbs & verb) != 0) names[count++] = OPTIONS[i].name;
    }
    const char *const near = tw_nearest(argument, names, count);
    if (near != NULL) {
        return tw_fail(err, TW_CONFIG, "`%s` is unknown; did you mean %s?", argument, near);
    }
    return tw_fail(err, TW_CONFIG, "`%s` is unknown; see `thinwire help`", argument);
}

static const struct option *find(const char *argument, enum engine_verb verb) {
    const size_t size = strcspn(argument, "=");
    for (unsigned i = 0; i < OPTIONS_COUNT; i++) {
        const bool is_same =
            strlen(OPTIONS[i].name) == size && strncmp(OPTIONS[i].name, argument, size) == 0;
        if (is_same && (OPTIONS[i].verbs & verb) != 0) return &OPTIONS[i];
    }
    return NULL;
}

static enum tw_status add_file(struct engine_options *options, const char *path,
                               struct tw_error *err) {
    if (options->files_count == ENGINE_FILES_MAX) {
        return tw_fail(err, TW_CONFIG, "%s: merge takes at most %d files", path, ENGINE_FILES_MAX);
    }
    options->files[options->files_count++] = path;
    options->file = options->files[0];
    return TW_OK;
}

enum tw_status tw_engine_options_parse(struct engine_options *options, enum engine_verb verb,
                                       int argc, char **argv, struct tw_error *err) {
    for (int i = 2; i < argc; i++) {
        const struct option *const option = find(argv[i], verb);
        const char *const equals = strchr(argv[i], '=');
        const bool is_operand = option == NULL && argv[i][0] != '-' && (USE & verb) != 0;
        if (is_operand && verb == ENGINE_MERGE) {
            TW_TRY(add_file(options, argv[i], err));
        } else if (is_operand && options->file == NULL) {
            options->file = argv[i];
        } else if (option == NULL) {
            return unknown(argv[i], verb, err);
        } else if (equals != NULL) {
            TW_TRY(set(options, option, equals + 1, err));
        } else if (option->type == FLAG) {
            memcpy((char *)options + option->offset, &(bool){true}, sizeof(bool));
        } else if (i + 1 < argc) {
            TW_TRY(set(options, option, argv[++i], err));
        } else {
            return tw_fail(err, TW_CONFIG, "%s wants a value", argv[i]);
        }
    }
    if (options->file == NULL && options->node != NULL) {
        options->file = options->node;
        if (options->data == NULL && verb == ENGINE_EVAL) options->data = options->node_data;
    }
    if (strcmp(options->part, "live") != 0 && strcmp(options->part, "anchor") != 0) {
        return tw_fail(err, TW_CONFIG, "--part %s: it is live or anchor", options->part);
    }
    if (options->repeat_penalty < 0.01) { /* the penalty divides logits, so it must not be near 0 */
        return tw_fail(err, TW_CONFIG, "--repeat-penalty %g: a number from 0.01 to 100",
                       options->repeat_penalty);
    }
    return TW_OK;
}

/* ---- tokenizers of a folder and of a dataset ------------------------------------------------- */

/* A tokenizer.json and its SHA-256. */
struct side {
    char path[PATH_MAX];
    char *json;
    size_t bytes;
    struct tw_id digest;
    struct tw_tokenizer *tokenizer;
};

static bool has_file(struct side *side, const char *folder, const char *name) {
    const int n = snprintf(side->path, sizeof(side->path), "%s/%s", folder, name);
    return n > 0 && n < (int)sizeof(side->path) && access(side->path, R_OK) == 0;
}

static enum tw_status read_side(struct side *side, struct tw_error *err) {
    TW_TRY(
        tw_in_read_whole(side->path, TW_TOKENIZER_JSON_BYTES_MAX, &side->json, &side->bytes, err));
    side->digest = tw_sha256(side->json, side->bytes);
    return TW_OK;
}

/* Returns the lowest token of the dataset that has other bytes in the model's tokenizer, or
 * TW_TOKEN_NONE. */
static uint32_t first_other(const struct tw_tokenizer *model, const struct tw_tokenizer *data,
                            uint32_t vocab) {
    for (uint32_t token = 0; token < vocab; token++) {
        size_t sizes[2] = {0, 0};
        const uint8_t *const one =
            token < tw_tokenizer_vocab(model) ? tw_tokenizer_token(model, token, &sizes[0]) : NULL;
        const uint8_t *const two =
            token < tw_tokenizer_vocab(data) ? tw_tokenizer_token(data, token, &sizes[1]) : NULL;
        if (sizes[0] != sizes[1]) return token;
        if (sizes[0] > 0 && memcmp(one, two, sizes[0]) != 0) return token;
    }
    return TW_TOKEN_NONE;
}

/* Compares the tokens, because files that differ may still give the same tokens: programs write
 * tokenizer.json in many ways. */
static enum tw_status compare(struct side *model, struct side *data, uint32_t vocab,
                              const char *folder, struct tw_error *err) {
    struct tw_error why;
    if (tw_tokenizer_create_json(&model->tokenizer, model->json, model->bytes, &why) != TW_OK ||
        tw_tokenizer_create_json(&data->tokenizer, data->json, data->bytes, &why) != TW_OK) {
        tw_page_say("%.100s and %.100s differ and cannot be compared: are these data of "
                    "the model's tokenizer?",
                    model->path, data->path);
        return TW_OK;
    }
    const uint32_t token = first_other(model->tokenizer, data->tokenizer, vocab);
    if (token == TW_TOKEN_NONE) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "%.80s has the tokens of another tokenizer than the model (%u is the first that "
                   "differs): prepare it with --tokenizer %.100s",
                   folder, token, model->path);
}

/* Warns if documents begin with another token than the texts on which the model was trained. */
static enum tw_status compare_begin(struct side *model, const char *folder, const char *data,
                                    const struct tw_dataset *dataset, struct tw_error *err) {
    struct tw_text_ends ends;
    struct tw_error why;
    if (model->tokenizer == NULL &&
        tw_tokenizer_create_json(&model->tokenizer, model->json, model->bytes, &why) != TW_OK) {
        return TW_OK; /* compare() reports this error if it matters */
    }
    const struct tw_text_ends_source source = {.model = folder,
                                               .tokenizer_path = model->path,
                                               .tokenizer = model->tokenizer,
                                               .vocab = tw_tokenizer_vocab(model->tokenizer)};
    TW_TRY(tw_text_ends_read(&ends, &source, err));
    const uint32_t first = tw_tokenizer_first(model->tokenizer);
    const bool begins = first != TW_TOKEN_NONE;
    const bool is_end =
        dataset->separator >= 0 && tw_text_ends_at(&ends, (uint32_t)dataset->separator);
    const uint32_t wanted = begins || ends.tokenizer.eos_count == 0 ? first : ends.tokenizer.eos[0];
    if (wanted == TW_TOKEN_NONE || dataset->separator == (int64_t)wanted || (!begins && is_end)) {
        return TW_OK;
    }
    char token[24] = "no token";
    if (dataset->separator >= 0) {
        (void)snprintf(token, sizeof(token), "%lld", (long long)dataset->separator);
    }
    tw_page_say("documents of %.100s begin with %s, texts of the model %s %u: to change "
                "that, prepare them with --tokenizer %.100s",
                data, token, begins ? "begin with" : "end with", wanted, model->path);
    return TW_OK;
}

static enum tw_status check_model(const char *folder, const char *data,
                                  const struct tw_dataset *dataset, struct tw_error *err) {
    static struct side sides[2]; /* tokenizers of the model and of the dataset */
    memset(sides, 0, sizeof(sides));
    if (!has_file(&sides[0], folder, "tokenizer.json") ||
        !has_file(&sides[1], data, TW_DATASET_TOKENIZER_FILE)) {
        return TW_OK;
    }
    enum tw_status status = read_side(&sides[0], err);
    if (status == TW_OK && !tw_id_equal(&sides[0].digest, &dataset->tokenizer)) {
        status = read_side(&sides[1], err);
        if (status == TW_OK) {
            status = compare(&sides[0], &sides[1], dataset->vocab, data, err);
        }
    }
    if (status == TW_OK) status = compare_begin(&sides[0], folder, data, dataset, err);
    for (unsigned i = 0; i < 2; i++) {
        tw_tokenizer_destroy(sides[i].tokenizer);
        free(sides[i].json);
    }
    return status;
}

enum tw_status engine_check_tokenizer(const struct engine_options *options, struct tw_error *err) {
    static struct tw_dataset dataset;
    struct tw_id digest;
    char index[PATH_MAX];
    if (options->data == NULL) return TW_OK;
    const int n = snprintf(index, sizeof(index), "%s/%s", options->data, TW_DATASET_INDEX_FILE);
    if (n < 0 || n >= (int)sizeof(index) || access(index, R_OK) != 0) return TW_OK;
    TW_TRY(tw_dataset_read(options->data, &dataset, &digest, err));
    free(dataset.shards);
    dataset.shards = NULL;
    /* A dataset of bytes has no tokenizer to compare: the opening of its data checks it. */
    if (tw_id_is_zero(&dataset.tokenizer)) return TW_OK;
    const char *const models[] = {options->file, options->from};
    for (unsigned i = 0; i < 2; i++) {
        if (models[i] != NULL) TW_TRY(check_model(models[i], options->data, &dataset, err));
    }
    for (uint32_t i = 1; i < options->files_count; i++) {
        TW_TRY(check_model(options->files[i], options->data, &dataset, err));
    }
    return TW_OK;
}

/* ---- vocabulary of a model to export --------------------------------------------------------- */

void tw_engine_words_free(struct convert_words *words) {
    tw_tokenizer_destroy(words->tokenizer);
    free(words->text);
    words->tokenizer = NULL;
    words->text = NULL;
}

static enum tw_status read_text(struct convert_words *words,
                                const struct convert_words_source *source, struct tw_error *err) {
    const bool is_named = source->tokenizer != NULL;
    const int n = is_named ? snprintf(words->path, PATH_MAX, "%s", source->tokenizer)
                           : snprintf(words->path, PATH_MAX, "%s/tokenizer.json", source->from);
    const bool is_there =
        n < PATH_MAX && (is_named || (source->is_folder && access(words->path, F_OK) == 0));
    if (!is_there) {
        words->path[0] = 0;
        return TW_OK;
    }
    TW_TRY(tw_in_read_whole(words->path, TW_TOKENIZER_JSON_BYTES_MAX, &words->text, &words->bytes,
                            err));
    if (words->text[strspn(words->text, " \t\r\n")] == '{') return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s is not a tokenizer.json: name another one with --tokenizer",
                   words->path);
}

static enum tw_status read_tokenizer(struct convert_words *words, const struct tw_run *run,
                                     struct tw_error *err) {
    if (words->text == NULL) {
        return run->data.tokenizer == TW_TOKENIZER_BYTES
                   ? tw_tokenizer_create_bytes(&words->tokenizer, err)
                   : TW_OK;
    }
    const enum tw_status status =
        tw_tokenizer_create_json(&words->tokenizer, words->text, words->bytes, &words->why);
    if (status != TW_OK) words->tokenizer = NULL;
    return status == TW_NOMEM ? tw_fail(err, status, "%s", words->why.message) : TW_OK;
}

enum tw_status tw_engine_words_check(const struct tw_tokenizer *tokenizer, const char *path,
                                     uint32_t vocab, struct tw_error *err) {
    if (tokenizer == NULL || tw_tokenizer_normal_vocab(tokenizer) <= vocab) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%.160s has %u tokens and the model %u: it is not this model's; name the "
                   "model's with --tokenizer",
                   path[0] != 0 ? path : "the byte tokenizer", tw_tokenizer_normal_vocab(tokenizer),
                   vocab);
}

void tw_engine_words_compare(const char *model, const char *path,
                             const struct tw_tokenizer *tokenizer) {
    char own[PATH_MAX];
    struct tw_tokenizer *other = NULL;
    struct tw_error why;
    const int n = snprintf(own, sizeof(own), "%s/tokenizer.json", model);
    if (tokenizer == NULL || n >= (int)sizeof(own) || access(own, R_OK) != 0) return;
    if (tw_tokenizer_create_file(&other, own, &why) != TW_OK)
        return; /* of a kind that is not read */
    const uint32_t a = tw_tokenizer_vocab(other), b = tw_tokenizer_vocab(tokenizer);
    const uint32_t token = first_other(other, tokenizer, a > b ? a : b);
    tw_tokenizer_destroy(other);
    if (token == TW_TOKEN_NONE) return;
    (void)fprintf(stderr,
                  "thinwire: %s has other tokens than %s, the model's own (%u is the first that "
                  "differs); leave out --tokenizer for that\n",
                  path, own, token);
}

void tw_engine_words_hint(const char *folder) {
    static const char UNREAD[] =
        "which is not read: make token numbers of texts with its library, for --prompt or a run "
        "with data.tokenizer=ids";
    static const struct {
        const char *file, *hint;
    } OTHERS[] = {{"tokenizer.model", UNREAD},
                  {"spiece.model", UNREAD},
                  {"tekken.json", UNREAD},
                  {"vocab.json", "of which this makes a tokenizer.json"}};
    for (unsigned i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        char path[PATH_MAX];
        const int n = snprintf(path, sizeof(path), "%s/%s", folder, OTHERS[i].file);
        if (n >= (int)sizeof(path) || access(path, F_OK) != 0) continue;
        tw_page_say("%s has no tokenizer.json but %s, %s", folder, OTHERS[i].file, OTHERS[i].hint);
        if (OTHERS[i].hint != UNREAD) {
            (void)fprintf(stderr,
                          "  python3 -c \"from transformers import AutoTokenizer as T; "
                          "T.from_pretrained('%s').save_pretrained('OUT')\"\n",
                          folder);
        }
        return;
    }
}

enum tw_status tw_engine_words_read(struct convert_words *words, const struct tw_run *run,
                                    const struct convert_words_source *source,
                                    struct tw_error *err) {
    memset(words, 0, sizeof(*words));
    TW_TRY(read_text(words, source, err));
    if (words->text == NULL && source->is_folder) tw_engine_words_hint(source->from);
    TW_TRY(read_tokenizer(words, run, err));
    TW_TRY(tw_engine_words_check(words->tokenizer, words->path, run->model.vocab, err));
    if (source->is_folder && source->tokenizer != NULL) {
        tw_engine_words_compare(source->from, words->path, words->tokenizer);
    }
    const struct tw_text_ends_source ends = {.model = source->from,
                                             .tokenizer_path =
                                                 words->path[0] != 0 ? words->path : NULL,
                                             .tokenizer = words->tokenizer,
                                             .vocab = run->model.vocab,
                                             .eos = source->eos};
    TW_TRY(tw_text_ends_read(&words->ends, &ends, err));
    if (words->tokenizer != NULL) tw_tokenizer_set_ends(words->tokenizer, &words->ends);
    return TW_OK;
}
