/* check_commit.c - round records: one per round, with enough votes and correct accounts. Also the
 * clock that a node claims, which its weights must match. */
#include <inttypes.h>
#include <string.h>

#include "sync/core/conduct.h"
#include "sync/core/state.h"
#include "sync/round/round.h"
#include "tests/sim/check.h"

/* ---- rosters -------------------------------------------------------------------------------- */

static int node_number(const struct tw_sim_world *world, const struct tw_id *id) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (tw_id_equal(&world->nodes[i].id, id)) return (int)i;
    }
    return -1;
}

static void copy_roster(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_roster *from, struct tw_sim_roster *to) {
    to->number = from->number;
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        const int number = node_number(world, &from->members[i].id);
        if (number < 0) {
            tw_sim_fail(world, node, "G3", "a roster names a node that does not exist");
            return;
        }
        to->members[i].node = (uint32_t)number;
        to->members[i].has_weight = from->members[i].weight > 0;
        to->members[i].has_vote = !from->members[i].lacks_vote;
        to->members[i].merges = from->members[i].merges;
        to->members[i].nonce = from->members[i].nonce;
        if (i > 0 && tw_id_compare(&from->members[i - 1].id, &from->members[i].id) >= 0) {
            tw_sim_fail(world, node, "G3", "a roster is not in order, or names a node twice");
        }
    }
}

int tw_sim_roster_find(const struct tw_sim_roster *roster, uint32_t node) {
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->members[i].node == node) return (int)i;
    }
    return -1;
}

static bool is_listed(const struct tw_record *record, const struct tw_sim_commit *commit,
                      uint32_t who) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint32_t idx = record->contributors[i].member_idx;
        if (idx < commit->roster.count && commit->roster.members[idx].node == who) return true;
    }
    return false;
}

const struct tw_sim_commit *tw_sim_check_find(const struct tw_sim_world *world,
                                              const struct tw_id *lineage, uint64_t round) {
    const struct tw_sim_key name = tw_sim_key_of(lineage, round, 0);
    const struct tw_id *digest = tw_sim_map_get(&world->check->rounds, &name);
    if (digest == NULL) return NULL;
    const struct tw_sim_key key = tw_sim_key_of(digest, 0, 0);
    return tw_sim_map_get(&world->check->commits, &key);
}

/* ---- round records -------------------------------------------------------------------------- */

/* Returns the lower median of the contributors' tokens. */
static uint64_t usual_tokens(const struct tw_record *record) {
    const uint32_t count = record->contributors_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t middle = record->contributors[i].tokens;
        uint32_t below = 0, equal = 0;
        for (uint32_t k = 0; k < count; k++) {
            below += record->contributors[k].tokens < middle;
            equal += record->contributors[k].tokens == middle;
        }
        if (below <= (count - 1) / 2 && below + equal > (count - 1) / 2) return middle;
    }
    return 0;
}

/* Returns the largest number of tokens that the clock counts for a row: 4 times the usual number of
 * three or more contributors, 16 times that of two. Without one, twice the mean of all rounds so
 * far, or 16 times the usual number of the parent. */
static uint64_t counted_tokens_max(const struct tw_record *record,
                                   const struct tw_sim_commit *parent) {
    const uint64_t usual = record->contributors_count < 2 ? 0 : usual_tokens(record);
    if (usual > 0) return (record->contributors_count < 3 ? 16 : 4) * usual;
    if (parent->roster.count < 2) return UINT64_MAX;
    const uint64_t mean = record->round > 0 ? parent->clock_tokens / record->round : 0;
    if (mean > 0) return 2 * mean;
    return parent->usual_tokens == 0 ? UINT64_MAX : 16 * parent->usual_tokens;
}

static const struct tw_sim_crew *crew_of(const struct tw_sim_world *world,
                                         const struct tw_id *root) {
    const struct tw_sim_key key = tw_sim_key_of(root, 0, 0);
    return tw_sim_map_get(&world->check->crews, &key);
}

int tw_sim_check_seat(const struct tw_sim_world *world, const struct tw_sim_commit *commit,
                      const struct tw_sim_node *node, struct tw_id *root) {
    for (uint32_t i = 0; i < commit->roster.count; i++) {
        const struct tw_sim_crew *crew = crew_of(world, &commit->roots[i]);
        for (uint32_t k = 0; crew != NULL && k < crew->count; k++) {
            *root = crew->rows[k].root;
            if (crew->rows[k].node == node->idx) return (int)i;
        }
        *root = commit->roots[i];
        if (crew == NULL && commit->roster.members[i].node == node->idx) return (int)i;
    }
    return -1;
}

