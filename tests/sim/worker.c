/* worker.c - a worker in virtual time: inner steps at their own pace, requests between them.
 *
 * The step schedule does not depend on requests, so a round cannot stop the steps (G6). The events
 * of a worker reach the core delayed and in order, as over a socket. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "tests/sim/world.h"

enum { ANSWER_US = 20 * 1000, RESTART_US = 1000 * 1000, POLL_US = 1000, VERIFY_US = 3 * 1000 };

void tw_sim_worker_tell(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_event *event, bool is_mute) {
    if (is_mute) return;
    const bool has_state = event->kind == TW_EV_WORKER_UP;
    struct tw_event *copy = malloc(sizeof *copy + (has_state ? sizeof *event->u.worker : 0));
    TW_ASSERT(copy != NULL);
    *copy = *event;
    if (has_state) {
        struct tw_worker_state *const state = (struct tw_worker_state *)(void *)(copy + 1);
        *state = *event->u.worker;
        copy->u.worker = state;
    }
    uint64_t at_us = world->now_us + 100 + tw_rng_below(&node->rng, ANSWER_US);
    if (at_us < node->worker.told_us) at_us = node->worker.told_us;
    node->worker.told_us = at_us;
    tw_sim_push(world, at_us, TW_SIM_TIMER_TO_CORE, node->idx, 0, node->life, copy);
}

enum tw_node_role tw_sim_role(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    const uint32_t from_end = world->nodes_count - node->idx; /* 1: the last node */
    if (from_end <= world->options.reducers_count) return TW_NODE_ROLE_REDUCE;
    return from_end <= world->options.reducers_count + world->options.followers_count
               ? TW_NODE_ROLE_FOLLOW
               : TW_NODE_ROLE_TRAIN;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Returns the content of a payload that a request names. The pool must hold it, verified. */
static const struct tw_sim_content *content_of(struct tw_sim_world *world, struct tw_sim_node *node,
                                               const struct tw_id *hash, const char *what) {
    const struct tw_sim_payload *payload = tw_sim_pool_find(node, hash);
    if (payload == NULL) {
        tw_sim_fail(world, node, "11", "%s needs a payload that is not held", what);
        return NULL;
    }
    if (!payload->is_verified || payload->content == NULL || payload->is_corrupt) {
        tw_sim_fail(world, node, "11", "%s uses a payload that is not verified", what);
        return NULL;
    }
    return payload->content;
}

/* The fragment's Delta starts at the next step. */
static void note_begun(struct tw_sim_worker *worker, uint32_t fragment) {
    worker->begun[fragment] = (struct tw_sim_delta){true, worker->step, worker->tokens};
}

static void note_sent(struct tw_sim_worker *worker, uint32_t fragment,
                      const struct tw_event *encoded) {
    const struct tw_sim_delta *begun = &worker->begun[fragment];
    worker->sent_roots[fragment] =
        tw_contribution_root(encoded->u.encoded.hashes, encoded->u.encoded.parts_count);
    worker->sent[fragment] = (struct tw_sim_delta){true, worker->step, worker->tokens};
    worker->held[fragment] = (struct tw_sim_delta){begun->is_known, worker->step - begun->step,
                                                   worker->tokens - begun->tokens};
}

/* After a merge of this node's contribution, the next Delta starts at that contribution's encoding.
 * Otherwise the start of Delta does not move. If the contribution was encoded before a restart, the
 * start is unknown. */
static void note_applied(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_request *request) {
    struct tw_sim_worker *worker = &node->worker;
    const struct tw_action *action = &request->action;
    const uint32_t fragment = action->u.apply.fragment;
    bool is_mixed = false;
    for (uint32_t k = 0; k < action->u.apply.parts_count; k++)
        is_mixed |= action->u.apply.parts[k].mode == TW_APPLY_MIX;
    if (is_mixed) {
        worker->begun[fragment] = worker->sent[fragment];
        worker->begun[fragment].is_known &=
            tw_sim_check_is_merged(world, node, request, &worker->sent_roots[fragment]);
    }
    if (action->u.apply.is_final) worker->begun[fragment].is_known = false;
}

