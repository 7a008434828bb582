/* check.c - the judge: what must always hold, looked at whenever an action or event touches it.
 *
 *   G1  one committed manifest per (lineage, round); never two values chosen by quorums
 *   G2  equal (lineage, fragment, version) means equal bytes of (phi, u)
 *   G3  accounting: who is listed made that contribution; clock = parent + sum of tokens;
 *       nobody is listed for more than it trained; rosters follow the chain
 *   G4  no round is applied twice by a node, nor out of its turn
 *   G5  what is ABSENT in the manifest is ABSENT in the APPLY, and nothing else is
 *   G6  stepping goes on: see worker.c, and FINISH only at the budget
 *   17  a vote that was told is durable, and never contradicted across restarts
 *   25  a deadline that was reached moves on
 *
 * 6, 11, 12, 13, 18, 20 are looked at where they happen: net.c, worker.c, shell.c, calm.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "tests/sim/world.h"

/* A roster by node number. */
struct roster {
    uint32_t number, count;
    struct {
        uint64_t nonce;
        uint8_t node;
        bool has_weight;
    } members[TW_MEMBERS_MAX];
};

enum { BALLOTS_KEPT = 16, ENCODED_KEPT = 4, TICKS_PER_SECOND_MAX = 200 };

/* A committed manifest. */
struct commit {
    struct tw_id digest, lineage;
    uint64_t round, clock_tokens;
    uint32_t parts_count, contributors_count;
    struct {
        struct tw_id result;
        uint64_t contributors; /* by roster index */
    } parts[TW_PARTS_MAX];
    struct roster roster, next;      /* that decided it, that decides the next one */
    uint64_t listed[TW_MEMBERS_MAX]; /* tokens of each node along the chain so far */
};

/* Who durably accepted a manifest, per ballot. */
struct acceptance {
    uint32_t count;
    struct {
        uint64_t ballot, nodes; /* bit set of node numbers */
    } ballots[BALLOTS_KEPT];
};

struct chosen {
    struct tw_id digest;
    uint64_t ballot;
};

/* What a node told others about its vote in one round. */
struct told {
    uint64_t promised, accepted_ballot;
};

/* Contributions a node encoded for one round (more than one after a restart). */
struct encoded {
    uint32_t count;
    struct {
        struct tw_id root;
        bool is_told;
        uint64_t tokens;
    } all[ENCODED_KEPT];
};

struct tw_sim_check {
    struct tw_sim_map commits;  /* digest -> struct commit */
    struct tw_sim_map rounds;   /* (lineage, round) -> digest */
    struct tw_sim_map memory;   /* (lineage, fragment, version) -> digest of (phi, u) */
    struct tw_sim_map accepted; /* manifest digest -> struct acceptance */
    struct tw_sim_map chosen;   /* (lineage, round) -> struct chosen */
    struct tw_sim_map ballots;  /* (lineage, round, ballot) -> digest of what was proposed */
    struct tw_sim_map told;     /* (lineage, round, node) -> struct told */
    struct tw_sim_map encoded;  /* (lineage, round, node) -> struct encoded */
    struct tw_sim_map joins;    /* (lineage, nonce) -> rounds + 1 */
    struct {
        struct tw_id lineage;
        uint64_t rounds, clock_tokens; /* of the newest commit it reported in this life */
    } nodes[TW_MEMBERS_MAX];
};

void tw_sim_check_init(struct tw_sim_world *world) {
    struct tw_sim_check *check = calloc(1, sizeof *check);
    TW_ASSERT(check != NULL);
    tw_sim_map_init(&check->commits, sizeof(struct commit));
    tw_sim_map_init(&check->rounds, sizeof(struct tw_id));
    tw_sim_map_init(&check->memory, sizeof(struct tw_id));
    tw_sim_map_init(&check->accepted, sizeof(struct acceptance));
    tw_sim_map_init(&check->chosen, sizeof(struct chosen));
    tw_sim_map_init(&check->ballots, sizeof(struct tw_id));
    tw_sim_map_init(&check->told, sizeof(struct told));
    tw_sim_map_init(&check->encoded, sizeof(struct encoded));
    tw_sim_map_init(&check->joins, sizeof(uint64_t));
    world->check = check;
}

