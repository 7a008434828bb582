/* Daemons in a run of any model. Workers that start from different weights reach one anchor, no
 * data are needed, and a node without a trainer waits for one. */
#include <signal.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

/* 40 tensors in three fragments, whose borders split some of the tensors. */
static const char list[] =
    "embed.weight:700x8 h.{0-11}.w:30x20 h.{0-11}.b:7 h.{0-11}.c:2x3x5 out:11";

static int open_three(void **state) {
    cluster_open(&cluster, "1g");
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_three, close_all, name)

/* Configures node `idx` without data. Its worker starts from its own random weights. */
static void configure(uint32_t idx, bool has_worker) {
    char stub[64];
    (void)snprintf(stub, sizeof(stub), "--step-us 2000 --start-seed %u", 100 + idx);
    const struct cluster_options options = {
        .has_no_data = true, .has_no_worker = !has_worker, .stub = stub};
    cluster_configure(&cluster, idx, &options);
}

static void make(uint32_t count, const char *preset, const char *codec) {
    /* Feedback is set only for codecs that need it. */
    const char *const feedback = strcmp(codec, "auto") == 0 || codec[0] == 't' ? "0.95" : "0";
    const char *const keys[][2] = {
        {"model.tensors", list},     {"sync.preset", preset},      {"sync.fragments", "3"},
        {"sync.period", "24"},       {"sync.overlap", "2"},        {"sync.codec", codec},
        {"sync.feedback", feedback}, {"sync.feedback_local", "0"}, {NULL, NULL}};
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, count);
    for (uint32_t i = 0; i < count; i++) configure(i, true);
}

static void end(uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

static void more_rounds(uint32_t idx, double count) {
    const double rounds = cluster_number(&cluster, idx, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, idx, "sync.rounds_committed", rounds + count, 30));
}

/* Two nodes start at the same moment. A third trains alone for a while, and joins later. */
FACT(nodes_with_starts_of_their_own_hold_one_anchor) {
    char text[96];
    make(3, "streaming", "int4");
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 30));
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 30));
    more_rounds(0, 6);
    cluster_start(&cluster, 2, NULL);
    assert_true(cluster_reaches(&cluster, 2, "sync.mixed_peers", 2, 30));
    more_rounds(2, 6);
    cluster_string(&cluster, 2, "data.state", text);
    assert_string_equal(text, "trainer");
    assert_true(cluster_number(&cluster, 2, "run.model_params") ==
                700 * 8 + 12 * (600 + 7 + 30) + 11);
    print_message("%u and %u equal digests\n", cluster_digests(&cluster, 0, 1),
                  cluster_digests(&cluster, 0, 2));
    assert_true(cluster_digests(&cluster, 0, 1) >= 6);
    assert_true(cluster_digests(&cluster, 0, 2) >= 4);
    end(3);
}

/* Fragments and parts split tensors. Tests codecs with pieces, sparse codecs and RDA. */
FACT(every_way_to_merge_takes_cut_tensors) {
    static const char *const ways[][2] = {
        {"streaming", "auto"}, {"sparseloco", "topk64"}, {"decoupled", "int8"}};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (i > 0) cluster_open(&cluster, "1g");
        make(2, ways[i][0], ways[i][1]);
        cluster_start(&cluster, 0, NULL);
        cluster_start(&cluster, 1, NULL);
        assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 30));
        assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 30));
        more_rounds(0, 6);
        more_rounds(1, 6);
        const unsigned equal = cluster_digests(&cluster, 0, 1);
        print_message("%s, %s: %u equal digests\n", ways[i][0], ways[i][1], equal);
        assert_true(equal >= 6);
        end(2);
        if (i + 1 < sizeof(ways) / sizeof(ways[0])) cluster_close(&cluster, false);
    }
}

/* One of the two lineages ranks later. Its node fetches the other node's state before it merges. */
FACT(pairs_with_starts_of_their_own_begin_at_one) {
    make(2, "noloco", "int8");
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.pairs.merged", 2, 30));
    assert_true(cluster_reaches(&cluster, 1, "sync.pairs.merged", 2, 30));
    const unsigned taken = cluster_lines(&cluster, 0, "ev=state state=receiver") +
                           cluster_lines(&cluster, 1, "ev=state state=receiver");
    /* Both nodes do so if the other one then follows a child lineage. */
    assert_true(taken >= 1);
    end(2);
}

FACT(without_a_trainer_the_node_waits_for_one) {
    char text[96];
    make(1, "streaming", "int4");
    configure(0, false);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "run.model_params", 1, 20));
    cluster_string(&cluster, 0, "worker.state", text);
    assert_string_equal(text, "absent");
    assert_int_equal((int)cluster_number(&cluster, 0, "worker.restarts"), 0);
    end(1);
}
