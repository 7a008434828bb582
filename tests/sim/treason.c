/* treason.c - worlds with traitors: nodes with valid keys whose messages are lies (traitor.c).
 *
 * The last nodes are traitors. They are honest until all nodes are one group, and lie from then on
 * to the end, in the calm too. Nothing is required of a traitor (tw_sim_fail). As long as at most
 * (n - 1) / 3 of n voters in a roster are traitors, every invariant holds for the others, and also:
 *
 *   T1  no honest node accuses, strikes or disconnects another honest node for misbehaviour
 *   T2  no roster without a present honest node, and none with a node that is not in the run
 *   T3  no roster with more voting traitors than it survives
 *   T4  in worlds with a committee, no record gives a vote to a node without the right, or takes
 *       one from an honest voter; traitors without a vote may be any number
 *   T5  in worlds without a committee, a vote is earned by merged work: check_earned()
 *   T6  no honest node is charged with a false state, and none loads one (by G2)
 *   G7  no record names a state that no honest node has (check_commit.c)
 *
 * T2 and T3 no longer hold where faults may remove honest nodes: too many traitors then end the
 * world. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/trace/trace.h"
#include "tests/sim/check.h"
#include "tests/traitor/traitor.h"

enum { WATCH_US = 5 * 1000 * 1000, SPEAK_US = 700 * 1000, LATE_US = 3 * 1000 * 1000 };
enum { OLD_MERGES = 2 * TW_VOTES_YOUNG }; /* merges in a group that sybils come to */

bool tw_sim_has_vote(const struct tw_sim_world *world, uint32_t idx) {
    const struct tw_sim_options *options = &world->options;
    return options->voters_count == 0 || idx < options->voters_count - options->voting_traitors ||
           idx >= world->nodes_count - options->voting_traitors;
}

bool tw_sim_is_traitor(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return node->idx >= world->nodes_count - world->options.traitors_count;
}

bool tw_sim_treason_is_early(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return world->options.sybils_count > 0 && tw_sim_is_traitor(world, node) &&
           world->treason_us == 0;
}

static bool has_begun(const struct tw_sim_world *world) {
    return world->treason_us != 0;
}

void tw_sim_treason_init(struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    if (options->traitors_count == 0) return;
    world->coven = malloc(sizeof *world->coven);
    TW_ASSERT(world->coven != NULL);
    tw_coven_init(world->coven, &world->run);
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!tw_sim_is_traitor(world, node)) continue;
        const struct tw_signing signing = tw_sim_signing(node);
        node->traitor = malloc(sizeof *node->traitor);
        TW_ASSERT(node->traitor != NULL);
        tw_traitor_init(node->traitor, world->coven, &node->id, &signing,
                        tw_trace_mix(options->seed, i), options->lies);
        tw_sim_push(world, WATCH_US, TW_SIM_TIMER_BETRAY, i, 0, 0, NULL);
    }
}

void tw_sim_treason_deinit(struct tw_sim_world *world) {
    for (uint32_t i = 0; i < world->nodes_count; i++) free(world->nodes[i].traitor);
    free(world->coven);
}

/* ---- traitors ------------------------------------------------------------------------------- */

static void fill_view(const struct tw_sim_world *world, const struct tw_sim_node *node,
                      struct tw_traitor_view *view) {
    const struct tw_node *core = node->core;
    const struct tw_position *at = &core->at;
    const bool has_tip = at->has_tip != 0;
    *view = (struct tw_traitor_view){
        .now_us = world->now_us,
        .lineage = at->lineage,
        .tip = core->tip_digest,
        .rounds = at->rounds,
        .clock_tokens = has_tip ? at->tip.clock_tokens : 0,
        .fragment = (uint32_t)(at->rounds % world->options.fragments_count),
        .finals = has_tip && at->tip.clock_tokens >= world->options.budget_tokens
                      ? at->tip.finals + 1
                      : 0,
        .roster = &core->roster,
        .idx = core->round.self_idx,
        .rank = core->round.self_rank,
        .tip_record = has_tip ? &at->tip : NULL,
        .tip_proof = &at->tip_proof};
    for (uint16_t i = 0; i < core->links_end; i++) {
        if (core->links[i].is_up) view->peers[view->peers_count++] = core->links[i].id;
    }
}

