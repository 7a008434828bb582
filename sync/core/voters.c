/* voters.c - which members have a vote, and the signatures that prove votes. */
#include "sync/core/voters.h"

#include <string.h>

#include "base/assert.h"
#include "sync/core/membership.h"

/* ==== signed votes ============================================================================ */

/* ---- single votes ---------------------------------------------------------------------------- */

/* Returns the vote to sign or check, of the member with this nonce in the roster. */
static struct tw_ballot_vote vote_of(const struct tw_node *node, uint64_t nonce,
                                     const struct tw_msg_accept *accept) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = accept->lineage,
                                   .nonce = nonce,
                                   .round = accept->round,
                                   .ballot = accept->ballot,
                                   .phase = accept->phase,
                                   .digest = accept->digest};
}

static struct tw_ballot_vote promise_of(const struct tw_node *node, uint64_t nonce,
                                        const struct tw_msg_promise *promise) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = promise->lineage,
                                   .nonce = nonce,
                                   .round = promise->round,
                                   .ballot = promise->ballot,
                                   .lock_ballot = promise->lock.ballot,
                                   .phase = TW_VOTE_PROMISE};
}

static void sign(const struct tw_node *node, const struct tw_ballot_vote *vote,
                 uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(vote, text);
    node->cfg.signing.sign(node->cfg.signing.key, text, sizeof(text), signature);
}

static bool is_signed(const struct tw_node *node, const struct tw_id *id,
                      const struct tw_ballot_vote *vote,
                      const uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(vote, text);
    return node->cfg.signing.is_signed(id, text, sizeof(text), signature);
}

void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept) {
    const struct tw_ballot_vote vote = vote_of(node, node->at.nonce, accept);
    sign(node, &vote, accept->signature);
}

void tw_vote_proof_sign_promise(const struct tw_node *node, struct tw_msg_promise *promise) {
    const struct tw_ballot_vote vote = promise_of(node, node->at.nonce, promise);
    sign(node, &vote, promise->signature);
}

static struct tw_ballot_vote result_of(const struct tw_node *node, uint64_t nonce, uint32_t k,
                                       const struct tw_part *part) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = node->at.lineage,
                                   .nonce = nonce,
                                   .round = node->at.rounds,
                                   .ballot = k + 1,
                                   .phase = TW_VOTE_RESULT,
                                   .digest = tw_part_digest(part)};
}

void tw_vote_proof_sign_result(const struct tw_node *node, struct tw_msg_result *result) {
    const struct tw_part part = tw_result_part(result);
    const struct tw_ballot_vote vote = result_of(node, node->at.nonce, result->part, &part);
    sign(node, &vote, result->signature);
}

bool tw_vote_proof_is_result(const struct tw_node *node, uint32_t idx, uint32_t k,
                             const struct tw_part *part,
                             const uint8_t signature[TW_SIGNATURE_BYTES]) {
    TW_ASSERT(idx < node->roster.count);
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = result_of(node, member->nonce, k, part);
    return is_signed(node, &member->id, &vote, signature);
}

static struct tw_ballot_vote join_of(const struct tw_node *node, uint64_t nonce, uint64_t round) {
    return (struct tw_ballot_vote){.run = node->cfg.run,
                                   .lineage = node->at.lineage,
                                   .nonce = nonce,
                                   .round = round,
                                   .phase = TW_VOTE_JOIN};
}

void tw_vote_proof_sign_join(const struct tw_node *node, struct tw_msg_join *join) {
    const struct tw_ballot_vote vote = join_of(node, join->nonce, join->rounds);
    sign(node, &vote, join->signature);
}

bool tw_vote_proof_is_join(const struct tw_node *node, const struct tw_id *id, uint64_t nonce,
                           uint64_t round, const uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_ballot_vote vote = join_of(node, nonce, round);
    return is_signed(node, id, &vote, signature);
}

bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept) {
    TW_ASSERT(idx < node->roster.count);
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = vote_of(node, member->nonce, accept);
    return is_signed(node, &member->id, &vote, accept->signature);
}

