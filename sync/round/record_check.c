/* record_check.c - checks of a record on which all honest members agree: chain, owners, clock. */
#include "sync/round/record_check.h"

#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/round/account.h"
#include "sync/transfer/payload.h"

bool tw_record_is_sound(const struct tw_node *node, const struct tw_record *record) {
    const struct tw_record *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    uint64_t clock_tokens = tip != NULL ? tip->clock_tokens : 0, contributors = 0;
    const uint32_t finals = tw_progress_is_final(node) ? tip->finals + 1 : 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *by = &record->contributors[i];
        if (by->member_idx >= node->roster.count || !tw_account_is_possible(node, by)) return false;
        contributors |= UINT64_C(1) << by->member_idx;
    }
    clock_tokens += tw_record_tokens(record, tip) * tw_progress_share(node);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].owner_idx != node->round.owners[k]) return false;
        if ((record->parts[k].contributors & ~contributors) != 0) return false;
        if (record->parts[k].bytes > 0 && node->round.count[k] == 0) return false;
        if (!tw_payload_is_possible(node, TW_CONTENT_RESULT, node->round.count[k],
                                    record->parts[k].bytes))
            return false;
    }
    const bool has_parts = record->parts_count == node->round.owners_count;
    const bool is_solo = node->roster.count == 1 && record->parts_count == 0;
    const bool has_none = record->parts_count == 0 && record->contributors_count == 0;
    /* The founder of this lineage also counts tokens of its own that this node does not know of, so
     * its last rounds may begin one round earlier. */
    const bool is_finals = record->finals == finals || (tw_progress_is_apart(node) && tip != NULL &&
                                                        record->finals == tip->finals + 1);
    uint32_t owners[TW_PARTS_MAX];
    if (tw_roster_owners(&record->next, owners) == 0) return false;
    return tw_id_equal(&record->lineage, &node->at.lineage) &&
           tw_id_equal(&record->parent, &node->tip_digest) && record->round == node->at.rounds &&
           record->fragment == tw_progress_fragment(node, record->round) &&
           record->roster_number == node->roster.number && record->clock_tokens == clock_tokens &&
           is_finals && (has_parts || has_none || is_solo);
}
