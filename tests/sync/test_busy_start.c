/* test_busy_start.c - eight honest nodes meet on a busy machine: they start one after another, some
 * steps take nine times as long as others, and the first merges are far larger than all that a node
 * saw when it trained alone. Nobody is called hostile. */
#include "tests/test.h"

#include "tests/sync/mesh.h"

enum { NODES = 8, FRAGMENTS = 4, NEW_ROUNDS = 24 };

static struct mesh mesh;
static uint32_t refusals, charges;
static uint32_t together[NODES]; /* rounds of a group, as the node learns */

static void note(struct mesh *of, uint32_t node, const struct tw_action *action) {
    (void)of;
    if (action->kind != TW_ACT_REPORT) return;
    together[node] += action->u.report.kind == TW_REPORT_ROUND_COMMITTED &&
                      action->u.report.record->parts_count > 0;
    refusals += action->u.report.kind == TW_REPORT_INSANE;
    if (!tw_report_is_charge(&action->u.report)) return;
    print_message("node %u charges a node: report %d\n", node, (int)action->u.report.kind);
    charges++;
}

/* In its first rounds in a group a node finds three of four results too large. */
static enum tw_sanity rate(struct mesh *of, uint32_t node, const struct tw_id *hash) {
    (void)of;
    const bool is_new = together[node] < NEW_ROUNDS;
    return is_new && (hash->bytes[node] & 3) != 0 ? TW_SANITY_OUTLIER : TW_SANITY_FAIR;
}

static int begin(void **state) {
    refusals = charges = 0;
    memset(together, 0, sizeof(together));
    mesh_init(&mesh, NODES, FRAGMENTS);
    mesh.config.judges_min = TW_JUDGES_MIN;
    mesh.tap.acts = note;
    mesh.rates = rate;
    for (uint32_t i = 0; i < NODES; i++) {
        mesh_kill(&mesh, i);
        mesh.step_us[i] *= 1 + i % 3 * 4;
        for (uint32_t k = 0; k < NODES; k++) mesh.far_us[i][k] = (i * 7 + k * 3) % 5 * 200000;
    }
    return 0;
}

static int end(void **state) {
    mesh_deinit(&mesh);
    return 0;
}

#define FACT(name) TEST_IN(begin, end, name)

static void meet(uint64_t apart_us) {
    for (uint32_t i = 0; i < NODES; i++) {
        mesh_start(&mesh, i, NULL);
        mesh_link_all(&mesh);
        mesh_run(&mesh, apart_us);
    }
    mesh_run(&mesh, UINT64_C(4) * 60 * 1000000);
}

static void assert_one_peaceful_group(void) {
    uint64_t audits = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        assert_true(mesh_agree(&mesh, 0, i));
        assert_true(together[i] > 2 * NEW_ROUNDS);
        audits += mesh_view(&mesh, i).audits;
    }
    print_message("%u results refused, %u audits\n", refusals, (unsigned)audits);
    assert_true(refusals > 0);
    assert_true(audits > NODES);
    assert_int_equal(charges, 0);
}

FACT(nodes_that_start_together_charge_nobody) {
    meet(100000);
    assert_one_peaceful_group();
}

FACT(nodes_that_trained_alone_before_charge_nobody) {
    meet(20000000);
    assert_one_peaceful_group();
}