void tw_sim_treason_hear(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                         const struct tw_message *message) {
    struct tw_traitor_view view;
    if (node->traitor == NULL || !has_begun(world)) return;
    fill_view(world, node, &view);
    tw_traitor_hear(node->traitor, &view, &node->core->links[peer].id, message);
}

/* Returns whether the core of a sybil may say this: all that a node needs for a seat. A sybil does
 * no work, and is in no lineage but that of the group. */
static bool is_of_sybil(const struct tw_sim_world *world, const struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_STATUS: return tw_id_equal(&message->u.status.lineage, &world->coven->group);
    case TW_MSG_CONTRIB:
    case TW_MSG_RESULT: return false;
    case TW_MSG_JOIN:
    case TW_MSG_LINKS:
    case TW_MSG_LOG_GET:
    case TW_MSG_STATE_GET:
    case TW_MSG_PULL: return true;
    default: return !world->options.are_sybils_silent;
    }
}

/* ---- false states: the lie "donor" ---------------------------------------------------------- */

static bool gives_false_states(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return node->traitor != NULL && has_begun(world) &&
           (node->traitor->lies >> TW_LIE_DONOR & 1) != 0;
}

/* All traitors with the same state make the same false one of it. */
const struct tw_sim_content *tw_sim_treason_export(struct tw_sim_world *world,
                                                   struct tw_sim_node *node, uint32_t fragment,
                                                   const struct tw_sim_content *content) {
    static struct tw_sim_replica spoilt;
    if (!gives_false_states(world, node)) return content;
    spoilt = node->worker.replica;
    spoilt.phi[fragment * world->model.dims_per_fragment] += 1;
    const struct tw_sim_key key = {.id = spoilt.digests[fragment]};
    *(struct tw_id *)tw_sim_map_put(&world->false_states, &key, NULL) =
        tw_sim_replica_digest(&world->model, &spoilt, fragment);
    return tw_sim_replica_export(&world->model, &world->contents, &spoilt, fragment);
}

/* Returns whether so few honest nodes hold the state of the traitor's lineage that all witnesses of
 * it might lie: then nothing is promised, unless a closing record proves the state. */
static bool are_witnesses_few(const struct tw_sim_world *world, const struct tw_sim_node *traitor) {
    const struct tw_position *at = &traitor->core->at;
    uint32_t holders = 0;
    if (at->has_tip != 0 && tw_progress_is_closing(traitor->core, &at->tip) &&
        !tw_id_is_zero(&at->tip.base))
        return false;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const struct tw_sim_node *node = &world->nodes[i];
        holders += node->is_running && !tw_sim_is_traitor(world, node) &&
                   node->state != TW_STATE_RECEIVER &&
                   tw_id_equal(&node->lineage, &traitor->lineage);
    }
    return holders <= (world->nodes_count - 1) / 3;
}

/* Gives a STATE the digest of the false state, also where it bears out another traitor's. Some lie
 * about its rounds too, so that no other node had a state after just as many: between two rounds of
 * the fragment, after rounds that nobody decided, or long ago. */
static bool pass_state(struct tw_sim_world *world, const struct tw_sim_node *node,
                       struct tw_msg_state *state) {
    const struct tw_sim_key key = {.id = state->digest};
    const struct tw_id *const digest = tw_sim_map_get(&world->false_states, &key);
    if (digest == NULL) return false;
    state->digest = *digest;
    if (state->bytes == 0) return true;
    if (are_witnesses_few(world, node)) world->result->is_overrun = world->is_over = true;
    world->result->false_states++;
    const uint32_t fragments = world->options.fragments_count;
    const uint64_t lie = (node->idx + world->result->false_states) % 4;
    if (lie == 1 && fragments > 1) state->rounds++;
    if (lie == 2) state->rounds += 2 * fragments;
    if (lie == 3 && state->rounds > 6 * fragments) state->rounds -= 6 * fragments;
    return true;
}

