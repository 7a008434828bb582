/* lie.c - nodes that lie about results, and how the other nodes judge results.
 *
 * A liar has an honest core and a lying worker. As an owner it publishes a false result: far too
 * large, not decodable, or of plausible size, which only an audit can find. It judges every liar's
 * result as fair, and half of the honest results as outliers. As a proposer it thus insists on
 * lies, and as an acceptor it vetoes honest results. Judgement differs between nodes: some honest
 * ones miss a lie, or mistake a good result for an outlier. All this follows from hashes, without a
 * random draw, so worlds without liars stay the same.
 *
 * During the phase with faults, a liar also claims now and then to be in a lineage that nobody
 * founded, far ahead of all others. No node may follow it.
 *
 * A false head has an honest core too. Each second one tells nobody whose work it contributes; the
 * others contribute none but their own. */
#include <math.h>
#include <string.h>

#include "sync/trace/trace.h"
#include "tests/sim/check.h"
#include "tests/sim/world.h"

static const char INVENTED[] = "a lineage that nobody founded";

bool tw_sim_is_false_head(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    const uint32_t heads = world->options.heads_count;
    return node->idx < heads && node->idx >= heads - world->options.false_heads;
}

bool tw_sim_is_liar(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return node->idx >= world->nodes_count - world->options.liars_count;
}

const struct tw_sim_content *tw_sim_lie_make(struct tw_sim_world *world,
                                             const struct tw_sim_content *content) {
    uint8_t bytes[TW_SIM_CONTENT_BYTES_MAX];
    const bool is_nonsense = content->hash.bytes[0] % 4 == 0;
    const bool is_subtle = content->hash.bytes[0] % 4 == 1;
    memcpy(bytes, content->bytes, content->size);
    for (uint32_t at = 8; at + sizeof(float) <= content->size; at += sizeof(float)) {
        float value;
        memcpy(&value, bytes + at, sizeof value);
        value = is_nonsense ? NAN : is_subtle ? 0.9f * value : -10 * value;
        memcpy(bytes + at, &value, sizeof value);
    }
    content = tw_sim_contents_put(&world->contents, bytes, content->size);
    if (is_subtle) return content;
    bool is_new;
    const struct tw_sim_key key = {.id = content->hash};
    *(bool *)tw_sim_map_put(&world->lies, &key, &is_new) = true;
    world->result->lies_told += is_new;
    return content;
}

bool tw_sim_is_lie(const struct tw_sim_world *world, const struct tw_id *result) {
    const struct tw_sim_key key = {.id = *result};
    return tw_sim_map_get(&world->lies, &key) != NULL;
}

enum tw_sanity tw_sim_sanity(const struct tw_sim_world *world, const struct tw_sim_node *node,
                             const struct tw_id *result) {
    if (world->options.liars_count == 0 && !world->options.has_doubt) return TW_SANITY_FAIR;
    const uint64_t draw = tw_trace_mix_id(node->idx, result) >> 32;
    const bool is_lie = tw_sim_is_lie(world, result);
    const uint64_t one_in = world->options.has_doubt ? 8 : 32;
    bool is_outlier = is_lie ? draw % 8 != 0 : draw % one_in == 0;
    if (tw_sim_is_liar(world, node)) is_outlier = !is_lie && draw % 2 == 0;
    return is_outlier ? TW_SANITY_OUTLIER : TW_SANITY_FAIR;
}

/* Returns whether the node boasts now: in one of eight 16 s intervals. */
static bool is_boasting(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    const uint64_t time = world->now_us / (16 * UINT64_C(1000000));
    return world->now_us < world->options.chaos_us && tw_trace_mix(node->idx, time) % 8 == 0;
}

void tw_sim_lie_message(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        struct tw_message *message) {
    if (!tw_sim_is_liar(world, node)) return;
    if (world->options.is_pair) {
        if (message->kind == TW_MSG_PAIR_OFFER)
            message->u.pair_offer.clock_tokens += UINT64_C(1) << 40;
    } else if (message->kind == TW_MSG_STATUS && is_boasting(world, node)) {
        struct tw_msg_status *status = &message->u.status;
        memcpy(status->lineage.bytes, INVENTED, sizeof INVENTED);
        status->lineage.bytes[31] = (uint8_t)node->idx;
        status->state = TW_STATE_MEMBER;
        status->rounds += 1000;
        status->clock_tokens += UINT64_C(1) << 40;
    }
}

bool tw_sim_is_invented(const struct tw_id *lineage) {
    return memcmp(lineage->bytes, INVENTED, sizeof INVENTED) == 0;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Liars have honest cores in runs in pairs too. A hash selects the lie of each round. The payload
 * may be an outer gradient that is not finite or far too large, an anchor far away, or both
 * slightly wrong (which no partner can detect). Or the liar never sends its payloads, or sends
 * PAIR_BUSY after the step. Every offer of a liar also claims a clock in the far future. Its worker
 * steps alone. */

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
