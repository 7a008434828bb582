/* stall.c - members that are here and hold up rounds: for a while nobody waits for them.
 *
 *   owner    It contributed, was waited for, and told no result, or never gave the bytes. It gets
 *            no part, and no round waits for what it may tell.
 *   proposer   It ended ballots of others for nothing, or let its turn pass, or proposed nearly
 *            nothing: ballot_lease.c.
 *
 * Once is an accident: a worker that died, a link that was full. The second time counts, and every
 * time after it twice as long; who has done nothing of the kind for ten minutes begins anew. As
 * with strikes (strike.c) this is each node's own finding, and moves nothing but whom it waits for
 * and what it proposes itself. */
#include "sync/trust/penalty.h"

#include "sync/core/actions.h"
#include "sync/core/state/node.h"

enum { DOUBLED_MAX = 5 };

#define STALL_US (60 * SECOND_US) /* doubled each time */
#define FORGET_US (600 * SECOND_US)

static struct tw_stall *find(struct tw_node *node, enum tw_stall_kind kind,
                             const struct tw_id *id) {
    struct tw_stall *oldest = &node->penalties.stalls[kind][0];
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        struct tw_stall *row = &node->penalties.stalls[kind][i];
        if (row->count > 0 && tw_id_equal(&row->id, id)) return row;
        if (row->until_us < oldest->until_us) oldest = row;
    }
    *oldest = (struct tw_stall){.id = *id}; /* the one that is over first makes room */
    return oldest;
}

void tw_stall_add(struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id) {
    struct tw_stall *row = find(node, kind, id);
    if (row->count > 0 && node->now_us >= row->until_us + FORGET_US) row->count = 0;
    row->until_us = node->now_us;
    if (row->count > 0) row->until_us += STALL_US << at_most(row->count - 1, DOUBLED_MAX);
    row->count++;
    if (row->until_us > node->now_us) tw_act_report(node, TW_REPORT_STALLED, id);
}

uint64_t tw_stall_left_us(const struct tw_node *node, enum tw_stall_kind kind,
                          const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct tw_stall *row = &node->penalties.stalls[kind][i];
        if (row->count > 0 && row->until_us > node->now_us && tw_id_equal(&row->id, id))
            return row->until_us - node->now_us;
    }
    return 0;
}

bool tw_stall_is(const struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id) {
    return tw_stall_left_us(node, kind, id) > 0;
}

uint64_t tw_stall_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most) {
    uint64_t taken = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (member->weight > most - taken || !tw_stall_is(node, TW_STALL_OWNER, &member->id))
            continue;
        taken += member->weight;
        member->weight = 0;
    }
    return taken;
}
