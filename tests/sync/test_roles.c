/* test_roles.c - groups in which some members take no steps. */

#include "sync/core/state.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* Nodes [0, trainers) train, the others follow. All are down. */
static void open_mesh(uint32_t trainers, uint32_t followers) {
    mesh_init(&mesh, trainers + followers, 3);
    for (uint32_t i = 0; i < mesh.nodes_count; i++) mesh_kill(&mesh, i);
}

static void start_as(uint32_t node, enum tw_node_role role) {
    mesh.config.role = role;
    if (role != TW_NODE_ROLE_TRAIN) mesh.step_us[node] = SECONDS(1000000);
    mesh_start(&mesh, node, NULL);
}

static void assert_members(uint32_t count) {
    for (uint32_t i = 0; i < mesh.nodes_count; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, count);
    }
}

/* Three members that take no steps, then a node that trains. Nobody's work was due, so no round
 * began, and the node waited for a seat for ever. */
TEST(trainer_joins_a_group_that_only_follows) {
    open_mesh(1, 3);
    for (uint32_t i = 1; i < 4; i++) start_as(i, TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 1; i < 4; i++) assert_int_equal(mesh_view(&mesh, i).roster_count, 3);
    start_as(0, TW_NODE_ROLE_TRAIN);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(4);
    assert_true(mesh_view(&mesh, 0).rounds_contributed > 10);
    for (uint32_t i = 1; i < 4; i++) {
        assert_true(mesh_agree(&mesh, 0, i));
        assert_int_equal(mesh_view(&mesh, i).rounds_missed, 0);
    }
    mesh_deinit(&mesh);
}

/* The last of two trainers leaves, and members that take no steps are joined one by one. */
TEST(followers_join_one_by_one) {
    open_mesh(1, 4);
    for (uint32_t i = 0; i < 3; i++) start_as(i, i == 0 ? TW_NODE_ROLE_TRAIN : TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh_view(&mesh, 1).rounds > 10);
    mesh_leave(&mesh, 0);
    for (uint32_t i = 3; i < 5; i++) {
        mesh_run(&mesh, SECONDS(60));
        start_as(i, TW_NODE_ROLE_FOLLOW);
        mesh_link_all(&mesh);
    }
    mesh_run(&mesh, SECONDS(180));
    for (uint32_t i = 2; i < 5; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_MEMBER);
        assert_true(mesh_agree(&mesh, 1, i));
    }
    assert_true(mesh_view(&mesh, 1).rounds > 10);
    mesh_deinit(&mesh);
}

/* Members that take no steps have nothing to lose, however many they are: three of them would draw
 * no node that trains, which would not draw them either. */
TEST(followers_follow_the_first_that_trains) {
    open_mesh(1, 3);
    for (uint32_t i = 1; i < 4; i++) start_as(i, TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    start_as(0, TW_NODE_ROLE_TRAIN);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(tw_id_equal(&mesh.nodes[i]->at.lineage, &lineage));
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_deinit(&mesh);
}

/* Of a full roster of four, the one that trained leaves for a while; its seat is given to the first
 * that asks. Then no rounds are decided for a node that asks in vain. */
TEST(seat_of_the_trainer_is_given_away_once) {
    open_mesh(1, 5);
    mesh.config.members_max = 4;
    for (uint32_t i = 0; i < 4; i++) start_as(i, i == 0 ? TW_NODE_ROLE_TRAIN : TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_MEMBER);
    mesh_kill(&mesh, 0);
    mesh_run(&mesh, SECONDS(20));
    start_as(4, TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_int_equal(mesh_view(&mesh, 4).state, TW_STATE_MEMBER);
    start_as(5, TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    const uint64_t rounds = mesh_view(&mesh, 1).rounds;
    mesh_run(&mesh, SECONDS(300));
    assert_int_equal(mesh_view(&mesh, 5).state, TW_STATE_RECEIVER);
    assert_true(mesh_view(&mesh, 5).is_shut_out);
    assert_int_equal(mesh_view(&mesh, 1).rounds, rounds);
    mesh_deinit(&mesh);
}

/* Whether the node owned a part of the newest round. */
static bool is_owner(uint32_t node, uint32_t member) {
    const struct tw_node_view view = mesh_view(&mesh, node);
    for (uint32_t i = 0; i < view.roster.count; i++) {
        if (tw_id_equal(&view.roster.members[i].id, &mesh.ids[member]))
            return view.roster.members[i].weight > 0;
    }
    return false;
}

/* Three nodes train, and one reduces. */
static void start_with_reducer(void) {
    open_mesh(3, 1);
    for (uint32_t i = 0; i < 4; i++) start_as(i, i < 3 ? TW_NODE_ROLE_TRAIN : TW_NODE_ROLE_REDUCE);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(4);
}

TEST(node_that_reduces_owns_parts) {
    start_with_reducer();
    assert_true(is_owner(0, 3));
    const struct tw_node_view view = mesh_view(&mesh, 3);
    assert_int_equal(view.rounds_contributed, 0);
    assert_int_equal(view.rounds_missed, 0);
    assert_int_equal(view.step, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(is_owner(3, i));
        assert_true(mesh_view(&mesh, i).rounds_contributed > 20);
        assert_true(mesh_agree(&mesh, 3, i));
    }
    const struct tw_record *tip = &mesh.nodes[0]->at.tip;
    assert_int_equal(tip->parts_count, 4);
    for (uint32_t k = 0; k < 4; k++) assert_true(tip->parts[k].bytes > 0);
    mesh_deinit(&mesh);
}

TEST(rounds_go_on_without_the_node_that_reduces) {
    start_with_reducer();
    uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_kill(&mesh, 3);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh_view(&mesh, 0).rounds > rounds + 20);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    start_as(3, TW_NODE_ROLE_REDUCE);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(4);
    assert_true(is_owner(0, 3));
    mesh_deinit(&mesh);
}

/* Without a worker it cannot merge, but votes and follows. */
TEST(node_that_reduces_owns_nothing_without_its_worker) {
    start_with_reducer();
    mesh_stop_worker(&mesh, 3);
    mesh_run(&mesh, SECONDS(60));
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    assert_false(is_owner(0, 3));
    assert_int_equal(mesh_view(&mesh, 0).peers[3].status.role, TW_NODE_ROLE_FOLLOW);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh_view(&mesh, 0).rounds > rounds + 20);
    mesh_start_worker(&mesh, 3);
    mesh_run(&mesh, SECONDS(20));
    assert_true(is_owner(0, 3));
    mesh_deinit(&mesh);
}

static bool hide_refusals(struct mesh *at, uint32_t from, uint32_t to, struct tw_message *message) {
    return from == 0 || message->kind != TW_MSG_CONTRIB;
}

/* Rounds of one trainer among three others have its pace: a round in a second. They neither wait
 * for the grace, nor for the word of those that have no work to send. */
TEST(nobody_waits_for_members_that_take_no_steps) {
    for (unsigned k = 0; k < 2; k++) {
        open_mesh(1, 3);
        for (uint32_t i = 0; i < 4; i++)
            start_as(i, i == 0   ? TW_NODE_ROLE_TRAIN
                        : k == 0 ? TW_NODE_ROLE_FOLLOW
                                 : TW_NODE_ROLE_REDUCE);
        mesh.says = hide_refusals;
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(60));
        assert_members(4);
        const uint64_t rounds = mesh_view(&mesh, 0).rounds;
        mesh_run(&mesh, SECONDS(60));
        assert_true(mesh_view(&mesh, 0).rounds >= rounds + 45);
        assert_true(is_owner(0, 1) == (k == 1));
        mesh_deinit(&mesh);
    }
}