void tw_sim_check_deinit(struct tw_sim_world *world) {
    struct tw_sim_check *check = world->check;
    tw_sim_map_deinit(&check->commits);
    tw_sim_map_deinit(&check->rounds);
    tw_sim_map_deinit(&check->memory);
    tw_sim_map_deinit(&check->accepted);
    tw_sim_map_deinit(&check->chosen);
    tw_sim_map_deinit(&check->ballots);
    tw_sim_map_deinit(&check->told);
    tw_sim_map_deinit(&check->encoded);
    tw_sim_map_deinit(&check->joins);
    free(check);
}

static struct tw_sim_key key_of(const struct tw_id *id, uint64_t a, uint64_t b) {
    return (struct tw_sim_key){.id = *id, .a = a, .b = b};
}

static uint32_t bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

/* ---- rosters -------------------------------------------------------------------------------- */

static int node_number(const struct tw_sim_world *world, const struct tw_id *id) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (tw_id_equal(&world->nodes[i].id, id)) return (int)i;
    }
    return -1;
}

static void roster_take(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_roster *from, struct roster *to) {
    to->number = from->number;
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        const int number = node_number(world, &from->members[i].id);
        if (number < 0) {
            tw_sim_fail(world, node, "G3", "a roster names a node that does not exist");
            return;
        }
        to->members[i].node = (uint8_t)number;
        to->members[i].has_weight = from->members[i].weight > 0;
        to->members[i].nonce = from->members[i].nonce;
        if (i > 0 && tw_id_compare(&from->members[i - 1].id, &from->members[i].id) >= 0) {
            tw_sim_fail(world, node, "G3", "a roster is not in order, or names a node twice");
        }
    }
}

static int roster_find(const struct roster *roster, uint32_t node) {
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->members[i].node == node) return (int)i;
    }
    return -1;
}

static uint64_t roster_set(const struct roster *roster) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < roster->count; i++) set |= UINT64_C(1) << roster->members[i].node;
    return set;
}

/* ---- manifests ------------------------------------------------------------------------------ */

static void check_contributors(struct tw_sim_world *world, struct tw_sim_node *node,
                               const struct tw_close *close, struct commit *commit) {
    uint64_t clock_tokens = 0, listed = 0;
    for (uint32_t i = 0; i < close->contributors_count; i++) {
        const struct tw_contributor *by = &close->contributors[i];
        if (by->member_idx >= commit->roster.count) {
            tw_sim_fail(world, node, "G3", "round %" PRIu64 " lists member %u of %u", close->round,
                        by->member_idx, commit->roster.count);
            return;
        }
        if (i > 0 && by->member_idx <= close->contributors[i - 1].member_idx) {
            tw_sim_fail(world, node, "G3", "round %" PRIu64 " lists a contributor twice",
                        close->round);
        }
        const uint32_t who = commit->roster.members[by->member_idx].node;
        clock_tokens += by->tokens;
        listed |= UINT64_C(1) << by->member_idx;
        commit->listed[who] += by->tokens;
        if (commit->listed[who] > world->nodes[who].tokens_ever) {
            tw_sim_fail(world, node, "G3",
                        "node %u is listed for %" PRIu64 " tokens and trained %" PRIu64, who,
                        commit->listed[who], world->nodes[who].tokens_ever);
        }
        if (close->parts_count == 0) continue; /* alone */
        const struct tw_sim_key key = key_of(&close->lineage, close->round, who);
        const struct encoded *encoded = tw_sim_map_get(&world->check->encoded, &key);
        bool is_made = false;
        for (uint32_t k = 0; encoded != NULL && k < encoded->count && k < ENCODED_KEPT; k++) {
            is_made |= tw_id_equal(&encoded->all[k].root, &by->root) &&
                       (!encoded->all[k].is_told || encoded->all[k].tokens == by->tokens);
        }
        if (!is_made) {
            tw_sim_fail(world, node, "G3",
                        "round %" PRIu64 " lists a contribution node %u never made", close->round,
                        who);
        }
    }
    commit->clock_tokens += clock_tokens;
    if (commit->clock_tokens != close->clock_tokens) {
        tw_sim_fail(world, node, "G3", "clock of round %" PRIu64 " is not its parent's and its own",
                    close->round);
    }
    for (uint32_t k = 0; k < close->parts_count; k++) {
        const struct tw_part *part = &close->parts[k];
        if ((part->bytes == 0) != tw_id_is_zero(&part->result) ||
            (part->bytes == 0 && part->contributors != 0) ||
            (part->bytes != 0 && part->contributors == 0) || (part->contributors & ~listed) != 0) {
            tw_sim_fail(world, node, "G3", "part %u of round %" PRIu64 " contradicts itself", k,
                        close->round);
        }
    }
}