bool tw_sim_treason_pass(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t to,
                         struct tw_message *message) {
    struct tw_traitor_view view;
    if (node->traitor == NULL || !has_begun(world)) return true;
    if (world->options.sybils_count > 0) {
        const bool is_said = is_of_sybil(world, message);
        if (!is_said) free(message);
        if (!is_said || world->options.are_sybils_silent) return is_said;
    }
    if (gives_false_states(world, node) && message->kind == TW_MSG_STATE &&
        !pass_state(world, node, &message->u.state)) {
        free(message);
        return false;
    }
    fill_view(world, node, &view);
    const enum tw_traitor_verdict verdict =
        tw_traitor_pass(node->traitor, &view, &world->nodes[to].id, message);
    if (verdict == TW_TRAITOR_SENDS) return true;
    if (verdict == TW_TRAITOR_DROPS) {
        free(message);
        return false;
    }
    tw_sim_push(world, world->now_us + tw_sim_exponential_us(&node->rng, LATE_US),
                TW_SIM_TIMER_LATE, node->idx, to, node->life, message);
    return false;
}

struct speaker {
    struct tw_sim_world *world;
    struct tw_sim_node *node;
};

static void say(void *context, const struct tw_id *to, const struct tw_message *message) {
    const struct speaker *speaker = context;
    const uint16_t peer = tw_sim_peer_of(speaker->world, speaker->node, to);
    if (peer != NO_PEER) tw_sim_net_say(speaker->world, speaker->node, peer, message);
}

/* Returns whether all nodes are members of one lineage and every voter has its vote, so that the
 * traitors begin. */
static bool is_whole(const struct tw_sim_world *world) {
    const uint32_t voters = world->options.voters_count;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running || node->state != TW_STATE_MEMBER ||
            node->core->roster.count != world->nodes_count ||
            tw_bits(node->core->voters) != (voters > 0 ? voters : world->nodes_count) ||
            !tw_id_equal(&node->lineage, &world->nodes[0].lineage))
            return false;
    }
    return true;
}

/* Returns whether all honest nodes are an old group of voters, so that the sybils come. */
static bool is_old(const struct tw_sim_world *world) {
    const uint32_t honest = world->nodes_count - world->options.sybils_count;
    uint32_t age = 0;
    for (uint32_t i = 0; i < honest; i++) {
        const struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running || node->state != TW_STATE_MEMBER ||
            node->core->roster.count != honest || tw_bits(node->core->voters) != honest ||
            !tw_id_equal(&node->lineage, &world->nodes[0].lineage))
            return false;
        if (node->core->roster.members[i].merges > age) age = node->core->roster.members[i].merges;
    }
    return age >= OLD_MERGES;
}

static void betray(struct tw_sim_world *world, struct tw_sim_node *node) {
    const bool has_sybils = world->options.sybils_count > 0;
    uint64_t wait_us = WATCH_US;
    if (!has_begun(world) && (has_sybils ? is_old(world) : is_whole(world))) {
        world->treason_us = world->now_us;
        world->coven->group = world->nodes[0].lineage;
        for (uint32_t i = 0; i < world->nodes_count && has_sybils; i++) {
            if (tw_sim_is_traitor(world, &world->nodes[i]))
                tw_sim_push(world, world->now_us, TW_SIM_TIMER_START, i, 0, 0, NULL);
        }
        tw_sim_trace(world, NULL, "%u traitors begin", world->options.traitors_count);
    }
    if (has_begun(world)) {
        struct tw_traitor_view view;
        struct speaker speaker = {world, node};
        wait_us = 1000 + tw_sim_exponential_us(&node->rng, SPEAK_US);
        if (node->is_running && !world->options.are_sybils_silent) {
            fill_view(world, node, &view);
            tw_traitor_speak(node->traitor, &view, say, &speaker);
        }
    }
    tw_sim_push(world, world->now_us + wait_us, TW_SIM_TIMER_BETRAY, node->idx, 0, 0, NULL);
}

