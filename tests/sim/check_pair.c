/* check_pair.c - runs in pairs: the messages, merges and counts of exchanges.
 *
 *   P1    a node is in one exchange at a time, with one other node, and merges it at most once
 *   P2    an exchange ends: the wait for a partner has a bound
 *   P3    a merge uses the payloads that both nodes offered in this exchange, of its fragment
 *   P4    a node's clock only grows, by at most 1.5 times the tokens that all can have trained
 *   P5    a node that leaves an exchange sends PAIR_BUSY; a node that merged and receives it counts
 *         a one-sided outcome
 *   mass  a merge that both nodes applied leaves the sum of their theta - e unchanged
 *
 * These checks use messages, requests to workers and reports, not the state of the core. */
#include <inttypes.h>
#include <math.h>

#include "sync/core/state.h"
#include "tests/sim/check.h"

enum {
    ANSWER_US = 2500 * 1000,
    PATIENCE_US = 630 * 1000 * 1000,
    REMEMBERED = 8,
};

static const double rounding = 1e-4;

static struct tw_sim_key key_of(const struct tw_pair_id *id) {
    return (struct tw_sim_key){.a = id->high, .b = id->low};
}

static struct tw_sim_exchange *exchange_of(struct tw_sim_world *world,
                                           const struct tw_sim_key *key) {
    return tw_sim_map_get(&world->check->exchanges, key);
}

static uint32_t number_of(const struct tw_sim_world *world, const struct tw_sim_node *node,
                          uint16_t peer) {
    const struct tw_sim_link *link = &world->links[node->link_of_peer[peer]];
    return link->nodes[link->nodes[0] == node->idx];
}

static uint32_t side_of(const struct tw_sim_exchange *exchange, const struct tw_sim_node *node) {
    return exchange->nodes[0] == node->idx ? 0 : 1;
}

static struct tw_sim_pairing *pairing_of(struct tw_sim_world *world,
                                         const struct tw_sim_node *node) {
    return &world->check->pairings[node->idx];
}

static bool is_open(const struct tw_sim_pairing *pairing, const struct tw_sim_key *key) {
    return pairing->is_open && pairing->open.a == key->a && pairing->open.b == key->b;
}

/* ---- messages sent -------------------------------------------------------------------------- */

static void enter_exchange(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_key *key) {
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    if (pairing->is_open) tw_sim_fail(world, node, "P1", "is in two exchanges at a time");
    pairing->is_open = true;
    pairing->is_merging = pairing->is_answered = false;
    pairing->open = *key;
    pairing->open_us = world->now_us;
}

static void check_request(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                          const struct tw_msg_pair_request *said) {
    const struct tw_sim_key key = key_of(&said->pair);
    bool is_new;
    struct tw_sim_exchange *exchange = tw_sim_map_put(&world->check->exchanges, &key, &is_new);
    if (!is_new) tw_sim_fail(world, node, "P1", "uses the name of another exchange");
    exchange->nodes[0] = node->idx;
    exchange->nodes[1] = number_of(world, node, peer);
    exchange->fragment = said->fragment;
    enter_exchange(world, node, &key);
}

static void check_accept(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                         const struct tw_msg_pair_accept *said) {
    const struct tw_sim_key key = key_of(&said->pair);
    struct tw_sim_exchange *exchange = exchange_of(world, &key);
    const uint32_t other = number_of(world, node, peer);
    if (exchange == NULL || exchange->nodes[1] != node->idx || exchange->nodes[0] != other ||
        exchange->is_accepted) {
        tw_sim_fail(world, node, "P1", "accepts an exchange that node %u did not request", other);
        return;
    }
    exchange->is_accepted = true;
    enter_exchange(world, node, &key);
    pairing_of(world, node)->is_answered = true;
}