/* Adds the tokens of each node of a crew to those listed. Returns false for the work of one. */
static bool list_crew(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_contributor *by, struct tw_sim_commit *commit) {
    const struct tw_sim_crew *crew = crew_of(world, &by->root);
    uint64_t sum = 0, least = UINT64_MAX, most = 0;
    for (uint32_t k = 0; crew != NULL && k < crew->count; k++) {
        const uint32_t who = crew->rows[k].node;
        const uint64_t tokens = crew->rows[k].tokens;
        sum += tokens;
        least = tokens < least ? tokens : least;
        most = tokens > most ? tokens : most;
        commit->listed[who] += crew->rows[k].tokens;
        if (commit->listed[who] > world->nodes[who].tokens_ever)
            tw_sim_fail(world, node, "G3",
                        "node %u is listed for %" PRIu64 " tokens and trained %" PRIu64, who,
                        commit->listed[who], world->nodes[who].tokens_ever);
    }
    const bool may_be_cut = most > 4 * least || sum > tw_account_tokens_max(node->core);
    if (crew != NULL && (by->tokens > sum || (by->tokens < sum && !may_be_cut)))
        tw_sim_fail(world, node, "G3", "a crew has %" PRIu64 " tokens, and %" PRIu64 " are listed",
                    sum, by->tokens);
    return crew != NULL;
}

static void check_contributors(struct tw_sim_world *world, struct tw_sim_node *node,
                               const struct tw_record *record, struct tw_sim_commit *commit) {
    const uint64_t most = counted_tokens_max(record, commit);
    uint64_t clock_tokens = 0, listed = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *by = &record->contributors[i];
        if (by->member_idx >= commit->roster.count) {
            tw_sim_fail(world, node, "G3", "round %" PRIu64 " lists member %u of %u", record->round,
                        by->member_idx, commit->roster.count);
            return;
        }
        if (i > 0 && by->member_idx <= record->contributors[i - 1].member_idx) {
            tw_sim_fail(world, node, "G3", "round %" PRIu64 " lists a contributor twice",
                        record->round);
        }
        const uint32_t who = commit->roster.members[by->member_idx].node;
        clock_tokens += by->tokens < most ? by->tokens : most;
        listed |= UINT64_C(1) << by->member_idx;
        if (!list_crew(world, node, by, commit)) commit->listed[who] += by->tokens;
        commit->roots[by->member_idx] = by->root;
        if (tw_sim_is_traitor(world, &world->nodes[who]))
            continue; /* a traitor may claim any root and any tokens */
        if (commit->listed[who] > world->nodes[who].tokens_ever) {
            tw_sim_fail(world, node, "G3",
                        "node %u is listed for %" PRIu64 " tokens and trained %" PRIu64, who,
                        commit->listed[who], world->nodes[who].tokens_ever);
        }
        if (record->parts_count == 0) continue; /* a solo round */
        if (crew_of(world, &by->root) != NULL) continue;
        const struct tw_sim_key key = tw_sim_key_of(&record->lineage, record->round, who);
        const struct tw_sim_encoded *encoded = tw_sim_map_get(&world->check->encoded, &key);
        bool is_made = false;
        for (uint32_t k = 0; encoded != NULL && k < encoded->count && k < TW_SIM_ENCODED_KEPT;
             k++) {
            is_made |= tw_id_equal(&encoded->all[k].root, &by->root) &&
                       (!encoded->all[k].is_told || encoded->all[k].tokens == by->tokens);
        }
        if (!is_made) {
            tw_sim_fail(world, node, "G3",
                        "round %" PRIu64 " lists a contribution that node %u never made",
                        record->round, who);
        }
    }
    if (world->options.is_pair) { /* in pairs, the clock estimates the tokens of all nodes */
        tw_sim_check_pair_clock(world, node, record->clock_tokens, commit->clock_tokens,
                                clock_tokens);
        commit->clock_tokens = record->clock_tokens;
        return;
    }
    /* After the group has split up, each node's clock counts its own tokens for all nodes. */
    if (world->options.together_tokens < world->options.budget_tokens &&
        commit->clock_tokens >= world->options.together_tokens)
        clock_tokens *= world->options.nodes_count;
    commit->clock_tokens += clock_tokens;
    if (commit->clock_tokens != record->clock_tokens) {
        tw_sim_fail(world, node, "G3",
                    "clock of round %" PRIu64 " is not its parent's plus its tokens",
                    record->round);
    }
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if ((part->bytes == 0) != tw_id_is_zero(&part->result) ||
            (part->bytes == 0 && part->contributors != 0) ||
            (part->bytes != 0 && part->contributors == 0) || (part->contributors & ~listed) != 0) {
            tw_sim_fail(world, node, "G3", "part %u of round %" PRIu64 " contradicts itself", k,
                        record->round);
        }
    }
}

