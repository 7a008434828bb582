/* check.c - the invariants, checked at every action and event that touches them.
 *
 *   G1  one committed record per (lineage, round); majorities never choose two values
 *   G2  equal (lineage, fragment, version) means equal bytes of (phi, u)
 *   G3  accounting: each listed node made that contribution; clock = parent's + sum of tokens;
 *       no node is listed for more than it trained; rosters follow the chain
 *   G4  no node applies a round twice or out of order
 *   G5  the parts ABSENT in the APPLY are those ABSENT in the record
 *   G6  a round never stops the steps (worker.c); FINISH comes only at the budget
 *   1   a node leaves a lineage only for one that is ahead; the weights of a node that decides
 *       alone are as far as its clock says (check_commit.c)
 *   17  a vote is durable before it is sent, and no restart reverses it (check_vote.c)
 *   25  a deadline that was reached advances
 *   38  no honest owner is struck after an audit
 *   41  a model belongs to one lineage (check_model.c)
 *
 *   P1..P5, mass: runs in pairs (check_pair.c)
 *
 * net.c, pool.c, worker.c, shell.c and calm.c check 6, 11, 12, 13, 20 and 32 in place. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/core/state.h"
#include "sync/round/round.h"
#include "tests/sim/check.h"

enum { TICKS_PER_SECOND_MAX = 200 };

void tw_sim_check_init(struct tw_sim_world *world) {
    struct tw_sim_check *check = calloc(1, sizeof *check);
    TW_ASSERT(check != NULL);
    check->pairings = calloc(world->nodes_count, sizeof *check->pairings);
    check->nodes = calloc(world->nodes_count, sizeof *check->nodes);
    TW_ASSERT(check->pairings != NULL);
    TW_ASSERT(check->nodes != NULL);
    tw_sim_map_init(&check->commits,
                    sizeof(struct tw_sim_commit) + world->nodes_count * sizeof(uint64_t));
    tw_sim_map_init(&check->crews, sizeof(struct tw_sim_crew));
    tw_sim_map_init(&check->rounds, sizeof(struct tw_id));
    tw_sim_map_init(&check->memory, sizeof(struct tw_id));
    tw_sim_map_init(&check->clocks, sizeof(uint64_t));
    tw_sim_map_init(&check->accepted, sizeof(struct tw_sim_acceptance));
    tw_sim_map_init(&check->chosen, sizeof(struct tw_sim_chosen));
    tw_sim_map_init(&check->ballots, sizeof(struct tw_id));
    tw_sim_map_init(&check->proposers, sizeof(uint32_t));
    tw_sim_map_init(&check->tries, sizeof(uint64_t));
    tw_sim_map_init(&check->told, sizeof(struct tw_sim_told));
    tw_sim_map_init(&check->encoded, sizeof(struct tw_sim_encoded));
    tw_sim_map_init(&check->joins, sizeof(uint8_t));
    tw_sim_map_init(&check->exchanges, sizeof(struct tw_sim_exchange));
    world->check = check;
}

void tw_sim_check_deinit(struct tw_sim_world *world) {
    struct tw_sim_check *check = world->check;
    free(check->pairings);
    free(check->nodes);
    tw_sim_map_deinit(&check->commits);
    tw_sim_map_deinit(&check->crews);
    tw_sim_map_deinit(&check->rounds);
    tw_sim_map_deinit(&check->memory);
    tw_sim_map_deinit(&check->clocks);
    tw_sim_map_deinit(&check->accepted);
    tw_sim_map_deinit(&check->chosen);
    tw_sim_map_deinit(&check->proposers);
    tw_sim_map_deinit(&check->ballots);
    tw_sim_map_deinit(&check->tries);
    tw_sim_map_deinit(&check->told);
    tw_sim_map_deinit(&check->encoded);
    tw_sim_map_deinit(&check->joins);
    tw_sim_map_deinit(&check->exchanges);
    free(check);
}

/* ---- contributions and joins ---------------------------------------------------------------- */

static struct tw_sim_encoded *encoded_of(struct tw_sim_world *world, struct tw_sim_node *node,
                                         const struct tw_id *lineage, uint64_t round) {
    const struct tw_sim_key key = tw_sim_key_of(lineage, round, node->idx);
    return tw_sim_map_put(&world->check->encoded, &key, NULL);
}

