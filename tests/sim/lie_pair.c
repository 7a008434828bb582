/* lie_pair.c - liars in a run in pairs: false payloads and messages for their partners.
 *
 * Liars have honest cores in runs in pairs too. A hash selects the lie of each round. The payload
 * may be an outer gradient that is not finite or far too large, an anchor far away, or both
 * slightly wrong (which no partner can detect). Or the liar never sends its payloads, or sends
 * PAIR_BUSY after the step. Every offer of a liar also claims a clock in the far future (lie.c).
 * Its worker steps alone. */
#include <math.h>
#include <string.h>

#include "sync/trace/trace.h"
#include "tests/sim/check.h"
#include "tests/sim/world.h"

enum lie { LIE_NOT_FINITE, LIE_HUGE, LIE_FAR, LIE_SHIFTED, LIE_WITHHELD, LIE_DESERTED, LIES };

static enum lie lie_of(const struct tw_sim_node *node, uint64_t round) {
    return (enum lie)((tw_trace_mix(tw_trace_mix(node->idx, round), node->life) >> 32) % LIES);
}

static float false_value(enum lie lie, unsigned payload, float value) {
    const bool is_delta = payload == TW_PAIR_DELTA;
    switch ((int)lie) {
    case LIE_NOT_FINITE: return is_delta ? NAN : value;
    case LIE_HUGE: return is_delta ? 1000 * value : value;
    case LIE_FAR: return is_delta ? value : value + 1000;
    case LIE_SHIFTED: return is_delta ? -value : value + 0.5f;
    default: return value;
    }
}

const struct tw_sim_content *tw_sim_lie_pair(struct tw_sim_world *world,
                                             const struct tw_sim_node *node, uint64_t round,
                                             unsigned payload,
                                             const struct tw_sim_content *content) {
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    const enum lie lie = lie_of(node, round);
    memcpy(bytes, content->bytes, content->size);
    for (uint32_t at = 8; at + sizeof(float) <= content->size; at += sizeof(float)) {
        float value;
        memcpy(&value, bytes + at, sizeof value);
        value = false_value(lie, payload, value);
        memcpy(bytes + at, &value, sizeof value);
    }
    content = tw_sim_contents_put(&world->contents, bytes, content->size);
    world->result->lies_told += payload == TW_PAIR_DELTA;
    if (lie != LIE_WITHHELD) return content;
    const struct tw_sim_key key = {.id = content->hash};
    *(bool *)tw_sim_map_put(&world->lies, &key, NULL) = true;
    return content;
}

bool tw_sim_is_withheld(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_id *hash) {
    return world->options.is_pair && tw_sim_is_liar(world, node) && tw_sim_is_lie(world, hash);
}

void tw_sim_lie_desert(struct tw_sim_world *world, struct tw_sim_node *node, uint64_t round) {
    const struct tw_sim_pairing *pairing = &world->check->pairings[node->idx];
    const struct tw_sim_exchange *exchange =
        tw_sim_map_get(&world->check->exchanges, &pairing->merging);
    if (lie_of(node, round) != LIE_DESERTED || exchange == NULL) return;
    const uint32_t other = exchange->nodes[exchange->nodes[0] == node->idx];
    struct tw_message busy = {.kind = TW_MSG_PAIR_BUSY};
    busy.u.pair_busy.pair =
        (struct tw_pair_id){.high = pairing->merging.a, .low = pairing->merging.b};
    for (uint16_t peer = 0; peer < TW_PEERS_MAX; peer++) {
        if (node->link_of_peer[peer] < 0) continue;
        const struct tw_sim_link *link = &world->links[node->link_of_peer[peer]];
        if (link->nodes[0] == other || link->nodes[1] == other)
            tw_sim_net_message(world, node, peer, &busy);
    }
}