static void check_roster(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_record *record, struct tw_sim_commit *commit) {
    if (record->roster_number != commit->roster.number) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " is decided by roster %u, not %u",
                    record->round, record->roster_number, commit->roster.number);
    }
    copy_roster(world, node, &record->next, &commit->next);
    if (record->next.count == 0 || record->next.count > world->options.members_max) {
        tw_sim_fail(world, node, "G3", "roster of %u members", record->next.count);
    }
    for (uint32_t i = 0; i < commit->next.count; i++) {
        const uint64_t nonce = commit->next.members[i].nonce;
        const int before = tw_sim_roster_find(&commit->roster, commit->next.members[i].node);
        if (before >= 0 && commit->roster.members[before].nonce == nonce) continue;
        if (tw_sim_is_traitor(world, &world->nodes[commit->next.members[i].node])) continue;
        const struct tw_sim_key key = tw_sim_key_of(&record->lineage, nonce, record->round);
        if (tw_sim_map_get(&world->check->joins, &key) == NULL) {
            tw_sim_fail(world, node, "G3",
                        "round %" PRIu64 " admits node %u, which did not ask to join",
                        record->round, commit->next.members[i].node);
        }
    }
    uint32_t owners = 0;
    for (uint32_t i = 0; i < commit->roster.count; i++) {
        owners += commit->roster.members[i].has_weight;
    }
    if (owners > TW_PARTS_MAX) owners = TW_PARTS_MAX;
    if (record->parts_count != 0 && record->parts_count != owners) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " has %u parts for %u owners",
                    record->round, record->parts_count, owners);
    }
}

/* Copies the roster, the run clock and each node's listed tokens from the parent's commit. A
 * lineage's first round has a roster of one. */
static bool inherit_parent(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_record *record, struct tw_sim_commit *commit) {
    const struct tw_sim_key key = tw_sim_key_of(&record->parent, 0, 0);
    const struct tw_sim_commit *parent = tw_sim_map_get(&world->check->commits, &key);
    if (parent == NULL && (record->round != 0 || !tw_id_is_zero(&record->parent))) {
        tw_sim_fail(world, node, "G1", "the parent of round %" PRIu64 " was never committed",
                    record->round);
        return false;
    }
    commit->roster.count = 1;
    commit->roster.number = record->roster_number;
    commit->roster.members[0].node = node->idx;
    commit->roster.members[0].nonce = record->next.members[0].nonce;
    commit->roster.members[0].has_weight = commit->roster.members[0].has_vote = true;
    for (uint32_t i = 0; i < record->next.count; i++) {
        if (tw_id_equal(&record->next.members[i].id, &node->id)) {
            commit->roster.members[0].nonce = record->next.members[i].nonce;
        }
    }
    if (parent == NULL) return true;
    if (parent->round + 1 != record->round) {
        tw_sim_fail(world, node, "G1", "round %" PRIu64 " follows round %" PRIu64, record->round,
                    parent->round);
    }
    const int at = tw_sim_roster_find(&parent->next, node->idx);
    if (at >= 0) commit->roster.members[0].merges = parent->next.members[at].merges;
    if (tw_id_equal(&parent->lineage, &record->lineage)) commit->roster = parent->next;
    commit->clock_tokens = parent->clock_tokens;
    commit->usual_tokens = parent->usual_tokens;
    memcpy(commit->listed, parent->listed, world->nodes_count * sizeof commit->listed[0]);
    return true;
}

/* Counts the owners of the next round that most honest nodes have struck. */
static void count_given_back(struct tw_sim_world *world, const struct tw_record *record) {
    if (world->options.liars_count == 0) return;
    for (uint32_t i = 0; i < record->next.count; i++) {
        uint32_t striking = 0, honest = 0;
        for (uint32_t k = 0; k < world->nodes_count && record->next.members[i].weight > 0; k++) {
            const struct tw_sim_node *node = &world->nodes[k];
            if (!node->is_running || tw_sim_is_liar(world, node)) continue;
            honest++;
            striking += tw_conduct_is_struck(node->core, &record->next.members[i].id);
        }
        world->result->given_back += 2 * striking > honest;
    }
}

