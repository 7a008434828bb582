/* test_pace.c - how often a group merges, at the limits that a manifest allows. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

static struct mesh mesh;

/* The period is one step. A round here lasts longer than a step, and contributions start at step
 * boundaries. So a node contributes at every second or third step, and keeps training meanwhile. */
TEST(period_of_one_step_merges_as_often_as_links_allow) {
    mesh_init(&mesh, 4, 1);
    mesh.config.period_steps = 1;
    mesh.config.overlap_steps = 0;
    for (uint32_t i = 0; i < 4; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
    mesh_link_all(&mesh);
    mesh_run(&mesh, 60 * UINT64_C(1000000));
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, 4);
        assert_in_range(view.rounds_contributed, 150, 600); /* of 600 steps */
        assert_true(view.rounds_missed <= view.rounds_contributed / 20);
        assert_true(view.step > 550); /* no worker ever waits */
        tokens += view.tokens;
        if (mesh.workers[i].rounds[0] == mesh.workers[0].rounds[0])
            assert_int_equal(mesh.workers[i].phi[0], mesh.workers[0].phi[0]);
    }
    /* Each token is counted once, except those before the nodes met and those of the last
     * rounds. */
    assert_in_range(mesh_view(&mesh, 0).clock_tokens, tokens * 3 / 4, tokens);
    mesh_deinit(&mesh);
}
