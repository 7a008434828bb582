/* unmerged.c - members whose contributions to the part that this node owns were too large to be
 * merged (kernels/guard.h), however often in a row.
 *
 * It is nobody's vote and moves none: a contribution that is left out stays with its node, which
 * sends less the next time (worker/merge/merger.h). So an honest one is back within a few rounds;
 * who is refused for ever is broken, or lies, and people want to know that once, not every round.
 */
#include "sync/node_internal.h"

/* Its row, or TW_MEMBERS_MAX. */
static uint32_t find(const struct tw_node *node, const struct tw_id *id) {
    uint32_t i = 0;
    while (i < TW_MEMBERS_MAX &&
           (node->unmerged[i].rounds == 0 || !tw_id_equal(&node->unmerged[i].id, id)))
        i++;
    return i;
}

/* A free row, or that of who was refused least. */
static uint32_t take(struct tw_node *node, const struct tw_id *id) {
    uint32_t least = 0;
    for (uint32_t i = 1; i < TW_MEMBERS_MAX; i++) {
        if (node->unmerged[i].rounds < node->unmerged[least].rounds) least = i;
    }
    node->unmerged[least] = (struct unmerged){.id = *id};
    return least;
}

void tw_unmerged_note(struct tw_node *node, const struct tw_id *id, bool is_merged) {
    uint32_t at = find(node, id);
    if (is_merged) {
        if (at < TW_MEMBERS_MAX) node->unmerged[at].rounds = 0;
        return;
    }
    if (at == TW_MEMBERS_MAX) at = take(node, id);
    struct unmerged *row = &node->unmerged[at];
    if (row->rounds < UINT32_MAX) row->rounds++;
    node->unmerged_count++;
    if ((row->rounds & (row->rounds - 1)) != 0) return; /* said at 1, 2, 4, 8, ... */
    const uint32_t before = node->bodies_count;
    tw_act_report(node, TW_REPORT_REFUSED, id);
    if (node->bodies_count == before) return; /* words only: lost */
    struct tw_action *report = &node->bodies[before];
    report->u.report.round = node->at.rounds;
    report->u.report.times = row->rounds;
}

uint32_t tw_unmerged_rounds(const struct tw_node *node, const struct tw_id *id) {
    const uint32_t at = find(node, id);
    return at < TW_MEMBERS_MAX ? node->unmerged[at].rounds : 0;
}
