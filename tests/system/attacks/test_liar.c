/* One of four members lies over real links, with valid keys (tests/traitor/live.c). The three
 * others continue: rounds are decided, anchors are equal, and nobody but the liar is banned. */
#include <signal.h>

#include <jansson.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { HONEST = 3, LIAR = 3 };

static struct cluster cluster;
static char liar[96]; /* the first digits of its id, as in logs and warnings */

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Starts three daemons and a liar, and waits until the liar has begun. `lies` lists its lies;
 * NULL: the seed draws them. */
static void open_group(const char *seed, const char *lies) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, HONEST + 1);
    assert_int_equal(setenv("TW_TRAITOR_SEED", seed, 1), 0);
    if (lies != NULL)
        assert_int_equal(setenv("TW_TRAITOR_LIES", lies, 1), 0);
    else
        assert_int_equal(unsetenv("TW_TRAITOR_LIES"), 0);
    for (uint32_t i = 0; i < HONEST; i++) cluster_start(&cluster, i, NULL);
    const char *const honest_path = cluster.daemon_path;
    cluster.daemon_path = getenv("TW_TRAITOR");
    assert_non_null(cluster.daemon_path);
    cluster_start(&cluster, LIAR, NULL);
    cluster.daemon_path = honest_path;
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", HONEST + 1, 30));
    assert_true(cluster_says(&cluster, LIAR, "ev=treason ", 60));
    const char *const begun = strstr(cluster_log(&cluster, LIAR), "ev=treason ");
    print_message("seed %s: %.*s\n", seed, (int)strcspn(begun, "\n"), begun);
    cluster_string(&cluster, LIAR, "node.id", liar);
    liar[8] = '\0';
}

/* Returns true if the node's status has a warning with these words that names the liar. */
static bool warns_of_liar(uint32_t node, const char *words) {
    json_t *const status = cluster_get(&cluster, node, "/v1/status");
    const json_t *const warnings = json_object_get(status, "warnings");
    bool is_said = false;
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        char *const text = json_dumps(json_array_get(warnings, i), JSON_ENCODE_ANY);
        is_said |= text != NULL && strstr(text, words) != NULL && strstr(text, liar) != NULL;
        free(text);
    }
    json_decref(status);
    return is_said;
}

