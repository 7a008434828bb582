/* test_view_versions.c - nodes are grouped by lineage, number of rounds and newest record. */
#include "daemon/api/view_json.h"

#include <string.h>

#include "tests/daemon/api/view_sample.h"
#include "tests/test.h"

static struct tw_status_view view;

static int start(void **state) {
    tw_status_view_init(&view);
    view_sample(&view);
    return 0;
}

#define FACT(name) TEST_IN(start, NULL, name)

static size_t nodes_of(const json_t *said, size_t version) {
    const json_t *const row = json_array_get(json_object_get(said, "versions"), version);
    return json_array_size(json_object_get(row, "nodes"));
}

FACT(equal_versions_are_one) {
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(json_array_size(json_object_get(said, "versions")), 1);
    assert_int_equal(nodes_of(said, 0), 4); /* this node, and three peers that report their state */
    assert_int_equal(json_array_size(json_object_get(said, "unknown")), 0);
    json_decref(said);
}

FACT(each_difference_makes_a_version) {
    memset(&view.peers[0].tip, 1, sizeof(view.peers[0].tip));
    memset(&view.peers[1].lineage, 2, sizeof(view.peers[1].lineage));
    view.peers[2].rounds++;
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(json_array_size(json_object_get(said, "versions")), 4);
    const json_t *const first = json_array_get(json_object_get(said, "versions"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "rounds")), 1188);
    json_decref(said);
}

FACT(the_version_of_most_nodes_is_first) {
    for (uint32_t i = 0; i < 3; i++) view.peers[i].rounds = 12;
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(nodes_of(said, 0), 3);
    assert_int_equal(nodes_of(said, 1), 1);
    json_decref(said);
}

FACT(silent_nodes_have_no_version) {
    /* The link is up, but the peer was silent for too long or has sent no STATUS yet. */
    view.peers[0].link = TW_VIEW_LINK_UP;
    memset(&view.peers[1].lineage, 0, sizeof(view.peers[1].lineage));
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(nodes_of(said, 0), 2);
    assert_int_equal(json_array_size(json_object_get(said, "unknown")), 2);
    json_decref(said);
}

FACT(a_full_table_of_peers_fits) {
    view.peers_count = TW_VIEW_PEERS_MAX;
    for (uint32_t i = 1; i < TW_VIEW_PEERS_MAX; i++) {
        view.peers[i] = view.peers[0];
        view.peers[i].rounds = i;
    }
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(json_array_size(json_object_get(said, "versions")), TW_VIEW_PEERS_MAX);
    assert_int_equal(nodes_of(said, 0), 2); /* this node, and peer 0 */
    json_decref(said);
}
