/* plan.c - reads a plan, and expands its lines into cases. */
#include "tests/bench/quality/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096, CHOICES_MAX = 64, VALUE_BYTES = 1024 };

/* A key with all its values, before the grid is expanded. */
struct axis {
    char key[SETTING_WORD_BYTES], values[VALUE_BYTES];
};

struct line {
    char name[SETTING_WORD_BYTES];
    struct axis *axes; /* SETTING_PAIRS_MAX */
    uint32_t count;
};

static enum tw_status set_axis(struct line *line, const char *word, struct tw_error *err) {
    const char *equals = strchr(word, '=');
    const size_t key = equals != NULL ? (size_t)(equals - word) : 0;
    if (key == 0 || key >= SETTING_WORD_BYTES || strlen(equals + 1) >= VALUE_BYTES) {
        return tw_fail(err, TW_CONFIG, "`%.60s` is not of the form key=value", word);
    }
    uint32_t i = 0;
    while (i < line->count &&
           (strncmp(line->axes[i].key, word, key) != 0 || line->axes[i].key[key] != 0)) {
        i++;
    }
    if (i == SETTING_PAIRS_MAX) return tw_fail(err, TW_CONFIG, "too many keys in one line");
    if (i == line->count) line->count++;
    (void)snprintf(line->axes[i].key, SETTING_WORD_BYTES, "%.*s", (int)key, word);
    (void)snprintf(line->axes[i].values, VALUE_BYTES, "%s", equals + 1);
    return TW_OK;
}

/* Copies value `i` of a list to `value`. Returns the number of values. */
static uint32_t value_at(const char *values, uint32_t i, char value[SETTING_WORD_BYTES]) {
    uint32_t count = 0;
    for (const char *at = values;; at++, count++) {
        const size_t size = strcspn(at, ",");
        if (count == i && value != NULL) {
            (void)snprintf(value, SETTING_WORD_BYTES, "%.*s", (int)size, at);
        }
        at += size;
        if (*at == 0) return count + 1;
    }
}

static enum tw_status add_case(struct plan *plan, const struct line *line, const uint32_t *chosen,
                               const struct texts *texts, struct tw_error *err) {
    static struct pair pairs[SETTING_PAIRS_MAX];
    char varied[SETTING_VARIED_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < line->count; i++) {
        (void)snprintf(pairs[i].key, sizeof(pairs[i].key), "%s", line->axes[i].key);
        if (value_at(line->axes[i].values, chosen[i], pairs[i].value) == 1) continue;
        if (used < sizeof(varied)) {
            used += (size_t)snprintf(varied + used, sizeof(varied) - used, "%s%s=%s",
                                     used > 0 ? " " : "", pairs[i].key, pairs[i].value);
        }
    }
    if (plan->count == PLAN_CASES_MAX) {
        return tw_fail(err, TW_CONFIG, "more than %d cases", PLAN_CASES_MAX);
    }
    struct setting *made = &plan->cases[plan->count];
    TW_TRY(setting_make(made, line->name, pairs, line->count, texts, err));
    memcpy(made->varied, varied, sizeof(varied));
    for (uint32_t i = 0; i < plan->count; i++) {
        if (tw_id_equal(&plan->cases[i].id, &made->id)) {
            return tw_fail(err, TW_CONFIG, "case %s %s stands in the plan twice", made->name,
                           varied);
        }
    }
    plan->count++;
    return TW_OK;
}

static enum tw_status expand(struct plan *plan, const struct line *line, const struct texts *texts,
                             struct tw_error *err) {
    uint32_t chosen[SETTING_PAIRS_MAX] = {0};
    for (;;) {
        TW_TRY(add_case(plan, line, chosen, texts, err));
        uint32_t i = line->count;
        for (; i > 0; i--) {
            if (++chosen[i - 1] < value_at(line->axes[i - 1].values, 0, NULL)) break;
            chosen[i - 1] = 0;
        }
        if (i == 0) return TW_OK;
    }
}

static enum tw_status take_line(struct plan *plan, struct line *defaults, struct line *line,
                                char *words, const struct texts *texts, struct tw_error *err) {
    char *rest = NULL;
    words[strcspn(words, "#\n")] = 0;
    const char *word = strtok_r(words, " \t\r", &rest);
    if (word == NULL) return TW_OK;
    const bool is_default = strcmp(word, "default") == 0;
    struct line *into = is_default ? defaults : line;
    into->count = 0;
    (void)snprintf(into->name, sizeof(into->name), "%s", word);
    if (!is_default) {
        memcpy(line->axes, defaults->axes, SETTING_PAIRS_MAX * sizeof(*line->axes));
        line->count = defaults->count;
    }
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL) TW_TRY(set_axis(into, word, err));
    return is_default ? TW_OK : expand(plan, line, texts, err);
}

static enum tw_status take_lines(struct plan *plan, struct line *defaults, struct line *line,
                                 const char *words, const struct texts *texts,
                                 struct tw_error *err) {
    char copy[LINE_BYTES];
    struct tw_error why;
    unsigned number = 1;
    for (const char *at = words; *at != 0; number++) {
        const size_t size = strcspn(at, "\n");
        if (size >= sizeof(copy)) return tw_fail(err, TW_CONFIG, "line %u is too long", number);
        memcpy(copy, at, size);
        copy[size] = 0;
        at += size + (at[size] == '\n');
        if (take_line(plan, defaults, line, copy, texts, &why) == TW_OK) continue;
        return tw_fail(err, TW_CONFIG, "line %u of the plan: %.200s", number, why.message);
    }
    return TW_OK;
}

enum tw_status plan_parse(struct plan *plan, const char *words, const struct texts *texts,
                          struct tw_error *err) {
    struct line defaults = {.axes = calloc(SETTING_PAIRS_MAX, sizeof(struct axis))};
    struct line line = {.axes = calloc(SETTING_PAIRS_MAX, sizeof(struct axis))};
    *plan = (struct plan){.cases = calloc(PLAN_CASES_MAX, sizeof(*plan->cases))};
    enum tw_status status = TW_OK;
    if (plan->cases == NULL || line.axes == NULL || defaults.axes == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for a plan");
    } else {
        status = take_lines(plan, &defaults, &line, words, texts, err);
    }
    free(defaults.axes);
    free(line.axes);
    if (status != TW_OK) plan_free(plan);
    return status;
}

void plan_free(struct plan *plan) {
    free(plan->cases);
    *plan = (struct plan){.cases = NULL};
}