static void encode(struct tw_sim_world *world, struct tw_sim_node *node,
                   const struct tw_action *action, bool is_mute) {
    struct tw_sim_worker *worker = &node->worker;
    struct tw_sim_replica *replica = &worker->replica;
    const uint32_t fragment = action->u.encode.fragment, count = action->u.encode.parts_count;
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = action->u.encode.round;
    event.u.encoded.step = worker->step;
    event.u.encoded.tokens = worker->tokens;
    event.u.encoded.cursor = worker->tokens;
    event.u.encoded.parts_count = count;
    if (node->refusals > 0) {
        node->refusals--;
        event.ok = false;
        tw_sim_worker_tell(world, node, &event, is_mute);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        const struct tw_sim_content *content =
            tw_sim_replica_encode(&world->model, &world->contents, replica, fragment,
                                  action->u.encode.parts[k].begin, action->u.encode.parts[k].count);
        /* Like the codecs, the stub refuses values that are not finite. */
        event.ok &= tw_sim_content_check(content, action->u.encode.parts[k].count);
        event.u.encoded.hashes[k] = content->hash;
        event.u.encoded.bytes[k] = tw_sim_content_wire_bytes(content, world->options.bytes_per_dim);
    }
    if (event.ok) {
        tw_sim_replica_encoded(&world->model, replica, fragment);
        note_sent(worker, fragment, &event);
    }
    tw_sim_worker_tell(world, node, &event, is_mute);
}

/* Returns a bit set of the contributions that count as too large: sometimes one of several. The
 * choice follows from the round and not from a random draw, so each seed still gives the same
 * world. */
static uint64_t refused_of(const struct tw_action *action) {
    const uint64_t round = action->u.reduce.round;
    if (action->u.reduce.is_audit) return 0;
    if (action->u.reduce.inputs_count < 3 || round % 8 != 5) return 0;
    return UINT64_C(1) << (round / 8 + action->u.reduce.part) % action->u.reduce.inputs_count;
}

static void reduce(struct tw_sim_world *world, struct tw_sim_node *node,
                   const struct tw_sim_request *request, bool is_mute) {
    const struct tw_action *action = &request->action;
    const struct tw_sim_content *taken[TW_MEMBERS_MAX];
    uint64_t tokens[TW_MEMBERS_MAX];
    const uint64_t refused = refused_of(action);
    uint32_t count = 0;
    for (uint32_t k = 0; k < action->u.reduce.inputs_count; k++) {
        if ((refused >> k & 1) != 0) continue;
        taken[count] = request->contents[k];
        tokens[count++] = action->u.reduce.inputs[k].tokens;
    }
    const struct tw_sim_content *content =
        tw_sim_model_reduce(&world->contents, taken, tokens, count, action->u.reduce.count);
    if (content != NULL && tw_sim_is_liar(world, node)) content = tw_sim_lie_make(world, content);
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = content != NULL};
    event.u.reduced.round = action->u.reduce.round;
    event.u.reduced.part = action->u.reduce.part;
    event.u.reduced.refused = refused;
    event.u.reduced.is_audit = action->u.reduce.is_audit;
    if (content != NULL) {
        event.u.reduced.hash = content->hash;
        event.u.reduced.bytes = tw_sim_content_wire_bytes(content, world->options.bytes_per_dim);
    }
    tw_sim_worker_tell(world, node, &event, is_mute);
}

/* Returns the inputs that the worker of a head leaves out: sometimes one; of a false head, all. */
static uint64_t left_out(const struct tw_sim_world *world, const struct tw_sim_node *node,
                         const struct tw_gather *gather) {
    const uint32_t count = gather->inputs_count;
    if (tw_sim_is_false_head(world, node) && node->idx % 2 != 0)
        return (UINT64_MAX >> (64 - count)) & ~UINT64_C(1);
    if (count < 3 || gather->round % 8 != 3) return 0;
    return UINT64_C(1) << (1 + gather->round / 8 % (count - 1));
}