bool tw_vote_proof_is_promise(const struct tw_node *node, uint32_t idx,
                              const struct tw_msg_promise *promise) {
    TW_ASSERT(idx < node->roster.count);
    const struct tw_member *member = &node->roster.members[idx];
    const struct tw_ballot_vote vote = promise_of(node, member->nonce, promise);
    if (!is_signed(node, &member->id, &vote, promise->signature)) return false;
    if (promise->lock.ballot == 0) return true;
    return promise->lock.ballot < promise->ballot &&
           tw_vote_proof_holds(node, TW_VOTE_ACCEPT, &promise->locked, &promise->lock);
}

/* ---- sets of votes --------------------------------------------------------------------------- */

static struct tw_msg_accept vote_for(const struct tw_record *record, enum tw_vote_phase phase,
                                     uint64_t ballot) {
    return (struct tw_msg_accept){.lineage = record->lineage,
                                  .round = record->round,
                                  .ballot = ballot,
                                  .phase = phase,
                                  .digest = tw_record_digest(record)};
}

/* The mutant TWO_VOTES (mutants.h): accepts the signature of any member in place of this one's. */
static bool is_any_vote(const struct tw_node *node, const struct tw_roster *roster,
                        struct tw_ballot_vote vote, const uint8_t *signature) {
    for (uint32_t i = 0; TW_IS_MUTANT(node, TW_MUTANT_TWO_VOTES) && i < roster->count; i++) {
        vote.nonce = roster->members[i].nonce;
        if (is_signed(node, &roster->members[i].id, &vote, signature)) return true;
    }
    return false;
}

/* Set of the roster's members whose votes count. */
static uint64_t may_vote(const struct tw_node *node, const struct tw_roster *roster) {
    if (TW_IS_MUTANT(node, TW_MUTANT_ALL_VOTE)) return UINT64_MAX;
    return tw_roster_voters(roster);
}

/* Returns the set of the first `needed` voters of the proof, or 0 if one of their signatures is
 * false. */
static uint64_t check_voters(const struct tw_node *node, const struct tw_roster *roster,
                             uint32_t needed, const struct tw_msg_accept *accept,
                             const struct tw_proof *proof) {
    struct tw_ballot_vote vote = vote_of(node, 0, accept);
    uint64_t checked = 0;
    uint32_t votes = 0;
    if ((proof->voters & ~may_vote(node, roster)) != 0 || tw_bits(proof->voters) < needed) return 0;
    for (uint32_t i = 0; i < roster->count && votes < needed; i++) {
        if ((proof->voters >> i & 1) == 0) continue;
        vote.nonce = roster->members[i].nonce;
        if (!is_signed(node, &roster->members[i].id, &vote, proof->signatures[i]) &&
            !is_any_vote(node, roster, vote, proof->signatures[i]))
            return 0;
        checked |= UINT64_C(1) << i;
        votes++;
    }
    TW_ASSERT(tw_bits(checked) == votes);
    return votes >= needed ? checked : 0;
}

bool tw_vote_proof_holds(const struct tw_node *node, enum tw_vote_phase phase,
                         const struct tw_record *record, const struct tw_proof *proof) {
    const struct tw_msg_accept vote = vote_for(record, phase, proof->ballot);
    const uint32_t needed = tw_membership_votes_needed(node);
    return check_voters(node, &node->roster, needed, &vote, proof) != 0;
}

uint64_t tw_vote_proof_voters(const struct tw_node *node, const struct tw_roster *roster,
                              enum tw_vote_phase phase, const struct tw_record *record,
                              const struct tw_proof *proof) {
    const struct tw_msg_accept vote = vote_for(record, phase, proof->ballot);
    const uint32_t voters = tw_bits(tw_roster_voters(roster));
    if (voters == 0) return 0;
    return check_voters(node, roster, tw_votes_needed(voters), &vote, proof);
}