static void check_roster(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_close *close, struct commit *commit) {
    if (close->roster_number != commit->roster.number) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " is decided by roster %u, not %u",
                    close->round, close->roster_number, commit->roster.number);
    }
    roster_take(world, node, &close->next, &commit->next);
    if (close->next.count == 0 || close->next.count > world->options.members_max) {
        tw_sim_fail(world, node, "G3", "roster of %u members", close->next.count);
    }
    for (uint32_t i = 0; i < commit->next.count; i++) {
        const uint64_t nonce = commit->next.members[i].nonce;
        const int before = roster_find(&commit->roster, commit->next.members[i].node);
        if (before >= 0 && commit->roster.members[before].nonce == nonce) continue;
        const struct tw_sim_key key = key_of(&close->lineage, nonce, 0);
        const uint64_t *rounds = tw_sim_map_get(&world->check->joins, &key);
        if (rounds == NULL || *rounds != close->round + 1) {
            tw_sim_fail(world, node, "G3",
                        "round %" PRIu64 " admits node %u, which did not ask there", close->round,
                        commit->next.members[i].node);
        }
    }
    uint32_t owners = 0;
    for (uint32_t i = 0; i < commit->roster.count; i++) {
        owners += commit->roster.members[i].has_weight;
    }
    if (owners > TW_PARTS_MAX) owners = TW_PARTS_MAX;
    if (close->parts_count != 0 && close->parts_count != owners) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " has %u parts for %u owners", close->round,
                    close->parts_count, owners);
    }
}

/* The parent's record gives roster and sums; the first round of a lineage is its founder's. */
static bool inherit(struct tw_sim_world *world, struct tw_sim_node *node,
                    const struct tw_close *close, struct commit *commit) {
    const struct tw_sim_key key = key_of(&close->parent, 0, 0);
    const struct commit *parent = tw_sim_map_get(&world->check->commits, &key);
    if (parent == NULL && (close->round != 0 || !tw_id_is_zero(&close->parent))) {
        tw_sim_fail(world, node, "G1", "the parent of round %" PRIu64 " was never committed",
                    close->round);
        return false;
    }
    commit->roster.count = 1;
    commit->roster.number = close->roster_number;
    commit->roster.members[0].node = (uint8_t)node->idx;
    commit->roster.members[0].nonce = close->next.members[0].nonce;
    commit->roster.members[0].has_weight = true;
    for (uint32_t i = 0; i < close->next.count; i++) {
        if (tw_id_equal(&close->next.members[i].id, &node->id)) {
            commit->roster.members[0].nonce = close->next.members[i].nonce;
        }
    }
    if (parent == NULL) return true;
    if (parent->round + 1 != close->round) {
        tw_sim_fail(world, node, "G1", "round %" PRIu64 " follows round %" PRIu64, close->round,
                    parent->round);
    }
    if (tw_id_equal(&parent->lineage, &close->lineage)) commit->roster = parent->next;
    commit->clock_tokens = parent->clock_tokens;
    memcpy(commit->listed, parent->listed, sizeof commit->listed);
    return true;
}

