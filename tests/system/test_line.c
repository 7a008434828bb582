/* Network limits of real daemons: a state is fetched although connections break, caps change while
 * the daemons run, hours and quotas make a node train alone, and the configuration is reloaded. */
#include <signal.h>

#include "base/exit_codes.h"
#include "base/limits.h"
#include "tests/system/cluster.h"
#include "tests/system/relay.h"
#include "tests/test.h"

enum { CUTS = 3 };

static struct cluster cluster;
static struct relay relay;
static bool has_relay;

static void open_two(const char *const (*keys)[2]) {
    has_relay = false;
    cluster_open(&cluster, "1g");
    if (keys != NULL) cluster_set_run(&cluster, keys);
    cluster_make(&cluster, 2);
}

static int close_all(void **state) {
    if (has_relay) relay_close(&relay);
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

static void end_all(void) {
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "assertion failed"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
    }
}

/* ---- through cuts ---------------------------------------------------------------------------- */

/* Node 1 reaches node 0 only through the relay, and no node reaches node 1. */
static void join_by_relay(void) {
    char donor[96], joiner[64];
    const uint16_t real = cluster.nodes[0].port;
    relay_open(&relay, real);
    has_relay = true;
    (void)snprintf(donor, sizeof(donor), "upload = 12mbit\nadvertise = 127.0.0.1:%u", relay.port);
    (void)snprintf(joiner, sizeof(joiner), "advertise = 127.0.0.1:1");
    const uint16_t hidden = cluster.nodes[1].port;
    /* in node 0's configuration, node 1 has a port on which nothing listens */
    cluster.nodes[1].port = 1;
    cluster_configure(&cluster, 0, &(struct cluster_options){.network = donor});
    cluster.nodes[1].port = hidden;
    cluster.nodes[0].port = relay.port; /* in node 1's configuration, node 0 has the relay's port */
    cluster_configure(&cluster, 1, &(struct cluster_options){.network = joiner});
    cluster.nodes[0].port = real;
}

FACT(state_comes_through_cuts_without_a_chunk_twice) {
    static const char *const keys[][2] = {
        {"model.width", "384"}, {"model.layers", "2"}, {"sync.fragments", "2"}, {NULL, NULL}};
    open_two(keys);
    join_by_relay();
    cluster_start(&cluster, 0, NULL);
    /* After four rounds both fragments have changed, so the joiner must fetch all of the state. */
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", 4, 120));
    cluster_start(&cluster, 1, NULL);
    for (unsigned cut = 1; cut <= CUTS; cut++) {
        assert_true(cluster_reaches(&cluster, 1, "network.payload_in_bytes", cut * 3e6, 120));
        /* The transfer is still under way. */
        assert_null(strstr(cluster_log(&cluster, 1), "state=member"));
        relay_cut(&relay);
        assert_true(cluster_says(&cluster, 1, "ev=peer_down", 20));
        cluster_pause(0.5);
        relay_mend(&relay);
        assert_true(cluster_reaches(&cluster, 1, "sync.alive_peers", 1, 60));
    }
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 120));
    const double in = cluster_number(&cluster, 1, "network.payload_in_bytes");
    const double out = cluster_number(&cluster, 0, "network.payload_out_bytes");
    print_message("%.1f MB left node 0, %.1f MB came to node 1 in %d pieces, %.0f bytes twice\n",
                  out / 1e6, in / 1e6, CUTS + 1,
                  cluster_number(&cluster, 1, "network.payload_again_bytes"));
    assert_true(in >= CUTS * 3e6); /* the size of the packed state varies */
    assert_true(in < 19e6);        /* it would be 23e6 if node 1 forgot received chunks at a cut */
    assert_true(cluster_number(&cluster, 1, "network.payload_again_bytes") == 0);
    /* Each cut loses only the bytes in transit. The upload cap keeps them to one or two chunks. */
    assert_true(out - in < (2 * CUTS + 2) * (double)TW_CHUNK_BYTES_MAX);
    end_all();
}

/* ---- caps ------------------------------------------------------------------------------------ */

static void configure(uint32_t idx, const char *network, const char *more) {
    cluster_configure(&cluster, idx, &(struct cluster_options){.network = network, .more = more});
}

