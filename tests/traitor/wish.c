/* wish.c - round records that favour the traitors, valid or not. */
#include <string.h>

#include "tests/traitor/coven.h"

/* ---- records that suit the traitors --------------------------------------------------------- */

/* Writes an empty round, which is always a valid record. */
static void write_empty(const struct tw_traitor_view *view, struct tw_record *record) {
    *record = (struct tw_record){.lineage = view->lineage,
                                 .parent = view->tip,
                                 .round = view->rounds,
                                 .clock_tokens = view->clock_tokens,
                                 .fragment = view->fragment,
                                 .finals = view->finals,
                                 .roster_number = view->roster->number};
    uint32_t owners[TW_PARTS_MAX];
    record->parts_count = tw_roster_owners(view->roster, owners);
    for (uint32_t k = 0; k < record->parts_count; k++) record->parts[k].owner_idx = owners[k];
    record->next = *view->roster;
}

static void remove_member(struct tw_roster *roster, uint32_t idx) {
    for (uint32_t i = idx + 1; i < roster->count; i++) roster->members[i - 1] = roster->members[i];
    roster->count--;
}

static void add_member(struct tw_roster *roster, const struct tw_id *id) {
    uint32_t at = roster->count;
    if (roster->count == TW_MEMBERS_MAX || tw_roster_find(roster, id) >= 0) return;
    for (; at > 0 && tw_id_compare(&roster->members[at - 1].id, id) > 0; at--)
        roster->members[at] = roster->members[at - 1];
    roster->members[at] = (struct tw_member){.id = *id, .nonce = 77, .weight = 1};
    roster->count++;
}

/* Spoils the next roster: fewer honest members, more strangers, other nonces, all parts for
 * traitors, or, if not all members vote, more votes for traitors or fewer for others. */
static void spoil_roster(struct tw_traitor *traitor, struct tw_record *record) {
    struct tw_roster *next = &record->next;
    const uint64_t all = next->count < 64 ? (UINT64_C(1) << next->count) - 1 : UINT64_MAX;
    const uint64_t lie = tw_rng_below(&traitor->rng, tw_roster_voters(next) == all ? 5 : 7);
    uint64_t dropped = lie == 0 ? 1 : lie == 1 ? 1 + tw_rng_below(&traitor->rng, 8) : 0;
    while (dropped-- > 0 && next->count > 1) {
        const uint32_t idx = (uint32_t)tw_rng_below(&traitor->rng, next->count);
        if (!tw_coven_has(traitor->coven, &next->members[idx].id)) remove_member(next, idx);
    }
    for (uint64_t i = lie == 2 ? 1 + tw_rng_below(&traitor->rng, 2) : 0; i > 0; i--) {
        const struct tw_id stranger = tw_traitor_draw_stranger(traitor);
        add_member(next, &stranger);
    }
    for (uint32_t i = 0; i < next->count; i++) {
        const bool is_ours = tw_coven_has(traitor->coven, &next->members[i].id);
        if (lie == 3) next->members[i].weight = is_ours ? 64 : 0;
        if (lie == 4 && !is_ours && tw_traitor_draws(traitor, next->count))
            next->members[i].nonce++;
        if (lie == 5 && is_ours) next->members[i].lacks_vote = false;
        if (lie == 6 && !is_ours && tw_traitor_draws(traitor, 2))
            next->members[i].lacks_vote = true;
    }
    next->number = record->roster_number + 1;
}

static void spoil_tokens(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                         struct tw_record *record) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        struct tw_contributor *row = &record->contributors[i];
        if (row->member_idx >= view->roster->count) continue;
        if (!tw_id_equal(&view->roster->members[row->member_idx].id, &traitor->id)) continue;
        const uint64_t more = UINT64_C(1) << tw_rng_below(&traitor->rng, 40);
        row->tokens += more;
        tw_traitor_sign_row(traitor, &record->lineage, record->round, row);
    }
}

/* Lists more tokens of a member than it signed. */
static void spoil_row(struct tw_traitor *traitor, struct tw_record *record) {
    if (record->contributors_count == 0) return;
    struct tw_contributor *row =
        &record->contributors[tw_rng_below(&traitor->rng, record->contributors_count)];
    row->tokens += 1000;
}

/* Leaves out some results, and the contributors that no remaining result lists. */
static void spoil_parts(struct tw_traitor *traitor, struct tw_record *record) {
    uint64_t listed = 0;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        struct tw_part *part = &record->parts[k];
        if (tw_traitor_draws(traitor, 2)) *part = (struct tw_part){.owner_idx = part->owner_idx};
        listed |= part->contributors;
    }
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if ((listed >> record->contributors[i].member_idx & 1) != 0)
            record->contributors[kept++] = record->contributors[i];
    }
    record->contributors_count = kept;
}

/* Changes the record of a round in one way. */
void tw_traitor_spoil(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                      struct tw_record *record) {
    if (tw_traitor_tells(traitor, TW_LIE_ROSTER) && tw_traitor_draws(traitor, 2)) {
        spoil_roster(traitor, record);
        return;
    }
    const uint64_t lie = tw_rng_below(&traitor->rng, 5),
                   before = tw_record_tokens(record, view->tip_record);
    if (lie == 4) spoil_row(traitor, record);
    if (lie == 0) spoil_parts(traitor, record);
    if (lie == 1) spoil_tokens(traitor, view, record);
    record->clock_tokens += tw_record_tokens(record, view->tip_record) - before;
    if (lie == 2) write_empty(view, record);
    if (lie == 3) record->clock_tokens += tw_rng_below(&traitor->rng, 2) * 1000;
}

/* Proposes the record of a proposal that a traitor has heard, mostly changed, or an empty round. */
void tw_traitor_wish(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                     struct tw_msg_propose *propose) {
    struct tw_record *record = &propose->record;
    const struct tw_coven_ballot *row = tw_traitor_draw_ballot(traitor);
    if (row == NULL) {
        write_empty(view, record);
        if (tw_traitor_tells(traitor, TW_LIE_ROSTER)) spoil_roster(traitor, record);
        return;
    }
    *record = row->record;
    memcpy(propose->results, row->results, sizeof(propose->results));
    memcpy(propose->joins, row->joins, sizeof(propose->joins));
    propose->joins_count = row->joins_count;
    if (!tw_traitor_draws(traitor, 3)) tw_traitor_spoil(traitor, view, record);
}
