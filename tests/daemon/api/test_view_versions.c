/* test_view_versions.c - nodes are grouped by lineage, number of rounds and newest record. */
#include "daemon/api/view_json.h"

#include <string.h>

#include "tests/daemon/api/view_sample.h"
#include "tests/test.h"

static struct tw_status_view view;

static int start(void **state) {
    (void)state;
    tw_status_view_init(&view);
    view_sample(&view);
    return 0;
}

static size_t nodes_of(const json_t *said, size_t version) {
    const json_t *const row = json_array_get(json_object_get(said, "versions"), version);
    return json_array_size(json_object_get(row, "nodes"));
}

static void equal_versions_are_one(void **state) {
    (void)state;
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(json_array_size(json_object_get(said, "versions")), 1);
    assert_int_equal(nodes_of(said, 0), 4); /* this node, and three peers that report their state */
    assert_int_equal(json_array_size(json_object_get(said, "unknown")), 0);
    json_decref(said);
}

static void each_difference_makes_a_version(void **state) {
    (void)state;
    memset(&view.peers[0].tip, 1, sizeof(view.peers[0].tip));
    memset(&view.peers[1].lineage, 2, sizeof(view.peers[1].lineage));
    view.peers[2].rounds++;
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(json_array_size(json_object_get(said, "versions")), 4);
    const json_t *const first = json_array_get(json_object_get(said, "versions"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "rounds")), 1188);
    json_decref(said);
}

static void the_version_of_most_nodes_is_first(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) view.peers[i].rounds = 12;
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(nodes_of(said, 0), 3);
    assert_int_equal(nodes_of(said, 1), 1);
    json_decref(said);
}

static void silent_nodes_have_no_version(void **state) {
    (void)state;
    /* The link is up, but the peer was silent for too long or has sent no STATUS yet. */
    view.peers[0].link = TW_VIEW_LINK_UP;
    memset(&view.peers[1].lineage, 0, sizeof(view.peers[1].lineage));
    json_t *const said = tw_view_json_versions(&view);
    assert_int_equal(nodes_of(said, 0), 2);
    assert_int_equal(json_array_size(json_object_get(said, "unknown")), 2);
    json_decref(said);
}

static void a_full_table_of_peers_fits(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(equal_versions_are_one, start),
        cmocka_unit_test_setup(each_difference_makes_a_version, start),
        cmocka_unit_test_setup(the_version_of_most_nodes_is_first, start),
        cmocka_unit_test_setup(silent_nodes_have_no_version, start),
        cmocka_unit_test_setup(a_full_table_of_peers_fits, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
