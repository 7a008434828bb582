/* pairs.c - rounds in which two nodes merge with each other. */
#include "tests/bench/quality/pairs.h"

#include "base/rng.h"

bool pairs_is_due(const struct world *world, const struct node *node) {
    const struct tw_run *run = &world->setting->run;
    if (!node->is_alive || node->pair.is_out) return false;
    if (world->is_final) return true;
    return node->steps >= node->last_send_step + run->sync.period / run->sync.fragments;
}

/* Shuffles the `count` nodes of `due`, depending only on the seed and the time. */
static void shuffle(const struct world *world, uint32_t *due, uint32_t count) {
    struct tw_rng rng;
    tw_rng_seed(&rng, world->setting->seed * 1000003 + world->rounds);
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t with = (uint32_t)tw_rng_below(&rng, i), kept = due[i - 1];
        due[i - 1] = due[with];
        due[with] = kept;
    }
}

static void count_traffic(struct world *world, const struct node *node) {
    const uint32_t fragment = (uint32_t)(node->applied % world->layout->fragments_count);
    world->traffic.contributions += traffic_of(node->pair.own_delta.size);
    world->traffic.results += traffic_of(node->pair.own_phi.size);
    world->traffic.control += CONTROL_BYTES;
    world->traffic.coded += node->pair.own_delta.size;
    world->traffic.elements +=
        world->layout->fragment_begin[fragment + 1] - world->layout->fragment_begin[fragment];
}

/* Sends a node's payloads. A diverged node encodes nothing, so its partner is alone. */
static enum tw_status send(struct node *node, struct tw_error *err) {
    const enum tw_status status = node_pair_encode(node, err);
    if (status == TW_OK) return TW_OK;
    if (status != TW_CORRUPT) return status;
    node->skipped++;
    node->last_send_step = node->steps;
    return TW_OK;
}

static bool will_meet(const struct world *world, const struct node *a, const struct node *b) {
    const uint32_t fragments = world->layout->fragments_count;
    return a->applied % fragments == b->applied % fragments &&
           (a->pair.struck >> b->index & 1) == 0 && (b->pair.struck >> a->index & 1) == 0;
}

static void exchange(struct world *world, struct node *a, struct node *b) {
    if (!a->pair.is_out || !b->pair.is_out) return;
    node_pair_take(a, b);
    node_pair_take(b, a);
    count_traffic(world, a);
    count_traffic(world, b);
}

/* In random order, matches each node with the first later one such that both accept. */
static void match(struct world *world, const uint32_t *due, uint32_t count) {
    uint64_t is_taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count && (is_taken >> i & 1) == 0; j++) {
            struct node *a = &world->nodes[due[i]], *b = &world->nodes[due[j]];
            if ((is_taken >> j & 1) != 0 || !will_meet(world, a, b)) continue;
            is_taken |= UINT64_C(1) << i | UINT64_C(1) << j;
            exchange(world, a, b);
        }
    }
}

enum tw_status pairs_meet(struct world *world, struct tw_error *err) {
    uint32_t due[TW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        const bool is_here = world->is_final || node->boundary_us == world->now_us;
        if (is_here && pairs_is_due(world, node)) due[count++] = i;
    }
    if (count == 0) return TW_OK;
    shuffle(world, due, count);
    for (uint32_t i = 0; i < count; i++) TW_TRY(send(&world->nodes[due[i]], err));
    match(world, due, count);
    world->rounds++;
    return TW_OK;
}

enum tw_status pairs_apply(struct world *world, struct node *node, struct tw_error *err) {
    const uint64_t least = node->last_send_step + world->setting->run.sync.overlap;
    bool is_alone = false;
    if (!node->is_alive || !node->pair.is_out) return TW_OK;
    if (!world->is_final && node->steps < least) return TW_OK;
    TW_TRY(node_pair_apply(node, world->is_final, &is_alone, err));
    world->traffic.refused += is_alone;
    return TW_OK;
}
