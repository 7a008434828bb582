/* thinwire-engine data prepare: parses the command line for worker/data/prepare/prepare.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/nearest.h"
#include "proto/run/run_value.h"
#include "worker/cli/engine_verb.h"
#include "worker/data/json_field.h"
#include "worker/data/prepare/prepare.h"
#include "worker/support/signals.h"

enum { MILLION = 1000000, HELDOUT_MIN = MILLION / 1000 /* smallest data.heldout of a run */ };

struct command {
    struct tw_prepare_options options;
    const char *text, *heldout, *shard_tokens, *threads, *tokenizer; /* arguments that are not
                                                                        parsed yet */
    char names[TW_DATASET_SOURCES_MAX][TW_DATASET_NAME_BYTES];
    uint64_t weights[TW_DATASET_SOURCES_MAX]; /* weights in millionths, as typed; 0: not given */
    const char **inputs;                      /* inputs of all sources, concatenated */
    uint32_t inputs_count;
};

/* ---- sources --------------------------------------------------------------------------------- */

/* Parses the argument NAME or NAME=WEIGHT, which begins a source. */
static enum tw_status begin_source(struct command *command, const char *text,
                                   struct tw_error *err) {
    static const struct tw_unit SHARE[] = {{"", MILLION}, {"%", MILLION / 100}, {NULL, 0}};
    struct tw_prepare_options *const options = &command->options;
    const size_t length = strcspn(text, "=");
    const uint32_t s = options->sources_count;
    if (s == TW_DATASET_SOURCES_MAX) {
        return tw_fail(err, TW_CONFIG, "more than %d sources", TW_DATASET_SOURCES_MAX);
    }
    if (length == 0 || length >= TW_DATASET_NAME_BYTES ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != length) {
        return tw_fail(err, TW_CONFIG,
                       "--source %.60s: a name has 1 to %d of the characters a-z, 0-9 and -, and "
                       "after an = its weight: prose=0.7",
                       text, TW_DATASET_NAME_BYTES - 1);
    }
    for (uint32_t i = 0; i < s; i++) {
        if (strlen(command->names[i]) == length && memcmp(command->names[i], text, length) == 0) {
            return tw_fail(err, TW_CONFIG, "two sources are called %s", command->names[i]);
        }
    }
    if (text[length] == '=' &&
        (!tw_value_parse(text + length + 1, SHARE, &command->weights[s]) ||
         command->weights[s] == 0 || command->weights[s] > (uint64_t)1000 * MILLION)) {
        return tw_fail(err, TW_CONFIG,
                       "--source %.60s: a weight is a number such as 0.7, 70%% or 3", text);
    }
    memcpy(command->names[s], text, length);
    options->sources[s] = (struct tw_prepare_source){
        .name = command->names[s], .inputs = command->inputs + command->inputs_count};
    options->sources_count++;
    return TW_OK;
}

static enum tw_status add_input(struct command *command, const char *path, struct tw_error *err) {
    if (path[0] == 0) return tw_fail(err, TW_CONFIG, "an input without a name");
    if (command->options.sources_count == 0) TW_TRY(begin_source(command, "text", err));
    command->inputs[command->inputs_count++] = path;
    command->options.sources[command->options.sources_count - 1].inputs_count++;
    return TW_OK;
}

static enum tw_status share_weights(struct command *command, struct tw_error *err) {
    struct tw_prepare_options *const options = &command->options;
    const uint32_t count = options->sources_count;
    uint32_t weighed = 0, shares[TW_DATASET_SOURCES_MAX];
    for (uint32_t i = 0; i < count; i++) weighed += command->weights[i] > 0;
    if (weighed == 0) return TW_OK;
    if (weighed < count) {
        return tw_fail(err, TW_CONFIG,
                       "weights for some sources and not for others: give every source one, or "
                       "none");
    }
    const uint32_t small = tw_dataset_shares(command->weights, count, shares);
    if (small < count) {
        return tw_fail(err, TW_CONFIG, "the weight of the source %s is less than 0.01%% of all",
                       command->names[small]);
    }
    for (uint32_t i = 0; i < count; i++) options->sources[i].weight_millionths = shares[i];
    return TW_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

static enum tw_status set_number(const char *name, const char *text, const struct tw_unit *units,
                                 uint64_t least, uint64_t most, uint64_t *value,
                                 struct tw_error *err) {
    if (tw_value_parse(text, units, value) && *value >= least && *value <= most) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%s %.60s: a whole number from %llu to %llu", name, text,
                   (unsigned long long)least, (unsigned long long)most);
}

static enum tw_status set_heldout(struct command *command, struct tw_error *err) {
    static const struct tw_unit UNITS[] = {{"", MILLION}, {"%", MILLION / 100}, {NULL, 0}};
    uint64_t value = 0;
    if (!tw_value_parse(command->heldout, UNITS, &value) || value < HELDOUT_MIN ||
        value > MILLION / 2) {
        return tw_fail(err, TW_CONFIG, "--heldout %.60s: a share from 0.1%% to 50%%, such as 1%%",
                       command->heldout);
    }
    command->options.heldout_millionths = (uint32_t)value;
    return TW_OK;
}

static enum tw_status set_text(struct command *command, struct tw_error *err) {
    static const char *const UNITS[] = {
        [TW_TEXT_PASSAGES] = "passages", [TW_TEXT_LINES] = "lines", [TW_TEXT_WHOLE] = "whole"};
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(command->text, UNITS[i]) != 0) continue;
        command->options.unit = (enum tw_text_unit)i;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "--text %.60s: it is passages, lines or whole", command->text);
}

