/* check_vote.c - votes: durable before they are sent, never reversed, one choice per round. */
#include <inttypes.h>

#include "base/assert.h"
#include "tests/sim/check.h"

static uint32_t count_bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

/* Sets of nodes that vote are 64-bit: the world gives votes to the first 64 nodes alone. */
static uint64_t bit_of(uint32_t node) {
    TW_ASSERT(node < 64);
    return UINT64_C(1) << node;
}

/* Set of the roster's nodes with a vote. */
static uint64_t voters_of(const struct tw_sim_roster *roster) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < roster->count; i++)
        if (roster->members[i].has_vote) set |= bit_of(roster->members[i].node);
    return set;
}

/* A node accepts no result that it judges an outlier. Exempt are records that it accepted before or
 * proposes itself, and records that some member has a lock on: they may be chosen. */
static void check_no_outlier(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_vote *vote,
                             const struct tw_sim_acceptance *acceptance) {
    const struct tw_sim_key key = tw_sim_key_of(&vote->lineage, vote->round, vote->accepted_ballot);
    const uint32_t *proposer = tw_sim_map_get(&world->check->proposers, &key);
    if (world->options.liars_count == 0 || (proposer != NULL && *proposer == node->idx)) return;
    if ((acceptance->nodes >> node->idx & 1) != 0 || acceptance->is_locked) return;
    for (uint32_t k = 0; k < vote->accepted.parts_count; k++) {
        const struct tw_part *part = &vote->accepted.parts[k];
        const struct tw_sim_payload *payload = tw_sim_pool_find(node, &part->result);
        if (part->bytes == 0 || payload == NULL) continue;
        if (payload->content_kind != TW_CONTENT_RESULT) continue; /* its own result */
        if (tw_sim_sanity(world, node, &part->result) == TW_SANITY_FAIR) continue;
        tw_sim_fail(world, node, "37",
                    "votes in round %" PRIu64 " for a result that it finds to be an outlier",
                    vote->round);
    }
}

void tw_sim_check_unwritten(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_vote *vote) {
    if (!vote->has_accepted) return;
    const struct tw_id digest = tw_record_digest(&vote->accepted);
    const struct tw_sim_key key = tw_sim_key_of(&digest, 0, 0);
    struct tw_sim_acceptance *acceptance = tw_sim_map_put(&world->check->accepted, &key, NULL);
    acceptance->nodes |= bit_of(node->idx);
}

static struct tw_sim_told *told_of(struct tw_sim_world *world, struct tw_sim_node *node,
                                   const struct tw_id *lineage, uint64_t round) {
    const struct tw_sim_key key = tw_sim_key_of(lineage, round, node->idx);
    return tw_sim_map_put(&world->check->told, &key, NULL);
}

/* Returns the commit whose roster decides the round of the vote, in which the node must have a
 * seat with a vote. Returns NULL for a solo round, or if the node has no seat. */
static const struct tw_sim_commit *has_seat(struct tw_sim_world *world, struct tw_sim_node *node,
                                            const struct tw_vote *vote) {
    const struct tw_sim_key key = tw_sim_key_of(&vote->accepted.parent, 0, 0);
    const struct tw_sim_commit *parent = tw_sim_map_get(&world->check->commits, &key);
    if (parent == NULL || !tw_id_equal(&parent->lineage, &vote->lineage)) return NULL;
    const int member = tw_sim_roster_find(&parent->next, node->idx);
    if (member >= 0 && parent->next.members[member].nonce == vote->nonce &&
        parent->next.members[member].has_vote)
        return parent;
    tw_sim_fail(world, node, "17", "votes in round %" PRIu64 " without a seat and vote there",
                vote->round);
    return NULL;
}

