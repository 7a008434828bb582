/* findings.c - penalties for owners of the open round, decided just before it is committed. */
#include "sync/check/findings.h"

#include "sync/core/membership.h"
#include "sync/core/state/node.h"
#include "sync/round/result.h"
#include "sync/transfer/payload.h"
#include "sync/trust/conduct.h"

/* True if the owner of part k lists contributors without their signatures, and did not answer this
 * node's question for them (vote/proposer.c). */
static bool is_withheld(const struct tw_node *node, uint32_t k) {
    const uint64_t asked_us = node->round.results[k].asked_us;
    return asked_us != 0 && node->now_us >= asked_us + RETRY_US && !tw_result_is_provable(node, k);
}

/* True if the owner of part k delayed the round: its result was announced late or never, or its
 * bytes or signatures did not arrive in time. */
static bool is_stalled(struct tw_node *node, const struct tw_record *record, uint32_t k) {
    const struct round *round = &node->round;
    const struct tw_msg_result *announced = &round->results[k].announced;
    const bool is_sent = round->results[k].has && !round->results[k].is_shown;
    const uint64_t due_us = tw_result_due_us(node, k);
    if (is_withheld(node, k)) return true;
    if (node->now_us >= due_us && (!is_sent || round->results[k].announced_us >= due_us))
        return true;
    /* The record lists the result, although its owner did not send it to this node. The owner
     * stalled the round if it had to wait RETRY_US after all other results had arrived. */
    if (record->parts[k].bytes > 0) {
        const uint64_t others_us = tw_result_others_us(node, k);
        return !is_sent && others_us != UINT64_MAX && node->now_us >= others_us + RETRY_US;
    }
    if (node->now_us < round->active_us + node->pace.patience_us)
        return false; /* the owner still has time */
    if (!round->results[k].has) return true;
    const struct payload *payload = tw_payload_find(node, &announced->hash);
    return announced->bytes > 0 && (payload == NULL || payload->state == PAYLOAD_WANTED);
}

void tw_findings_note_stalls(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    if (record->parts_count != round->owners_count || round->active_us == 0) return;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const uint32_t owner = round->owners[k];
        const struct contribution *entry = &round->contributions[owner];
        if (round->count[k] == 0 || (int)owner == round->self_idx) continue;
        const bool is_idle = !entry->has || entry->is_absent;
        if (is_idle && !tw_membership_reduces(node, owner))
            continue; /* this owner gets no part in the next round anyway */
        if (!tw_membership_is_live(node, owner) || !is_stalled(node, record, k)) continue;
        tw_conduct_stall(node, TW_PENALTY_STALL_OWNER, &node->roster.members[owner].id);
    }
}

void tw_findings_note_strikes(struct tw_node *node, const struct tw_record *record) {
    struct round *round = &node->round;
    if (record->parts_count != round->owners_count) return;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_msg_result *announced = &round->results[k].announced;
        if (record->parts[k].bytes > 0 || !round->results[k].has || announced->bytes == 0) continue;
        if (!tw_payload_is_refused(node, &announced->hash, round->count[k])) continue;
        const bool is_unfit = tw_payload_find(node, &announced->hash)->state == PAYLOAD_UNFIT ||
                              TW_IS_MUTANT(node, TW_MUTANT_SIZE_PROVES);
        tw_conduct_strike(node, &node->roster.members[record->parts[k].owner_idx].id, is_unfit,
                          record->round, k);
    }
}