/* Converts the typed values to options. */
static enum tw_status finish_options(struct command *command, struct tw_error *err) {
    static const struct tw_unit PLAIN[] = {{"", 1}, {NULL, 0}};
    static const struct tw_unit COUNT[] = {{"", 1}, {"k", 1000}, {"m", MILLION}, {NULL, 0}};
    struct tw_prepare_options *const options = &command->options;
    uint64_t value = 0;
    TW_TRY(set_text(command, err));
    TW_TRY(set_heldout(command, err));
    TW_TRY(set_number("--shard-tokens", command->shard_tokens, COUNT, TW_PREPARE_SHARD_TOKENS_MIN,
                      TW_PREPARE_SHARD_TOKENS_MAX, &value, err));
    options->shard_tokens = (uint32_t)value;
    value = tw_machine_processors();
    if (value > TW_PREPARE_THREADS_MAX) value = TW_PREPARE_THREADS_MAX;
    if (command->threads != NULL) {
        TW_TRY(set_number("--threads", command->threads, PLAIN, 1, TW_PREPARE_THREADS_MAX, &value,
                          err));
    }
    options->threads = (uint32_t)value;
    if (strcmp(command->tokenizer, "bytes") != 0) options->tokenizer = command->tokenizer;
    if (options->field[0] == 0 || strlen(options->field) >= TW_JSON_FIELD_BYTES) {
        return tw_fail(err, TW_CONFIG, "--field: a name of 1 to %d bytes", TW_JSON_FIELD_BYTES - 1);
    }
    if (options->out == NULL || command->inputs_count == 0) {
        return tw_fail(err, TW_CONFIG,
                       "usage: thinwire data prepare INPUT... --out DIR [--tokenizer FILE]; "
                       "`thinwire help data` tells more");
    }
    if (strlen(options->out) > 900 || options->out[0] == 0) {
        return tw_fail(err, TW_CONFIG, "--out: a path of 1 to 900 bytes");
    }
    return share_weights(command, err);
}

static enum tw_status unknown(const char *word, const char *const *names, unsigned count,
                              struct tw_error *err) {
    const char *const near = tw_nearest(word, names, count);
    return tw_fail(err, TW_CONFIG, "data prepare: `%.60s` is unknown%s%s; see `thinwire help data`",
                   word, near != NULL ? "; did you mean " : "", near != NULL ? near : "");
}

static enum tw_status parse(struct command *command, int argc, char **argv, struct tw_error *err) {
    const struct {
        const char *name, **text;
        bool *flag;
    } OPTIONS[] = {
        {"--out", &command->options.out, NULL},
        {"--tokenizer", &command->tokenizer, NULL},
        {"--eos", &command->options.eos, NULL},
        {"--field", &command->options.field, NULL},
        {"--text", &command->text, NULL},
        {"--heldout", &command->heldout, NULL},
        {"--shard-tokens", &command->shard_tokens, NULL},
        {"--threads", &command->threads, NULL},
        {"--source", NULL, NULL},
        {"--plain", NULL, &command->options.is_plain},
        {"--skip-bad", NULL, &command->options.skip_bad},
        {"--restart", NULL, &command->options.is_restart},
        {"--json", NULL, &command->options.json},
    };
    enum { COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };
    const char *names[COUNT];
    for (unsigned k = 0; k < COUNT; k++) names[k] = OPTIONS[k].name;
    for (int i = 3; i < argc; i++) {
        if (argv[i][0] != '-') {
            TW_TRY(add_input(command, argv[i], err));
            continue;
        }
        const size_t size = strcspn(argv[i], "=");
        unsigned k = 0;
        while (k < COUNT && (strlen(names[k]) != size || memcmp(names[k], argv[i], size) != 0)) k++;
        if (k == COUNT) return unknown(argv[i], names, COUNT, err);
        if (OPTIONS[k].flag != NULL) {
            if (argv[i][size] == '=') return tw_fail(err, TW_CONFIG, "%s has no value", names[k]);
            *OPTIONS[k].flag = true;
            continue;
        }
        const char *value = argv[i] + size + 1;
        if (argv[i][size] != '=') value = ++i < argc ? argv[i] : NULL;
        if (value == NULL) return tw_fail(err, TW_CONFIG, "%s wants a value", names[k]);
        if (OPTIONS[k].text != NULL) *OPTIONS[k].text = value;
        if (OPTIONS[k].text == NULL) TW_TRY(begin_source(command, value, err));
    }
    return finish_options(command, err);
}

enum tw_exit engine_prepare(int argc, char **argv) {
    static struct command command; /* too large for the stack */
    struct tw_prepare_summary summary = {.can_skip = false};
    struct tw_error err;
    command.options.field = "text";
    command.text = "passages";
    command.heldout = "1%";
    command.shard_tokens = "8m";
    command.tokenizer = "bytes";
    command.inputs = calloc((size_t)argc, sizeof(*command.inputs));
    if (command.inputs == NULL) {
        (void)tw_fail(&err, TW_NOMEM, "no memory for the command line");
        return engine_fail(&err);
    }
    tw_signals_catch(true);
    enum tw_status status = parse(&command, argc, argv, &err);
    if (status == TW_OK) status = tw_prepare(&command.options, &summary, &err);
    free(command.inputs);
    const enum tw_exit rc = status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
    if (rc != TW_EXIT_OK && summary.can_skip) {
        (void)fputs("thinwire: --skip-bad counts and leaves out such documents and files; --plain "
                    "reads JSON, CSV and markup as plain text\n",
                    stderr);
    }
    /* An interrupted call exits with TW_EXIT_FAILURE, because the data are not at fault. */
    return status == TW_AGAIN ? TW_EXIT_FAILURE : rc;
}
