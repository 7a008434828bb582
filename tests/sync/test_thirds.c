/* test_thirds.c - seven voters tolerate two liars: two silent ones stop no rounds, three stop them.
 */
#include "tests/test.h"

#include "tests/sync/mesh.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { NODES = 7, LIARS_MAX = 2, FRAGMENTS = 3 };

static struct mesh mesh;
static uint32_t silent; /* the last nodes, which contribute and vote for nothing */

/* A silent member stays linked and says where it is. */
static bool say(struct mesh *of, uint32_t from, uint32_t to, struct tw_message *message) {
    (void)of;
    (void)to;
    return from < NODES - silent || message->kind == TW_MSG_STATUS || message->kind == TW_MSG_LINKS;
}

static int set_up(void **state) {
    silent = 0;
    mesh_init(&mesh, NODES, FRAGMENTS);
    mesh.says = say;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    return 0;
}

static int tear_down(void **state) {
    mesh_deinit(&mesh);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static uint64_t rounds_within(uint64_t seconds) {
    const uint64_t before = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(seconds));
    return mesh_view(&mesh, 0).rounds - before;
}

static void assert_whole_group(void) {
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_int_equal(view.state, TW_STATE_MEMBER);
    assert_int_equal(view.roster_count, NODES);
    assert_int_equal(tw_roster_voters(&view.roster), (1 << NODES) - 1);
}

FACT(fewer_than_a_third_of_the_voters_stop_no_rounds) {
    assert_whole_group();
    silent = LIARS_MAX;
    assert_true(rounds_within(100) > 10);
    for (uint32_t i = 1; i < NODES - silent; i++) assert_true(mesh_agree(&mesh, 0, i));
}

/* Within the 120 s after which a node goes on alone. */
FACT(a_third_of_the_voters_stop_the_rounds) {
    assert_whole_group();
    silent = LIARS_MAX + 1;
    (void)rounds_within(1); /* an open round may end */
    assert_int_equal(rounds_within(100), 0);
}