static void check_contrib(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_msg_contrib *contrib) {
    uint32_t parts_count = 0;
    for (uint32_t k = 0; k < contrib->parts_count; k++) parts_count += contrib->bytes[k] > 0;
    if (parts_count > 0 && !tw_id_equal(&node->offered, &contrib->lineage)) {
        node->offered = contrib->lineage;
        node->tokens_before = node->core->at.tokens_listed;
    }
    if (contrib->crew_count > 0) return; /* tw_sim_check_gathered has seen it */
    if (parts_count == 0) {              /* the node has no contribution in this round */
        if (contrib->tokens > 0 || contrib->fragment_tokens > 0 || contrib->fragment_steps > 0)
            tw_sim_fail(world, node, "G3", "counts tokens, but has no contribution");
        return;
    }
    struct tw_sim_encoded *encoded = encoded_of(world, node, &contrib->lineage, contrib->round);
    const struct tw_id root = tw_contribution_root(contrib->hashes, contrib->parts_count);
    for (uint32_t k = 0; k < encoded->count; k++) {
        if (!tw_id_equal(&encoded->all[k].root, &root)) continue;
        if (encoded->all[k].is_told && encoded->all[k].tokens != contrib->tokens) {
            tw_sim_fail(world, node, "G3", "counts the tokens of one contribution twice");
        }
        encoded->all[k].is_told = true;
        encoded->all[k].tokens = contrib->tokens;
        const struct tw_sim_delta *delta = &encoded->all[k].delta;
        const uint64_t most = tw_account_tokens_max(node->core);
        const uint64_t tokens = delta->tokens < most ? delta->tokens : most;
        if (delta->is_known &&
            (contrib->fragment_steps != delta->step || contrib->fragment_tokens != tokens)) {
            tw_sim_fail(world, node, "G3",
                        "contributes %" PRIu64 " steps of a fragment to round %" PRIu64
                        " and claims %u",
                        delta->step, contrib->round, contrib->fragment_steps);
        }
        return;
    }
    tw_sim_fail(world, node, "G3", "offers round %" PRIu64 " a contribution that it never encoded",
                contrib->round);
}

/* JOIN claims that the node holds every fragment as of `rounds`. Up to two outer steps of each may
 * still be missing, because the node can replay them. */
static void check_join(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_msg_join *join) {
    const uint32_t count = world->options.fragments_count;
    const struct tw_sim_replica *held =
        node->worker.has_memory ? &node->worker.replica : &node->disk.checkpoint.replica;
    for (uint32_t f = 0; f < count; f++) {
        const uint64_t version = (join->rounds + count - 1 - f) / count;
        bool is_held = false;
        for (uint64_t behind = 0; behind <= 2 && behind <= version && !is_held; behind++) {
            const struct tw_sim_key key = tw_sim_key_of(&join->lineage, f, version - behind);
            const struct tw_id *digest = tw_sim_map_get(&world->check->memory, &key);
            /* NULL: no node has this version yet */
            is_held = digest == NULL || tw_id_equal(digest, &held->digests[f]);
        }
        if (!is_held) {
            tw_sim_fail(world, node, "G2", "asks to join without the state of fragment %u", f);
        }
    }
    const struct tw_sim_key key = tw_sim_key_of(&join->lineage, join->nonce, join->rounds);
    (void)tw_sim_map_put(&world->check->joins, &key, NULL);
}

static void check_message(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_STATUS: tw_sim_check_claim(world, node, &message->u.status); break;
    case TW_MSG_PREPARE: tw_sim_check_prepare(world, &message->u.prepare); break;
    case TW_MSG_PROMISE: tw_sim_check_promise(world, node, &message->u.promise); break;
    case TW_MSG_ACCEPT: tw_sim_check_accept(world, node, &message->u.accept); break;
    case TW_MSG_LOCK: tw_sim_check_lock(world, &message->u.lock.digest); break;
    case TW_MSG_PROPOSE: tw_sim_check_propose(world, node, &message->u.propose); break;
    case TW_MSG_CONTRIB: check_contrib(world, node, &message->u.contrib); break;
    case TW_MSG_JOIN: check_join(world, node, &message->u.join); break;
    case TW_MSG_PULL: tw_sim_pool_pull(world, node, &message->u.pull); break;
    default: break;
    }
}

/* ---- applying ------------------------------------------------------------------------------- */

