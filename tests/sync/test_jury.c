/* test_jury.c - checks of training: members that are found or not, and the consequences
 * (check/audit.c).
 */
#include "tests/test.h"

#include "tests/sync/mesh.h"

enum { NODES = 6, LAZY = NODES - 1, HONEST = 4000 };

static struct mesh mesh;
static uint32_t found[NODES][NODES]; /* reports of node b by node a */
static uint32_t merged[NODES];       /* rounds that list the node, as node 0 learns them */
static enum tw_status reason;

static void note(struct mesh *of, uint32_t node, const struct tw_action *action) {
    const struct tw_report *report = &action->u.report;
    if (action->kind != TW_ACT_REPORT) return;
    if (report->kind == TW_REPORT_UNTRAINED) {
        for (uint32_t i = 0; i < NODES; i++)
            found[node][i] += tw_id_equal(&of->ids[i], &report->id);
        reason = report->reason;
    }
    if (report->kind != TW_REPORT_ROUND_COMMITTED || node != 0) return;
    struct tw_node_view view = mesh_view(of, 0);
    for (uint32_t i = 0; i < report->record->contributors_count; i++) {
        const uint32_t seat = report->record->contributors[i].member_idx;
        for (uint32_t k = 0; k < NODES && seat < view.roster.count; k++)
            merged[k] += tw_id_equal(&of->ids[k], &view.roster.members[seat].id);
    }
}

static int begin(void **state) {
    memset(found, 0, sizeof(found));
    mesh_init(&mesh, NODES, 2);
    mesh.config.jury_millionths = 125000;
    mesh.tap.acts = note;
    for (uint32_t i = 0; i < NODES; i++) mesh_kill(&mesh, i);
    for (uint32_t i = 0; i < NODES; i++) mesh.score[i] = HONEST;
    return 0;
}

static int end(void **state) {
    mesh_deinit(&mesh);
    return 0;
}

#define FACT(name) TEST_IN(begin, end, name)

static void run_minutes(uint64_t minutes) {
    for (uint32_t i = 0; i < NODES; i++) mesh_start(&mesh, i, NULL);
    mesh_link_all(&mesh);
    mesh_run(&mesh, minutes * 60000000);
}

static uint32_t finders_of(uint32_t node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < NODES; i++) count += found[i][node] > 0;
    return count;
}

static uint32_t checks_of(uint32_t node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < NODES; i++) count += mesh.judged[i][node];
    return count;
}

FACT(honest_members_are_checked_and_none_is_found) {
    run_minutes(5);
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(finders_of(i), 0);
        assert_true(checks_of(i) > 5);
    }
}

/* Nobody merges its work any more, once all know: the round lists it no longer. */
FACT(member_that_does_not_train_is_found_by_all_and_left_out) {
    mesh.score[LAZY] = 0;
    run_minutes(6);
    assert_int_equal(finders_of(LAZY), NODES - 1);
    for (uint32_t i = 0; i < LAZY; i++) assert_int_equal(finders_of(i), 0);
    const uint32_t before = merged[LAZY], others = merged[1];
    mesh_run(&mesh, 60000000);
    assert_int_equal(merged[LAZY], before);
    assert_true(merged[1] > others + 20);
    assert_int_equal(reason, TW_CORRUPT);
}

FACT(member_that_sends_the_opposite_is_found_sooner) {
    mesh.score[LAZY] = -HONEST;
    run_minutes(4);
    assert_true(finders_of(LAZY) >= NODES / 2);
    for (uint32_t i = 0; i < LAZY; i++) assert_int_equal(finders_of(i), 0);
}

/* If everybody has weak scores, scores show nothing. */
FACT(nobody_is_found_where_honest_scores_are_weak) {
    for (uint32_t i = 0; i < NODES; i++) mesh.score[i] = 300;
    mesh.score[LAZY] = 0;
    run_minutes(5);
    for (uint32_t i = 0; i < NODES; i++) assert_int_equal(finders_of(i), 0);
}

FACT(member_that_never_says_where_it_is_is_found) {
    mesh.is_unplaced[LAZY] = true;
    run_minutes(4);
    assert_int_equal(finders_of(LAZY), 0);
    mesh_run(&mesh, UINT64_C(2) * 60000000);
    assert_int_equal(finders_of(LAZY), NODES - 1);
    assert_int_equal(checks_of(LAZY), 0);
    assert_int_equal(reason, TW_LIMIT);
}

/* Workers that cannot judge, such as programs of others, cost nobody anything. */
FACT(group_without_jurors_goes_on) {
    for (uint32_t i = 0; i < NODES; i++) mesh.is_no_juror[i] = true;
    mesh.score[LAZY] = 0;
    run_minutes(3);
    assert_int_equal(finders_of(LAZY), 0);
    assert_true(mesh.commits[0] > 100);
}

FACT(without_the_key_nothing_is_checked_or_said) {
    mesh.config.jury_millionths = 0;
    mesh.score[LAZY] = 0;
    run_minutes(4);
    for (uint32_t i = 0; i < NODES; i++) assert_int_equal(checks_of(i), 0);
}

/* A liar doubts everybody, in every round. The others look for themselves, not each time. */
static bool doubts_all(struct mesh *of, uint32_t from, uint32_t to, struct tw_message *message) {
    if (from != LAZY || message->kind != TW_MSG_CONTRIB) return true;
    struct tw_message doubt = {.kind = TW_MSG_ACCUSE};
    doubt.u.accuse.lineage = message->u.contrib.lineage;
    doubt.u.accuse.round = message->u.contrib.round > 0 ? message->u.contrib.round - 1 : 0;
    doubt.u.accuse.trainer = 1 + to % 3;
    of->says = NULL;
    mesh_say(of, from, to, &doubt);
    of->says = doubts_all;
    return true;
}

FACT(false_doubts_find_nobody_and_cost_little) {
    run_minutes(3);
    memset(mesh.judged, 0, sizeof(mesh.judged));
    const uint32_t rounds = mesh.commits[0];
    mesh.says = doubts_all;
    mesh_run(&mesh, UINT64_C(3) * 60000000);
    mesh.says = NULL;
    uint32_t checks = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(finders_of(i), 0);
        checks += checks_of(i);
    }
    /* Drawn: 6 / 8 of a check in a round. Doubts: of five nodes, each in one of eight rounds. */
    assert_true(checks < 2 * (mesh.commits[0] - rounds));
}