/* Merges the work of a crew: of the whole fragment, cut into parts. */
static void gather(struct tw_sim_world *world, struct tw_sim_node *node,
                   const struct tw_sim_request *request, bool is_mute) {
    const struct tw_gather *gather = &request->action.u.gather;
    const uint32_t dims = world->model.dims_per_fragment;
    const struct tw_sim_content *taken[TW_CREW_MAX];
    uint64_t tokens[TW_CREW_MAX];
    uint32_t count = 0;
    struct tw_event event = {.kind = TW_EV_GATHERED, .ok = !tw_sim_node_refuses(node)};
    event.u.encoded.round = gather->round;
    event.u.encoded.parts_count = gather->parts_count;
    event.u.encoded.refused = left_out(world, node, gather);
    for (uint32_t k = 0; k < gather->inputs_count; k++) {
        if ((event.u.encoded.refused >> k & 1) != 0) continue;
        taken[count] = request->contents[k];
        tokens[count++] = gather->inputs[k].tokens;
    }
    const struct tw_sim_content *whole =
        tw_sim_model_reduce(&world->contents, taken, tokens, count, (uint64_t)dims * TW_PART_ALIGN);
    event.ok &= whole != NULL;
    for (uint32_t k = 0; k < gather->parts_count && event.ok; k++) {
        float part[TW_SIM_FRAGMENT_DIMS_MAX];
        const uint32_t first = (uint32_t)(gather->parts[k].begin / TW_PART_ALIGN);
        const uint32_t n = (uint32_t)(gather->parts[k].count / TW_PART_ALIGN);
        memcpy(part, tw_sim_delta_of(whole, dims) + first * sizeof(float), n * sizeof(float));
        const struct tw_sim_content *content = tw_sim_delta_put(&world->contents, part, n);
        event.u.encoded.hashes[k] = content->hash;
        event.u.encoded.bytes[k] = tw_sim_content_wire_bytes(content, world->options.bytes_per_dim);
    }
    tw_sim_worker_tell(world, node, &event, is_mute);
}

bool tw_sim_is_idler(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return node->idx >= world->nodes_count - world->options.idlers_count;
}

/* Scores as measured with real trainers (tests/RECORDS.md): 3.6 for a share of a half with a
 * standard deviation of 1.4, and about 0 for work of other data. */
static void judge(struct tw_sim_world *world, struct tw_sim_node *node,
                  const struct tw_action *action, bool is_mute) {
    const struct tw_sim_node *of = world->nodes;
    while (tw_get_u64(of->id.bytes) != action->u.judge.seed) of++;
    uint64_t state = action->u.judge.draw;
    int64_t score = tw_sim_is_idler(world, of) ? 0 : 3600;
    for (unsigned i = 0; i < 12; i++) score += (int64_t)(tw_splitmix64(&state) % 1401) - 700;
    struct tw_event event = {.kind = TW_EV_JUDGED, .ok = true};
    event.u.judged.round = action->u.judge.round;
    event.u.judged.score = (int32_t)score;
    event.u.judged.share = 500;
    world->result->checks++;
    tw_sim_worker_tell(world, node, &event, is_mute);
}

void tw_sim_worker_publish(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_sim_request *request, struct tw_event *event,
                           uint64_t rounds, bool is_mute) {
    struct tw_sim_worker *worker = &node->worker;
    const uint32_t fragment = event->u.applied.fragment;
    const uint64_t before = worker->replica.fragment_rounds[fragment];
    worker->replica.fragment_rounds[fragment] = rounds;
    worker->replica.digests[fragment] =
        tw_sim_replica_digest(&world->model, &worker->replica, fragment);
    tw_sim_check_memory(world, node, request, fragment, before);
    event->ok = true;
    event->u.applied.rounds = rounds;
    event->u.applied.digest = worker->replica.digests[fragment];
    tw_sim_worker_tell(world, node, event, is_mute);
}

static void publish_fragment(struct tw_sim_world *world, struct tw_sim_node *node,
                             const struct tw_sim_request *request, uint32_t fragment,
                             uint64_t rounds, bool is_mute) {
    struct tw_event event = {.kind = TW_EV_APPLIED};
    event.u.applied.fragment = fragment;
    tw_sim_worker_publish(world, node, request, &event, rounds, is_mute);
}