static void check_apply(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    const uint64_t round = action->u.apply.round;
    const struct tw_sim_commit *commit = tw_sim_check_find(world, &node->lineage, round);
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
    struct tw_id root;
    const int member = tw_sim_check_seat(world, commit, node, &root);
    const bool has_seat = member >= 0 && commit->roster.members[member].node == node->idx;
    /* After a restart, a hand may not know its work any more, which then stays in its Delta. */
    const uint32_t fragment = (uint32_t)(round % world->options.fragments_count);
    const bool is_known = node->worker.sent[fragment].is_known &&
                          tw_id_equal(&node->worker.sent_roots[fragment], &root);
    const bool is_member =
        member >= 0 &&
        (has_seat ? commit->roster.members[member].nonce == world->position->nonce : is_known);
    const bool is_lost = node->core->crew.words[round % TW_ROUNDS_KEPT] == CREW_LOST;
    world->result->crew_lost += is_lost;
    uint64_t end = 0;
    for (uint32_t k = 0; k < commit->parts_count; k++) {
        const struct tw_apply_part *part = &action->u.apply.parts[k];
        const bool is_absent = tw_id_is_zero(&commit->parts[k].result);
        const bool is_ours = is_member && (commit->parts[k].contributors >> member & 1) != 0;
        const enum tw_apply_mode mode = is_absent                         ? TW_APPLY_ABSENT
                                        : world->position->is_moving != 0 ? TW_APPLY_STAY
                                        : is_ours                         ? TW_APPLY_MIX
                                                                          : TW_APPLY_SHIFT;
        if ((part->mode == TW_APPLY_ABSENT) != is_absent) {
            tw_sim_fail(world, node, "G5",
                        "part %u of round %" PRIu64 " is ABSENT in only one of APPLY and record", k,
                        round);
        } else if (!is_absent && !tw_id_equal(&action->inputs[k], &commit->parts[k].result)) {
            tw_sim_fail(world, node, "11", "part %u of round %" PRIu64 " is not the committed one",
                        k, round);
        } else if (part->mode != mode && !(member >= 0 && !has_seat && (!is_known || is_lost))) {
            tw_sim_fail(world, node, "G3", "%s where round %" PRIu64 " %s its contribution",
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
    /* In pairs, the round number does not determine the fragment. */
    const uint64_t version =
        world->options.is_pair ? rounds : (rounds + count - 1 - fragment) / count;
    const struct tw_sim_key key = tw_sim_key_of(lineage, fragment, version);
    bool is_new;
    struct tw_id *digest = tw_sim_map_put(&world->check->memory, &key, &is_new);
    if (is_new) {
        *digest = node->worker.replica.digests[fragment];
    } else if (!tw_id_equal(digest, &node->worker.replica.digests[fragment])) {
        tw_sim_fail(world, node, "G2",
                    "fragment %u version %" PRIu64 " differs from that of others", fragment,
                    version);
    }
}

/* Returns the clock of the (phi, u) that the worker just computed. A solo round is committed only
 * later. */
static uint64_t clock_of_request(struct tw_sim_world *world, const struct tw_sim_node *node,
                                 const struct tw_sim_request *request) {
    tw_node_position(node->core, world->position);
    if (request->action.kind != TW_ACT_APPLY)
        return world->position->has_tip != 0 ? world->position->tip.clock_tokens : 0;
    const struct tw_sim_commit *commit =
        tw_sim_check_find(world, &request->lineage, request->action.u.apply.round);
    return commit != NULL ? commit->clock_tokens
                          : 0; /* NULL: check_apply() has failed the run already */
}

bool tw_sim_check_is_merged(struct tw_sim_world *world, const struct tw_sim_node *node,
                            const struct tw_sim_request *apply, const struct tw_id *root) {
    const struct tw_sim_commit *commit =
        tw_sim_check_find(world, &apply->lineage, apply->action.u.apply.round);
    struct tw_id actual;
    return commit != NULL && tw_sim_check_seat(world, commit, node, &actual) >= 0 &&
           tw_id_equal(&actual, root);
}

void tw_sim_check_memory(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_request *request, uint32_t fragment,
                         uint64_t rounds_before) {
    const struct tw_action *action = &request->action;
    const bool is_back = action->kind == TW_ACT_LOAD && action->u.load.mode == TW_LOAD_BACK;
    if (action->kind != TW_ACT_LOAD) {
        const uint64_t round =
            action->u.solo
                .round; /* the round is the first field of APPLY, SOLO and PAIR_APPLY alike */
        world->result->applied++;
        if (round + 1 <= rounds_before) {
            tw_sim_fail(world, node, "G4",
                        "round %" PRIu64 " is applied again to fragment %u, which has %" PRIu64,
                        round, fragment, rounds_before);
        }
    }
    if (action->kind != TW_ACT_LOAD || is_back)
        tw_sim_check_made(world, node, fragment, clock_of_request(world, node, request));
    /* A solo round is committed only later, perhaps in another lineage after a fork. If the worker
     * dies before it answers, the same round is computed again, with other bytes. */
    if (action->kind == TW_ACT_SOLO || is_back) return;
    check_digest(world, node, &request->lineage, fragment,
                 node->worker.replica.fragment_rounds[fragment]);
}

/* A node struck after an audit must be a liar: accusations and audits never harm an honest owner.
 */
static void check_strike(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_action *action) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const struct tw_sim_node *other = &world->nodes[i];
        if (!tw_id_equal(&other->id, &action->u.report.id)) continue;
        if (action->u.report.reason != TW_CORRUPT) continue;
        world->result->strikes++;
        if (tw_sim_is_liar(world, node) || tw_sim_is_liar(world, other)) continue;
        if (tw_sim_is_traitor(world, other)) continue;
        tw_sim_fail(world, node, "38", "strikes node %u, which merged correctly", i);
    }
}

/* ---- crews ----------------------------------------------------------------------------------- */

/* Notes the work that a head is about to contribute: all of it was offered for this round. */
void tw_sim_check_gathered(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_event *event) {
    const struct crew *crew = &node->core->crew;
    const struct tw_msg_crew *list =
        &crew->kept[(crew->kept_next + CREWS_KEPT - 1) % CREWS_KEPT]; /* the newest */
    if (!tw_id_equal(&list->head, &node->id)) return;
    const struct tw_id rows = tw_crew_root(list->rows, list->rows_count);
    const struct tw_id bind = tw_crew_bind(&list->parts_root, list->rows_count, &rows);
    const struct tw_sim_key key = tw_sim_key_of(&bind, 0, 0);
    bool is_new;
    struct tw_sim_crew *known = tw_sim_map_put(&world->check->crews, &key, &is_new);
    for (uint32_t i = 0; i < crew->merged_count && is_new; i++) {
        bool is_in = false;
        for (uint32_t k = 0; k < list->rows_count; k++)
            is_in |= tw_id_equal(&list->rows[k].leaf, &crew->works[i].leaf);
        const bool is_refused =
            event->kind == TW_EV_GATHERED && (event->u.encoded.refused >> i & 1) != 0;
        if (is_in && is_refused) tw_sim_fail(world, node, "G3", "lists work that it left out");
        if (!is_in) continue;
        uint32_t who = 0;
        while (who < world->nodes_count && !tw_id_equal(&world->nodes[who].id, &crew->merged[i]))
            who++;
        known->rows[known->count].node = who;
        known->rows[known->count].tokens = crew->works[i].tokens;
        known->rows[known->count++].root = crew->works[i].root;
        if (who == node->idx) continue;
        const struct tw_sim_encoded *encoded =
            encoded_of(world, &world->nodes[who], &list->lineage, list->round);
        bool is_told = false;
        for (uint32_t k = 0; k < encoded->count; k++)
            is_told |= encoded->all[k].is_told && encoded->all[k].tokens == crew->works[i].tokens &&
                       tw_id_equal(&encoded->all[k].root, &known->rows[known->count - 1].root);
        if (!is_told) tw_sim_fail(world, node, "G3", "lists work that node %u never offered", who);
    }
    if (is_new && known->count != list->rows_count)
        tw_sim_fail(world, node, "G3", "lists work of unknown nodes");
}

/* ---- called from outside -------------------------------------------------------------------- */

void tw_sim_check_start(struct tw_sim_world *world, struct tw_sim_node *node) {
    world->check->nodes[node->idx].rounds = 0;
    world->check->nodes[node->idx].clock_tokens = 0;
    world->check->nodes[node->idx].lineage = (struct tw_id){{0}};
    tw_sim_check_pair_start(world, node);
}

/* Returns the class of the most tokens that the node knows of a member of the lineage: its own, if
 * it is or was one, and those of its peers. */
static uint32_t trained_class(struct tw_sim_world *world, const struct tw_id *lineage,
                              uint64_t own_tokens) {
    uint64_t tokens = own_tokens;
    uint32_t class = 0;
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_msg_status *status = &world->view->peers[i].status;
        if (!world->view->peers[i].is_up || status->state == TW_STATE_RECEIVER) continue;
        if (tw_id_equal(&status->lineage, lineage) && status->tokens > tokens)
            tokens = status->tokens;
    }
    for (; tokens > 0; tokens /= 2) class ++;
    return class;
}