static void check_new_commit(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_close *close, const struct tw_id *digest) {
    struct tw_sim_check *check = world->check;
    const struct tw_id actual = tw_close_digest(close);
    if (!tw_id_equal(&actual, digest)) {
        tw_sim_fail(world, node, "G1", "round %" PRIu64 " has another digest", close->round);
    }
    const struct tw_sim_key key = key_of(digest, 0, 0);
    struct commit *commit = tw_sim_map_put(&check->commits, &key, NULL);
    commit->digest = *digest;
    commit->lineage = close->lineage;
    commit->round = close->round;
    commit->parts_count = close->parts_count;
    commit->contributors_count = close->contributors_count;
    if (!inherit(world, node, close, commit)) return;
    for (uint32_t k = 0; k < close->parts_count; k++) {
        commit->parts[k].result = close->parts[k].result;
        commit->parts[k].contributors = close->parts[k].contributors;
    }
    if (close->fragment != close->round % world->options.fragments_count) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " merges fragment %u", close->round,
                    close->fragment);
    }
    check_contributors(world, node, close, commit);
    check_roster(world, node, close, commit);
    world->result->rounds++;
    if (close->contributors_count > 1) world->result->group_rounds++;
    const struct tw_sim_key round = key_of(&close->lineage, close->round, 0);
    const struct chosen *chosen = tw_sim_map_get(&check->chosen, &round);
    if (commit->roster.count > 1 && (chosen == NULL || !tw_id_equal(&chosen->digest, digest))) {
        tw_sim_fail(world, node, "G1",
                    "round %" PRIu64 " is taken as committed and no majority accepted it",
                    close->round);
    }
}

static void check_committed(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action) {
    struct tw_sim_check *check = world->check;
    const struct tw_close *close = action->u.report.close;
    const struct tw_sim_key key = key_of(&close->lineage, close->round, 0);
    bool is_new;
    struct tw_id *digest = tw_sim_map_put(&check->rounds, &key, &is_new);
    if (is_new) {
        *digest = action->u.report.id;
        check_new_commit(world, node, close, digest);
    } else if (!tw_id_equal(digest, &action->u.report.id)) {
        tw_sim_fail(world, node, "G1", "two manifests are committed for round %" PRIu64,
                    close->round);
    }
    /* Monotone: within a lineage rounds and clock only grow. */
    if (!tw_id_equal(&check->nodes[node->idx].lineage, &close->lineage)) {
        check->nodes[node->idx].lineage = close->lineage;
        check->nodes[node->idx].rounds = 0;
    }
    if (close->round + 1 <= check->nodes[node->idx].rounds) {
        tw_sim_fail(world, node, "1", "learns round %" PRIu64 " again", close->round);
    }
    check->nodes[node->idx].rounds = close->round + 1;
    check->nodes[node->idx].clock_tokens = close->clock_tokens;
}

/* ---- votes ---------------------------------------------------------------------------------- */