/* A record is chosen once enough members have its lock of one ballot on disk. */
void tw_sim_check_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_vote *vote) {
    if (!vote->has_accepted) return;
    struct tw_sim_check *check = world->check;
    const struct tw_id digest = tw_record_digest(&vote->accepted);
    const struct tw_sim_key key = tw_sim_key_of(&digest, 0, 0);
    struct tw_sim_acceptance *acceptance = tw_sim_map_put(&check->accepted, &key, NULL);
    check_no_outlier(world, node, vote, acceptance);
    struct tw_sim_told *told = told_of(world, node, &vote->lineage, vote->round);
    if (!tw_id_equal(&told->locked, &digest))
        told->lock_ballot = 0; /* the lock was dropped for another record */
    acceptance->nodes |= bit_of(node->idx);
    if (vote->lock.ballot == 0) {
        has_seat(world, node, vote);
        return;
    }
    uint32_t row = 0;
    while (row < acceptance->count && acceptance->ballots[row].ballot != vote->lock.ballot) row++;
    if (row == TW_SIM_BALLOTS_KEPT) { /* too many ballots: replace the lowest */
        row = 0;
        for (uint32_t i = 1; i < TW_SIM_BALLOTS_KEPT; i++) {
            if (acceptance->ballots[i].ballot < acceptance->ballots[row].ballot) row = i;
        }
        if (vote->lock.ballot < acceptance->ballots[row].ballot) return;
        acceptance->ballots[row].ballot = vote->lock.ballot;
        acceptance->ballots[row].nodes = 0;
    } else if (row == acceptance->count) {
        acceptance->ballots[acceptance->count++].ballot = vote->lock.ballot;
    }
    const struct tw_sim_commit *parent = has_seat(world, node, vote);
    if (parent == NULL) return;
    acceptance->ballots[row].nodes |= bit_of(node->idx);
    const uint64_t nodes =
        (acceptance->ballots[row].nodes | tw_sim_treason_voters(world)) & voters_of(&parent->next);
    if (count_bits(nodes) < tw_votes_needed(count_bits(voters_of(&parent->next)))) return;
    const struct tw_sim_key round = tw_sim_key_of(&vote->lineage, vote->round, 0);
    bool is_new;
    struct tw_sim_chosen *chosen = tw_sim_map_put(&check->chosen, &round, &is_new);
    if (is_new) {
        *chosen = (struct tw_sim_chosen){.digest = digest, .ballot = vote->lock.ballot};
    } else if (!tw_id_equal(&chosen->digest, &digest)) {
        tw_sim_fail(world, node, "G1", "two records have enough votes for round %" PRIu64,
                    vote->round);
    } else if (vote->lock.ballot < chosen->ballot) {
        chosen->ballot = vote->lock.ballot;
    }
}

/* A ballot has only one record. Once a record has enough votes, all higher ballots propose it
 * again. */
static void check_ballot(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_id *lineage, uint64_t round, uint64_t ballot,
                         const struct tw_id *digest) {
    struct tw_sim_check *check = world->check;
    TW_ASSERT(round < UINT64_C(1) << 40);
    const struct tw_sim_key key = tw_sim_key_of(lineage, round, ballot);
    bool is_new;
    struct tw_id *first = tw_sim_map_put(&check->ballots, &key, &is_new);
    if (is_new) *first = *digest;
    /* A traitor may propose two records in one ballot; at most one of them gets a lock. */
    const bool is_ours =
        world->options.traitors_count == 0 || tw_sim_map_get(&check->proposers, &key) != NULL;
    if (!tw_id_equal(first, digest) && is_ours) {
        tw_sim_fail(world, node, "17", "round %" PRIu64 " ballot %" PRIu64 " has two records",
                    round, ballot);
    }
    const struct tw_sim_key chosen_key = tw_sim_key_of(lineage, round, 0);
    const struct tw_sim_chosen *chosen = tw_sim_map_get(&check->chosen, &chosen_key);
    if (chosen != NULL && ballot > chosen->ballot && !tw_id_equal(&chosen->digest, digest)) {
        tw_sim_fail(world, node, "G1",
                    "round %" PRIu64 ": ballot %" PRIu64
                    " proposes another record than ballot %" PRIu64 " chose",
                    round, ballot, chosen->ballot);
    }
}

/* Bit length of a count, so that buckets hold 0, 1, 2-3, 4-7, ... */
static uint32_t bucket_of(uint64_t count) {
    uint32_t bucket = 0;
    for (; count > 0 && bucket < TW_SIM_TRIES - 1; count /= 2) bucket++;
    return bucket;
}

