/* Two daemons: they link, merge, survive the death of each other's processes, and refuse strangers.
 */
#include <glob.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int open_two(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_two, close_all, name)

static void start_both(void) {
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.roster_members", 2, 20));
}

/* The status shows the measured reliability of the link, which was up for most of the known
 * time. */
static void link_is_measured(void) {
    json_t *peers = cluster_get(&cluster, 0, "/v1/peers");
    const json_t *peer = json_array_get(json_object_get(peers, "peers"), 0);
    const json_t *reliability = json_object_get(peer, "reliability_ratio");
    assert_true(json_is_number(reliability));
    assert_true(json_number_value(reliability) > 0.5);
    json_decref(peers);
}

FACT(two_nodes_meet_and_hold_the_same_anchor) {
    start_both();
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 20));
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", rounds + 10, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 10, 20));
    print_message("%u equal digests\n", cluster_digests(&cluster, 0, 1));
    assert_true(cluster_digests(&cluster, 0, 1) >= 10);
    link_is_measured();
    assert_true(cluster_reaches(&cluster, 0, "network.in_bytes_per_s", 1, 5));
    assert_true(cluster_reaches(&cluster, 0, "network.out_bytes_per_s", 1, 5));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

FACT(killed_worker_stops_neither_node) {
    start_both();
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 20));
    const double steps = cluster_number(&cluster, 1, "train.steps");
    const double contributed = cluster_number(&cluster, 0, "sync.rounds_contributed");
    assert_int_equal(kill((pid_t)cluster_number(&cluster, 0, "worker.pid"), SIGKILL), 0);
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_true(cluster_reaches(&cluster, 1, "train.steps", steps + 100, 20));
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_contributed", contributed + 3, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

FACT(killed_daemon_comes_back_and_mixes_again) {
    start_both();
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    const double saved = cluster_number(&cluster, 0, "checkpoint.steps");
    const double steps = cluster_number(&cluster, 1, "train.steps");
    assert_int_equal(cluster_end(&cluster, 0, SIGKILL, 5), 1000 + SIGKILL);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", steps + 100, 20));
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=checkpoint_loaded", 10));
    assert_null(strstr(cluster_log(&cluster, 0), "ev=anchor_differs"));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", saved + 1, 20));
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 25));
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_contributed", 2, 25));
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 25));
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 10, 25));
    assert_true(cluster_digests(&cluster, 0, 1) >= 10);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

/* data.sha256 = any: each node trains on its own text, and both show the weight of each text. */
FACT(own_texts_are_shown_with_their_shares) {
    start_both();
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 20));
    json_t *status = cluster_get(&cluster, 0, "/v1/status");
    assert_true(json_is_true(json_object_get(json_object_get(status, "data"), "own_text")));
    json_decref(status);
    json_t *peers = cluster_get(&cluster, 0, "/v1/peers");
    const json_t *peer = json_array_get(json_object_get(peers, "peers"), 0);
    const double theirs = json_number_value(json_object_get(peer, "token_share_ratio"));
    const double ours = cluster_number(&cluster, 0, "train.token_share_ratio");
    print_message("ours %.3f, theirs %.3f\n", ours, theirs);
    assert_true(ours > 0 && theirs > 0);
    /* The two shares were not read at the same moment, so their sum need not be 1. */
    assert_true(ours + theirs > 0.8 && ours + theirs < 1.2);
    json_decref(peers);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

/* If a vote cannot be saved, one log line and one warning say so, not one line per second. The vote
 * is tried again. */
FACT(vote_that_cannot_be_saved_is_reported_once) {
    char pattern[128], path[2][160];
    glob_t found;
    start_both();
    (void)snprintf(pattern, sizeof(pattern), "%s/state/*/vote.[ab]", cluster.nodes[1].dir);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    const size_t count = found.gl_pathc;
    assert_in_range(count, 1, 2);
    /* folders in place of the temporary files make each save fail */
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "%s.tmp", found.gl_pathv[i]);
        assert_int_equal(mkdir(path[i], 0700), 0);
    }
    globfree(&found);
    assert_true(cluster_says(&cluster, 1, "ev=vote_not_saved", 20));
    const double now_s = cluster_number(&cluster, 1, "node.uptime_s");
    assert_true(cluster_reaches(&cluster, 1, "node.uptime_s", now_s + 2.5, 20));
    assert_int_equal(cluster_lines(&cluster, 1, "ev=vote_not_saved"), 1);
    for (size_t i = 0; i < count; i++) assert_int_equal(rmdir(path[i]), 0);
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

FACT(node_that_left_is_soon_off_the_roster) {
    start_both();
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    const double steps = cluster_number(&cluster, 1, "train.steps");
    assert_true(cluster_reaches(&cluster, 1, "train.steps", steps + 100, 20));
    assert_true(cluster_says(&cluster, 1, "ev=peer_down", 5));
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

/* Checks that the status names the cause at the node's only configured address. */
static void bootstrap_names(uint32_t idx, const char *cause, const char *word) {
    json_t *status = cluster_get(&cluster, idx, "/v1/status");
    const json_t *row = json_array_get(json_object_get(status, "bootstrap"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "cause")), cause);
    const char *link = json_string_value(json_object_get(row, "link"));
    assert_true(strcmp(link, "refused") == 0 || strcmp(link, "dialing") == 0); /* the second time */
    assert_non_null(strstr(json_string_value(json_object_get(row, "error")), word));
    json_decref(status);
}

/* Two nodes that must not link: both name the cause and train on alone. */
static void strangers_stay_apart(const struct cluster_options *options, const char *cause,
                                 const char *word) {
    char reason[48];
    (void)snprintf(reason, sizeof(reason), "reason=%s", cause);
    cluster_configure(&cluster, 1, options);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 50, 20));
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 50, 20));
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_says(&cluster, i, reason, 10)); /* either node may have dialled first */
        assert_true(cluster_says(&cluster, i, "ev=peer_refused", 20));
        assert_non_null(strstr(cluster_log(&cluster, i), word));
        bootstrap_names(i, cause, word);
    }
    assert_true(cluster_number(&cluster, 0, "sync.alive_peers") == 0);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

FACT(wrong_secret_is_refused_and_both_train_alone) {
    const struct cluster_options options = {.has_own_secret = true};
    strangers_stay_apart(&options, "wrong_secret", "wrong run secret");
}

FACT(other_manifest_is_refused_and_both_train_alone) {
    const struct cluster_options options = {.seed = "2"};
    strangers_stay_apart(&options, "other_run", "other manifest");
}