void tw_sim_check_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_vote *vote) {
    if (!vote->has_accepted) return;
    struct tw_sim_check *check = world->check;
    const struct tw_id digest = tw_close_digest(&vote->accepted);
    const struct tw_sim_key key = key_of(&digest, 0, 0);
    struct acceptance *acceptance = tw_sim_map_put(&check->accepted, &key, NULL);
    uint32_t row = 0;
    while (row < acceptance->count && acceptance->ballots[row].ballot != vote->accepted_ballot) {
        row++;
    }
    if (row == BALLOTS_KEPT) return;
    if (row == acceptance->count) {
        acceptance->ballots[acceptance->count++].ballot = vote->accepted_ballot;
    }
    const struct tw_sim_key parent_key = key_of(&vote->accepted.parent, 0, 0);
    const struct commit *parent = tw_sim_map_get(&check->commits, &parent_key);
    if (parent == NULL || !tw_id_equal(&parent->lineage, &vote->lineage)) return; /* alone */
    const int member = roster_find(&parent->next, node->idx);
    if (member < 0 || parent->next.members[member].nonce != vote->nonce) {
        tw_sim_fail(world, node, "17", "votes in round %" PRIu64 " without a seat there",
                    vote->round);
        return;
    }
    acceptance->ballots[row].nodes |= UINT64_C(1) << node->idx;
    const uint64_t nodes = acceptance->ballots[row].nodes & roster_set(&parent->next);
    if (bits(nodes) <= parent->next.count / 2) return;
    const struct tw_sim_key round = key_of(&vote->lineage, vote->round, 0);
    bool is_new;
    struct chosen *chosen = tw_sim_map_put(&check->chosen, &round, &is_new);
    if (is_new) {
        *chosen = (struct chosen){.digest = digest, .ballot = vote->accepted_ballot};
    } else if (!tw_id_equal(&chosen->digest, &digest)) {
        tw_sim_fail(world, node, "G1", "two majorities accept two manifests for round %" PRIu64,
                    vote->round);
    } else if (vote->accepted_ballot < chosen->ballot) {
        chosen->ballot = vote->accepted_ballot;
    }
}

/* One ballot, one manifest; and once a majority has accepted one, higher ballots carry it on. */
static void check_ballot(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_id *lineage, uint64_t round, uint64_t ballot,
                         const struct tw_id *digest) {
    struct tw_sim_check *check = world->check;
    TW_ASSERT(round < UINT64_C(1) << 40);
    const struct tw_sim_key key = key_of(lineage, round, ballot);
    bool is_new;
    struct tw_id *first = tw_sim_map_put(&check->ballots, &key, &is_new);
    if (is_new) *first = *digest;
    if (!tw_id_equal(first, digest)) {
        tw_sim_fail(world, node, "17", "round %" PRIu64 " ballot %" PRIu64 " has two manifests",
                    round, ballot);
    }
    const struct tw_sim_key chosen_key = key_of(lineage, round, 0);
    const struct chosen *chosen = tw_sim_map_get(&check->chosen, &chosen_key);
    if (chosen != NULL && ballot > chosen->ballot && !tw_id_equal(&chosen->digest, digest)) {
        tw_sim_fail(world, node, "G1",
                    "round %" PRIu64 ": ballot %" PRIu64 " proposes other than what ballot %" PRIu64
                    " had chosen",
                    round, ballot, chosen->ballot);
    }
}

static bool is_durable(const struct tw_sim_node *node, const struct tw_id *lineage,
                       uint64_t round) {
    const struct tw_sim_disk *disk = &node->disk;
    return disk->has_vote && disk->vote.round == round && tw_id_equal(&disk->vote.lineage, lineage);
}

static struct told *told_of(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_id *lineage, uint64_t round) {
    const struct tw_sim_key key = key_of(lineage, round, node->idx);
    return tw_sim_map_put(&world->check->told, &key, NULL);
}

static void check_promise(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_promise *promise) {
    const struct tw_vote *vote = &node->disk.vote;
    if (!is_durable(node, &promise->lineage, promise->round) || vote->promised < promise->ballot) {
        tw_sim_fail(world, node, "17", "promises ballot %" PRIu64 " before it is on disk",
                    promise->ballot);
        return;
    }
    struct told *told = told_of(world, node, &promise->lineage, promise->round);
    if (promise->ballot < told->promised) {
        tw_sim_fail(world, node, "17", "promises ballot %" PRIu64 " after %" PRIu64,
                    promise->ballot, told->promised);
    }
    if (told->accepted_ballot != 0 &&
        (!promise->has_accepted || promise->accepted_ballot < told->accepted_ballot)) {
        tw_sim_fail(world, node, "17", "promises and does not say what it accepted");
    }
    told->promised = promise->ballot;
}

