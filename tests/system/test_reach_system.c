/* Daemons ask each other whether they can be dialled. One can be dialled; one advertises an address
 * that leads nowhere. */
#include <signal.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

TEST_IN(NULL, close_all, peers_find_out_whether_a_node_can_be_dialled) {
    char text[96], words[96];
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    const struct cluster_options astray = {.network = "advertise = 127.0.0.1:1"};
    cluster_configure(&cluster, 1, &astray);
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=reachable state=yes", 60));
    assert_true(cluster_says(&cluster, 1, "ev=reachable state=no", 60));
    cluster_string(&cluster, 0, "network.reachable.state", text);
    assert_string_equal(text, "yes");
    cluster_string(&cluster, 1, "network.reachable.state", text);
    assert_string_equal(text, "no");
    (void)snprintf(words, sizeof(words), "not reached; open TCP port %u in", cluster.nodes[1].port);
    assert_non_null(strstr(cluster_log(&cluster, 1), words));
    /* The nodes link nevertheless: a node that cannot be dialled can still dial. */
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 60));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
}