/* If liars are half of a roster, any of their results may be merged. */
static void note_liars_rule(struct tw_sim_world *world, const struct tw_sim_roster *roster) {
    uint32_t liars = 0;
    for (uint32_t i = 0; i < roster->count; i++)
        liars += tw_sim_is_liar(world, &world->nodes[roster->members[i].node]);
    world->liars_ruled |= roster->count > 1 && 2 * liars >= roster->count;
}

/* Counts the listed contributions that an owner did not merge. Without faults, nearly every listed
 * contribution reaches every owner. */
static void count_unreached(struct tw_sim_world *world, const struct tw_record *record) {
    uint64_t listed = 0;
    if (!world->is_calm_noted || record->contributors_count < 2) return;
    for (uint32_t i = 0; i < record->contributors_count; i++)
        listed |= UINT64_C(1) << record->contributors[i].member_idx;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes == 0) continue;
        const uint64_t missing = listed & ~record->parts[k].contributors;
        world->result->calm_listed += (uint64_t)__builtin_popcountll(listed);
        world->result->calm_missing += (uint64_t)__builtin_popcountll(missing);
    }
}

static void count_reduced(struct tw_sim_world *world, const struct tw_record *record,
                          const struct tw_sim_roster *roster) {
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes == 0 || record->parts[k].owner_idx >= roster->count) continue;
        const uint32_t owner = roster->members[record->parts[k].owner_idx].node;
        world->result->reduced_parts +=
            tw_sim_role(world, &world->nodes[owner]) == TW_NODE_ROLE_REDUCE;
    }
}

/* The base of a record is the state that honest nodes have, as far as one of them computed it in
 * this lineage. */
static void check_base(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_record *record) {
    const uint32_t count = world->options.fragments_count;
    const struct tw_sim_key key = tw_sim_key_of(
        &record->lineage, record->fragment, (record->round + count - 1 - record->fragment) / count);
    const struct tw_id *truth = tw_sim_map_get(&world->check->memory, &key);
    if (record->parts_count == 0 || world->options.is_pair) return;
    world->result->bases += !tw_id_is_zero(&record->base);
    if (tw_id_is_zero(&record->base) || record->finals > count || truth == NULL) return;
    if (!tw_id_equal(truth, &record->base))
        tw_sim_fail(world, node, "G7", "round %" PRIu64 " names a state that no honest node has",
                    record->round);
}

static void check_new_commit(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_record *record, const struct tw_id *digest) {
    struct tw_sim_check *check = world->check;
    const struct tw_id actual = tw_record_digest(record);
    if (!tw_id_equal(&actual, digest)) {
        tw_sim_fail(world, node, "G1", "round %" PRIu64 " has another digest", record->round);
    }
    const struct tw_sim_key key = tw_sim_key_of(digest, 0, 0);
    struct tw_sim_commit *commit = tw_sim_map_put(&check->commits, &key, NULL);
    commit->digest = *digest;
    commit->parent = record->parent;
    commit->lineage = record->lineage;
    commit->round = record->round;
    commit->parts_count = record->parts_count;
    commit->contributors_count = record->contributors_count;
    if (!inherit_parent(world, node, record, commit)) return;
    note_liars_rule(world, &commit->roster);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (tw_sim_is_lie(world, &record->parts[k].result)) {
            world->result->lies_committed++;
            world->result->lied_us = world->now_us;
        }
        commit->parts[k].result = record->parts[k].result;
        commit->parts[k].contributors = record->parts[k].contributors;
    }
    if (world->options.is_pair) {
        if (record->fragment >= world->options.fragments_count)
            tw_sim_fail(world, node, "G3", "there is no fragment %u", record->fragment);
    } else if (record->fragment != record->round % world->options.fragments_count) {
        tw_sim_fail(world, node, "G3", "round %" PRIu64 " merges fragment %u", record->round,
                    record->fragment);
    }
    check_base(world, node, record);
    check_contributors(world, node, record, commit);
    commit->usual_tokens = usual_tokens(record);
    count_given_back(world, record);
    count_unreached(world, record);
    count_reduced(world, record, &commit->roster);
    check_roster(world, node, record, commit);
    if (!world->result->is_failed) tw_sim_treason_roster(world, node, commit);
    world->result->rounds++;
    if (record->contributors_count > 1) {
        world->result->group_rounds++;
        world->result->first_rounds += is_listed(record, commit, 0);
    }
    const struct tw_sim_key round = tw_sim_key_of(&record->lineage, record->round, 0);
    const struct tw_sim_chosen *chosen = tw_sim_map_get(&check->chosen, &round);
    if (commit->roster.count > 1 && (chosen == NULL || !tw_id_equal(&chosen->digest, digest))) {
        tw_sim_fail(world, node, "G1",
                    "round %" PRIu64 " is taken as committed, but has too few votes",
                    record->round);
    }
}

