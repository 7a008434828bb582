/* test_joining.c - how long a node takes to fetch the state of a run over slow lines, in virtual
 * time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sync/core/state/node.h"
#include "tests/sync/mesh.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

enum { JOINER = 3, FRAGMENTS = 2, CHUNKS = 10 };

static struct mesh mesh;

/* Nodes 0 to 2 are a group. Their outer steps are long enough that a state is still of use once it
 * has arrived. */
static int set_up(void **state) {
    (void)state;
    mesh_init(&mesh, 4, FRAGMENTS);
    mesh_kill(&mesh, JOINER);
    mesh.config.period_steps = 300;
    for (uint32_t i = 0; i < JOINER; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
    mesh_link_all(&mesh);
    mesh.state_chunks = CHUNKS;
    for (uint32_t i = 0; i < JOINER; i++) mesh.chunk_us[i] = SECONDS(5);
    mesh_run(&mesh, SECONDS(100));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    mesh_deinit(&mesh);
    return 0;
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

static bool is_whole(void) {
    const struct tw_node *node = mesh.nodes[JOINER];
    bool is_whole = node->at.is_moving == 0;
    for (uint32_t p = 0; p < FRAGMENTS; p++) is_whole &= node->at.fragment_rounds[p] != NOT_HELD;
    return is_whole && tw_id_equal(&node->at.lineage, &mesh.nodes[0]->at.lineage);
}

/* Returns the time until the joiner has the whole state. */
static uint64_t time_to_join(void) {
    const uint64_t begin_us = mesh.now_us;
    while (!is_whole()) {
        mesh_run(&mesh, SECONDS(1) / 10);
        assert_true(mesh.now_us < begin_us + SECONDS(600));
    }
    return mesh.now_us - begin_us;
}

static void print_time(const char *what, uint64_t took_us, uint64_t line_us) {
    printf("  %s: %.1f s, the line needs %.1f s, %u chunks sent of %u\n", what,
           (double)took_us / 1e6, (double)line_us / 1e6, (unsigned)mesh.chunks_sent,
           (unsigned)(FRAGMENTS * CHUNKS));
}

static void state_of_one_donor_takes_as_long_as_its_line(void **state) {
    (void)state;
    join(1);
    const uint64_t took_us = time_to_join(), line_us = FRAGMENTS * CHUNKS * mesh.chunk_us[0];
    print_time("one donor", took_us, line_us);
    assert_true(took_us < line_us * 115 / 100);
    assert_int_equal(mesh.chunks_sent, FRAGMENTS * CHUNKS);
}

static void state_of_three_donors_takes_as_long_as_their_lines(void **state) {
    (void)state;
    join(3);
    const uint64_t took_us = time_to_join(), line_us = FRAGMENTS * CHUNKS * mesh.chunk_us[0] / 3;
    print_time("three donors", took_us, line_us);
    assert_true(took_us < line_us * 115 / 100 + 2 * mesh.chunk_us[0]);
    assert_int_equal(mesh.chunks_sent, FRAGMENTS * CHUNKS);
}

/* Breaks the first donor of two when a third of the chunks are here. What had arrived is kept, and
 * the line of the other one is soon in use. */
static void lose_donor(const char *what, void (*hurt)(struct mesh *mesh, uint32_t node)) {
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
}

static void killed_donor_costs_seconds(void **state) {
    (void)state;
    lose_donor("a donor is killed", mesh_kill);
}

static void stopped_donor_costs_seconds(void **state) {
    (void)state;
    lose_donor("a donor is stopped", mesh_stop);
}

int main(void) {
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(state_of_one_donor_takes_as_long_as_its_line),
        TEST(state_of_three_donors_takes_as_long_as_their_lines),
        TEST(killed_donor_costs_seconds),
        TEST(stopped_donor_costs_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
