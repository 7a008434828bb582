/* Three daemons, two of which have the same key: the second is a copied folder, as from a VM
 * image or a restored backup. One of the two keeps its link, the other is refused, and all three
 * say why. */
#include <signal.h>

#include "tests/system/cluster.h"
#include "tests/test.h"

enum { HUB, NODE, COPY, NODES };

static struct cluster cluster;

static int open_three(void **state) {
    const struct cluster_options options = {.stub = "--step-us 5000"};
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        cluster.nodes_count = i == HUB ? 0 : 1; /* only the hub is in `peers` of the other nodes */
        cluster_configure(&cluster, i, &options);
    }
    cluster.nodes_count = NODES;
    cluster_start(&cluster, HUB, NULL);
    cluster_start(&cluster, NODE, NULL);
    assert_true(cluster_reaches(&cluster, NODE, "sync.rounds_committed", 2, 60));
    assert_int_equal(cluster_end(&cluster, NODE, SIGTERM, 20), 0);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

static void copy_folder(uint32_t from, uint32_t to) {
    char command[300];
    (void)snprintf(command, sizeof(command), "cp -r %s/state %s/", cluster.nodes[from].dir,
                   cluster.nodes[to].dir);
    assert_int_equal(system(command), 0);
}

/* Returns true if the node's warnings contain `words`, the address of `other` and the remedy. */
static bool warns(uint32_t idx, uint32_t other, const char *words) {
    char address[32];
    json_t *const status = cluster_get(&cluster, idx, "/v1/status");
    char *const text = json_dumps(json_object_get(status, "warnings"), 0);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", cluster.nodes[other].port);
    const bool is_said = text != NULL && strstr(text, address) != NULL &&
                         strstr(text, words) != NULL &&
                         strstr(text, "`thinwire init --new-key`") != NULL;
    free(text);
    json_decref(status);
    return is_said;
}

TEST_IN(open_three, close_all, copied_key_is_named_on_all_three_sides) {
    copy_folder(NODE, COPY);
    cluster_start(&cluster, NODE, NULL);
    assert_true(cluster_reaches(&cluster, NODE, "sync.alive_peers", 1, 20));
    cluster_start(&cluster, COPY, NULL);
    for (uint32_t i = 0; i < NODES; i++) assert_true(cluster_says(&cluster, i, "ev=twin ", 30));
    assert_true(warns(HUB, COPY, "has the key of node"));
    assert_true(warns(NODE, COPY, "has this node's key"));
    assert_true(warns(COPY, NODE, "has this node's key"));
    json_t *const peers = cluster_get(&cluster, HUB, "/v1/peers");
    const json_t *const row = json_array_get(json_object_get(peers, "peers"), 0);
    assert_non_null(json_object_get(row, "twin"));
    json_decref(peers);

    /* The copy dials repeatedly, and there is no further effect. */
    const unsigned ups = cluster_lines(&cluster, HUB, "ev=peer_up");
    assert_true(cluster_reaches(&cluster, HUB, "network.links_refused", 3, 60));
    assert_int_equal(cluster_lines(&cluster, HUB, "ev=peer_up"), ups);
    assert_int_equal(cluster_lines(&cluster, COPY, "ev=peer_up"), 0);
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(cluster_lines(&cluster, i, "ev=twin "), 1);

    /* When the node has ended, the copy is admitted. */
    (void)cluster_end(&cluster, NODE, SIGKILL, 10);
    assert_true(cluster_says(&cluster, COPY, "ev=peer_up", 30));
}
