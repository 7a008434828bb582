/* The owner of a run returns it to an earlier round with `thinwire owner recall`. All nodes start
 * again from the state of the node that still has it, and a node that was away follows. TW_CLI:
 * path of `thinwire`. */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "proto/run/run.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { NODES = 3, DAY_S = 86400 };

static struct cluster cluster;
static char key_path[96];
static struct tw_id run_id;
static struct tw_error err;

static void ok(enum tw_status status) {
    if (status != TW_OK) fail_msg("%s", err.message);
}

/* Signs a certificate of the owner for node `idx`. */
static void admit(const struct tw_identity *owner, unsigned idx) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    char path[128];
    struct tw_identity node;
    struct tw_certs certs = {.count = 1};
    const uint64_t now_s = (uint64_t)time(NULL);
    (void)snprintf(path, sizeof(path), "%s/state/identity.key", cluster.nodes[idx].dir);
    ok(tw_identity_open(path, &node, &err));
    certs.certs[0] = (struct tw_cert){.may = TW_CERT_TRAIN,
                                      .from_s = now_s - DAY_S,
                                      .until_s = now_s + DAY_S,
                                      .run = run_id,
                                      .node = node.id,
                                      .issuer = tw_public_key(owner->key)};
    tw_cert_signed(&certs.certs[0], text);
    tw_sign(owner->key, text, sizeof(text), certs.certs[0].signature);
    (void)snprintf(path, sizeof(path), "%s/state", cluster.nodes[idx].dir);
    ok(tw_certs_save(path, TW_CERT_FILE, &certs, &err));
    tw_identity_close(&node);
}

static int setup(void **state) {
    char hex[TW_ID_HEX_BYTES];
    struct tw_identity owner;
    cluster_open(&cluster, "1g");
    (void)snprintf(key_path, sizeof(key_path), "%s/owner.key", cluster.dir);
    ok(tw_identity_create(key_path, &err));
    ok(tw_identity_open(key_path, &owner, &err));
    const struct tw_id key = tw_public_key(owner.key);
    tw_id_hex(&key, hex);
    const char *const keys[][2] = {
        {"security.admission", "owner"}, {"security.owner", hex}, {NULL, NULL}};
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, NODES);
    run_id = cluster_run_id(&cluster);
    for (unsigned i = 0; i < NODES; i++) admit(&owner, i);
    tw_identity_close(&owner);
    return 0;
}

