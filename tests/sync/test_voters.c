/* test_voters.c - runs in which certificates say who votes: a few voters decide for members that
 * only train. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { VOTERS = 4, NODES = 7 };

static struct mesh mesh;

/* Nodes 0 to 3 have a vote, 4 to 6 have none. All start anew, without links. */
static int set_up(void **state) {
    mesh_init(&mesh, NODES, 3);
    mesh.config.has_rights = true;
    for (uint32_t i = 0; i < NODES; i++) {
        mesh_kill(&mesh, i);
        mesh.lacks_vote[i] = i >= VOTERS;
    }
    for (uint32_t i = 0; i < NODES; i++) mesh_start(&mesh, i, NULL);
    mesh_run(&mesh, SECONDS(1));
    return 0;
}

static int tear_down(void **state) {
    mesh_deinit(&mesh);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Links these nodes to each other, and leaves the others alone. */
static void link_range(uint32_t first, uint32_t end) {
    for (uint32_t a = first; a < end; a++) {
        for (uint32_t b = a + 1; b < end; b++) mesh_link(&mesh, a, b);
    }
}

static bool is_in(uint32_t node, const struct tw_id *lineage) {
    const struct tw_node_view view = mesh_view(&mesh, node);
    return tw_id_equal(&view.lineage, lineage);
}

static uint64_t voters_of(uint32_t node) {
    const struct tw_node_view view = mesh_view(&mesh, node);
    return tw_roster_voters(&view.roster);
}

/* All of these nodes are members of one group and train together; exactly `voters` vote. */
static void assert_group(uint32_t first, uint32_t end, uint64_t voters) {
    const struct tw_node_view one = mesh_view(&mesh, first);
    for (uint32_t i = first; i < end; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_true(is_in(i, &one.lineage));
        assert_int_equal(view.roster_count, end - first);
        assert_int_equal(voters_of(i), voters);
        assert_true(mesh_agree(&mesh, first, i));
    }
}

FACT(voters_decide_for_members_that_only_train) {
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_group(0, NODES, 0xF);
    const struct tw_node_view before = mesh_view(&mesh, 5);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_node_view after = mesh_view(&mesh, 5);
    assert_true(after.rounds > before.rounds + 5);
    assert_true(after.rounds_contributed > before.rounds_contributed + 5);
    /* The rounds go on without those that only train, however many these are. */
    for (uint32_t i = VOTERS; i < NODES; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(60));
    assert_group(0, VOTERS, 0xF);
    assert_true(mesh_view(&mesh, 0).rounds > after.rounds + 5);
}

FACT(members_that_only_train_found_nothing) {
    link_range(VOTERS, NODES);
    mesh_run(&mesh, SECONDS(600));
    const struct tw_id waiting = mesh_view(&mesh, VOTERS).lineage;
    for (uint32_t i = VOTERS; i < NODES; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_RECEIVER);
        assert_int_equal(view.rounds, 0);
        assert_true(is_in(i, &waiting));
    }
    /* The first voter has trained nothing yet, but all follow it. */
    for (uint32_t i = VOTERS; i < NODES; i++) mesh_link(&mesh, 0, i);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = VOTERS; i < NODES; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, NODES - VOTERS + 1);
        assert_int_equal(voters_of(i), 1);
        assert_true(view.rounds_contributed > 0);
    }
}

/* Kills all voters and returns the positions from which they can start again. */
static void kill_voters(struct tw_position positions[VOTERS]) {
    for (uint32_t i = 0; i < VOTERS; i++) {
        tw_node_position(mesh.nodes[i], &positions[i]);
        mesh_kill(&mesh, i);
    }
}

FACT(rounds_stop_without_voters_and_go_on_with_them) {
    static struct tw_position positions[VOTERS];
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    kill_voters(positions);
    mesh_run(&mesh, SECONDS(5)); /* records on their way arrive */
    const struct tw_node_view left = mesh_view(&mesh, VOTERS);
    const uint64_t step = mesh.workers[VOTERS].step;
    mesh_run(&mesh, SECONDS(600));
    for (uint32_t i = VOTERS; i < NODES; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_true(is_in(i, &left.lineage));
        assert_int_equal(view.rounds, left.rounds);
    }
    assert_true(mesh.workers[VOTERS].step > step + 100); /* but they train on */
    for (uint32_t i = 0; i < VOTERS; i++) mesh_start(&mesh, i, &positions[i]);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    assert_group(0, NODES, 0xF);
    assert_true(mesh_view(&mesh, VOTERS).rounds > left.rounds + 5);
    assert_true(mesh_view(&mesh, VOTERS).clock_tokens > left.clock_tokens);
}

/* Three of four voters are lost for good. The last one founds a child lineage, and the deserted
 * members follow it with the state that they have. */
FACT(last_voter_goes_on_alone_with_the_others) {
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_node_view before = mesh_view(&mesh, VOTERS);
    for (uint32_t i = 1; i < VOTERS; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(300));
    for (uint32_t i = VOTERS; i < NODES; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_false(is_in(i, &before.lineage));
        assert_int_equal(view.roster_count, NODES - VOTERS + 1);
        assert_int_equal(voters_of(i), 1);
        assert_true(view.clock_tokens > before.clock_tokens);
        assert_true(mesh_agree(&mesh, 0, i));
    }
}