void tw_sim_treason_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    struct tw_sim_node *node = &world->nodes[timer->a];
    if (timer->kind == TW_SIM_TIMER_BETRAY) {
        betray(world, node);
    } else if (node->is_running && node->life == timer->life) {
        const struct speaker speaker = {world, node};
        say((void *)&speaker, &world->nodes[timer->b].id, timer->data);
    }
}

uint64_t tw_sim_treason_voters(const struct tw_sim_world *world) {
    uint64_t voters = 0;
    for (uint32_t i = 0; i < world->nodes_count && has_begun(world); i++)
        if (tw_sim_is_traitor(world, &world->nodes[i])) voters |= UINT64_C(1) << i;
    return voters;
}

/* ---- invariants of the others --------------------------------------------------------------- */

static const struct tw_sim_node *honest_of(const struct tw_sim_world *world,
                                           const struct tw_id *id) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const struct tw_sim_node *node = &world->nodes[i];
        if (tw_id_equal(&node->id, id)) return tw_sim_is_traitor(world, node) ? NULL : node;
    }
    return NULL;
}

/* Returns whether no fault of this world ends a process or disconnects a node. */
static bool are_faults_mild(const struct tw_sim_world *world) {
    return (world->options.faults & ~TW_SIM_MILD_FAULTS) == 0;
}

static void check_report(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_report *report) {
    const bool is_charge = tw_report_is_charge(report) || report->kind == TW_REPORT_STRUCK ||
                           report->kind == TW_REPORT_DIFFERS;
    const struct tw_sim_node *other = is_charge ? honest_of(world, &report->id) : NULL;
    if (other != NULL && are_faults_mild(world))
        tw_sim_fail(world, node, "T1", "charges honest node %u: report %d, reason %d", other->idx,
                    (int)report->kind, (int)report->reason);
    if (report->kind == TW_REPORT_FALSE_STATE) {
        if (other != NULL) tw_sim_fail(world, node, "T6", "charges honest donor %u", other->idx);
        world->result->false_donors += other == NULL;
    }
    if (report->kind == TW_REPORT_LEFT && are_faults_mild(world))
        tw_sim_fail(world, node, "T1", "leaves the group");
}

void tw_sim_treason_action(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_action *action) {
    if (!has_begun(world) || tw_sim_is_traitor(world, node)) return;
    if (action->kind == TW_ACT_CLOSE && action->u.reason != TW_AGAIN) {
        const struct tw_sim_node *other = honest_of(world, &node->core->links[action->peer].id);
        if (other != NULL)
            tw_sim_fail(world, node, "T1", "disconnects honest node %u, reason %d", other->idx,
                        (int)action->u.reason);
    }
    if (action->kind == TW_ACT_REPORT) check_report(world, node, &action->u.report);
}

/* Checks that votes follow the certificates. */
static void check_votes(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_sim_commit *commit) {
    for (uint32_t i = 0; i < commit->next.count; i++) {
        const uint32_t idx = commit->next.members[i].node;
        const int before = tw_sim_roster_find(&commit->roster, idx);
        if (commit->next.members[i].has_vote && !tw_sim_has_vote(world, idx))
            tw_sim_fail(world, node, "T4", "round %llu gives node %u a vote",
                        (unsigned long long)commit->round, idx);
        if (before < 0 || !commit->roster.members[before].has_vote ||
            commit->next.members[i].has_vote ||
            commit->roster.members[before].nonce != commit->next.members[i].nonce)
            continue;
        if (!tw_sim_is_traitor(world, &world->nodes[idx]))
            tw_sim_fail(world, node, "T4", "round %llu takes the vote of node %u away",
                        (unsigned long long)commit->round, idx);
    }
}