static void check_accept(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_msg_accept *accept) {
    const struct tw_vote *vote = &node->disk.vote;
    bool is_kept = is_durable(node, &accept->lineage, accept->round) && vote->has_accepted &&
                   vote->accepted_ballot == accept->ballot;
    if (is_kept) {
        const struct tw_id digest = tw_close_digest(&vote->accepted);
        is_kept = tw_id_equal(&digest, &accept->digest);
    }
    if (!is_kept) {
        tw_sim_fail(world, node, "17", "says it accepted ballot %" PRIu64 " before it is on disk",
                    accept->ballot);
        return;
    }
    struct told *told = told_of(world, node, &accept->lineage, accept->round);
    if (accept->ballot < told->promised) {
        tw_sim_fail(world, node, "17", "accepts ballot %" PRIu64 " although it promised %" PRIu64,
                    accept->ballot, told->promised);
    }
    told->promised = accept->ballot;
    told->accepted_ballot = accept->ballot;
    check_ballot(world, node, &accept->lineage, accept->round, accept->ballot, &accept->digest);
}

/* ---- contributions and joins ---------------------------------------------------------------- */

static struct encoded *encoded_of(struct tw_sim_world *world, struct tw_sim_node *node,
                                  const struct tw_id *lineage, uint64_t round) {
    const struct tw_sim_key key = key_of(lineage, round, node->idx);
    return tw_sim_map_put(&world->check->encoded, &key, NULL);
}

static void check_contrib(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_contrib *contrib) {
    struct encoded *encoded = encoded_of(world, node, &contrib->lineage, contrib->round);
    const struct tw_id root = tw_contribution_root(contrib->hashes, contrib->parts_count);
    for (uint32_t k = 0; k < encoded->count; k++) {
        if (!tw_id_equal(&encoded->all[k].root, &root)) continue;
        if (encoded->all[k].is_told && encoded->all[k].tokens != contrib->tokens) {
            tw_sim_fail(world, node, "G3", "counts the tokens of one contribution twice");
        }
        encoded->all[k].is_told = true;
        encoded->all[k].tokens = contrib->tokens;
        return;
    }
    tw_sim_fail(world, node, "G3", "offers a contribution to round %" PRIu64 " it never encoded",
                contrib->round);
}

/* "I hold every fragment up to `rounds`": does it? */
static void check_join(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_msg_join *join) {
    const uint32_t count = world->options.fragments_count;
    const struct tw_sim_replica *held =
        node->worker.has_memory ? &node->worker.replica : &node->disk.checkpoint.replica;
    for (uint32_t f = 0; f < count; f++) {
        const uint64_t version = (join->rounds + count - 1 - f) / count;
        const struct tw_sim_key key = key_of(&join->lineage, f, version);
        const struct tw_id *digest = tw_sim_map_get(&world->check->memory, &key);
        if (digest == NULL) continue; /* nobody has got there */
        if (!tw_id_equal(digest, &held->digests[f])) {
            tw_sim_fail(world, node, "G2", "asks to join without the state of fragment %u", f);
        }
    }
    const struct tw_sim_key key = key_of(&join->lineage, join->nonce, 0);
    uint64_t *rounds = tw_sim_map_put(&world->check->joins, &key, NULL);
    *rounds = join->rounds + 1;
}

static void check_message(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_PROMISE: check_promise(world, node, &message->u.promise); break;
    case TW_MSG_ACCEPT: check_accept(world, node, &message->u.accept); break;
    case TW_MSG_PROPOSE: {
        const struct tw_id digest = tw_close_digest(&message->u.propose.close);
        check_ballot(world, node, &message->u.propose.close.lineage, message->u.propose.close.round,
                     message->u.propose.ballot, &digest);
        break;
    }
    case TW_MSG_CONTRIB: check_contrib(world, node, &message->u.contrib); break;
    case TW_MSG_JOIN: check_join(world, node, &message->u.join); break;
    default: break;
    }
}