/* Two pairs have no link, one of them the two nodes that reduce. These own nothing, since not all
 * members know their role. Their votes keep their seats, where neither link nor work does. The last
 * node to join earns no vote, since nothing of it is merged; the links to others keep its seat. */
TEST(votes_keep_the_seats_of_nodes_that_reduce) {
    open_mesh(2, 2);
    mesh.is_cut[0][1] = mesh.is_cut[2][3] = true;
    for (uint32_t i = 0; i < 4; i++) start_as(i, i < 2 ? TW_NODE_ROLE_TRAIN : TW_NODE_ROLE_REDUCE);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    assert_members(4);
    const uint32_t number = mesh.nodes[0]->roster.number;
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(300));
    assert_members(4);
    assert_int_equal(mesh.nodes[0]->roster.number, number);
    assert_true(mesh_view(&mesh, 0).rounds > rounds + 100);
    for (uint32_t i = 2; i < 4; i++) assert_false(is_owner(0, i));
    for (uint32_t i = 1; i < 4; i++) assert_true(mesh_agree(&mesh, 0, i));
    mesh_deinit(&mesh);
}

static bool hide_results(struct mesh *at, uint32_t from, uint32_t to, struct tw_message *message) {
    return from != 3 || message->kind != TW_MSG_RESULT;
}

/* A node that claims to reduce and announces nothing is an owner that stalls. */
TEST(reducer_that_merges_nothing_loses_its_part) {
    start_with_reducer();
    mesh.says = hide_results;
    mesh_run(&mesh, SECONDS(300));
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    assert_true(mesh_view(&mesh, 0).peers[3].owner_stall_us > 0);
    assert_false(is_owner(0, 3));
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh_view(&mesh, 0).rounds > rounds + 20);
    mesh_deinit(&mesh);
}

/* Nodes older than roles take no other owners than contributors. */
TEST(node_that_reduces_follows_beside_an_older_node) {
    start_with_reducer();
    mesh.lacks_roles[1] = true;
    mesh_unlink(&mesh, 1, 3);
    mesh_run(&mesh, SECONDS(1));
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(4);
    assert_int_equal(mesh_view(&mesh, 0).peers[3].status.role, TW_NODE_ROLE_FOLLOW);
    assert_false(is_owner(0, 3));
    mesh_deinit(&mesh);
}

/* Without a node that asks for a seat, members that take no steps decide no rounds. */
TEST(followers_alone_decide_no_rounds) {
    open_mesh(0, 3);
    for (uint32_t i = 0; i < 3; i++) start_as(i, TW_NODE_ROLE_FOLLOW);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_members(3);
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(600));
    assert_members(3);
    assert_int_equal(mesh_view(&mesh, 0).rounds, rounds);
    mesh_deinit(&mesh);
}