static int teardown(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

/* Runs `thinwire --config NODE owner recall ROUND --key KEY`. Returns its exit status. */
static int recall(unsigned idx, uint64_t round, const char *key) {
    char number[24];
    const char *const cli = getenv("TW_CLI");
    assert_non_null(cli);
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)round);
    const pid_t child = fork();
    if (child == 0) {
        (void)execl(cli, cli, "--config", cluster.nodes[idx].config, "owner", "recall", number,
                    "--key", key, NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Returns the round of the node's newest checkpoint. Also writes its lineage and step. */
static uint64_t round_saved(unsigned idx, char lineage[TW_ID_HEX_BYTES], uint64_t *step) {
    static char said[16384];
    const char *const cli = getenv("TW_CLI");
    char command[256];
    size_t i;
    json_t *row;
    uint64_t round = 0;
    (void)snprintf(command, sizeof(command), "%s --config %s rollback --json", cli,
                   cluster.nodes[idx].config);
    FILE *const pipe = popen(command, "r");
    assert_non_null(pipe);
    said[fread(said, 1, sizeof(said) - 1, pipe)] = 0;
    assert_int_equal(pclose(pipe), 0);
    json_t *const list = json_loads(said, 0, NULL);
    json_array_foreach(json_object_get(list, "generations"), i, row) {
        if (!json_is_true(json_object_get(row, "newest"))) continue;
        round = (uint64_t)json_integer_value(json_object_get(row, "round"));
        *step = (uint64_t)json_integer_value(json_object_get(row, "step"));
        (void)snprintf(lineage, TW_ID_HEX_BYTES, "%s",
                       json_string_value(json_object_get(row, "lineage")));
    }
    json_decref(list);
    return round;
}

static void all_reach(unsigned count, const char *path, double least) {
    for (unsigned i = 0; i < count; i++) {
        if (!cluster_reaches(&cluster, i, path, least, 60))
            fail_msg("node %u: %s is %g", i, path, cluster_number(&cluster, i, path));
    }
}

/* Checks that all nodes are in one lineage, which is not `old`, and writes its id to `now`. */
static void assert_together(unsigned count, const char *old, char now[96]) {
    char text[96];
    all_reach(count, "sync.roster_members", count);
    all_reach(count, "sync.roster_voters", count); /* a new seat may get its vote a round later */
    cluster_string(&cluster, 0, "run.lineage", now);
    assert_string_not_equal(now, old);
    for (unsigned i = 1; i < count; i++) {
        cluster_string(&cluster, i, "run.lineage", text);
        assert_string_equal(text, now);
    }
}

TEST_IN(setup, teardown, run_returns_to_the_round_on_every_node) {
    char old[TW_ID_HEX_BYTES] = "", first[96], now[96], other_key[112];
    for (unsigned i = 0; i < NODES; i++) cluster_start(&cluster, i, NULL);
    all_reach(NODES, "sync.roster_members", NODES);
    all_reach(1, "sync.rounds_contributed", 5);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    uint64_t step = 0;
    const uint64_t round = round_saved(0, old, &step);
    assert_true(round > 0 && step > 0);
    /* Node 0 saves a newer checkpoint too, and the others have only later states. Node 2 is away
     * meanwhile. */
    const double clock = cluster_number(&cluster, 0, "run.clock_tokens");
    all_reach(NODES, "run.clock_tokens", 3 * clock);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(cluster_post(&cluster, i, "/v1/checkpoint"), 200);
    assert_int_equal(cluster_end(&cluster, 2, SIGTERM, 30), TW_EXIT_OK);

    (void)snprintf(other_key, sizeof(other_key), "%s/state/identity.key", cluster.nodes[1].dir);
    assert_int_equal(recall(0, round, other_key), TW_EXIT_IDENTITY);
    assert_int_equal(recall(0, round + 1000000, key_path), TW_EXIT_USAGE);
    assert_int_equal(recall(0, round, key_path), TW_EXIT_OK);

    for (unsigned i = 0; i < 2; i++) assert_true(cluster_says(&cluster, i, "ev=recall ", 60));
    assert_true(cluster_says(&cluster, 1, "ev=recall_waits", 60));
    all_reach(2, "admission.recall", 1);
    assert_together(2, old, first);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=recall_waits"), 0);
    char loaded[64];
    (void)snprintf(loaded, sizeof(loaded), " step=%llu tokens=", (unsigned long long)step);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=checkpoint_loaded"), 1);
    assert_non_null(strstr(strstr(cluster_log(&cluster, 0), "ev=checkpoint_loaded"), loaded));
    assert_int_equal(cluster_lines(&cluster, 1, "ev=checkpoint_loaded"), 0);

    /* A node that starts later gets the recall from its peers. A restart does not obey a recall
     * twice. */
    cluster_start(&cluster, 2, NULL);
    assert_true(cluster_says(&cluster, 2, "ev=recall_waits", 60));
    assert_together(NODES, old, now);
    assert_string_equal(now, first);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 30), TW_EXIT_OK);
    cluster_start(&cluster, 1, NULL);
    assert_together(NODES, old, now);
    assert_string_equal(now, first);
    for (unsigned i = 0; i < NODES; i++) {
        assert_int_equal(cluster_lines(&cluster, i, "ev=recall "), 1);
        assert_true(cluster_number(&cluster, i, "admission.recall") == 1);
    }
    assert_true(cluster_digests(&cluster, 0, 1) > 0);
    assert_true(cluster_digests(&cluster, 0, 2) > 0);
}