/* ---- applying ------------------------------------------------------------------------------- */

static void check_apply(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    const struct tw_sim_key key = key_of(&node->lineage, action->u.apply.round, 0);
    const struct tw_id *digest = tw_sim_map_get(&world->check->rounds, &key);
    const struct tw_sim_key digest_key = key_of(digest != NULL ? digest : &node->lineage, 0, 0);
    const struct commit *commit = tw_sim_map_get(&world->check->commits, &digest_key);
    const uint64_t round = action->u.apply.round;
    if (commit == NULL) {
        tw_sim_fail(world, node, "G4", "applies round %" PRIu64 ", which is not committed", round);
        return;
    }
    if (action->u.apply.parts_count != commit->parts_count) {
        tw_sim_fail(world, node, "G5", "applies %u of %u parts", action->u.apply.parts_count,
                    commit->parts_count);
        return;
    }
    tw_node_position(node->core, world->position);
    const int member = roster_find(&commit->roster, node->idx);
    const bool is_member =
        member >= 0 && commit->roster.members[member].nonce == world->position->nonce;
    uint64_t end = 0;
    for (uint32_t k = 0; k < commit->parts_count; k++) {
        const struct tw_apply_part *part = &action->u.apply.parts[k];
        const bool is_absent = tw_id_is_zero(&commit->parts[k].result);
        const bool is_ours = is_member && (commit->parts[k].contributors >> member & 1) != 0;
        const enum tw_apply_mode mode = is_absent ? TW_APPLY_ABSENT
                                        : is_ours ? TW_APPLY_MIX
                                                  : TW_APPLY_SHIFT;
        if ((part->mode == TW_APPLY_ABSENT) != is_absent) {
            tw_sim_fail(world, node, "G5", "part %u of round %" PRIu64 " is ABSENT on one side", k,
                        round);
        } else if (!is_absent && !tw_id_equal(&part->hash, &commit->parts[k].result)) {
            tw_sim_fail(world, node, "11", "part %u of round %" PRIu64 " is not the one agreed", k,
                        round);
        } else if (part->mode != mode) {
            tw_sim_fail(world, node, "G3", "%s where round %" PRIu64 " %s our contribution",
                        mode == TW_APPLY_MIX ? "shifts" : "mixes", round,
                        is_ours ? "lists" : "does not list");
        }
        if (part->begin != end && part->count > 0) {
            tw_sim_fail(world, node, "11", "parts of round %" PRIu64 " leave a gap", round);
        }
        end += part->count;
    }
    const uint64_t all = (uint64_t)world->options.dims_per_fragment * TW_PART_ALIGN;
    if (commit->parts_count > 0 && end != all) {
        tw_sim_fail(world, node, "11", "parts of round %" PRIu64 " leave a gap", round);
    }
}

static void check_digest(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_id *lineage, uint32_t fragment, uint64_t rounds) {
    const uint32_t count = world->options.fragments_count;
    const uint64_t version = (rounds + count - 1 - fragment) / count;
    const struct tw_sim_key key = key_of(lineage, fragment, version);
    bool is_new;
    struct tw_id *digest = tw_sim_map_put(&world->check->memory, &key, &is_new);
    if (is_new) {
        *digest = node->worker.replica.digests[fragment];
    } else if (!tw_id_equal(digest, &node->worker.replica.digests[fragment])) {
        tw_sim_fail(world, node, "G2",
                    "fragment %u version %" PRIu64 " differs from what others have", fragment,
                    version);
    }
}