/* Checks that every log line with this event names the liar. */
static void assert_liar_alone(uint32_t node, const char *event) {
    const char *at = cluster_log(&cluster, node);
    while ((at = strstr(at, event)) != NULL) {
        char line[512];
        (void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        if (strstr(line, liar) == NULL) fail_msg("node %u: %s", node, line);
        at += strlen(event);
    }
}

static void assert_group_goes_on(double rounds) {
    for (uint32_t i = 0; i < HONEST; i++) {
        const double before = cluster_number(&cluster, i, "sync.rounds_committed");
        assert_true(cluster_reaches(&cluster, i, "sync.rounds_committed", before + rounds, 60));
    }
    for (uint32_t i = 0; i < HONEST; i++) {
        assert_true(cluster_number(&cluster, i, "sync.roster_members") >= HONEST);
        static const char *const charges[] = {"ev=peer_banned ", "ev=two_faced ",
                                              "ev=owner_struck ", "ev=misbehaved ",
                                              "ev=round_forged "};
        for (uint32_t k = 0; k < sizeof(charges) / sizeof(charges[0]); k++)
            assert_liar_alone(i, charges[k]);
        assert_int_equal(cluster_lines(&cluster, i, "ev=lineage_left "), 0);
    }
    for (uint32_t i = 1; i < HONEST; i++) assert_true(cluster_digests(&cluster, 0, i) >= 5);
}

static void end_group(void) {
    for (uint32_t i = 0; i < HONEST; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

static bool is_any_warned(void) {
    bool is_warned = false;
    for (uint32_t i = 0; i < HONEST; i++) is_warned |= warns_of_liar(i, "");
    return is_warned;
}

/* seed from which the lies are drawn; NULL: each kind of lie is tested once */
static const char *drawn;

FACT(liar_stops_no_round_and_has_nobody_banned) {
    static const char *const lies[] = {"mute,late", "huge,crude,replay", "votes,log,accuse",
                                       "propose,roster,links", "status,state,lineage"};
    const uint32_t count = drawn != NULL ? 1 : sizeof(lies) / sizeof(lies[0]);
    for (uint32_t i = 0; i < count; i++) {
        open_group(drawn != NULL ? drawn : "1", drawn != NULL ? NULL : lies[i]);
        assert_group_goes_on(10);
        /* Some lies look like a slow link, so no warning is required for them. An invalid
         * signature cannot be an accident. */
        if (drawn == NULL && strstr(lies[i], "crude") != NULL) assert_true(is_any_warned());
        end_group();
        if (i + 1 < count) cluster_close(&cluster, false);
    }
}

/* The liar gives the members different results of its part. */
FACT(liar_that_signs_twice_is_banned_by_all) {
    open_group("4", "split");
    for (uint32_t i = 0; i < HONEST; i++) {
        assert_true(cluster_says(&cluster, i, "ev=two_faced ", 60));
        assert_true(cluster_reaches(&cluster, i, "network.banned", 1, 10));
        assert_int_equal(cluster_lines(&cluster, i, "ev=two_faced "), 1);
        assert_int_equal(cluster_lines(&cluster, i, "level=warn ev=two_faced "), 1);
        assert_true(warns_of_liar(i, "signed two statements that exclude each other"));
    }
    assert_group_goes_on(10);
    end_group();
}

/* Returns true if the liar, and nobody else, is banned according to the node's list of peers. */
static bool is_liar_banned(uint32_t node) {
    json_t *const peers = cluster_get(&cluster, node, "/v1/peers");
    const json_t *const banned = json_object_get(peers, "banned");
    const json_t *const row = json_array_get(banned, 0);
    const char *const id = json_string_value(json_object_get(row, "id_short"));
    const bool is_it = json_array_size(banned) == 1 && id != NULL && strcmp(id, liar) == 0 &&
                       json_number_value(json_object_get(row, "left_s")) > 0;
    json_decref(peers);
    return is_it;
}

/* While the liar has a seat, the group needs the votes of all three others. */
static void await_roster_without_liar(void) {
    for (unsigned i = 0; i < 600; i++) {
        if (cluster_number(&cluster, 1, "sync.roster_members") == HONEST) return;
        cluster_pause(0.1);
    }
    fail_msg("the liar keeps its seat");
}

/* The liar votes for two records in one ballot. The ban is on disk at once, so it survives a
 * kill of the daemon. */
FACT(liar_that_votes_twice_stays_banned_after_a_restart) {
    open_group("1", "twice");
    for (uint32_t i = 0; i < HONEST; i++) {
        assert_true(cluster_reaches(&cluster, i, "network.banned", 1, 10));
        assert_true(is_liar_banned(i));
        assert_int_equal(cluster_lines(&cluster, i, "level=warn ev=two_faced "), 1);
        assert_true(warns_of_liar(i, "signed two statements that exclude each other"));
    }
    await_roster_without_liar();
    assert_int_equal(cluster_end(&cluster, 0, SIGKILL, 20), 1000 + SIGKILL);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", HONEST, 60));
    assert_true(is_liar_banned(0));
    assert_group_goes_on(10);
    for (uint32_t i = 0; i < HONEST; i++) {
        assert_true(is_liar_banned(i));
        assert_true(cluster_number(&cluster, i, "sync.alive_peers") == HONEST - 1);
        assert_int_equal(cluster_lines(&cluster, i, "level=warn ev=two_faced "), 1);
    }
    end_group();
}

int main(int argc, char **argv) {
    if (argc > 1) drawn = argv[1];
    return test_run(NULL, NULL);
}