/* A voter without a state fetched it from members that only train, when the other voters were gone.
 * Nobody can give it a seat: it goes on alone, and the others follow it. */
FACT(newcomer_with_a_vote_goes_on_where_all_voters_are_lost) {
    mesh_kill(&mesh, 0);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_node_view before = mesh_view(&mesh, VOTERS);
    mesh_start(&mesh, 0, NULL);
    mesh_link_all(&mesh);
    for (uint32_t i = 0; i < 100; i++) { /* until it follows the group */
        if (is_in(0, &before.lineage)) break;
        mesh_run(&mesh, SECONDS(1) / 10);
    }
    assert_int_equal(mesh_view(&mesh, 0).state, TW_STATE_RECEIVER);
    for (uint32_t i = 1; i < VOTERS; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(400));
    for (uint32_t i = VOTERS; i < NODES; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(voters_of(i), 1);
        assert_true(view.clock_tokens > before.clock_tokens / 2);
        assert_true(mesh_agree(&mesh, 0, i));
    }
}

/* All voters lose their disks at once. They go back to the state that the others still hold. */
FACT(voters_that_lost_their_state_take_it_from_the_others) {
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    for (uint32_t i = 0; i < VOTERS; i++) mesh_kill(&mesh, i);
    const struct tw_node_view before = mesh_view(&mesh, VOTERS);
    for (uint32_t i = 0; i < VOTERS; i++) {
        mesh.has_vote[i] = false;
        mesh_start(&mesh, i, NULL);
    }
    mesh_run(&mesh, SECONDS(1));
    for (uint32_t i = 0; i < VOTERS; i++) mesh.is_starved[i] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(5));
    const uint32_t entered[VOTERS] = {mesh.forks[0], mesh.forks[1], mesh.forks[2], mesh.forks[3]};
    mesh_run(&mesh, SECONDS(55)); /* the state takes long to arrive: they wait for all of it */
    for (uint32_t i = 0; i < VOTERS; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_RECEIVER);
        assert_true(is_in(i, &before.lineage));
        assert_int_equal(mesh.forks[i], entered[i]);
        mesh.is_starved[i] = false;
    }
    mesh_run(&mesh, SECONDS(300));
    assert_group(0, NODES, 0xF);
    assert_true(mesh_view(&mesh, 0).clock_tokens > before.clock_tokens);
}

/* Ends all links of the node and makes them again, as after a new certificate. */
static void link_anew(uint32_t node, bool lacks_vote) {
    for (uint32_t i = 0; i < NODES; i++) mesh_unlink(&mesh, node, i);
    mesh.lacks_vote[node] = lacks_vote;
    mesh_run(&mesh, SECONDS(1));
    for (uint32_t i = 0; i < NODES; i++) {
        if (i != node) mesh_link(&mesh, node, i);
    }
    mesh_run(&mesh, SECONDS(60));
}

FACT(new_certificate_gives_or_takes_a_vote) {
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    link_anew(NODES - 1, false);
    assert_group(0, NODES, 0x4F);
    link_anew(1, true);
    assert_group(0, NODES, 0x4D);
}

/* A node that most voters do not see gets its vote only once they do. */
FACT(vote_waits_for_links_to_voters) {
    mesh.lacks_vote[NODES - 1] = false;
    mesh_kill(&mesh, NODES - 1);
    mesh_start(&mesh, NODES - 1, NULL);
    for (uint32_t i = 0; i < VOTERS - 2; i++) {
        mesh.is_cut[i][NODES - 1] = mesh.is_cut[NODES - 1][i] = true;
    }
    link_range(0, NODES - 1);
    mesh_run(&mesh, SECONDS(60));
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    assert_group(0, NODES, 0xF);
    for (uint32_t i = 0; i < VOTERS - 2; i++) {
        mesh.is_cut[i][NODES - 1] = mesh.is_cut[NODES - 1][i] = false;
        mesh_link(&mesh, i, NODES - 1);
    }
    mesh_run(&mesh, SECONDS(60));
    assert_group(0, NODES, 0x4F);
}

/* A lineage that a member without a vote has founded is followed by nobody. */
FACT(lineage_without_a_known_voter_is_not_followed) {
    mesh.config.has_rights = false; /* node 4 takes itself for a voter */
    mesh_kill(&mesh, 4);
    mesh_start(&mesh, 4, NULL);
    mesh.config.has_rights = true;
    mesh_run(&mesh, SECONDS(300)); /* its clock gets ahead of the others' */
    const struct tw_id false_lineage = mesh_view(&mesh, 4).lineage;
    assert_int_equal(mesh_view(&mesh, 4).state, TW_STATE_SOLO);
    for (uint32_t i = 0; i < VOTERS; i++) mesh_kill(&mesh, i);
    for (uint32_t i = 0; i < VOTERS; i++) mesh_start(&mesh, i, NULL);
    mesh_link(&mesh, 0, 4);
    mesh_link(&mesh, 5, 4);
    mesh_run(&mesh, SECONDS(60));
    assert_false(is_in(0, &false_lineage));
    assert_false(is_in(5, &false_lineage));
}
