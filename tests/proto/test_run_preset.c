/* What a preset's row says where other keys were set. */
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#include "proto/run.h"
#include "proto/run_key.h"

static struct tw_run run;
static struct tw_error err;

static enum tw_status read_text(const char *file) {
    return tw_run_read(file, strlen(file), &run, &err);
}

/* What only the row says never stands in the way of a topology, a rule or a codec somebody set. */
static void a_row_yields_to_what_was_set(void **state) {
    (void)state;
    static const char *const lines[] = {"sync.topology = solo",
                                        "sync.topology = pair",
                                        "sync.topology = group",
                                        "sync.codec = topk64",
                                        "sync.codec = auto",
                                        "sync.outer = heavyball",
                                        "sync.merge = mean",
                                        "sync.nodes = 1",
                                        "sync.pace = clock",
                                        "sync.codec = ecsq2",
                                        "sync.nodes = 8\nsync.merge = median"};
    for (unsigned preset = 0; preset <= TW_PRESET_BTM; preset++) {
        char name[TW_RUN_VALUE_BYTES], file[256];
        tw_run_defaults(&run);
        tw_run_apply_preset(&run, (enum tw_preset)preset);
        tw_run_key_format(tw_run_key_find("sync.preset"), &run, name);
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
            const bool is_robust = strstr(lines[i], "median") != NULL;
            if (preset == TW_PRESET_NOLOCO && is_robust) continue; /* no choice of a pair's */
            (void)snprintf(file, sizeof(file), "thinwire-run 1\nsync.preset = %s\n%s\n", name,
                           lines[i]);
            if (read_text(file) != TW_OK) fail_msg("%s, %s: %s", name, lines[i], err.message);
        }
    }
    /* A pair of a group's row merges as NoLoCo does, at a gain of its own. */
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = co2\nsync.topology = pair\n"
                               "train.tokens = 1g\n"),
                     TW_OK);
    assert_int_equal(run.sync.consensus_millionths, 700000);
    assert_int_equal(run.sync.outer_lr_millionths, 700000);
    assert_int_equal(run.sync.gap_penalty_millionths, 0);
    assert_int_equal(run.sync.sent, TW_SENT_KEEP);
    /* And what somebody wrote does not yield. */
    assert_int_equal(read_text("thinwire-run 1\nsync.topology = pair\nsync.lead = 0.5\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "set sync.lead = 0"));
    assert_int_equal(read_text("thinwire-run 1\nsync.codec = sign\nsync.feedback = 0\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "set sync.feedback"));
    assert_int_equal(read_text("thinwire-run 1\nsync.topology = pair\nsync.outer = nesterov\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "needs sync.outer = heavyball"));
}

/* Wherever feedback comes from, a part of what it keeps stays in theta, unless somebody says. */
static void a_part_of_what_coding_lost_stays_at_home(void **state) {
    (void)state;
    const struct {
        const char *lines;
        uint32_t feedback, local;
    } rows[] = {
        {"", 0, 0},
        {"sync.preset = sparseloco\n", 950000, 600000},
        {"sync.codec = ecsq1\n", 950000, 600000},
        {"sync.preset = sparseloco\nsync.codec = topk32\n", 950000, 300000},
        {"sync.codec = auto\n", 950000, 300000},
        {"sync.topology = pair\nsync.codec = sign\n", 950000, 600000},
        {"sync.codec = int4\nsync.feedback = 0.5\n", 500000, 600000},
        {"sync.codec = ecsq1\nsync.sent = mix\nsync.mix = 0.5\n", 950000, 0},
        {"sync.codec = ecsq1\nsync.feedback_local = 0\n", 950000, 0},
        {"sync.preset = sparseloco\nsync.codec = int8\nsync.feedback = 0\n", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[256];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s", rows[i].lines);
        if (read_text(file) != TW_OK) fail_msg("%s: %s", rows[i].lines, err.message);
        assert_int_equal(run.sync.feedback_millionths, rows[i].feedback);
        assert_int_equal(run.sync.feedback_local_millionths, rows[i].local);
    }
    assert_int_equal(read_text("thinwire-run 1\nsync.feedback_local = 0.5\n"), TW_CONFIG);
    assert_non_null(strstr(err.message, "or sync.feedback_local = 0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_yields_to_what_was_set),
        cmocka_unit_test(a_part_of_what_coding_lost_stays_at_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
