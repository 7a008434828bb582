/* Causes of bad merging in running nodes with the stub worker. The faulty node, and no other, names
 * the cause within two evaluations. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/run/run.h"
#include "proto/shm.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { NODES = 3, EVAL_STEPS = 50, BEGIN = 1500 };

static struct cluster cluster;
static bool has_passed;

static int open_three(void **state) {
    has_passed = false;
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, NODES);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !has_passed);
    return 0;
}

/* Starts all nodes, node 0 with these options. */
static void start(const struct cluster_options *first) {
    for (uint32_t i = 0; i < NODES; i++) {
        struct cluster_options options = {.stub = "--step-us 4000"};
        if (i == 0 && first != NULL) options = *first;
        cluster_configure(&cluster, i, &options);
        cluster_start(&cluster, i, NULL);
    }
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(cluster_reaches(&cluster, i, "sync.roster_members", NODES, 60));
}

/* Starts three nodes. The worker of node 0 has the fault from update BEGIN on. */
static void start_three(const char *fault) {
    char stub[96];
    (void)snprintf(stub, sizeof(stub), "--step-us 4000 %s %d", fault, BEGIN);
    start(&(struct cluster_options){.stub = stub});
    assert_true(cluster_number(&cluster, 0, "train.steps") < BEGIN);
}

/* Returns the step of node 0's last evaluation before its log first contains `text`. */
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

/* The faulty node continues with its own parameters and still contributes. Its anchor equals the
 * others'. */
static void poisoned_anchor_is_named_and_leaves_the_parameters(void **state) {
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
    start_three("--wild-from-update");
    assert_in_range(step_of("finding=rising"), BEGIN, BEGIN + 3 * EVAL_STEPS);
    assert_true(warns("own loss rises"));
    assert_true(cluster_says(&cluster, 0, "finding=refused",
                             60)); /* no node merges the refused contribution */
    assert_true(warns("work was refused"));
    others_say_nothing();
    has_passed = true;
}

/* ---- memory that does not keep its bits ---------------------------------------------------- */

/* Opens the memfd that node 0 shares with its worker. */
static int open_memory(void) {
    char path[64], name[352], link[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)cluster.nodes[0].pid);
    DIR *const dir = opendir(path);
    assert_non_null(dir);
    int fd = -1;
    for (const struct dirent *entry; fd < 0 && (entry = readdir(dir)) != NULL;) {
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        const ssize_t size = readlink(name, link, sizeof(link) - 1);
        link[size > 0 ? size : 0] = 0;
        if (strncmp(link, "/memfd:thinwire", 15) == 0) fd = open(name, O_RDWR | O_CLOEXEC);
    }
    (void)closedir(dir);
    assert_true(fd >= 0);
    return fd;
}

/* Computes the layout of the memfd: the offset of phi and its number of elements. */
static struct tw_shm_geometry read_geometry(void) {
    char path[96], text[TW_MANIFEST_BYTES_MAX];
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster.dir);
    FILE *const file = fopen(path, "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    static struct tw_run run;
    static struct tw_layout layout;
    struct tw_shm_geometry geometry;
    struct tw_error err;
    assert_int_equal(tw_run_read(text, size, &run, &err), TW_OK);
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_int_equal(tw_shm_geometry_init(&geometry, &layout, TW_SNAPSHOT_FULL, 0, &err), TW_OK);
    return geometry;
}

static void bad_memory_is_named(void **state) {
    start(NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", BEGIN, 60));
    const struct tw_shm_geometry geometry = read_geometry();
    const int fd = open_memory();
    for (unsigned i = 0; i < 600 && cluster_lines(&cluster, 0, "finding=differs") == 0; i++) {
        const uint32_t bits = 0x3E000000u + i;
        const off_t at = (off_t)(geometry.phi + 4 * (geometry.elements / 600 * i));
        assert_int_equal(pwrite(fd, &bits, sizeof(bits), at), sizeof(bits));
        cluster_pause(0.05);
    }
    (void)close(fd);
    assert_true(cluster_lines(&cluster, 0, "finding=differs") > 0);
    assert_true(warns("loses bits"));
    others_say_nothing();
    has_passed = true;
}

static void gradients_that_are_not_finite_are_named(void **state) {
    start_three("--nan-from-update");
    /* After several such steps in a row the worker exits. The pauses before its restarts grow. */
    bool is_said = false;
    for (unsigned i = 0; i < 600 && !is_said; i++) {
        cluster_pause(0.1);
        is_said = warns("are not finite");
    }
    assert_true(is_said);
    others_say_nothing();
    has_passed = true;
}

static void stop_writes(uint32_t idx) {
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    assert_int_equal(prlimit(cluster.nodes[idx].pid, RLIMIT_FSIZE, &none, NULL), 0);
}

/* A majority of the nodes cannot store votes, so they cannot send any. */
static void round_without_a_majority_of_votes_is_named(void **state) {
    start(NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", 8, 60));
    for (uint32_t i = 1; i < NODES; i++) stop_writes(i);
    assert_true(cluster_says(&cluster, 0, "finding=stuck", 120));
    assert_true(warns("does not close"));
    has_passed = true;
}

static void healthy_nodes_say_nothing(void **state) {
    /* No finding begins, although the worker of one node dies again and again. */
    start_three("--die-at-update");
    assert_true(cluster_reaches(&cluster, 1, "train.steps", BEGIN + 8 * EVAL_STEPS, 60));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=bad_merging "), 0);
    others_say_nothing();
    has_passed = true;
}

/* The argument "slow" selects the tests that take a minute. */
int main(int argc, char **argv) {
    const struct CMUnitTest slow[] = {
        cmocka_unit_test_setup_teardown(round_without_a_majority_of_votes_is_named, open_three,
                                        close_all),
    };
    if (argc == 2 && strcmp(argv[1], "slow") == 0) return cmocka_run_group_tests(slow, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(poisoned_anchor_is_named_and_leaves_the_parameters,
                                        open_three, close_all),
        cmocka_unit_test_setup_teardown(rate_far_too_high_is_named, open_three, close_all),
        cmocka_unit_test_setup_teardown(bad_memory_is_named, open_three, close_all),
        cmocka_unit_test_setup_teardown(gradients_that_are_not_finite_are_named, open_three,
                                        close_all),
        cmocka_unit_test_setup_teardown(healthy_nodes_say_nothing, open_three, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