/* True if the node's new lineage comes before the one that it left, whose clock is equal: at clock
 * zero, but in pairs, it has trained far more; or it has the smaller id. */
static bool goes_first(struct tw_sim_world *world, const struct tw_sim_node *node,
                       const struct tw_id *left, uint64_t clock_tokens) {
    const bool is_smaller = tw_id_compare(&node->lineage, left) < 0;
    if (clock_tokens > 0 || world->options.is_pair) return is_smaller;
    const uint32_t here = trained_class(world, &node->lineage, 0);
    const uint32_t there = trained_class(world, left, node->core->worker.tokens);
    return here == there ? is_smaller : here > there;
}

void tw_sim_check_moved(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_id *lineage, enum tw_node_state state,
                        uint64_t clock_tokens) {
    struct tw_position *position = world->position;
    world->check->nodes[node->idx].rounds = 0;
    tw_node_position(node->core, position);
    tw_node_view(node->core, world->view);
    const struct tw_roster *roster = &world->view->roster;
    const bool is_founder =
        roster->count == 1 &&
        tw_id_equal(&roster->members[0].id,
                    &node->id); /* while a node adopts a state, its roster is empty */
    const bool is_child = tw_id_equal(&position->lineage_parent, lineage) &&
                          position->first_round == position->rounds && is_founder;
    if (is_child || state == TW_STATE_RECEIVER) return; /* a receiver may give up its transfer */
    if (tw_id_equal(&node->lineage, &node->core->cfg.awaited)) return; /* it waits for voters */
    /* Three supporters or more outweigh a clock: sync/history/lineage.c. */
    bool is_better = !world->options.is_pair && roster->count >= 3;
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_msg_status *status = &world->view->peers[i].status;
        if (!world->view->peers[i].is_up || !tw_id_equal(&status->lineage, &node->lineage)) {
            continue;
        }
        /* a node adopts the state of a peer that is far ahead; a newborn node adopts the state of
         * any peer that is ahead */
        if (world->options.is_pair && !world->options.has_own_starts) {
            is_better |= status->clock_tokens / 2 > clock_tokens;
            continue;
        }
        /* a node without a vote that voters have deserted follows them again */
        is_better |= !tw_sim_has_vote(world, node->idx) && status->clock_tokens >= clock_tokens / 2;
        is_better |=
            status->clock_tokens > clock_tokens || (status->clock_tokens == clock_tokens &&
                                                    goes_first(world, node, lineage, clock_tokens));
    }
    if (!is_better) {
        tw_sim_fail(world, node, "1",
                    "leaves a lineage at %" PRIu64 " tokens for one that is behind", clock_tokens);
    }
}