bool tw_vote_proof_justifies(const struct tw_node *node, const struct tw_msg_propose *propose) {
    const struct tw_promises *promises = &propose->promises;
    const uint32_t needed = tw_membership_votes_needed(node);
    struct tw_ballot_vote vote = {.run = node->cfg.run,
                                  .lineage = propose->record.lineage,
                                  .round = propose->record.round,
                                  .ballot = propose->ballot,
                                  .phase = TW_VOTE_PROMISE};
    uint64_t newest = 0;
    uint32_t votes = 0;
    if ((promises->voters & ~may_vote(node, &node->roster)) != 0) return false;
    if (tw_bits(promises->voters) < needed) return false;
    for (uint32_t i = 0; i < node->roster.count && votes < needed; i++) {
        if ((promises->voters >> i & 1) == 0) continue;
        vote.nonce = node->roster.members[i].nonce;
        vote.lock_ballot = promises->lock_ballots[i];
        if (!is_signed(node, &node->roster.members[i].id, &vote, promises->signatures[i]))
            return false;
        if (vote.lock_ballot > newest) newest = vote.lock_ballot;
        votes++;
    }
    if (TW_IS_MUTANT(node, TW_MUTANT_LOCK_IGNORED)) newest = 0;
    if (votes < needed || newest > propose->lock.ballot) return false;
    if (propose->lock.ballot == 0) return true;
    return propose->lock.ballot < propose->ballot &&
           tw_vote_proof_holds(node, TW_VOTE_ACCEPT, &propose->record, &propose->lock);
}

void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof) {
    struct tw_msg_accept vote = vote_for(record, TW_VOTE_COMMIT, 1);
    TW_ASSERT(node->roster.count == 1);
    tw_vote_proof_sign(node, &vote);
    *proof = (struct tw_proof){.ballot = 1, .voters = 1};
    memcpy(proof->signatures[0], vote.signature, sizeof(vote.signature));
}

/* ==== the right to vote ======================================================================= */

/* The right in a member's certificate, as far as this node knows it. */
enum right { RIGHT_UNKNOWN, RIGHT_NONE, RIGHT_VOTE };

bool tw_voters_are_awaited(const struct tw_node *node) {
    return node->cfg.has_rights && node->cfg.lacks_vote && !node->cfg.is_pair &&
           !tw_progress_is_apart(node);
}

bool tw_voters_may(const struct tw_node *node, uint16_t peer) {
    return !node->cfg.has_rights || !node->links[peer].lacks_vote;
}

static enum right right_of(const struct tw_node *node, const struct tw_id *id) {
    if (tw_id_equal(id, &node->cfg.self)) return node->cfg.lacks_vote ? RIGHT_NONE : RIGHT_VOTE;
    const uint16_t peer = tw_peers_find(node, id);
    if (peer == NO_PEER) return RIGHT_UNKNOWN;
    return tw_voters_may(node, peer) ? RIGHT_VOTE : RIGHT_NONE;
}

/* True if the member votes in the present roster, under the same nonce. */
static bool has_vote(const struct tw_node *node, const struct tw_member *member) {
    const int at = tw_roster_find(&node->roster, &member->id);
    return at >= 0 && node->roster.members[at].nonce == member->nonce &&
           (node->voters >> at & 1) != 0;
}

static bool is_vote_due(const struct tw_node *node, const struct tw_member *member) {
    const enum right right = right_of(node, &member->id);
    const bool is_voter = has_vote(node, member);
    if (right == RIGHT_UNKNOWN || is_voter == (right == RIGHT_VOTE)) return is_voter;
    const bool is_seen = tw_reach_sees_voters(node, &member->id);
    return is_seen ? right == RIGHT_VOTE : is_voter;
}

/* ---- votes by certificates ------------------------------------------------------------------- */

static void seat_by_rights(const struct tw_node *node, struct tw_roster *next) {
    uint32_t voters = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        next->members[i].lacks_vote = !is_vote_due(node, &next->members[i]);
        voters += !next->members[i].lacks_vote;
    }
    /* Somebody has to decide: the present voters go on until another one has a seat. */
    for (uint32_t i = 0; i < next->count && voters == 0; i++)
        next->members[i].lacks_vote = !has_vote(node, &next->members[i]);
}

static bool are_against_rights(const struct tw_node *node, const struct tw_roster *next) {
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (member->merges != 0) return true;
        if (member->lacks_vote != has_vote(node, member)) continue;
        /* The vote of this member changes, or it is new and has one. */
        const enum right allowed = member->lacks_vote ? RIGHT_NONE : RIGHT_VOTE;
        if (right_of(node, &member->id) != allowed) return true;
    }
    return false;
}

/* ---- votes by work --------------------------------------------------------------------------- */