static void check_offer(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_msg_pair_offer *said) {
    const struct tw_sim_key key = key_of(&said->pair);
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    struct tw_sim_exchange *exchange = exchange_of(world, &key);
    if (exchange == NULL || !is_open(pairing, &key)) {
        tw_sim_fail(world, node, "P1", "offers in an exchange that it is not in");
        return;
    }
    if (!tw_id_equal(&said->delta_hash, &pairing->made[TW_PAIR_DELTA]) ||
        !tw_id_equal(&said->phi_hash, &pairing->made[TW_PAIR_PHI]) ||
        pairing->made_fragment != exchange->fragment) {
        tw_sim_fail(world, node, "P3", "offers payloads that it did not encode for this exchange");
    }
    struct tw_sim_half *half = &exchange->halves[side_of(exchange, node)];
    half->offer[TW_PAIR_DELTA] = said->delta_hash;
    half->offer[TW_PAIR_PHI] = said->phi_hash;
}

static void note_busy_sent(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_msg_pair_busy *said) {
    const struct tw_sim_key key = key_of(&said->pair);
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    if (is_open(pairing, &key)) pairing->is_open = false;
}

static void check_sent(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action) {
    const struct tw_message *message = action->u.message;
    switch ((int)message->kind) {
    case TW_MSG_PAIR_REQUEST:
        check_request(world, node, action->peer, &message->u.pair_request);
        break;
    case TW_MSG_PAIR_ACCEPT:
        check_accept(world, node, action->peer, &message->u.pair_accept);
        break;
    case TW_MSG_PAIR_OFFER: check_offer(world, node, &message->u.pair_offer); break;
    case TW_MSG_PAIR_BUSY: note_busy_sent(world, node, &message->u.pair_busy); break;
    case TW_MSG_JOIN:
    case TW_MSG_CONTRIB:
    case TW_MSG_RESULT:
    case TW_MSG_PREPARE:
    case TW_MSG_PROMISE:
    case TW_MSG_PROPOSE:
    case TW_MSG_ACCEPT:
    case TW_MSG_LOCK:
    case TW_MSG_EVIDENCE:
    case TW_MSG_NACK:
    case TW_MSG_GATHER:
    case TW_MSG_CREW:
    case TW_MSG_CREW_GET:
        tw_sim_fail(world, node, "P1", "sends %s, which only groups use",
                    tw_message_name(message->kind));
        break;
    default: break;
    }
}

/* ---- requests to the worker ----------------------------------------------------------------- */

/* The inputs are the payloads that the node's worker encoded and that the partner offered. */
static bool are_inputs_agreed(const struct tw_action *action, const struct tw_sim_pairing *pairing,
                              const struct tw_sim_half *other) {
    bool is_same = true;
    for (unsigned k = 0; k < TW_PAIR_PAYLOADS; k++) {
        is_same &= tw_id_equal(&action->inputs[k], &pairing->made[k]) &&
                   tw_id_equal(&action->inputs[TW_PAIR_THEIRS + k], &other->offer[k]);
    }
    return is_same;
}

static void check_step(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action) {
    if (action->u.pair_apply.min_step > node->worker.step + world->options.overlap_steps) {
        tw_sim_fail(world, node, "P2", "a step waits for more than the overlap");
    }
    if (action->u.pair_apply.is_alone) return;
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    struct tw_sim_exchange *exchange = pairing->is_open ? exchange_of(world, &pairing->open) : NULL;
    if (exchange == NULL || !exchange->is_accepted || pairing->is_merging) {
        tw_sim_fail(world, node, "P1", "merges outside of an exchange, or twice");
        return;
    }
    const uint32_t side = side_of(exchange, node);
    if (action->u.pair_apply.fragment != exchange->fragment ||
        pairing->made_fragment != exchange->fragment ||
        !are_inputs_agreed(action, pairing, &exchange->halves[1 - side])) {
        tw_sim_fail(world, node, "P3", "merges payloads that were not offered in this exchange");
    }
    pairing->is_merging = true;
    pairing->is_deserted = pairing->is_cut = false;
    pairing->merging = pairing->open;
}