void tw_sim_check_memory(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_request *request, uint32_t fragment,
                         uint64_t rounds_before) {
    const struct tw_action *action = &request->action;
    if (action->kind == TW_ACT_APPLY || action->kind == TW_ACT_SOLO) {
        world->result->applied++;
        if (action->u.apply.round + 1 <= rounds_before) {
            tw_sim_fail(world, node, "G4",
                        "round %" PRIu64 " is applied again to fragment %u, which has %" PRIu64,
                        action->u.apply.round, fragment, rounds_before);
        }
    }
    /* A solo round gets its name only when it is committed, after this: a fork may come first. */
    if (action->kind == TW_ACT_SOLO) return;
    check_digest(world, node, &request->lineage, fragment,
                 node->worker.replica.fragment_rounds[fragment]);
}

/* ---- called from outside -------------------------------------------------------------------- */

void tw_sim_check_start(struct tw_sim_world *world, struct tw_sim_node *node) {
    world->check->nodes[node->idx].rounds = 0;
    world->check->nodes[node->idx].clock_tokens = 0;
    world->check->nodes[node->idx].lineage = (struct tw_id){{0}};
}

void tw_sim_check_moved(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_id *lineage, enum tw_node_state state,
                        uint64_t clock_tokens) {
    struct tw_position *position = world->position;
    tw_node_position(node->core, position);
    const bool is_child = tw_id_equal(&position->lineage_parent, lineage) &&
                          position->first_round == position->rounds && position->rounds > 0;
    if (is_child || state == TW_STATE_RECEIVER) return; /* a follower that lost its way may */
    tw_node_view(node->core, world->view);
    bool is_better = false;
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_msg_status *status = &world->view->peers[i].status;
        if (!world->view->peers[i].is_up || !tw_id_equal(&status->lineage, &node->lineage)) {
            continue;
        }
        is_better |=
            status->clock_tokens > clock_tokens ||
            (status->clock_tokens == clock_tokens && tw_id_compare(&node->lineage, lineage) < 0);
    }
    if (!is_better) {
        tw_sim_fail(world, node, "1", "leaves a lineage at %" PRIu64 " tokens for one behind it",
                    clock_tokens);
    }
}

void tw_sim_check_action(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_action *action) {
    switch ((int)action->kind) {
    case TW_ACT_SEND: check_message(world, node, action->u.message); break;
    case TW_ACT_APPLY: check_apply(world, node, action); break;
    case TW_ACT_FINISH:
        tw_node_position(node->core, world->position);
        if (world->position->tip.clock_tokens < world->options.budget_tokens) {
            tw_sim_fail(world, node, "G6", "finishes before the budget is spent");
        }
        break;
    case TW_ACT_REPORT:
        if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) {
            check_committed(world, node, action);
        }
        break;
    default: break;
    }
}

void tw_sim_check_event(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event) {
    if (event->kind != TW_EV_ENCODED || !event->ok) return;
    struct encoded *encoded = encoded_of(world, node, &node->lineage, event->u.encoded.round);
    const uint32_t row = encoded->count < ENCODED_KEPT ? encoded->count++ : ENCODED_KEPT - 1;
    encoded->all[row].root =
        tw_contribution_root(event->u.encoded.hashes, event->u.encoded.parts_count);
    encoded->all[row].is_told = false;
}

void tw_sim_check_tick(struct tw_sim_world *world, struct tw_sim_node *node) {
    const uint64_t now_us = world->now_us + node->clock_offset_us;
    if (tw_node_deadline(node->core) <= now_us) {
        tw_sim_fail(world, node, "25", "the deadline stands still after a tick");
    }
    const uint64_t second = world->now_us / 1000000;
    if (second != node->tick_second) node->ticks_in_second = 0;
    node->tick_second = second;
    if (++node->ticks_in_second > TICKS_PER_SECOND_MAX) {
        tw_sim_fail(world, node, "25", "%d ticks within a second", TICKS_PER_SECOND_MAX);
    }
}
