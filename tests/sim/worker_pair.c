/* worker_pair.c - the requests to a worker in a run in pairs. */
#include "base/assert.h"
#include "tests/sim/world.h"

static void encode(struct tw_sim_world *world, struct tw_sim_node *node,
                   const struct tw_action *action, bool is_mute) {
    struct tw_sim_worker *worker = &node->worker;
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = !tw_sim_node_refuses(node)};
    event.u.encoded.round = action->u.pair_encode.round;
    event.u.encoded.step = worker->step;
    event.u.encoded.tokens = worker->tokens;
    event.u.encoded.parts_count = TW_PAIR_PAYLOADS;
    const struct tw_sim_content *made[TW_PAIR_PAYLOADS];
    if (event.ok) {
        tw_sim_outbox_encode(&world->model, &world->contents, &worker->replica, &worker->outbox,
                             action->u.pair_encode.fragment, action->u.pair_encode.round,
                             action->u.pair_encode.is_whole, made);
    }
    for (unsigned k = 0; event.ok && k < TW_PAIR_PAYLOADS; k++) {
        if (tw_sim_is_liar(world, node))
            made[k] = tw_sim_lie_pair(world, node, action->u.pair_encode.round, k, made[k]);
        event.u.encoded.hashes[k] = made[k]->hash;
        event.u.encoded.bytes[k] = tw_sim_content_wire_bytes(made[k], world->options.bytes_per_dim);
    }
    tw_sim_worker_tell(world, node, &event, is_mute);
}

static void apply(struct tw_sim_world *world, struct tw_sim_node *node,
                  const struct tw_sim_request *request, bool is_mute) {
    const struct tw_action *action = &request->action;
    struct tw_sim_worker *worker = &node->worker;
    const uint32_t fragment = action->u.pair_apply.fragment;
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = !tw_sim_node_refuses(node)};
    event.u.applied.fragment = fragment;
    event.u.applied.rounds = worker->replica.fragment_rounds[fragment];
    event.u.applied.digest = worker->replica.digests[fragment];
    if (!event.ok) {
        tw_sim_worker_tell(world, node, &event, is_mute);
        return;
    }
    double moved[TW_SIM_FRAGMENT_DIMS_MAX];
    enum tw_sim_merged merged = TW_SIM_MERGED_NOT;
    if (!action->u.pair_apply.is_alone &&
        tw_sim_is_liar(world, node)) { /* a liar steps alone and reports a merge */
        tw_sim_outbox_alone(&world->model, &worker->replica, &worker->outbox, action);
        tw_sim_lie_desert(world, node, action->u.pair_apply.round);
        tw_sim_worker_publish(world, node, request, &event, action->u.pair_apply.round + 1,
                              is_mute);
        return;
    }
    if (!action->u.pair_apply.is_alone) {
        merged =
            tw_sim_outbox_merge(&world->model, &worker->replica, &worker->outbox, action,
                                request->contents, request->contents + TW_PAIR_PAYLOADS, moved);
    }
    if (merged == TW_SIM_MERGED_WRONG) {
        tw_sim_fail(world, node, "P3", "merges payloads that it did not encode in round %llu",
                    (unsigned long long)action->u.pair_apply.round);
        return;
    }
    if (merged == TW_SIM_MERGED) {
        tw_sim_check_merged(world, node, moved);
    } else {
        tw_sim_outbox_alone(&world->model, &worker->replica, &worker->outbox, action);
    }
    event.u.applied.is_outlier = merged == TW_SIM_MERGED_OUTLIER;
    event.u.applied.is_alone = !action->u.pair_apply.is_alone &&
                               (merged == TW_SIM_MERGED_NOT || event.u.applied.is_outlier);
    world->result->phis_unread += event.u.applied.is_alone;
    tw_sim_worker_publish(world, node, request, &event, action->u.pair_apply.round + 1, is_mute);
}

void tw_sim_worker_pair(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_sim_request *request, bool is_mute) {
    if (request->action.kind == TW_ACT_PAIR_ENCODE) {
        encode(world, node, &request->action, is_mute);
    } else {
        TW_ASSERT(request->action.kind == TW_ACT_PAIR_APPLY);
        apply(world, node, request, is_mute);
    }
}
