/* strike.c - owners that were found to lie: for a while they are given no part, unless that would
 * be a third of a round without proof (proposal.c), and nobody waits for them to close one.
 *
 * A strike is this node's own finding, never what somebody says: a result that the group left out
 * and that this node finds insane too, or that decodes to nothing, or a merge that it recomputed
 * and that came to something else (audit.c). Of the latter two, proven ones, all honest members
 * find the same, of the first most; as it moves votes and rosters to come alone, there is nothing
 * to agree upon. A struck member goes on voting and contributing: its contributions are guarded
 * anyway.
 *
 * In pairs (pair.c) it is the partner whose share decodes to nothing or was insane, and it is not
 * merged with. */
#include "sync/trust/penalty.h"

#include "sync/core/actions.h"
#include "sync/core/state/node.h"

enum { STRIKE_DOUBLED_MAX = 6 };

#define STRIKE_US (600 * SECOND_US)

static struct strike *find(struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        struct strike *strike = &node->penalties.strikes[i];
        if (strike->count > 0 && tw_id_equal(&strike->id, id)) return strike;
    }
    return NULL;
}

/* A free row, or the one whose ban ends first. */
static struct strike *take(struct tw_node *node, const struct tw_id *id) {
    struct strike *row = find(node, id);
    if (row != NULL) return row;
    row = &node->penalties.strikes[0];
    for (uint32_t i = 1; i < TW_MEMBERS_MAX; i++) {
        if (node->penalties.strikes[i].until_us < row->until_us) row = &node->penalties.strikes[i];
    }
    *row = (struct strike){.id = *id};
    return row;
}

void tw_strike_add(struct tw_node *node, const struct tw_id *id, bool is_false, uint64_t round,
                   uint32_t part) {
    struct strike *strike = take(node, id);
    if (strike->count > 0 && strike->round == round && strike->part == part) return;
    const uint64_t ban_us =
        STRIKE_US << (strike->count < STRIKE_DOUBLED_MAX ? strike->count : STRIKE_DOUBLED_MAX);
    strike->count++;
    strike->is_false = is_false;
    strike->round = round;
    strike->part = part;
    strike->until_us = node->now_us + ban_us;
    if (is_false) strike->false_until_us = strike->until_us;
    struct tw_report *report = tw_act_report(node, TW_REPORT_STRUCK, id);
    if (report == NULL) return;
    report->reason = is_false ? TW_CORRUPT : TW_LIMIT;
    report->round = round;
    report->part = part;
}

/* How often it was struck; 0: it is not banned now. */
static uint32_t count_of(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct strike *strike = &node->penalties.strikes[i];
        if (strike->count > 0 && strike->until_us > node->now_us && tw_id_equal(&strike->id, id))
            return strike->count;
    }
    return 0;
}

bool tw_strike_is(const struct tw_node *node, const struct tw_id *id) {
    return count_of(node, id) > 0;
}

bool tw_strike_is_false(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct strike *strike = &node->penalties.strikes[i];
        if (strike->false_until_us > node->now_us && tw_id_equal(&strike->id, id)) return true;
    }
    return false;
}

uint64_t tw_strike_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most) {
    uint64_t taken = 0;
    for (;;) {
        struct tw_member *worst = NULL;
        uint32_t worst_count = 0;
        for (uint32_t i = 0; i < next->count; i++) {
            const uint32_t count = count_of(node, &next->members[i].id);
            const uint32_t weight = next->members[i].weight;
            if (weight == 0 || weight > most - taken || count <= worst_count) continue;
            worst_count = count;
            worst = &next->members[i];
        }
        if (worst == NULL) return taken;
        taken += worst->weight;
        worst->weight = 0;
    }
}