static void apply(struct tw_sim_world *world, struct tw_sim_node *node,
                  const struct tw_sim_request *request, bool is_mute) {
    const struct tw_action *action = &request->action;
    const uint32_t fragment = action->u.apply.fragment;
    tw_sim_check_theta(world, node, action);
    for (uint32_t k = 0; k < action->u.apply.parts_count; k++) {
        if (!tw_sim_replica_apply(&world->model, &node->worker.replica, fragment,
                                  &action->u.apply.parts[k], request->contents[k],
                                  action->u.apply.is_final)) {
            tw_sim_fail(world, node, "11", "part %u of round %llu has another length", k,
                        (unsigned long long)action->u.apply.round);
            return;
        }
    }
    note_applied(world, node, request);
    publish_fragment(world, node, request, fragment, action->u.apply.round + 1, is_mute);
}

/* The last step of a move to another lineage: theta := phi, of all fragments. */
static void finish_move(struct tw_sim_world *world, struct tw_sim_node *node, bool is_mute) {
    struct tw_sim_replica *replica = &node->worker.replica;
    for (uint32_t f = 0; f < world->model.fragments_count; f++) {
        tw_sim_outbox_clear(&world->model, replica, &node->worker.outbox, f, false);
        note_begun(&node->worker, f);
    }
    tw_sim_replica_turn(&world->model, replica);
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
    event.u.applied.rounds = replica->fragment_rounds[0];
    event.u.applied.digest = replica->digests[0];
    tw_sim_worker_tell(world, node, &event, is_mute);
}

static void load(struct tw_sim_world *world, struct tw_sim_node *node,
                 const struct tw_sim_request *request, bool is_mute) {
    const struct tw_action *action = &request->action;
    const uint32_t fragment = action->u.load.fragment;
    const struct tw_sim_content *content = request->contents[0];
    tw_sim_outbox_clear(&world->model, &node->worker.replica, &node->worker.outbox, fragment,
                        false);
    if (action->u.load.mode == TW_LOAD_BACK) {
        tw_sim_replica_solo(&world->model, &node->worker.replica, fragment);
        node->worker.begun[fragment].is_known =
            false; /* the step in progress may have ended since the request */
        publish_fragment(world, node, request, fragment, action->u.load.rounds, is_mute);
        return;
    }
    if (content == NULL &&
        !tw_id_equal(&node->worker.replica.digests[fragment], &action->u.load.digest)) {
        struct tw_event event = {.kind = TW_EV_APPLIED};
        event.u.applied.fragment = fragment;
        event.u.applied.rounds = node->worker.replica.fragment_rounds[fragment];
        event.u.applied.digest = node->worker.replica.digests[fragment];
        tw_sim_worker_tell(world, node, &event, is_mute);
        return;
    }
    /* Without content, the worker's own bytes equal those of the lineage that a receiver follows.
     */
    if (content != NULL || !request->is_alone)
        node->worker.replica.phi_of[fragment] = request->lineage;
    if (!tw_sim_replica_load(&world->model, &node->worker.replica, fragment, content,
                             action->u.load.mode)) {
        tw_sim_fail(world, node, "11", "state of fragment %u has another length", fragment);
        return;
    }
    world->result->loads++;
    tw_sim_trace(world, node, "loads fragment %u after %llu rounds", fragment,
                 (unsigned long long)action->u.load.rounds);
    note_begun(&node->worker, fragment);
    node->worker.begun[fragment].is_known = action->u.load.mode == TW_LOAD_RESET;
    publish_fragment(world, node, request, fragment, action->u.load.rounds, is_mute);
    if (!tw_id_equal(&node->worker.replica.digests[fragment], &action->u.load.digest)) {
        tw_sim_fail(world, node, "G2",
                    "loaded state of fragment %u does not have the announced digest", fragment);
    }
}