static bool is_elder(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if (node->elders.rows[i].noted != 0 && tw_id_equal(&node->elders.rows[i].id, id))
            return true;
    }
    return false;
}

static void note_elder(struct elders *elders, const struct tw_id *id) {
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if (elders->rows[i].noted != 0 && tw_id_equal(&elders->rows[i].id, id)) {
            elders->rows[i].noted = elders->noted_count;
            return;
        }
        if (elders->rows[i].noted < elders->rows[oldest].noted) oldest = i;
    }
    elders->rows[oldest].id = *id;
    elders->rows[oldest].noted = elders->noted_count;
}

/* True if this node proposed the elder as one in an earlier round, and it has no seat yet: too few
 * voters know it. It takes a seat as a stranger. */
static bool is_doubted(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        const uint64_t claimed = node->lineage.joins[j].claimed;
        if (claimed != 0 && claimed != node->at.rounds + 1 &&
            tw_id_equal(&node->lineage.joins[j].id, id))
            return true;
    }
    return false;
}

static void note_claim(struct tw_node *node, const struct tw_id *id) {
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        if (tw_id_equal(&node->lineage.joins[j].id, id))
            node->lineage.joins[j].claimed = node->at.rounds + 1;
    }
}

void tw_voters_note(struct tw_node *node, const struct tw_roster *roster) {
    if (node->cfg.has_rights || roster->count < 2) return;
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        if (node->lineage.joins[j].claimed != 0 &&
            tw_roster_find(roster, &node->lineage.joins[j].id) >= 0)
            node->lineage.joins[j].claimed = 0;
    }
    if (tw_roster_find(roster, &node->cfg.self) < 0) return;
    node->elders.noted_count++;
    for (uint32_t i = 0; i < roster->count; i++) {
        if (!roster->members[i].lacks_vote) note_elder(&node->elders, &roster->members[i].id);
    }
}

/* Set of members whose work the record merges, as contributors or as owners. A solo round merges
 * nothing. */
static uint64_t workers_of(const struct tw_record *record) {
    uint64_t workers = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if (part->bytes > 0) workers |= part->contributors | UINT64_C(1) << part->owner_idx;
    }
    return workers;
}

/* Returns the number of merges of the voter that has most of them: the age of the group. */
static uint32_t age_of(const struct tw_node *node) {
    uint32_t age = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const uint32_t merges = node->roster.members[i].merges;
        if ((node->voters >> i & 1) != 0 && merges > age) age = merges;
    }
    TW_ASSERT(age <= TW_MERGES_MAX);
    return age;
}

/* Returns the merges that give a vote in this round. */
static uint32_t merges_needed(const struct tw_node *node) {
    return TW_IS_MUTANT(node, TW_MUTANT_VOTES_AT_ONCE) ? 0 : (age_of(node) + 1) / 2;
}

/* Returns how many nodes get a seat, and how many members a vote, in one round. */
static uint32_t newcomers_max(const struct tw_node *node) {
    const uint32_t liars = node->voters != 0 ? tw_liars_max(tw_bits(node->voters)) : 0;
    return TW_IS_MUTANT(node, TW_MUTANT_VOTES_AT_ONCE) ? TW_MEMBERS_MAX : liars > 0 ? liars : 1;
}

bool tw_voters_may_draw(const struct tw_node *node, const struct tw_id *id) {
    enum { GROUP_LEAST = 3 }; /* voters; the clock decides between fewer (history/lineage.c) */
    const bool is_group =
        !node->cfg.has_rights && node->round.self_idx >= 0 && tw_bits(node->voters) >= GROUP_LEAST;
    return !is_group || age_of(node) < TW_GROUP_OLD || is_elder(node, id);
}

uint32_t tw_voters_seats_max(const struct tw_node *node) {
    const bool is_young = age_of(node) < TW_VOTES_YOUNG;
    return node->cfg.has_rights || is_young ? TW_MEMBERS_MAX : newcomers_max(node);
}

bool tw_voters_is_newcomer(const struct tw_node *node, const struct tw_id *id) {
    return tw_roster_find(&node->roster, id) < 0 &&
           (node->cfg.has_rights || !is_elder(node, id) || is_doubted(node, id));
}