/* Counts the attempts at a round. Ballots that differ only in the rank count as one attempt. */
static void note_try(struct tw_sim_world *world, const struct tw_id *lineage, uint64_t round,
                     uint64_t ballot) {
    const struct tw_sim_key key = tw_sim_key_of(lineage, round, 0);
    uint64_t *tries = tw_sim_map_put(&world->check->tries, &key, NULL);
    const uint64_t now = 1 + ballot / TW_MEMBERS_MAX;
    if (now <= *tries) return;
    struct tw_sim_result *result = world->result;
    if (*tries > 0) result->tries[bucket_of(*tries - 1)]--;
    result->tries[bucket_of(now - 1)]++;
    *tries = now;
    if (now - 1 > result->tries_most) result->tries_most = now - 1;
}

void tw_sim_check_prepare(struct tw_sim_world *world, const struct tw_msg_prepare *prepare) {
    note_try(world, &prepare->lineage, prepare->round, prepare->ballot);
}

static bool is_durable(const struct tw_sim_node *node, const struct tw_id *lineage,
                       uint64_t round) {
    const struct tw_sim_disk *disk = &node->disk;
    return disk->has_vote && disk->vote.round == round && tw_id_equal(&disk->vote.lineage, lineage);
}

static bool is_digest_of(const struct tw_record *record, const struct tw_id *digest) {
    const struct tw_id now = tw_record_digest(record);
    return tw_id_equal(&now, digest);
}

void tw_sim_check_promise(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_promise *promise) {
    const struct tw_vote *vote = &node->disk.vote;
    if (!is_durable(node, &promise->lineage, promise->round) || vote->promised < promise->ballot) {
        tw_sim_fail(world, node, "17", "promises ballot %" PRIu64 " before it is on disk",
                    promise->ballot);
        return;
    }
    struct tw_sim_told *told = told_of(world, node, &promise->lineage, promise->round);
    if (promise->ballot < told->promised) {
        tw_sim_fail(world, node, "17", "promises ballot %" PRIu64 " after %" PRIu64,
                    promise->ballot, told->promised);
    }
    if (promise->lock.ballot < told->lock_ballot) {
        tw_sim_fail(world, node, "17", "promises and conceals the lock that it has");
    }
    told->promised = promise->ballot;
}

void tw_sim_check_accept(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_msg_accept *accept) {
    const struct tw_vote *vote = &node->disk.vote;
    const bool is_commit = accept->phase == TW_VOTE_COMMIT;
    bool is_kept = is_durable(node, &accept->lineage, accept->round) && vote->has_accepted &&
                   accept->ballot == (is_commit ? vote->lock.ballot : vote->accepted_ballot);
    is_kept = is_kept && is_digest_of(&vote->accepted, &accept->digest);
    if (!is_kept) {
        tw_sim_fail(world, node, "17", "sends ACCEPT of ballot %" PRIu64 " before it is on disk",
                    accept->ballot);
        return;
    }
    struct tw_sim_told *told = told_of(world, node, &accept->lineage, accept->round);
    if (accept->ballot < told->promised) {
        tw_sim_fail(world, node, "17", "accepts ballot %" PRIu64 " although it promised %" PRIu64,
                    accept->ballot, told->promised);
    }
    told->promised = accept->ballot;
    if (is_commit) {
        told->lock_ballot = accept->ballot;
        told->locked = accept->digest;
    }
    check_ballot(world, node, &accept->lineage, accept->round, accept->ballot, &accept->digest);
}

void tw_sim_check_lock(struct tw_sim_world *world, const struct tw_id *digest) {
    const struct tw_sim_key key = tw_sim_key_of(digest, 0, 0);
    struct tw_sim_acceptance *acceptance = tw_sim_map_put(&world->check->accepted, &key, NULL);
    acceptance->is_locked = true;
}

void tw_sim_check_propose(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_propose *propose) {
    const struct tw_id digest = tw_record_digest(&propose->record);
    const struct tw_sim_key key =
        tw_sim_key_of(&propose->record.lineage, propose->record.round, propose->ballot);
    if (!tw_sim_is_traitor(world, node))
        *(uint32_t *)tw_sim_map_put(&world->check->proposers, &key, NULL) = node->idx;
    note_try(world, &propose->record.lineage, propose->record.round, propose->ballot);
    if (propose->lock.ballot != 0) tw_sim_check_lock(world, &digest);
    check_ballot(world, node, &propose->record.lineage, propose->record.round, propose->ballot,
                 &digest);
}
