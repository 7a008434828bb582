/* test_run_line.c - the keys of each kind of line are those of `thinwire help run-log`. */
#include "daemon/runlog/run_log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli/common/cli.h"
#include "tests/test.h"

static const struct tw_id NODE = {{0xab, 1}}, RUN = {{0xcd, 2}};

static struct tw_run_moment moment(void) {
    return (struct tw_run_moment){.unix_us = 1769860800123456,
                                  .boot = 3,
                                  .node = &NODE,
                                  .run = &RUN,
                                  .node_name = "attic",
                                  .run_name = "a \"run\"",
                                  .step = 100,
                                  .tokens = 25600,
                                  .clock_tokens = 70000};
}

static const struct tw_run_step STEP = {.loss = 2.5f,
                                        .lr = 0.001f,
                                        .grad_norm = 0.7f,
                                        .tokens_per_s = 1234.5,
                                        .utilisation = NAN,
                                        .loss_live = 2.25f,
                                        .loss_anchor = INFINITY,
                                        .distance = 0.5f};

static const struct tw_scores VALUES = {.count = 1, .rows = {{"loss/poems.txt", 2.25}}};
static const struct tw_run_scores SCORES = {.rounds = 7, .took_us = 1500000, .scores = &VALUES};

static const struct tw_wmsg_sample SAMPLE = {.step = 90, .prompt = "In the", .text = "\xff"};

static json_t *make_line(const char *kind) {
    const struct tw_run_moment at = moment();
    const struct tw_view_round round = {.round = 7, .fragment = 1, .took_us = TW_VIEW_NEVER};
    const struct tw_warning warning = {.kind = TW_WARNING_TWIN, .about = "ab12cd34"};
    if (strcmp(kind, "start") == 0) return tw_run_line_start(&at);
    if (strcmp(kind, "stop") == 0) return tw_run_line_stop(&at, 0);
    if (strcmp(kind, "step") == 0) return tw_run_line_step(&at, &STEP);
    if (strcmp(kind, "evaluation") == 0) return tw_run_line_evaluation(&at, &STEP);
    if (strcmp(kind, "round") == 0) return tw_run_line_round(&at, &round, "empty");
    if (strcmp(kind, "scores") == 0) return tw_run_line_scores(&at, &SCORES);
    if (strcmp(kind, "sample") == 0) return tw_run_line_sample(&at, &SAMPLE);
    if (strcmp(kind, "warning") == 0) return tw_run_line_warning(&at, &warning, true);
    return tw_run_line_gap(&at, 4);
}

static const char *const KINDS[] = {"start",  "stop",   "step",    "evaluation", "round",
                                    "scores", "sample", "warning", "gap"};

/* Removes a key from the lines of all kinds that a heading of the help page names. */
static void take_key(json_t *lines, const char *kinds, const char *key) {
    unsigned found = 0;
    for (unsigned i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        const bool is_named = strcmp(kinds, "every kind") == 0 || strstr(kinds, KINDS[i]) != NULL;
        json_t *const line = json_object_get(lines, KINDS[i]);
        if (!is_named) continue;
        found++;
        if (json_object_del(line, key) != 0) fail_msg("lines `%s` lack `%s`", KINDS[i], key);
    }
    if (found == 0) fail_msg("`%s` has no kind", key);
}

/* The page has headings `KIND, KIND:`, below each rows `  KEY, KEY  meaning`. */
TEST(every_key_is_on_the_help_page_and_the_reverse) {
    char row[128], kinds[128] = "";
    json_t *const lines = json_object();
    for (unsigned i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++)
        assert_int_equal(json_object_set_new(lines, KINDS[i], make_line(KINDS[i])), 0);
    for (const char *at = cli_help_text("run-log"); *at != '\0'; at += strcspn(at, "\n") + 1) {
        const size_t length = strcspn(at, "\n");
        assert_true(length < sizeof(row));
        memcpy(row, at, length);
        row[length] = '\0';
        if (length > 0 && row[0] != ' ')
            (void)snprintf(kinds, sizeof(kinds), "%.*s", (int)length - 1, row);
        if (strncmp(row, "  ", 2) != 0 || row[2] == ' ') continue;
        *strstr(row + 2, "  ") = '\0';
        for (char *key = strtok(row, ", "); key != NULL; key = strtok(NULL, ", "))
            take_key(lines, kinds, key);
    }
    for (unsigned i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        const json_t *const left = json_object_get(lines, KINDS[i]);
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)left, key, value)
            fail_msg("`thinwire help run-log` lacks `%s` of lines `%s`", key, KINDS[i]);
    }
    json_decref(lines);
}

TEST(a_number_that_is_not_finite_is_null) {
    json_t *const line = make_line("evaluation");
    assert_true(json_is_null(json_object_get(line, "validation_anchor_nats")));
    assert_true(json_is_null(json_object_get(line, "utilisation_ratio")));
    assert_float_equal(json_real_value(json_object_get(line, "loss_nats")), 2.5, 0);
    assert_string_equal(json_string_value(json_object_get(line, "time")),
                        "2026-01-31T12:00:00.123Z");
    json_decref(line);
}

TEST(scores_are_an_object) {
    json_t *const line = make_line("scores");
    json_t *const values = json_object_get(line, "scores");
    assert_int_equal(json_object_size(values), 1);
    assert_float_equal(json_real_value(json_object_get(values, "loss/poems.txt")), 2.25, 0);
    assert_float_equal(json_real_value(json_object_get(line, "evaluation_s")), 1.5, 0);
    json_decref(line);
}

TEST(text_that_is_no_text_is_named) {
    json_t *const line = make_line("sample");
    assert_string_equal(json_string_value(json_object_get(line, "prompt")), "In the");
    assert_string_equal(json_string_value(json_object_get(line, "sample")), "(not UTF-8)");
    json_decref(line);
}

int main(void) {
    return test_run(NULL, NULL);
}
