/* test_joining.c - how long a node takes to fetch the state of a run over slow lines, in virtual
 * time. */

#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { JOINER = 3, FRAGMENTS = 2, CHUNKS = 10 };

static struct mesh mesh;

/* Nodes 0 to 2 are a group. An outer step takes `period_us`. */
static void begin(uint64_t period_us, uint64_t chunk_us) {
    mesh_init(&mesh, 4, FRAGMENTS);
    mesh_kill(&mesh, JOINER);
    mesh.config.period_steps = (uint32_t)(period_us / mesh.step_us[0]);
    for (uint32_t i = 0; i < JOINER; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
    mesh_link_all(&mesh);
    mesh.state_chunks = CHUNKS;
    for (uint32_t i = 0; i < JOINER; i++) mesh.chunk_us[i] = chunk_us;
    mesh_run(&mesh, 3 * period_us);
}

/* Links the joiner to nodes 0 to `donors` - 1. */
static void join(uint32_t donors) {
    mesh_start(&mesh, JOINER, NULL);
    for (uint32_t i = 0; i < donors; i++) mesh_link(&mesh, JOINER, i);
}

static uint32_t chunks_here(void) {
    uint32_t count = 0;
    const struct tw_node *node = mesh.nodes[JOINER];
    if (!tw_id_equal(&node->at.lineage, &mesh.nodes[0]->at.lineage)) return 0;
    for (uint32_t p = 0; p < FRAGMENTS; p++)
        if (node->at.fragment_rounds[p] != NOT_HELD) count += CHUNKS;
    for (uint32_t i = 0; i < node->payloads_end; i++) {
        const struct payload *payload = &node->payloads[i];
        if (payload->state == PAYLOAD_WANTED && payload->chunks == CHUNKS)
            count += payload->chunks_have;
    }
    return count;
}

/* True if the joiner has the state of the lineage, brought up to its newest round. */
static bool is_whole(void) {
    const struct tw_node *node = mesh.nodes[JOINER];
    return tw_id_equal(&node->at.lineage, &mesh.nodes[0]->at.lineage) &&
           tw_progress_is_current(node);
}

/* Returns the time until the joiner has the whole state. */
static uint64_t time_to_join(void) {
    const uint64_t begin_us = mesh.now_us;
    while (!is_whole()) {
        mesh_run(&mesh, SECONDS(1) / 10);
        assert_true(mesh.now_us < begin_us + SECONDS(2000));
    }
    return mesh.now_us - begin_us;
}

static void print_time(const char *what, uint64_t took_us, uint64_t line_us) {
    printf("  %s: %.1f s, the line needs %.1f s, %u chunks sent of %u\n", what,
           (double)took_us / 1e6, (double)line_us / 1e6, (unsigned)mesh.chunks_sent,
           (unsigned)(FRAGMENTS * CHUNKS));
}

static void fetch_of_one(const char *what) {
    join(1);
    const uint64_t took_us = time_to_join(), line_us = FRAGMENTS * CHUNKS * mesh.chunk_us[0];
    print_time(what, took_us, line_us);
    assert_true(took_us < line_us * 115 / 100);
    assert_int_equal(mesh.chunks_sent, FRAGMENTS * CHUNKS);
    mesh_deinit(&mesh);
}

TEST(state_of_one_donor_takes_as_long_as_its_line) {
    begin(SECONDS(30), SECONDS(5)); /* 420 kbit/s */
    fetch_of_one("one donor");
}

/* The donor keeps the state until the last chunk has left. */
TEST(very_slow_line_is_used_to_the_full) {
    begin(SECONDS(90), SECONDS(25));
    fetch_of_one("a very slow line");
}

/* No node keeps the results of the rounds for as long as the state needs. */
TEST(state_that_takes_many_outer_steps_is_brought_up_to_date) {
    begin(SECONDS(6), SECONDS(5));
    fetch_of_one("short outer steps");
}

TEST(line_does_not_wait_while_a_state_is_packed) {
    begin(SECONDS(30), SECONDS(5));
    mesh.export_us = SECONDS(9);
    fetch_of_one("long steps");
}

TEST(state_of_three_donors_takes_as_long_as_their_lines) {
    begin(SECONDS(30), SECONDS(5));
    join(3);
    const uint64_t took_us = time_to_join(), line_us = FRAGMENTS * CHUNKS * mesh.chunk_us[0] / 3;
    print_time("three donors", took_us, line_us);
    assert_true(took_us < line_us * 115 / 100 + 2 * mesh.chunk_us[0]);
    assert_int_equal(mesh.chunks_sent, FRAGMENTS * CHUNKS);
    mesh_deinit(&mesh);
}

/* Breaks the first donor of two when a third of the chunks are here. What had arrived is kept, and
 * the line of the other one is soon in use. */
static void lose_donor(const char *what, void (*hurt)(struct mesh *mesh, uint32_t node)) {
    begin(SECONDS(30), SECONDS(5));
    join(2);
    while (chunks_here() < FRAGMENTS * CHUNKS / 3) mesh_run(&mesh, SECONDS(1) / 10);
    const uint32_t here = chunks_here();
    const uint64_t lost_us = mesh.now_us;
    hurt(&mesh, 0);
    (void)time_to_join();
    const uint64_t line_us = (FRAGMENTS * CHUNKS - here) * mesh.chunk_us[1];
    print_time(what, mesh.now_us - lost_us, line_us);
    assert_true(mesh.now_us - lost_us < line_us * 115 / 100 + SECONDS(5));
    assert_true(mesh.chunks_sent <= FRAGMENTS * CHUNKS + 3);
    mesh_deinit(&mesh);
}

TEST(killed_donor_costs_seconds) {
    lose_donor("a donor is killed", mesh_kill);
}

TEST(stopped_donor_costs_seconds) {
    lose_donor("a donor is stopped", mesh_stop);
}

/* Node 0 gives node 1 nothing, as its budget is used up: its runtime refuses every PULL. */
static bool refuses(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    if (said->kind != TW_MSG_PULL || from != 1 || to != 0) return true;
    mesh_deliver(world, 0, &(struct tw_event){.kind = TW_EV_REFUSED, .peer = 1});
    return false;
}

TEST(refused_joiner_holds_up_no_round) {
    mesh_init(&mesh, 2, FRAGMENTS);
    mesh_kill(&mesh, 1);
    mesh.state_chunks = CHUNKS;
    mesh.chunk_us[0] = SECONDS(1);
    mesh_run(&mesh, SECONDS(60));
    mesh.says = refuses;
    mesh_start(&mesh, 1, NULL);
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(20));
    const uint32_t before = mesh.commits[0];
    assert_true(before > 0);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh.commits[0] > before + 1);
    mesh.says = NULL;
    mesh_run(&mesh, SECONDS(200));
    assert_true(mesh_agree(&mesh, 0, 1));
    assert_int_equal(mesh.nodes[1]->state, TW_STATE_MEMBER);
    mesh_deinit(&mesh);
}