void tw_sim_check_merged(struct tw_sim_world *world, struct tw_sim_node *node,
                         const double *moved) {
    const struct tw_sim_pairing *pairing = pairing_of(world, node);
    struct tw_sim_exchange *exchange = exchange_of(world, &pairing->merging);
    if (exchange == NULL) return; /* the run has failed */
    const uint32_t side = side_of(exchange, node);
    struct tw_sim_half *half = &exchange->halves[side];
    const struct tw_sim_half *other = &exchange->halves[1 - side];
    if (half->is_merged) tw_sim_fail(world, node, "P1", "merges one exchange twice");
    half->is_merged = true;
    world->result->merges++;
    world->result->merges_whole += other->is_merged;
    for (uint32_t i = 0; i < world->model.dims_per_fragment; i++) {
        half->moved[i] = moved[i];
        if (other->is_merged && fabs(moved[i] + other->moved[i]) > rounding) {
            tw_sim_fail(world, node, "mass", "a merge of fragment %u makes %g out of nothing",
                        exchange->fragment, moved[i] + other->moved[i]);
        }
    }
}

/* ---- merges and their counts ---------------------------------------------------------------- */

static void count_one_sided(struct tw_sim_world *world, struct tw_sim_node *node) {
    pairing_of(world, node)->one_sided_due++;
    world->result->merges_deserted++;
}

static void note_busy_received(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                               const struct tw_msg_pair_busy *said) {
    const struct tw_sim_key key = key_of(&said->pair);
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    struct tw_sim_exchange *exchange = exchange_of(world, &key);
    if (exchange == NULL) return;
    struct tw_sim_half *half = &exchange->halves[side_of(exchange, node)];
    const bool is_partner =
        exchange->nodes[1 - side_of(exchange, node)] == number_of(world, node, peer);
    if (is_open(pairing, &key)) {
        pairing->is_deserted = pairing->is_merging;
        pairing->is_open = false;
        return;
    }
    /* A node remembers only its last exchanges. */
    const bool is_known = half->is_counted && half->life == node->life &&
                          pairing->paired_count - half->number <= REMEMBERED;
    if (!is_partner || !is_known || half->is_deserted) return;
    half->is_deserted = true;
    count_one_sided(world, node);
}

static void check_paired(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    struct tw_sim_exchange *exchange =
        pairing->is_merging ? exchange_of(world, &pairing->merging) : NULL;
    /* A liar may report a merge that its worker did not apply. */
    const bool is_liar = tw_sim_is_liar(world, node);
    if (exchange == NULL || (!exchange->halves[side_of(exchange, node)].is_merged && !is_liar)) {
        tw_sim_fail(world, node, "P1", "counts a merge that it did not take");
        return;
    }
    struct tw_sim_half *half = &exchange->halves[side_of(exchange, node)];
    half->is_counted = true;
    half->life = node->life;
    half->number = pairing->paired_count++;
    half->is_deserted = pairing->is_deserted || pairing->is_cut;
    if (pairing->is_deserted) count_one_sided(world, node);
    pairing->is_open = pairing->is_merging = false;
}

/* The end of a round ends its exchange. */
static void check_committed(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_record *record) {
    const struct tw_sim_pairing *pairing = pairing_of(world, node);
    if (pairing->is_open && !pairing->is_merging) {
        tw_sim_fail(world, node, "P5", "ends round %" PRIu64 " without PAIR_BUSY to its partner",
                    record->round);
    }
    if (record->contributors_count != 1 || record->parts_count != 0 || record->next.count != 1 ||
        record->contributors[0].member_idx != 0) {
        tw_sim_fail(world, node, "P1", "the record of round %" PRIu64 " is not that of one node",
                    record->round);
    }
}

/* Returns the sum of the other nodes' greatest token rates, in tokens per us. */
static double rate_of_others(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    const double step_us = 0.95 * (double)world->options.step_us;
    double rate = 0;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (i != node->idx)
            rate += (double)world->options.tokens_per_step * world->nodes[i].speed / step_us;
    }
    return rate;
}

