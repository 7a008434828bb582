/* voters.c - which members of the roster have a vote. */
#include "sync/core/voters.h"

#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/reach.h"

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

/* ---- votes by certificates ------------------------------------------------------------------ */

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

/* ---- votes by work -------------------------------------------------------------------------- */

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
    return left < most ? left : most;
}

bool tw_voters_are_false(const struct tw_node *node, const struct tw_record *record) {
    if (TW_IS_MUTANT(node, TW_MUTANT_VOTE_GIVEN)) return false;
    return node->cfg.has_rights ? are_against_rights(node, &record->next)
                                : are_unearned(node, record);
}
