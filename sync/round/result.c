/* result.c - signed contributions, and the results that owners merge of them. */
#include "sync/round/result.h"

#include <string.h>

#include "base/assert.h"
#include "base/median.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/voters.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

/* ---- contributions --------------------------------------------------------------------------- */

static bool has_signature(const struct tw_contributor *row) {
    static const uint8_t none[TW_SIGNATURE_BYTES];
    return memcmp(row->signature, none, sizeof(none)) != 0;
}

static void write_text(const struct tw_node *node, const struct tw_contributor *row,
                       uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES]) {
    tw_contributor_text(&node->cfg.run, &node->at.lineage, node->at.rounds, row, text);
}

/* Returns the root of a contribution: of its payloads, and of the crew whose work it is. */
static struct tw_id root_of(const struct tw_msg_contrib *contrib) {
    const struct tw_id parts = tw_contribution_root(contrib->hashes, contrib->parts_count);
    if (contrib->crew_count == 0) return parts;
    return tw_crew_bind(&parts, contrib->crew_count, &contrib->crew_root);
}

struct tw_contributor tw_contributor_of(uint32_t member, const struct tw_msg_contrib *contrib) {
    struct tw_contributor row = {
        .member_idx = member,
        .fragment_steps = contrib->fragment_steps,
        .tokens = contrib->tokens,
        .fragment_tokens = contrib->fragment_tokens,
        .root = root_of(contrib),
    };
    memcpy(row.signature, contrib->signature, sizeof(row.signature));
    return row;
}

const struct tw_contributor *tw_contributor_row(const struct tw_record *record, uint32_t member) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if (record->contributors[i].member_idx == member) return &record->contributors[i];
    }
    return NULL;
}

void tw_contributor_sign(const struct tw_node *node, struct tw_msg_contrib *contrib) {
    const struct tw_signing *signing = &node->cfg.signing;
    const struct tw_contributor row = tw_contributor_of(0, contrib);
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    write_text(node, &row, text);
    signing->sign(signing->key, text, sizeof(text), contrib->signature);
}

bool tw_contributor_is_of(const struct contribution *received, const struct tw_contributor *row) {
    const struct tw_msg_contrib *contrib = &received->announced;
    if (!received->has || received->is_absent) return false;
    const struct tw_id root = root_of(contrib);
    return tw_id_equal(&root, &row->root) && row->tokens == contrib->tokens &&
           row->fragment_tokens == contrib->fragment_tokens &&
           row->fragment_steps == contrib->fragment_steps;
}

bool tw_contributor_is_signed(const struct tw_node *node, const struct tw_contributor *row) {
    const struct contribution *received = &node->round.contributions[row->member_idx];
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    if (tw_contributor_is_of(received, row) &&
        memcmp(row->signature, received->announced.signature, sizeof(row->signature)) == 0)
        return true; /* the signature was checked when the CONTRIB arrived */
    write_text(node, row, text);
    return node->cfg.signing.is_signed(&node->roster.members[row->member_idx].id, text,
                                       sizeof(text), row->signature);
}

bool tw_contributor_has_signed(const struct tw_node *node, const struct tw_record *record,
                               const struct tw_contributor *row, const struct tw_id *id) {
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    tw_contributor_text(&node->cfg.run, &record->lineage, record->round, row, text);
    return node->cfg.signing.is_signed(id, text, sizeof(text), row->signature);
}

bool tw_contributor_complete(const struct tw_node *node, struct tw_contributor *row) {
    const struct contribution *received = &node->round.contributions[row->member_idx];
    if (!has_signature(row) && tw_contributor_is_of(received, row))
        memcpy(row->signature, received->announced.signature, sizeof(row->signature));
    return has_signature(row);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Results that owners announce, by RESULT or in the proposal of another member.
 *
 * An owner signs its result. A proposal shows these signatures, so no proposer can list a result
 * that its owner did not announce. An owner that is silent to one member cannot hold that member's
 * vote back. The first result of an owner counts; vote/evidence.c compares it with later ones. */

/* True if all signatures that came with the result hold. Missing signatures may still arrive in a
 * CONTRIB. */
static bool are_rows_true(const struct tw_node *node, const struct tw_msg_result *result) {
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        struct tw_contributor row = result->contributors[i];
        if (tw_contributor_complete(node, &row) && !tw_contributor_is_signed(node, &row))
            return false;
    }
    return true;
}

