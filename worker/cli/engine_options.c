#include "worker/cli/engine_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"

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