static void export(struct tw_sim_world *world, struct tw_sim_node *node,
                   const struct tw_action *action, bool is_mute) {
    const uint32_t fragment = action->u.export.fragment;
    const struct tw_sim_content *content =
        tw_sim_replica_export(&world->model, &world->contents, &node->worker.replica, fragment);
    content = tw_sim_treason_export(world, node, fragment, content);
    struct tw_event event = {.kind = TW_EV_EXPORTED, .ok = true};
    event.u.exported.fragment = fragment;
    event.u.exported.rounds = node->worker.replica.fragment_rounds[fragment];
    event.u.exported.digest = node->worker.replica.digests[fragment];
    event.u.exported.hash = content->hash;
    event.u.exported.bytes = tw_sim_content_wire_bytes(content, world->options.bytes_per_dim);
    tw_sim_worker_tell(world, node, &event, is_mute);
}

static void serve(struct tw_sim_world *world, struct tw_sim_node *node,
                  const struct tw_sim_request *request, bool is_mute) {
    const struct tw_action *action = &request->action;
    switch ((int)action->kind) {
    case TW_ACT_ENCODE: encode(world, node, action, is_mute); break;
    case TW_ACT_REDUCE: reduce(world, node, request, is_mute); break;
    case TW_ACT_APPLY: apply(world, node, request, is_mute); break;
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY: tw_sim_worker_pair(world, node, request, is_mute); break;
    case TW_ACT_SOLO:
        tw_sim_outbox_clear(&world->model, &node->worker.replica, &node->worker.outbox,
                            action->u.solo.fragment, true);
        tw_sim_replica_solo(&world->model, &node->worker.replica, action->u.solo.fragment);
        /* A step may have ended since the request, so the start of Delta is uncertain. */
        node->worker.begun[action->u.solo.fragment].is_known = false;
        publish_fragment(world, node, request, action->u.solo.fragment, action->u.solo.round + 1,
                         is_mute);
        break;
    case TW_ACT_EXPORT: export(world, node, action, is_mute); break;
    case TW_ACT_GATHER: gather(world, node, request, is_mute); break;
    case TW_ACT_JUDGE: judge(world, node, action, is_mute); break;
    case TW_ACT_LOAD:
        if (action->u.load.mode == TW_LOAD_TURN) {
            finish_move(world, node, is_mute);
        } else {
            load(world, node, request, is_mute);
        }
        break;
    default: TW_NEVER("not a request");
    }
}

static uint32_t fragment_of(const struct tw_action *action) {
    switch ((int)action->kind) {
    case TW_ACT_ENCODE: return action->u.encode.fragment;
    case TW_ACT_APPLY: return action->u.apply.fragment;
    case TW_ACT_SOLO: return action->u.solo.fragment;
    case TW_ACT_PAIR_ENCODE: return action->u.pair_encode.fragment;
    case TW_ACT_PAIR_APPLY: return action->u.pair_apply.fragment;
    case TW_ACT_EXPORT: return action->u.export.fragment;
    default: return action->u.load.fragment;
    }
}

/* Returns whether the request must wait for a later step. */
static bool is_early(const struct tw_sim_world *world, const struct tw_sim_node *node,
                     const struct tw_action *action) {
    const struct tw_sim_worker *worker = &node->worker;
    if (worker->is_finished || tw_sim_role(world, node) != TW_NODE_ROLE_TRAIN) return false;
    if (action->kind == TW_ACT_APPLY) return action->u.apply.min_step > worker->step;
    return action->kind == TW_ACT_PAIR_APPLY && action->u.pair_apply.min_step > worker->step;
}

/* Between two steps: answers the waiting requests in order. An APPLY that is early keeps waiting,
 * and so do later requests for the same fragment. */
static void serve_requests(struct tw_sim_world *world, struct tw_sim_node *node, bool is_mute) {
    struct tw_sim_worker *worker = &node->worker;
    uint64_t held = 0; /* bit set of fragments with an APPLY that keeps waiting */
    struct tw_sim_request **place = &worker->head;
    worker->tail = NULL;
    while (*place != NULL) {
        struct tw_sim_request *request = *place;
        const struct tw_action *action = &request->action;
        const uint64_t bit = (uint64_t)1 << fragment_of(action);
        if (is_early(world, node, action) || (held & bit) != 0) {
            held |= bit;
            worker->tail = request;
            place = &request->next;
            continue;
        }
        *place = request->next;
        if (!world->result->is_failed) serve(world, node, request, is_mute);
        free(request);
    }
}