bool tw_result_is_provable(const struct tw_node *node, uint32_t k) {
    TW_ASSERT(k < TW_PARTS_MAX);
    return !node->round.results[k].has || node->round.results[k].bare == 0;
}

/* Adds signatures from received CONTRIBs, and notes which are still missing. */
static void complete_rows(struct tw_node *node, uint32_t k) {
    TW_ASSERT(k < node->round.owners_count);
    struct tw_msg_result *result = &node->round.results[k].announced;
    uint64_t bare = 0;
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        struct tw_contributor *row = &result->contributors[i];
        if (!tw_contributor_complete(node, row)) bare |= UINT64_C(1) << row->member_idx;
    }
    node->round.results[k].bare = bare;
}

void tw_result_contributed(struct tw_node *node, uint32_t member) {
    const struct round *round = &node->round;
    TW_ASSERT(member < node->roster.count);
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (round->results[k].has && (round->results[k].bare >> member & 1) != 0)
            complete_rows(node, k);
    }
}

/* Adds missing signatures from a RESULT that its owner sent again with all of them. */
static enum tw_drop add_signatures(struct tw_node *node, uint16_t peer,
                                   const struct tw_msg_result *result) {
    const uint32_t k = result->part;
    struct tw_msg_result *known = &node->round.results[k].announced;
    enum tw_drop why = TW_DROP_TWICE; /* unless a signature is new */
    for (uint32_t i = 0; i < known->contributors_count; i++) {
        const uint64_t bit = UINT64_C(1) << known->contributors[i].member_idx;
        struct tw_contributor row = known->contributors[i];
        if ((node->round.results[k].bare & bit) == 0) continue;
        memcpy(row.signature, result->contributors[i].signature, sizeof(row.signature));
        if (!tw_contributor_complete(node, &row)) continue; /* still none */
        if (!tw_contributor_is_signed(node, &row)) {
            tw_act_misbehaved(node, peer, TW_PROTO);
            return TW_DROP_FALSE;
        }
        known->contributors[i] = row;
        node->round.results[k].bare &= ~bit;
        why = TW_DROP_NONE;
    }
    return why;
}

/* Sorts the arrivals of the results of all parts but k into `times` (UINT64_MAX: not yet). Returns
 * their number. */
static uint32_t sort_arrivals(const struct tw_node *node, uint32_t k,
                              uint64_t times[TW_PARTS_MAX]) {
    const struct round *round = &node->round;
    uint32_t count = 0;
    for (uint32_t j = 0; j < round->owners_count; j++) {
        const bool is_said = round->results[j].has && !round->results[j].is_shown;
        if (j != k && round->count[j] > 0)
            times[count++] = is_said ? round->results[j].announced_us : UINT64_MAX;
    }
    TW_ASSERT(count <= TW_PARTS_MAX);
    tw_sort_u64(times, count);
    return count;
}

uint64_t tw_result_others_us(const struct tw_node *node, uint32_t k) {
    uint64_t times[TW_PARTS_MAX];
    const uint32_t count = sort_arrivals(node, k, times);
    if (count == 0) return node->round.active_us;
    const uint32_t liars = tw_liars_max(count + 1);
    return times[count - (liars > 0 ? liars : 1)];
}

/* Where owners may lie, a result is due once it takes twice as long as the results of the other
 * owners. With fewer than four parts, none can be left out before patience ends (veto.c).
 */
uint64_t tw_result_due_us(const struct tw_node *node, uint32_t k) {
    const uint64_t others_us = tw_result_others_us(node, k), active_us = node->round.active_us;
    uint64_t times[TW_PARTS_MAX];
    if (tw_liars_max(sort_arrivals(node, k, times) + 1) == 0 || others_us == UINT64_MAX)
        return UINT64_MAX;
    const uint64_t took_us = others_us > active_us ? others_us - active_us : 0;
    return others_us + (took_us > RETRY_US ? took_us : RETRY_US);
}

static bool is_same(const struct tw_msg_result *a, const struct tw_msg_result *b) {
    const struct tw_part first = tw_result_part(a), second = tw_result_part(b);
    const struct tw_id before = tw_part_digest(&first), now = tw_part_digest(&second);
    return tw_id_equal(&before, &now);
}