FACT(caps_change_while_the_node_runs) {
    open_two(NULL);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 60));
    assert_true(cluster_number(&cluster, 0, "network.caps.upload_bytes_per_s") < 0); /* no cap */
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=800kbit"), 200);
    assert_true(cluster_number(&cluster, 0, "network.caps.upload_bytes_per_s") == 100000);
    assert_true(cluster_number(&cluster, 0, "network.caps.download_bytes_per_s") < 0);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?download=2mbit"), 200);
    assert_true(cluster_number(&cluster, 0, "network.caps.download_bytes_per_s") == 250000);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=off&download=off"), 200);
    assert_true(cluster_number(&cluster, 0, "network.caps.upload_bytes_per_s") < 0);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=fast"), 503);

    /* The configuration is reloaded: reloadable keys change, and changes of other keys are
     * reported. */
    configure(1, "upload = 4mbit\ndownload = 8mbit", "checkpoint_interval = 77s");
    const double steps = cluster_number(&cluster, 1, "train.steps");
    assert_int_equal(kill(cluster.nodes[1].pid, SIGHUP), 0);
    assert_true(cluster_says(&cluster, 1,
                             "taken over: network.upload, network.download; needs a restart: "
                             "node.checkpoint_interval",
                             20));
    assert_true(cluster_number(&cluster, 1, "network.caps.upload_bytes_per_s") == 500000);
    assert_true(cluster_number(&cluster, 1, "network.caps.download_bytes_per_s") == 1000000);
    configure(1, "upload = 4 elephants", "checkpoint_interval = 77s");
    assert_int_equal(cluster_post(&cluster, 1, "/v1/reload"), 503);
    assert_true(cluster_says(&cluster, 1, "ev=not_reloaded", 5));
    assert_non_null(strstr(cluster_log(&cluster, 1), "`elephants` is no unit here"));
    assert_true(cluster_number(&cluster, 1, "network.caps.upload_bytes_per_s") == 500000);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", steps + 50, 60));
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 60));
    end_all();
}

/* ---- hours and quota ------------------------------------------------------------------------- */

static void reload(uint32_t idx, const char *network) {
    configure(idx, network, NULL);
    assert_int_equal(cluster_post(&cluster, idx, "/v1/reload"), 200);
}

static void assert_alone_and_training(uint32_t idx) {
    const double steps = cluster_number(&cluster, idx, "train.steps");
    assert_true(cluster_reaches(&cluster, idx, "train.steps", steps + 50, 60));
    assert_true(cluster_number(&cluster, idx, "sync.alive_peers") == 0);
}

FACT(hours_that_are_off_leave_the_node_alone) {
    char text[96];
    open_two(NULL);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 60));
    reload(1, "hours = 00:00-24:00 800kbit");
    assert_true(cluster_number(&cluster, 1, "network.caps.upload_bytes_per_s") == 100000);
    reload(1, "hours = 00:00-24:00 off");
    assert_true(cluster_says(&cluster, 1, "ev=links_rest why=hours", 10));
    assert_true(cluster_says(&cluster, 0, "network.hours keeps it off", 20));
    assert_alone_and_training(1);
    cluster_string(&cluster, 1, "network.caps.links_rest", text);
    assert_string_equal(text, "hours");
    reload(1, "");
    assert_true(cluster_says(&cluster, 1, "ev=links_resume", 10));
    assert_true(cluster_reaches(&cluster, 1, "sync.alive_peers", 1, 90));
    end_all();
}

/* Returns the bytes at the node's sockets since its start, without traffic of strangers. A node
 * whose links rest neither gives a proof to a node that dials it nor accepts one, so such dials
 * count as strangers. */
static double passed(uint32_t idx) {
    static const char *const names[] = {"control_in", "control_out", "bulk_in", "bulk_out"};
    double sum = 0;
    for (unsigned i = 0; i < 4; i++) {
        char path[48];
        (void)snprintf(path, sizeof(path), "network.%s_bytes", names[i]);
        sum += cluster_number(&cluster, idx, path);
    }
    return sum - cluster_number(&cluster, idx, "network.caps.strangers_bytes");
}

FACT(quota_that_is_used_up_outlives_a_restart) {
    open_two(NULL);
    configure(1, "quota = 60kB/month", NULL);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_says(&cluster, 1, "ev=links_rest why=quota", 90));
    assert_true(cluster_number(&cluster, 1, "network.caps.month_bytes") >= 60e3);
    assert_true(cluster_reaches(&cluster, 1, "network.caps.month_bytes", 1.03 * passed(1), 20));
    assert_alone_and_training(1);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 40), TW_EXIT_OK);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 1, 60));
    assert_alone_and_training(1);
    reload(1, "quota = 1GB/month");
    assert_true(cluster_reaches(&cluster, 1, "sync.alive_peers", 1, 90));
    assert_true(cluster_number(&cluster, 1, "network.caps.month_bytes") >= 60e3);
    end_all();
}