/* Pins the payloads that the request names until it is answered. */
static void pin_payloads(struct tw_sim_world *world, struct tw_sim_node *node,
                         struct tw_sim_request *request) {
    const struct tw_action *action = &request->action;
    if (action->kind == TW_ACT_REDUCE) {
        for (uint32_t k = 0; k < action->u.reduce.inputs_count; k++) {
            request->contents[k] = content_of(world, node, &action->inputs[k], "REDUCE");
        }
    } else if (action->kind == TW_ACT_GATHER) {
        for (uint32_t k = 0; k < action->u.gather.inputs_count; k++)
            request->contents[k] = content_of(world, node, &action->inputs[k], "GATHER");
    } else if (action->kind == TW_ACT_JUDGE) {
        for (uint32_t k = 0; k < action->u.judge.parts_count; k++) {
            if (action->u.judge.parts[k].count == 0) continue;
            request->contents[k] = content_of(world, node, &action->inputs[k], "JUDGE");
        }
    } else if (action->kind == TW_ACT_APPLY) {
        for (uint32_t k = 0; k < action->u.apply.parts_count; k++) {
            if (action->u.apply.parts[k].mode == TW_APPLY_ABSENT) continue;
            request->contents[k] = content_of(world, node, &action->inputs[k], "APPLY");
        }
    } else if (action->kind == TW_ACT_PAIR_APPLY && !action->u.pair_apply.is_alone) {
        for (unsigned k = 0; k < TW_PAIR_PAYLOADS; k++) {
            request->contents[k] = content_of(world, node, &action->inputs[k], "PAIR_APPLY");
            request->contents[TW_PAIR_PAYLOADS + k] =
                content_of(world, node, &action->inputs[TW_PAIR_THEIRS + k], "PAIR_APPLY");
        }
    } else if (action->kind == TW_ACT_LOAD && !tw_id_is_zero(&action->inputs[0])) {
        request->contents[0] = content_of(world, node, &action->inputs[0], "LOAD");
    }
}

void tw_sim_worker_ask(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action) {
    struct tw_sim_worker *worker = &node->worker;
    if (action->kind == TW_ACT_CLOCK) {
        worker->clock_tokens = action->u.clock.clock_tokens;
        worker->tokens_listed = action->u.clock.tokens_listed;
        worker->contributors = action->u.clock.contributors;
        return;
    }
    if (action->kind == TW_ACT_FINISH) {
        worker->is_finished = !action->u.finish.goes_on;
        tw_sim_push(world, world->now_us + POLL_US, TW_SIM_TIMER_STEP, node->idx,
                    worker->is_finished ? 1 : 0, worker->life, NULL);
        return;
    }
    if (!node->core_sees_worker) {
        tw_sim_fail(world, node, "12", "a request while no worker is attached");
        return;
    }
    if (!worker->is_up) return; /* the worker died, and WORKER_DOWN is on its way */
    struct tw_sim_request *request = calloc(1, sizeof *request);
    TW_ASSERT(request != NULL);
    request->lineage = node->lineage;
    request->is_alone = node->state == TW_STATE_SOLO;
    request->action = *action;
    pin_payloads(world, node, request);
    /* REDUCE is handled between steps, as in worker/loop/step_server.h, and JUDGE waits for none.
     */
    if (action->kind == TW_ACT_REDUCE || action->kind == TW_ACT_JUDGE ||
        action->kind == TW_ACT_GATHER) {
        if (!world->result->is_failed) serve(world, node, request, false);
        free(request);
        return;
    }
    if (worker->head == NULL) {
        worker->head = request;
    } else {
        worker->tail->next = request;
    }
    worker->tail = request;
    if (worker->is_finished) {
        tw_sim_push(world, world->now_us + POLL_US, TW_SIM_TIMER_STEP, node->idx, 1, worker->life,
                    NULL);
    }
}

