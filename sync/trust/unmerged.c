/* unmerged.c - members whose contributions to the part that this node owns were too large to be
 * merged (kernels/guard.h), however often in a row.
 *
 * It is nobody's vote and moves none: a contribution that is left out stays with its node, which
 * sends less the next time (worker/merge/merger.h). So an honest one is back within a few rounds;
 * who is refused for ever is broken, or lies, and people want to know that once, not every round.
 */
#include "sync/trust/penalty.h"

#include "sync/core/actions.h"
#include "sync/core/state/node.h"

/* Its row, or TW_MEMBERS_MAX. */
static uint32_t find(const struct tw_node *node, const struct tw_id *id) {
    uint32_t i = 0;
    while (i < TW_MEMBERS_MAX && (node->penalties.unmerged[i].rounds == 0 ||
                                  !tw_id_equal(&node->penalties.unmerged[i].id, id)))
        i++;
    return i;
}

/* A free row, or that of who was refused least. */
static uint32_t take(struct tw_node *node, const struct tw_id *id) {
    uint32_t least = 0;
    for (uint32_t i = 1; i < TW_MEMBERS_MAX; i++) {
        if (node->penalties.unmerged[i].rounds < node->penalties.unmerged[least].rounds) least = i;
    }
    node->penalties.unmerged[least] = (struct unmerged){.id = *id};
    return least;
}

void tw_unmerged_note(struct tw_node *node, const struct tw_id *id, bool is_merged) {
    uint32_t at = find(node, id);
    if (is_merged) {
        if (at < TW_MEMBERS_MAX) node->penalties.unmerged[at].rounds = 0;
        return;
    }
    if (at == TW_MEMBERS_MAX) at = take(node, id);
    struct unmerged *row = &node->penalties.unmerged[at];
    if (row->rounds < UINT32_MAX) row->rounds++;
    node->penalties.unmerged_count++;
    if ((row->rounds & (row->rounds - 1)) != 0) return; /* said at 1, 2, 4, 8, ... */
    struct tw_report *report = tw_act_report(node, TW_REPORT_REFUSED, id);
    if (report == NULL) return;
    report->round = node->at.rounds;
    report->times = row->rounds;
}

uint32_t tw_unmerged_rounds(const struct tw_node *node, const struct tw_id *id) {
    const uint32_t at = find(node, id);
    return at < TW_MEMBERS_MAX ? node->penalties.unmerged[at].rounds : 0;
}
