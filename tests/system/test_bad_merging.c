/* Causes of bad merging in running nodes, with the stub worker: each is named within two
 * evaluations, by the node that has it and by no other one. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/system/cluster.h"

enum { NODES = 3, EVAL_STEPS = 50, BEGIN = 1500 };

static struct cluster cluster;
static bool has_passed;

static int open_three(void **state) {
    (void)state;
    has_passed = false;
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, NODES);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, !has_passed);
    return 0;
}

/* Node 0 has the fault, from update BEGIN on. */
static void start_three(const char *fault) {
    char stub[96];
    (void)snprintf(stub, sizeof(stub), "--step-us 4000 %s %d", fault, BEGIN);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct cluster_options options = {.stub = i == 0 ? stub : "--step-us 4000"};
        cluster_configure(&cluster, i, &options);
        cluster_start(&cluster, i, NULL);
    }
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(cluster_reaches(&cluster, i, "sync.roster_members", NODES, 60));
    assert_true(cluster_number(&cluster, 0, "train.steps") < BEGIN);
}

/* The step of node 0's last evaluation before it first says `text`, by its log. */
static unsigned step_of(const char *text) {
    static const char evaluated[] = "ev=worker_evaluated step=";
    assert_true(cluster_says(&cluster, 0, text, 60));
    const char *const log = cluster_log(&cluster, 0), *const end = strstr(log, text);
    unsigned step = 0;
    for (const char *at = log; (at = strstr(at, evaluated)) != NULL && at < end; at++)
        step = (unsigned)strtoul(at + strlen(evaluated), NULL, 10);
    return step;
}

static void others_say_nothing(void) {
    for (uint32_t i = 1; i < NODES; i++) {
        assert_int_equal(cluster_lines(&cluster, i, "ev=bad_merging "), 0);
        assert_int_equal(cluster_lines(&cluster, i, "ev=merging_hurts"), 0);
    }
}

static bool warns(const char *words) {
    json_t *const status = cluster_get(&cluster, 0, "/v1/status");
    char *const text = json_dumps(json_object_get(status, "warnings"), 0);
    const bool is_said = text != NULL && strstr(text, words) != NULL;
    if (!is_said) print_message("no '%s' in %s\n", words, text != NULL ? text : "(nothing)");
    free(text);
    json_decref(status);
    return is_said;
}

/* The node goes on with its own parameters, contributes, and has the same anchor as the others. */
static void poisoned_anchor_is_named_and_leaves_the_parameters(void **state) {
    (void)state;
    start_three("--poison-from-update");
    assert_in_range(step_of("ev=merging_hurts"), BEGIN, BEGIN + 3 * EVAL_STEPS);
    assert_true(warns("Merging hurts"));
    assert_true(warns("goes on with its own"));
    const double listed = cluster_number(&cluster, 0, "sync.rounds_contributed");
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_contributed", listed + 4, 60));
    assert_true(cluster_digests(&cluster, 0, 1) > 4);
    others_say_nothing();
    has_passed = true;
}

static void rate_far_too_high_is_named(void **state) {
    (void)state;
    start_three("--wild-from-update");
    assert_in_range(step_of("finding=rising"), BEGIN, BEGIN + 3 * EVAL_STEPS);
    assert_true(warns("own loss rises"));
    assert_true(cluster_says(&cluster, 0, "finding=refused",
                             60)); /* no node merges the refused contribution */
    assert_true(warns("work was refused"));
    others_say_nothing();
    has_passed = true;
}

static void healthy_nodes_say_nothing(void **state) {
    (void)state;
    start_three("--die-at-update"); /* even where the worker of one is killed again and again */
    assert_true(cluster_reaches(&cluster, 1, "train.steps", BEGIN + 8 * EVAL_STEPS, 60));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=bad_merging "), 0);
    others_say_nothing();
    has_passed = true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(poisoned_anchor_is_named_and_leaves_the_parameters,
                                        open_three, close_all),
        cmocka_unit_test_setup_teardown(rate_far_too_high_is_named, open_three, close_all),
        cmocka_unit_test_setup_teardown(healthy_nodes_say_nothing, open_three, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