static void answer_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                          struct tw_sim_payload *payload) {
    bool ok =
        !payload->is_corrupt && payload->content != NULL &&
        tw_id_equal(&payload->content->hash, &payload->hash) &&
        tw_sim_content_wire_bytes(payload->content, world->options.bytes_per_dim) == payload->bytes;
    struct tw_event event = {.kind = TW_EV_VERIFIED};
    if (ok && payload->elements != 0) {
        ok = tw_sim_content_check(payload->content, payload->elements) ||
             tw_sim_content_is_phi(payload->content, payload->elements);
        if (!ok) event.u.chunk.is_unfit = true;
    }
    if (ok && payload->content_kind == TW_CONTENT_RESULT) {
        event.u.chunk.sanity = tw_sim_sanity(world, node, &payload->hash);
    }
    payload->is_verified = ok;
    if (!ok && !event.u.chunk.is_unfit) payload->chunks = 0;
    payload->is_corrupt = false;
    event.ok = ok;
    event.u.chunk.hash = payload->hash;
    tw_sim_worker_tell(world, node, &event, false);
}

void tw_sim_worker_refuse(struct tw_sim_world *world, struct tw_sim_node *node,
                          const struct tw_id *hash) {
    struct tw_event event = {.kind = TW_EV_VERIFIED};
    event.u.chunk.hash = *hash;
    tw_sim_worker_tell(world, node, &event, false);
}