void tw_sim_check_pair_clock(struct tw_sim_world *world, struct tw_sim_node *node,
                             uint64_t clock_tokens, uint64_t before, uint64_t tokens) {
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    /* A round counts the steps since the previous round encoded its Delta. That encoding came after
     * the end of the round before it. */
    const double took_us = (double)(world->now_us - pairing->before_us);
    const double own = (double)tokens + rate_of_others(world, node) * took_us;
    if (clock_tokens < before || (double)(clock_tokens - before) > 1.5 * own + 1) {
        tw_sim_fail(world, node, "P4",
                    "its clock goes from %" PRIu64 " to %" PRIu64
                    " in %.1f s, but at most %.0f tokens were trained",
                    before, clock_tokens, took_us / 1e6, own);
    }
    pairing->before_us = pairing->committed_us;
    pairing->committed_us = pairing->stepped_us;
}

/* ---- called from outside -------------------------------------------------------------------- */

void tw_sim_check_pair_action(struct tw_sim_world *world, struct tw_sim_node *node,
                              const struct tw_action *action) {
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    switch ((int)action->kind) {
    case TW_ACT_SEND: check_sent(world, node, action); break;
    case TW_ACT_PAIR_ENCODE: pairing->asked_fragment = action->u.pair_encode.fragment; break;
    case TW_ACT_PAIR_APPLY: check_step(world, node, action); break;
    case TW_ACT_REPORT:
        if (action->u.report.kind == TW_REPORT_PAIRED) {
            check_paired(world, node);
        } else if (action->u.report.kind == TW_REPORT_ONE_SIDED) {
            pairing->one_sided_count++;
        } else if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) {
            check_committed(world, node, action->u.report.record);
        }
        break;
    default: break;
    }
}

void tw_sim_check_pair_event(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_event *event) {
    struct tw_sim_pairing *pairing = pairing_of(world, node);
    const struct tw_sim_exchange *exchange =
        pairing->is_open ? exchange_of(world, &pairing->open) : NULL;
    switch ((int)event->kind) {
    case TW_EV_MESSAGE:
        if (event->u.message->kind == TW_MSG_PAIR_BUSY)
            note_busy_received(world, node, event->peer, &event->u.message->u.pair_busy);
        if (event->u.message->kind == TW_MSG_PAIR_ACCEPT) {
            const struct tw_sim_key key = key_of(&event->u.message->u.pair_accept.pair);
            pairing->is_answered |= is_open(pairing, &key);
        }
        break;
    case TW_EV_PEER_DOWN:
        if (exchange != NULL &&
            exchange->nodes[1 - side_of(exchange, node)] == number_of(world, node, event->peer)) {
            pairing->is_open = false;
            pairing->is_cut = pairing->is_merging;
        }
        break;
    case TW_EV_STEP: pairing->stepped_us = world->now_us; break;
    case TW_EV_ENCODED:
        if (!event->ok) break;
        pairing->made[TW_PAIR_DELTA] = event->u.encoded.hashes[TW_PAIR_DELTA];
        pairing->made[TW_PAIR_PHI] = event->u.encoded.hashes[TW_PAIR_PHI];
        pairing->made_fragment = pairing->asked_fragment;
        break;
    default: break;
    }
}

void tw_sim_check_pair_start(struct tw_sim_world *world, struct tw_sim_node *node) {
    *pairing_of(world, node) = (struct tw_sim_pairing){
        .before_us = world->now_us, .committed_us = world->now_us, .stepped_us = world->now_us};
}

void tw_sim_check_pair_tick(struct tw_sim_world *world, struct tw_sim_node *node) {
    const struct tw_sim_pairing *pairing = pairing_of(world, node);
    if (pairing->one_sided_count != pairing->one_sided_due) {
        tw_sim_fail(world, node, "P5", "counts %" PRIu64 " one-sided outcomes instead of %" PRIu64,
                    pairing->one_sided_count, pairing->one_sided_due);
    }
    if (!pairing->is_open || pairing->is_merging) return;
    const uint64_t waited_us = world->now_us - pairing->open_us;
    if (waited_us > (pairing->is_answered ? PATIENCE_US : ANSWER_US)) {
        tw_sim_fail(world, node, "P2", "has waited for a partner for %.0f s",
                    (double)waited_us / 1e6);
    }
}
