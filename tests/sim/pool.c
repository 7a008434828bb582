/* pool.c - the payloads of one node. No payload is used or served before it is verified. */
#include <string.h>

#include "sync/core/state.h"
#include "sync/transfer/payload.h"
#include "tests/sim/world.h"

static uint64_t prefix_of(const struct tw_id *hash) {
    uint64_t prefix;
    memcpy(&prefix, hash->bytes, sizeof prefix);
    return prefix;
}

struct tw_sim_payload *tw_sim_pool_find(struct tw_sim_node *node, const struct tw_id *hash) {
    const uint64_t prefix = prefix_of(hash);
    for (uint32_t i = 0; i < node->pool_count; i++) {
        if (node->pool_prefix[i] != prefix) continue;
        if (tw_id_equal(&node->pool[i].hash, hash)) return &node->pool[i];
    }
    return NULL;
}

static struct tw_sim_payload *add_payload(struct tw_sim_world *world, struct tw_sim_node *node,
                                          const struct tw_id *hash, uint32_t bytes) {
    if (node->pool_count == TW_SIM_POOL_MAX) {
        tw_sim_fail(world, node, "20", "more than %d payloads", TW_SIM_POOL_MAX);
        return NULL;
    }
    struct tw_sim_payload *payload = &node->pool[node->pool_count];
    node->pool_prefix[node->pool_count++] = prefix_of(hash);
    *payload = (struct tw_sim_payload){.hash = *hash, .bytes = bytes};
    payload->chunks_count = (bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
    if (payload->chunks_count > 64) tw_sim_fail(world, node, "20", "payload of %u bytes", bytes);
    return payload;
}

static bool is_whole(const struct tw_sim_payload *payload) {
    const uint64_t all =
        payload->chunks_count == 64 ? UINT64_MAX : ((uint64_t)1 << payload->chunks_count) - 1;
    return payload->chunks == all;
}

void tw_sim_pool_drop(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_id *hash) {
    struct tw_sim_payload *payload = tw_sim_pool_find(node, hash);
    if (payload == NULL) {
        tw_sim_fail(world, node, "20", "drops a payload that is not in the pool");
        return;
    }
    if (!is_whole(payload))
        world->result->chunks_thrown += (uint64_t)__builtin_popcountll(payload->chunks);
    const uint32_t i = (uint32_t)(payload - node->pool), last = --node->pool_count;
    node->pool[i] = node->pool[last];
    node->pool_prefix[i] = node->pool_prefix[last];
}

/* Adds a payload that the worker made. */
static void hold_payload(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_id *hash, uint32_t bytes) {
    struct tw_sim_payload *payload = tw_sim_pool_find(node, hash);
    if (payload == NULL) payload = add_payload(world, node, hash, bytes);
    if (payload == NULL) return;
    payload->chunks =
        payload->chunks_count == 64 ? UINT64_MAX : ((uint64_t)1 << payload->chunks_count) - 1;
    payload->is_verified = true;
    payload->is_corrupt = payload->is_refused = false;
    payload->content = tw_sim_contents_find(&world->contents, hash);
}

void tw_sim_pool_hold_made(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_event *event) {
    if (!event->ok) return;
    if (event->kind == TW_EV_ENCODED || event->kind == TW_EV_GATHERED) {
        for (uint32_t k = 0; k < event->u.encoded.parts_count; k++) {
            hold_payload(world, node, &event->u.encoded.hashes[k], event->u.encoded.bytes[k]);
        }
    } else if (event->kind == TW_EV_REDUCED) {
        hold_payload(world, node, &event->u.reduced.hash, event->u.reduced.bytes);
    } else if (event->kind == TW_EV_EXPORTED) {
        hold_payload(world, node, &event->u.exported.hash, event->u.exported.bytes);
    }
}

bool tw_sim_node_refuses(struct tw_sim_node *node) {
    if (node->refusals == 0) return false;
    node->refusals--;
    return true;
}

void tw_sim_pool_expect(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    if (action->u.payload.bytes == 0 || action->u.payload.bytes > TW_PAYLOAD_BYTES_MAX) {
        tw_sim_fail(world, node, "20", "expects a payload of %u bytes", action->u.payload.bytes);
    } else if (tw_sim_pool_find(node, &action->u.payload.hash) != NULL) {
        tw_sim_fail(world, node, "20", "expects a payload that is in the pool");
    } else {
        struct tw_sim_payload *payload =
            add_payload(world, node, &action->u.payload.hash, action->u.payload.bytes);
        if (payload != NULL && tw_sim_node_refuses(node)) {
            payload->is_refused = true;
            tw_sim_worker_refuse(world, node, &payload->hash);
        }
    }
    uint32_t arriving = 0;
    for (uint32_t i = 0; i < node->pool_count; i++) arriving += !is_whole(&node->pool[i]);
    if (arriving > TW_TRANSFERS_MAX) {
        tw_sim_fail(world, node, "20", "%u payloads arrive at a time", arriving);
    }
}

void tw_sim_pool_pull(struct tw_sim_world *world, struct tw_sim_node *node,
                      const struct tw_msg_pull *pull) {
    const struct tw_sim_payload *payload = tw_sim_pool_find(node, &pull->hash);
    if (payload == NULL) {
        tw_sim_fail(world, node, "32", "requests chunks of a payload that has no room");
        return;
    }
    for (uint32_t idx = pull->first; idx < pull->first + pull->count && idx < 64; idx++) {
        if ((payload->chunks >> idx & 1) != 0)
            tw_sim_fail(world, node, "32", "requests chunk %u, which is stored", idx);
    }
}

static void note_sent(struct tw_sim_world *world, const struct tw_sim_node *node,
                      const struct tw_sim_payload *payload) {
    const struct payload *known = tw_payload_find(node->core, &payload->hash);
    if (known == NULL || known->content != TW_CONTENT_RESULT) return;
    if (tw_sim_role(world, node) != TW_NODE_ROLE_TRAIN) return;
    world->result->trainer_bytes += payload->bytes / payload->chunks_count;
}

void tw_sim_pool_send_chunk(struct tw_sim_world *world, struct tw_sim_node *node,
                            const struct tw_action *action) {
    const struct tw_sim_payload *payload = tw_sim_pool_find(node, &action->u.payload.hash);
    if (payload == NULL || !is_whole(payload) || !payload->is_verified) {
        tw_sim_fail(world, node, "11", "serves a chunk of a payload that is not held");
    } else if (action->u.payload.idx >= payload->chunks_count) {
        tw_sim_fail(world, node, "11", "serves chunk %u of %u", action->u.payload.idx,
                    payload->chunks_count);
    } else if (!tw_sim_is_withheld(world, node, &payload->hash)) {
        note_sent(world, node, payload);
        tw_sim_net_chunk(world, node, action->peer, payload, action->u.payload.idx);
    }
}

void tw_sim_pool_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                       const struct tw_sim_item *item) {
    struct tw_sim_payload *payload = tw_sim_pool_find(node, &item->hash);
    if (payload == NULL || item->idx >= payload->chunks_count) return; /* no longer expected */
    if (payload->is_refused) return;
    world->result->chunks_again += payload->chunks >> item->idx & 1;
    /* The daemon asks this too: a chunk stored without telling the core would never be requested
     * again. */
    if (!tw_node_wants_chunk(node->core, peer, &item->hash, item->idx)) return;
    payload->chunks |= (uint64_t)1 << item->idx;
    payload->content = item->content;
    if (node->is_chunk_corrupted) payload->is_corrupt = true;
    node->is_chunk_corrupted = false;
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = peer};
    event.u.chunk.hash = item->hash;
    event.u.chunk.idx = item->idx;
    tw_sim_deliver(world, node, &event);
}

void tw_sim_pool_verify(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    struct tw_sim_payload *payload = tw_sim_pool_find(node, &action->u.payload.hash);
    if (payload == NULL || !is_whole(payload)) {
        tw_sim_fail(world, node, "11", "verifies a payload that is not complete");
        return;
    }
    tw_sim_worker_verify(world, node, payload, action);
}