/* Notes the announced result, and fetches it. */
static void take_result(struct tw_node *node, const struct tw_msg_result *result, bool is_shown) {
    struct round *round = &node->round;
    const uint32_t k = result->part;
    TW_ASSERT(k < round->owners_count);
    round->results[k].has = true;
    round->results[k].is_shown = is_shown;
    round->results[k].announced_us = node->now_us;
    round->results[k].announced = *result;
    round->results[k].asked_us = 0;
    complete_rows(node, k);
    if (result->bytes == 0) return;
    const struct tw_part part = tw_result_part(result);
    struct payload *payload =
        tw_payload_want_result(node, &part, tw_progress_fragment(node, node->at.rounds),
                               round->begin[k], round->count[k], tw_round_keep(node));
    if (payload != NULL) payload->from = node->roster.members[round->owners[k]].id;
}

enum tw_drop tw_result_received(struct tw_node *node, uint16_t peer,
                                const struct tw_msg_result *result, bool *is_checked) {
    struct round *round = &node->round;
    const uint32_t k = result->part;
    *is_checked = false;
    if (k >= round->owners_count) return TW_DROP_IMPOSSIBLE;
    const struct tw_id *owner = &node->roster.members[round->owners[k]].id;
    if (!tw_id_equal(owner, &node->links[peer].id)) return TW_DROP_NO_OWNER;
    if (!tw_payload_is_possible(node, TW_CONTENT_RESULT, round->count[k], result->bytes)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    if (result->bytes > 0 && round->count[k] == 0) return TW_DROP_IMPOSSIBLE;
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        if (result->contributors[i].member_idx >= node->roster.count) return TW_DROP_IMPOSSIBLE;
        if (!tw_account_is_possible(node, &result->contributors[i], tw_account_nodes_max(node)))
            return TW_DROP_IMPOSSIBLE;
    }
    if (round->results[k].has) {
        if (!is_same(&round->results[k].announced, result)) return TW_DROP_TWICE;
        round->results[k].is_shown = false;
        return add_signatures(node, peer, result);
    }
    const struct tw_part part = tw_result_part(result);
    if (!are_rows_true(node, result) ||
        (result->bytes > 0 &&
         !tw_vote_proof_is_result(node, round->owners[k], k, &part, result->signature))) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    /* The hash already names a payload of another content: those bytes were never checked as a
     * result, and never will be. */
    const struct payload *known = tw_payload_find(node, &result->hash);
    if (known != NULL && !tw_payload_is_as(node, known, TW_CONTENT_RESULT, round->count[k]))
        return TW_DROP_UNUSABLE;
    tw_round_touch(node, round->owners[k]);
    take_result(node, result, false);
    *is_checked = result->bytes > 0;
    return TW_DROP_NONE;
}

bool tw_result_is_signed(const struct tw_node *node, const struct tw_record *record, uint32_t k,
                         const uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_part *part = &record->parts[k];
    const struct tw_msg_result *known = &node->round.results[k].announced;
    if (node->round.results[k].has &&
        memcmp(known->signature, signature, TW_SIGNATURE_BYTES) == 0) {
        const struct tw_part announced = tw_result_part(known);
        const struct tw_id before = tw_part_digest(&announced), now = tw_part_digest(part);
        if (tw_id_equal(&before, &now)) return true; /* checked when the RESULT arrived */
    }
    return tw_vote_proof_is_result(node, part->owner_idx, k, part, signature);
}

void tw_result_learn(struct tw_node *node, const struct tw_record *record, uint32_t k,
                     const uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_part *part = &record->parts[k];
    const bool has_result =
        node->round.results[k].has && node->round.results[k].announced.bytes > 0;
    if (has_result || (int)part->owner_idx == node->round.self_idx) return;
    struct tw_msg_result result = {.lineage = record->lineage,
                                   .round = record->round,
                                   .part = k,
                                   .bytes = part->bytes,
                                   .hash = part->result};
    memcpy(result.signature, signature, TW_SIGNATURE_BYTES);
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if ((part->contributors >> record->contributors[i].member_idx & 1) != 0)
            result.contributors[result.contributors_count++] = record->contributors[i];
    }
    take_result(node, &result, true);
}