/* Checks the votes, merges and new seats of a run without certificates. */
static void check_earned(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_commit *commit) {
    const struct tw_sim_roster *next = &commit->next;
    uint32_t age = 0, voters = 0, gained = 0, seats = 0;
    for (uint32_t i = 0; i < commit->roster.count; i++) {
        const uint32_t merges = commit->roster.members[i].merges;
        voters += commit->roster.members[i].has_vote;
        if (commit->roster.members[i].has_vote && merges > age) age = merges;
    }
    const uint32_t most = voters > 3 ? (voters - 1) / 3 : 1;
    for (uint32_t i = 0; i < next->count; i++) {
        const uint32_t idx = next->members[i].node, merges = next->members[i].merges;
        const int at = tw_sim_roster_find(&commit->roster, idx);
        const uint32_t before = at < 0 ? 0 : commit->roster.members[at].merges;
        const bool had_vote = at >= 0 && commit->roster.members[at].has_vote;
        const bool is_voter = next->members[i].has_vote;
        /* A former voter may return as old as the oldest. */
        if (at < 0 && is_voter && merges > 0 && merges == age && (world->voted >> idx & 1) != 0)
            continue;
        seats += at < 0;
        if (merges != before && (at < 0 || merges != before + 1))
            tw_sim_fail(world, node, "T5", "node %u has %u merges after %u", idx, merges, before);
        if (had_vote && !is_voter) tw_sim_fail(world, node, "T5", "node %u loses its vote", idx);
        if (had_vote || !is_voter) continue;
        gained++;
        if (2 * merges < age)
            tw_sim_fail(world, node, "T5", "node %u gets a vote for %u merges in a group of %u",
                        idx, merges, age);
    }
    if (age > 0 && gained > most)
        tw_sim_fail(world, node, "T5", "%u members of %u get a vote", gained, next->count);
    if (age >= TW_VOTES_YOUNG && seats > most)
        tw_sim_fail(world, node, "T5", "%u nodes get a seat beside %u voters", seats, voters);
}

void tw_sim_treason_roster(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_commit *commit) {
    const struct tw_sim_roster *next = &commit->next;
    uint32_t traitors = 0, voters = 0;
    check_votes(world, node, commit);
    if (world->options.voters_count == 0 && !world->options.is_pair)
        check_earned(world, node, commit);
    for (uint32_t i = 0; i < next->count; i++)
        if (next->members[i].has_vote) world->voted |= UINT64_C(1) << next->members[i].node;
    if (!has_begun(world) || world->options.traitors_count == 0) return;
    for (uint32_t i = 0; i < next->count; i++) {
        const bool is_traitor = tw_sim_is_traitor(world, &world->nodes[next->members[i].node]);
        traitors += is_traitor && next->members[i].has_vote;
        voters += next->members[i].has_vote;
    }
    if (world->options.sybils_count > 0) {
        uint32_t seated = 0;
        for (uint32_t i = 0; i < next->count; i++)
            seated += tw_sim_is_traitor(world, &world->nodes[next->members[i].node]);
        if (seated > world->result->sybils_seated) world->result->sybils_seated = seated;
    }
    for (uint32_t i = 0; i < world->nodes_count && are_faults_mild(world); i++) {
        if (tw_sim_is_traitor(world, &world->nodes[i])) continue;
        if (tw_sim_roster_find(next, i) < 0)
            tw_sim_fail(world, node, "T2", "round %llu leaves honest node %u out of the roster",
                        (unsigned long long)commit->round, i);
    }
    if (voters < 2 || 3 * traitors < voters) return;
    if (are_faults_mild(world)) {
        tw_sim_fail(world, node, "T3", "%u of %u voters of the next roster are traitors", traitors,
                    voters);
    } else { /* honest members were down: no guarantee holds from now on */
        world->result->is_overrun = true;
        world->is_over = true;
    }
}