/* Gives a vote to the member with most merges among those that have enough and lack one. */
static bool promote_one(struct tw_roster *next, uint32_t needed) {
    struct tw_member *best = NULL;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (!member->lacks_vote || member->merges < needed) continue;
        if (best == NULL || member->merges > best->merges) best = member;
    }
    if (best != NULL) best->lacks_vote = false;
    return best != NULL;
}

/* Sets merges and votes of the next roster: a function of the roster, the record, and the ids of
 * the next roster, of which `elders` come with the merges of the oldest voter. */
static void seat_by_work(const struct tw_node *node, const struct tw_record *record,
                         uint64_t elders, struct tw_roster *next) {
    const uint64_t workers = workers_of(record);
    const uint32_t needed = merges_needed(node), age = age_of(node);
    uint32_t most = age == 0 ? TW_MEMBERS_MAX : newcomers_max(node);
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        const int at = tw_roster_find(&node->roster, &member->id);
        if ((elders >> i & 1) != 0) {
            member->merges = (uint8_t)age;
            member->lacks_vote = false;
            continue;
        }
        member->merges = at >= 0 ? node->roster.members[at].merges : 0;
        if (at >= 0 && (workers >> at & 1) != 0 && member->merges < TW_MERGES_MAX) member->merges++;
        member->lacks_vote = at < 0 || (node->voters >> at & 1) == 0;
    }
    TW_ASSERT(next->count <= TW_MEMBERS_MAX);
    while (most > 0 && promote_one(next, needed)) most--;
}

/* True if the member has a new seat, and this node knows it as an elder of an older group. */
static bool is_returning(const struct tw_node *node, const struct tw_id *id) {
    return age_of(node) > 0 && tw_roster_find(&node->roster, id) < 0 && is_elder(node, id);
}

/* Members differ in the elders that they know. An elder may be seated as a stranger, but no
 * stranger as an elder. */
static bool are_unearned(const struct tw_node *node, const struct tw_record *record) {
    struct tw_roster due = record->next;
    uint64_t elders = 0;
    uint32_t seats = 0;
    for (uint32_t i = 0; i < due.count; i++) {
        const bool is_known = is_returning(node, &due.members[i].id);
        elders |= (uint64_t)(is_known && !due.members[i].lacks_vote) << i;
    }
    seat_by_work(node, record, elders, &due);
    for (uint32_t i = 0; i < due.count; i++) {
        const struct tw_member *member = &record->next.members[i];
        seats += tw_roster_find(&node->roster, &member->id) < 0 && (elders >> i & 1) == 0;
        if (member->merges != due.members[i].merges) return true;
        if (member->lacks_vote != due.members[i].lacks_vote) return true;
    }
    return seats > tw_voters_seats_max(node);
}

void tw_voters_seat(struct tw_node *node, const struct tw_record *record, struct tw_roster *next) {
    uint64_t elders = 0;
    if (node->cfg.has_rights) {
        seat_by_rights(node, next);
        return;
    }
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_id *const id = &next->members[i].id;
        if (!is_returning(node, id) || is_doubted(node, id)) continue;
        elders |= UINT64_C(1) << i;
        note_claim(node, id);
    }
    seat_by_work(node, record, elders, next);
}

uint32_t tw_voters_merges_left(const struct tw_node *node) {
    const int at = node->round.self_idx;
    if (node->cfg.has_rights || at < 0 || (node->voters >> at & 1) != 0) return 0;
    /* The age grows with each of these rounds, up to TW_MERGES_MAX. */
    const uint32_t age = age_of(node), merges = node->roster.members[at].merges;
    const uint32_t left = age > 2 * merges ? age - 2 * merges : 1;
    const uint32_t most = (TW_MERGES_MAX + 1) / 2 - (merges < 63 ? merges : 63);
    TW_ASSERT(left > 0 && most > 0); /* a member without a vote has rounds to go */
    return left < most ? left : most;
}

bool tw_voters_are_false(const struct tw_node *node, const struct tw_record *record) {
    if (TW_IS_MUTANT(node, TW_MUTANT_VOTE_GIVEN)) return false;
    return node->cfg.has_rights ? are_against_rights(node, &record->next)
                                : are_unearned(node, record);
}