void tw_sim_worker_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                          struct tw_sim_payload *payload, const struct tw_action *action) {
    payload->elements = action->u.payload.elements;
    payload->content_kind = action->u.payload.content;
    /* Nothing is answered before WORKER_UP reaches the core, because the core then asks again. */
    if (payload->elements == 0 || (node->worker.is_up && node->core_sees_worker))
        answer_verify(world, node, payload);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void forget_requests(struct tw_sim_worker *worker) {
    while (worker->head != NULL) {
        struct tw_sim_request *request = worker->head;
        worker->head = request->next;
        free(request);
    }
    worker->tail = NULL;
}

static uint64_t step_us(const struct tw_sim_world *world, struct tw_sim_node *node) {
    const double us = (double)world->options.step_us / node->speed * node->slow;
    return (uint64_t)(us * (0.95 + 0.1 * tw_rng_unit(&node->rng))) + 1;
}

static void take_snapshot(struct tw_sim_world *world, struct tw_sim_worker *worker) {
    worker->snapshot.step = worker->step;
    worker->snapshot.tokens = worker->tokens;
    const size_t bytes = world->model.dims_count * sizeof(float);
    memcpy(worker->snapshot.theta, worker->replica.theta, bytes);
    memcpy(worker->snapshot.fragment_rounds, worker->replica.fragment_rounds,
           sizeof worker->snapshot.fragment_rounds);
}

/* The first worker of a daemon's life starts from its checkpoint, later ones from the snapshot. */
static void restore_state(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_worker *worker = &node->worker;
    worker->outbox = (struct tw_sim_outbox){0};
    memset(worker->begun, 0, sizeof worker->begun);
    memset(worker->sent, 0, sizeof worker->sent);
    if (!worker->has_memory) {
        worker->has_memory = true;
        if (node->disk.checkpoint.is_there) {
            worker->step = node->disk.checkpoint.step;
            worker->tokens = node->disk.checkpoint.tokens;
            worker->replica = node->disk.checkpoint.replica;
        } else {
            worker->step = worker->tokens = 0;
            tw_sim_replica_init(&world->model, &worker->replica,
                                world->options.has_own_starts ? node->idx + 1 : 0);
        }
        take_snapshot(world, worker);
        return;
    }
    worker->step = worker->snapshot.step;
    worker->tokens = worker->snapshot.tokens;
    const uint32_t n = world->model.dims_per_fragment;
    for (uint32_t f = 0; f < world->model.fragments_count; f++) {
        const bool is_same =
            worker->snapshot.fragment_rounds[f] == worker->replica.fragment_rounds[f];
        const float *from = is_same ? worker->snapshot.theta : worker->replica.phi;
        memcpy(worker->replica.theta + f * n, from + f * n, n * sizeof(float));
        /* During a move between lineages, a restored theta may be phi of the new lineage. This is
         * the exception that sync/DESIGN.md allows ("A model belongs to one lineage"). */
        worker->replica.theta_of[f] = worker->replica.theta_of[0];
    }
}

void tw_sim_worker_start(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_worker *worker = &node->worker;
    if (worker->is_up) return;
    restore_state(world, node);
    worker->is_up = true;
    worker->life++;
    struct tw_event event = {.kind = TW_EV_WORKER_UP};
    struct tw_worker_state state = {.step = worker->step, .tokens = worker->tokens};
    event.u.worker = &state;
    for (uint32_t f = 0; f < world->model.fragments_count; f++) {
        state.fragment_rounds[f] = worker->replica.fragment_rounds[f];
        state.fragment_digests[f] = worker->replica.digests[f];
    }
    tw_sim_worker_tell(world, node, &event, false);
    tw_sim_trace(world, node, "worker starts at step %llu", (unsigned long long)worker->step);
    tw_sim_push(world, world->now_us + step_us(world, node), TW_SIM_TIMER_STEP, node->idx, 0,
                worker->life, NULL);
}

void tw_sim_worker_end(struct tw_sim_node *node) {
    struct tw_sim_worker *worker = &node->worker;
    forget_requests(worker);
    worker->is_up = worker->is_finished = false;
    worker->has_memory = false; /* the shared memory ends with the daemon */
    worker->told_us = 0;
    worker->life++;
}

void tw_sim_worker_crash(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_worker *worker = &node->worker;
    if (!worker->is_up) return;
    tw_sim_trace(world, node, "worker crashes at step %llu", (unsigned long long)worker->step);
    /* The worker may have published (phi, u) and died before it answered. */
    if (tw_rng_below(&node->rng, 4) == 0) serve_requests(world, node, true);
    forget_requests(worker);
    worker->is_up = false;
    worker->life++;
    const struct tw_event event = {.kind = TW_EV_WORKER_DOWN};
    tw_sim_worker_tell(world, node, &event, false);
    tw_sim_push(world, worker->told_us + 1000 + tw_sim_exponential_us(&node->rng, RESTART_US),
                TW_SIM_TIMER_WORKER_UP, node->idx, 0, node->life, NULL);
}

static void take_step(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_worker *worker = &node->worker;
    uint64_t clock = worker->clock_tokens;
    tw_sim_check_model(world, node);
    if (worker->tokens > worker->tokens_listed) {
        clock += (worker->tokens - worker->tokens_listed) *
                 (worker->contributors > 0 ? worker->contributors : 1);
    }
    tw_sim_model_step(&world->model, &worker->replica, worker->target, clock, &node->rng);
    worker->step++;
    worker->tokens += world->options.tokens_per_step;
    node->tokens_ever += world->options.tokens_per_step;
    world->result->steps++;
    if (worker->step % world->options.snapshot_steps == 0) take_snapshot(world, worker);
    struct tw_event event = {.kind = TW_EV_STEP};
    event.u.step.step = worker->step;
    event.u.step.tokens = worker->tokens;
    tw_sim_worker_tell(world, node, &event, false);
}

void tw_sim_worker_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    struct tw_sim_node *node = &world->nodes[timer->a];
    if (!node->is_running) return;
    if (timer->kind == TW_SIM_TIMER_WORKER_UP) {
        if (timer->life == node->life) tw_sim_worker_start(world, node);
        return;
    }
    if (timer->life != node->worker.life) return;
    const bool is_poll = timer->b == 1;
    const bool trains = tw_sim_role(world, node) == TW_NODE_ROLE_TRAIN;
    if (!node->worker.is_finished && !is_poll && trains) take_step(world, node);
    serve_requests(world, node, false);
    if (node->worker.is_finished || is_poll) return;
    tw_sim_push(world, world->now_us + step_us(world, node), TW_SIM_TIMER_STEP, node->idx, 0,
                node->worker.life, NULL);
}
