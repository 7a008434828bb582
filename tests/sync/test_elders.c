/* test_elders.c - groups without certificates: newcomers earn their votes, and former voters have
 * theirs back at once. */

#include "sync/core/state.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* Node `idx` as a member in the roster of node 0; NULL: it has no seat. */
static const struct tw_member *member(uint32_t idx) {
    const struct tw_roster *const roster = &mesh.nodes[0]->roster;
    const int at = tw_roster_find(roster, &mesh.ids[idx]);
    return at >= 0 ? &roster->members[at] : NULL;
}

static bool votes(uint32_t idx) {
    return member(idx) != NULL && !member(idx)->lacks_vote;
}

static uint32_t merges_of(uint32_t idx) {
    return member(idx) != NULL ? member(idx)->merges : 0;
}

/* Runs until node `idx` has a seat, at most a minute. */
static void await_seat(uint32_t idx) {
    for (uint32_t i = 0; i < 600 && member(idx) == NULL; i++) mesh_run(&mesh, SECONDS(1) / 10);
    assert_non_null(member(idx));
}

/* Nodes [0, count) are a group whose members have merged at least `merges` times. */
static void grow(uint32_t nodes, uint32_t count, uint32_t merges) {
    mesh_init(&mesh, nodes, 3);
    for (uint32_t i = count; i < nodes; i++) mesh_kill(&mesh, i);
    mesh_link_all(&mesh);
    for (uint32_t i = 0; i < 600 && (merges_of(0) < merges || !votes(count - 1)); i++)
        mesh_run(&mesh, SECONDS(1));
    for (uint32_t i = 0; i < count; i++) assert_true(votes(i));
    assert_true(merges_of(0) >= merges);
}

/* A vote needs half of the merges of the oldest voter. The work is merged long before. */
TEST(newcomer_works_at_once_and_votes_later) {
    grow(4, 3, 30);
    mesh_start(&mesh, 3, NULL);
    mesh_link_all(&mesh);
    await_seat(3);
    assert_false(votes(3));
    assert_int_equal(merges_of(3), 0);
    uint32_t merges = 0, age = 0;
    for (uint32_t i = 0; i < 6000 && !votes(3); i++) {
        merges = merges_of(3);
        age = merges_of(0);
        for (uint32_t k = 1; k < 3; k++) age = merges_of(k) > age ? merges_of(k) : age;
        assert_true(2 * merges <= age + 1);
        mesh_run(&mesh, SECONDS(1) / 10);
    }
    assert_true(votes(3));
    assert_true(merges + 1 >= age / 2);
    assert_true(mesh_view(&mesh, 3).rounds_contributed >= 15);
    mesh_deinit(&mesh);
}

/* A voter that was away has its vote with its seat; a new node beside it has none. */
TEST(voter_that_was_away_votes_at_once) {
    struct tw_position position;
    grow(6, 4, 20);
    tw_node_position(mesh.nodes[3], &position);
    const struct mesh_worker worker = mesh.workers[3];
    mesh_leave(&mesh, 3);
    mesh_run(&mesh, SECONDS(30));
    assert_null(member(3));
    mesh.workers[3] = worker;
    mesh_start(&mesh, 3, &position);
    mesh_start(&mesh, 4, NULL);
    mesh_link_all(&mesh);
    await_seat(3);
    assert_true(votes(3));
    await_seat(4);
    assert_false(votes(4));
    mesh_deinit(&mesh);
}

/* All voters lose their votes, and found a child lineage from their checkpoints. The
 * nodes that have waited for this moment are strangers there too. */
TEST(group_that_begins_anew_is_no_younger) {
    struct tw_position positions[3];
    struct mesh_worker workers[3];
    grow(8, 3, 40);
    for (uint32_t i = 0; i < 3; i++) {
        tw_node_position(mesh.nodes[i], &positions[i]);
        workers[i] = mesh.workers[i];
    }
    const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
    mesh_run(&mesh, SECONDS(10));
    for (uint32_t i = 0; i < 3; i++) mesh_kill(&mesh, i);
    for (uint32_t i = 0; i < 3; i++) {
        mesh.has_vote[i] = false;
        mesh.workers[i] = workers[i];
        mesh_start(&mesh, i, &positions[i]);
    }
    mesh_link_all(&mesh);
    struct tw_node_view view = mesh_view(&mesh, 0);
    for (uint32_t i = 0;
         i < 2000 && (tw_id_equal(&lineage, &view.lineage) || view.roster_count < 3); i++) {
        mesh_run(&mesh, SECONDS(1) / 10);
        view = mesh_view(&mesh, 0);
    }
    assert_false(tw_id_equal(&lineage, &view.lineage));
    for (uint32_t i = 0; i < 3; i++) assert_true(votes(i));
    for (uint32_t i = 3; i < 8; i++) mesh_start(&mesh, i, NULL);
    mesh_link_all(&mesh);
    for (uint32_t seats = 3; seats < 8;) {
        const struct tw_roster before = mesh.nodes[0]->roster;
        mesh_run(&mesh, SECONDS(1) / 20);
        const struct tw_roster *const now = &mesh.nodes[0]->roster;
        assert_true(now->count <= before.count + 1);
        seats = now->count;
        for (uint32_t i = 3; i < 8; i++) assert_false(votes(i));
    }
    mesh_deinit(&mesh);
}

/* Node 0 has met node 2 as a voter, node 1 has not, and is not linked to it. Node 1 refuses each
 * roster that gives node 2 its vote back, and cannot seat it itself. */
TEST(elder_that_others_do_not_know_gets_a_seat) {
    struct tw_position position;
    mesh_init(&mesh, 3, 3);
    mesh_kill(&mesh, 1);
    mesh_link(&mesh, 0, 2);
    mesh_run(&mesh, SECONDS(60));
    assert_true(votes(2) && merges_of(0) >= 10);
    tw_node_position(mesh.nodes[2], &position);
    const struct mesh_worker worker = mesh.workers[2];
    mesh_leave(&mesh, 2);
    mesh_start(&mesh, 1, NULL);
    mesh_link(&mesh, 0, 1);
    for (uint32_t i = 0; i < 600 && !votes(1); i++) mesh_run(&mesh, SECONDS(1));
    assert_true(votes(1));
    mesh.workers[2] = worker;
    mesh_start(&mesh, 2, &position);
    mesh_link(&mesh, 0, 2);
    await_seat(2);
    assert_false(votes(2));
    mesh_deinit(&mesh);
}