void tw_sim_check_committed(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action) {
    struct tw_sim_check *check = world->check;
    const struct tw_record *record = action->u.report.record;
    const struct tw_sim_key key = tw_sim_key_of(&record->lineage, record->round, 0);
    bool is_new;
    struct tw_id *digest = tw_sim_map_put(&check->rounds, &key, &is_new);
    if (is_new) {
        *digest = action->u.report.id;
        check_new_commit(world, node, record, digest);
    } else if (!tw_id_equal(digest, &action->u.report.id)) {
        tw_sim_fail(world, node, "G1", "two records are committed for round %" PRIu64,
                    record->round);
    }
    /* Within a lineage, rounds and clock never decrease. */
    if (!tw_id_equal(&check->nodes[node->idx].lineage, &record->lineage)) {
        check->nodes[node->idx].lineage = record->lineage;
        check->nodes[node->idx].rounds = 0;
    }
    if (record->round + 1 <= check->nodes[node->idx].rounds) {
        tw_sim_fail(world, node, "1", "learns round %" PRIu64 " again", record->round);
    }
    if (world->options.is_pair && record->clock_tokens < check->nodes[node->idx].clock_tokens) {
        tw_sim_fail(world, node, "P4", "its clock goes back to %" PRIu64, record->clock_tokens);
    }
    check->nodes[node->idx].rounds = record->round + 1;
    check->nodes[node->idx].clock_tokens = record->clock_tokens;
}

/* ---- the clock that a node claims ----------------------------------------------------------- */

/* Returns the greatest known clock of these bytes of (phi, u). */
static uint64_t *clock_of(struct tw_sim_world *world, const struct tw_id *digest,
                          uint32_t fragment) {
    const struct tw_sim_key key = tw_sim_key_of(digest, fragment, 0);
    return tw_sim_map_put(&world->check->clocks, &key, NULL);
}

void tw_sim_check_made(struct tw_sim_world *world, const struct tw_sim_node *node,
                       uint32_t fragment, uint64_t clock_tokens) {
    uint64_t *clock = clock_of(world, &node->worker.replica.digests[fragment], fragment);
    if (*clock < clock_tokens) *clock = clock_tokens;
}

/* Returns the clock `rounds` rounds before `tip`. */
static uint64_t clock_before(const struct tw_sim_world *world, struct tw_id tip, uint32_t rounds) {
    for (;; rounds--) {
        const struct tw_sim_key key = tw_sim_key_of(&tip, 0, 0);
        const struct tw_sim_commit *commit = tw_sim_map_get(&world->check->commits, &key);
        if (commit == NULL) return 0;
        if (rounds == 0) return commit->clock_tokens;
        tip = commit->parent;
    }
}

/* A node whose clock is ahead attracts others, which take over its state. For a member,
 * other members hold that state. A node that decides alone must hold it itself. Its fragments may
 * be behind its clock by the sum of
 *   - P rounds, because each of P fragments is merged once in P rounds;
 *   - one round, because a solo round is noted with the clock committed before it;
 *   - 2 P rounds, if it is newly alone: two outer steps of each fragment yet to apply
 *     (tw_log_is_close). A founder has none of these, because a fork counts only rounds held. */
void tw_sim_check_claim(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_msg_status *status) {
    if (status->state != TW_STATE_SOLO && status->state != TW_STATE_FINISHED) return;
    if (world->options.is_pair) return; /* the round does not determine the fragment */
    const uint32_t count = world->options.fragments_count;
    tw_node_position(node->core, world->position);
    const bool is_founder = world->position->first_round == world->position->rounds;
    const uint64_t least = clock_before(world, status->tip, (is_founder ? 1 : 3) * count + 1);
    const struct tw_sim_replica *held =
        node->worker.has_memory ? &node->worker.replica : &node->disk.checkpoint.replica;
    for (uint32_t f = 0; f < count; f++) {
        const uint64_t clock = *clock_of(world, &held->digests[f], f);
        /* A node that gave up a move still has its own state in theta: TW_LOAD_BACK will set phi :=
         * theta. */
        const bool is_back =
            world->position->is_moving != 0 && world->position->fragment_rounds[f] == NOT_HELD;
        if (clock >= least || is_back) continue;
        tw_sim_fail(world, node, "1",
                    "claims a clock of %" PRIu64 " tokens, but its fragment %u is at %" PRIu64,
                    status->clock_tokens, f, clock);
    }
}