static void note_decided(struct tw_sim_world *world, uint64_t round) {
    struct tw_sim_costs *costs = &world->result->costs;
    if (!world->options.is_costed || round != costs->proposed_round) return;
    costs->decided_us += world->now_us - costs->proposed_us;
    costs->decided_count++;
}

void tw_sim_check_action(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_action *action) {
    if (world->options.is_pair) tw_sim_check_pair_action(world, node, action);
    tw_sim_treason_action(world, node, action);
    switch ((int)action->kind) {
    case TW_ACT_SEND: check_message(world, node, action->u.message); break;
    case TW_ACT_APPLY: check_apply(world, node, action); break;
    case TW_ACT_FINISH:
        tw_node_view(node->core, world->view);
        if (action->u.finish.goes_on !=
            (world->view->clock_tokens < world->options.budget_tokens)) {
            tw_sim_fail(world, node, "G6",
                        "finishes before the budget is spent, or goes on afterwards");
        }
        break;
    case TW_ACT_REPORT:
        if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) {
            note_decided(world, action->u.report.record->round);
            tw_sim_check_committed(world, node, action);
        }
        if (action->u.report.kind == TW_REPORT_STRUCK) check_strike(world, node, action);
        break;
    default: break;
    }
}

void tw_sim_check_event(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event) {
    if (world->options.is_pair) {
        tw_sim_check_pair_event(world, node, event);
        return;
    }
    if (event->kind != TW_EV_ENCODED || !event->ok) return;
    struct tw_sim_encoded *encoded =
        encoded_of(world, node, &node->lineage, event->u.encoded.round);
    const uint32_t row =
        encoded->count < TW_SIM_ENCODED_KEPT ? encoded->count++ : TW_SIM_ENCODED_KEPT - 1;
    encoded->all[row].root =
        tw_contribution_root(event->u.encoded.hashes, event->u.encoded.parts_count);
    encoded->all[row].is_told = false;
    const uint32_t fragment = (uint32_t)(event->u.encoded.round % world->options.fragments_count);
    encoded->all[row].delta = node->worker.held[fragment];
    if (node->worker.sent[fragment].step != event->u.encoded.step)
        encoded->all[row].delta.is_known = false; /* encoded by an earlier worker */
}

void tw_sim_check_tick(struct tw_sim_world *world, struct tw_sim_node *node) {
    if (world->options.is_pair) tw_sim_check_pair_tick(world, node);
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
