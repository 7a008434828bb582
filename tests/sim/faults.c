/* faults.c - injects the classes of faults that the seed enabled, at their rates, until the calm.
 */
#include <math.h>

#include "base/assert.h"
#include "tests/sim/world.h"

enum { SECOND_US = 1000 * 1000, SETTLE_US = 5 * SECOND_US, POWER_PATIENCE_US = 45 * SECOND_US };

static uint64_t outage_us(struct tw_sim_world *world) {
    return tw_sim_exponential_us(&world->rng, (double)world->options.outage_us) + SECOND_US / 10;
}

static void schedule_fault(struct tw_sim_world *world, enum tw_sim_fault fault) {
    const double per_hour = world->options.fault_per_hour[fault] * world->nodes_count;
    const uint64_t wait_us = tw_sim_exponential_us(&world->rng, 3600.0 * SECOND_US / per_hour);
    if (world->now_us + wait_us >= world->options.chaos_us) return;
    tw_sim_push(world, world->now_us + wait_us, TW_SIM_TIMER_FAULT, (uint32_t)fault, 0, 0, NULL);
}

static void start_later(struct tw_sim_world *world, struct tw_sim_node *node, uint64_t wait_us) {
    tw_sim_push(world, world->now_us + wait_us, TW_SIM_TIMER_START, node->idx, 0, 0, NULL);
}

static void heal_later(struct tw_sim_world *world, enum tw_sim_fault fault, uint32_t what) {
    tw_sim_push(world, world->now_us + outage_us(world), TW_SIM_TIMER_HEAL, (uint32_t)fault, what,
                0, NULL);
}

static void stall_node(struct tw_sim_world *world, struct tw_sim_node *node) {
    node->stalled_until_us = world->now_us + outage_us(world);
    /* The stall ends with the chaos at the latest, because delayed timers cannot be moved forward.
     */
    if (node->stalled_until_us > world->options.chaos_us) {
        node->stalled_until_us = world->options.chaos_us;
    }
    node->is_worker_stalled = tw_rng_below(&world->rng, 2) == 0;
    tw_sim_trace(world, node, "stops responding until %.1f s%s",
                 (double)node->stalled_until_us / SECOND_US,
                 node->is_worker_stalled ? ", worker too" : "");
}

static void split_network(struct tw_sim_world *world) {
    const uint64_t kind = tw_rng_below(&world->rng, 3);
    const uint32_t alone = (uint32_t)tw_rng_below(&world->rng, world->nodes_count);
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        world->nodes[i].side =
            kind == 0 ? (uint8_t)(i == alone) : (uint8_t)tw_rng_below(&world->rng, 2);
    }
    world->is_split = true;
    world->is_split_one_way = kind == 2;
    tw_sim_trace(world, NULL, "the network splits%s", kind == 2 ? " one way" : "");
}

/* Injects a fault into this node. Returns false if the node cannot have the fault now. */
static bool inject_node_fault(struct tw_sim_world *world, enum tw_sim_fault fault,
                              struct tw_sim_node *node) {
    if (!node->is_running || node->is_leaving || node->stalled_until_us > world->now_us) {
        return false;
    }
    switch ((int)fault) {
    case TW_SIM_CRASH:
    case TW_SIM_DISK:
        tw_sim_node_crash(world, node, tw_rng_below(&world->rng, 2) == 0);
        if (fault == TW_SIM_DISK) {
            tw_sim_trace(world, node, "loses its disk");
            node->disk = (struct tw_sim_disk){0};
        }
        start_later(world, node, outage_us(world));
        return true;
    case TW_SIM_WORKER:
        if (!node->worker.is_up) return false;
        tw_sim_worker_crash(world, node);
        return true;
    case TW_SIM_STALL: stall_node(world, node); return true;
    case TW_SIM_SLOW:
        if (node->slow > 1) return false;
        node->slow = 2 + 98 * tw_rng_unit(&world->rng) * tw_rng_unit(&world->rng);
        heal_later(world, fault, node->idx);
        return true;
    case TW_SIM_LEAVE:
        tw_sim_node_leave(world, node);
        start_later(world, node, outage_us(world) + SETTLE_US);
        return true;
    case TW_SIM_CORRUPT: node->is_chunk_corrupted = true; return true;
    case TW_SIM_REFUSE: node->refusals = 1 + (uint32_t)tw_rng_below(&world->rng, 3); return true;
    default: TW_NEVER("not a fault of a node");
    }
    return false;
}

static bool inject_network_fault(struct tw_sim_world *world, enum tw_sim_fault fault) {
    if (fault == TW_SIM_LOSS) {
        world->loss_until_us = world->now_us + outage_us(world);
        return true;
    }
    if (world->nodes_count < 2) return false;
    if (fault == TW_SIM_PARTITION) {
        if (world->is_split) return false;
        split_network(world);
        heal_later(world, fault, 0);
        return true;
    }
    const uint32_t low = (uint32_t)tw_rng_below(&world->rng, world->nodes_count);
    const uint32_t high = (uint32_t)tw_rng_below(&world->rng, world->nodes_count);
    if (low == high) return false;
    struct tw_sim_link *link = tw_sim_link_of(world, low, high);
    if (link == NULL) return false;
    if (fault == TW_SIM_RESET) {
        if (!link->ends[0].is_up && !link->ends[1].is_up) return false;
        tw_sim_net_reset(world, link);
        return true;
    }
    const uint32_t end = (uint32_t)tw_rng_below(&world->rng, 2);
    link->blocks[end]++;
    heal_later(world, fault, (uint32_t)(link - world->links) * 2 + end);
    return true;
}

/* Returns the run clock of the node's checkpoint. */
static uint64_t saved_tokens(const struct tw_sim_node *node) {
    const struct tw_position *const position = &node->disk.checkpoint.position;
    return position->has_tip != 0 ? position->tip.clock_tokens : 0;
}

/* Cuts the power of all nodes that vote. They return within some seconds of each other. */
static bool cut_power(struct tw_sim_world *world) {
    uint64_t newest_tokens = 0;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running || node->is_leaving) return false;
    }
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!tw_sim_has_vote(world, i)) continue;
        tw_sim_node_crash(world, node, true);
        if (saved_tokens(node) > newest_tokens) newest_tokens = saved_tokens(node);
        start_later(world, node, tw_rng_below(&world->rng, SETTLE_US));
    }
    world->result->power_tokens = newest_tokens;
    tw_sim_push(world, world->now_us + POWER_PATIENCE_US, TW_SIM_TIMER_HEAL, TW_SIM_POWER, 0, 0,
                NULL);
    return true;
}

/* After a power cut, the nodes are one group again, and no checkpoint was in vain: the run clock is
 * not below that of the newest one. */
static void judge_power(struct tw_sim_world *world) {
    uint32_t members = 0;
    uint64_t least_tokens = UINT64_MAX;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running) continue;
        tw_node_view(node->core, world->view);
        members += world->view->state == TW_STATE_MEMBER &&
                   tw_id_equal(&node->lineage, &world->nodes[0].lineage);
        if (world->view->clock_tokens < least_tokens) least_tokens = world->view->clock_tokens;
    }
    world->result->power_recovered +=
        members == world->nodes_count && least_tokens >= world->result->power_tokens;
}

static void inject_fault(struct tw_sim_world *world, enum tw_sim_fault fault) {
    bool has_struck;
    if (fault == TW_SIM_POWER) {
        has_struck = cut_power(world);
    } else if (fault == TW_SIM_PARTITION || fault == TW_SIM_ONEWAY || fault == TW_SIM_RESET ||
               fault == TW_SIM_LOSS) {
        has_struck = inject_network_fault(world, fault);
    } else {
        has_struck = inject_node_fault(
            world, fault, &world->nodes[tw_rng_below(&world->rng, world->nodes_count)]);
    }
    if (has_struck) world->result->faults[fault]++;
    schedule_fault(world, fault);
}

/* Notes loss, rounds and lineages of both sides of the fixed split. Node i is on side i % 2. */
static void note_sides(struct tw_sim_world *world, bool is_begin) {
    for (uint32_t side = 0; side < 2; side++) {
        struct tw_sim_side *result = &world->result->sides[side];
        result->loss = INFINITY;
        result->lineages = 0;
        for (uint32_t i = side; i < world->nodes_count; i += 2) {
            const struct tw_sim_node *node = &world->nodes[i];
            if (!node->is_running) continue;
            const double loss = tw_sim_model_loss(&world->model, node->worker.replica.phi);
            if (loss < result->loss) result->loss = loss;
            tw_node_view(node->core, world->view);
            uint64_t *rounds = is_begin ? &result->rounds_before : &result->rounds;
            if (world->view->rounds > *rounds) *rounds = world->view->rounds;
            result->lineages +=
                i == side || !tw_id_equal(&node->lineage, &world->nodes[i - 2].lineage);
        }
    }
}

static void heal_fault(struct tw_sim_world *world, enum tw_sim_fault fault, uint32_t what) {
    if (fault == TW_SIM_POWER) {
        judge_power(world);
    } else if (fault == TW_SIM_SLOW) {
        world->nodes[what].slow = 1;
    } else if (fault == TW_SIM_PARTITION) {
        if (world->options.split_end_us != 0) note_sides(world, false);
        world->is_split = false;
        tw_sim_trace(world, NULL, "the network is whole again");
        tw_sim_net_healed(world);
    } else if (fault == TW_SIM_ONEWAY) {
        uint32_t *blocks = &world->links[what / 2].blocks[what % 2];
        if (*blocks > 0) --*blocks;
        tw_sim_net_healed(world);
    }
}

static void begin_calm(struct tw_sim_world *world) {
    world->is_calm = true;
    world->is_split = false;
    world->loss_until_us = 0;
    tw_sim_trace(world, NULL, "calm");
    for (uint32_t i = 0; i < world->links_count; i++) {
        world->links[i].blocks[0] = world->links[i].blocks[1] = 0;
    }
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        node->slow = 1;
        node->is_chunk_corrupted = false;
        node->refusals = 0;
        if (node->stalled_until_us > world->now_us) node->stalled_until_us = world->now_us;
        start_later(world, node, tw_rng_below(&world->rng, SETTLE_US));
    }
    tw_sim_net_healed(world);
}

static void kill_heads(struct tw_sim_world *world) {
    const uint32_t heads = world->options.heads_count;
    TW_ASSERT(world->options.killed_heads < heads);
    for (uint32_t i = heads - world->options.killed_heads; i < heads; i++) {
        tw_sim_node_crash(world, &world->nodes[i], true);
        start_later(world, &world->nodes[i], 60 * SECOND_US);
        world->result->faults[TW_SIM_CRASH]++;
    }
}

void tw_sim_faults_init(struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) {
        if ((options->faults >> i & 1) != 0 && i != TW_SIM_LATE) {
            schedule_fault(world, (enum tw_sim_fault)i);
        }
    }
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        uint64_t wait_us = tw_rng_below(&world->rng, SETTLE_US);
        if ((options->faults >> TW_SIM_LATE & 1) != 0 && tw_rng_below(&world->rng, 2) == 0) {
            wait_us += tw_rng_below(&world->rng, options->chaos_us / 2);
            world->result->faults[TW_SIM_LATE]++;
        }
        start_later(world, &world->nodes[i], wait_us);
    }
    tw_sim_push(world, options->chaos_us, TW_SIM_TIMER_CALM, 0, 0, 0, NULL);
    if (options->killed_heads > 0)
        tw_sim_push(world, options->kill_us, TW_SIM_TIMER_FAULT, TW_SIM_FAULTS_COUNT + 1, 0, 0,
                    NULL);
    if (options->split_end_us != 0) {
        tw_sim_push(world, options->split_us, TW_SIM_TIMER_FAULT, TW_SIM_FAULTS_COUNT, 0, 0, NULL);
        tw_sim_push(world, options->split_end_us, TW_SIM_TIMER_HEAL, TW_SIM_PARTITION, 0, 0, NULL);
    }
}

void tw_sim_faults_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    if (timer->kind == TW_SIM_TIMER_CALM) {
        begin_calm(world);
    } else if (timer->kind == TW_SIM_TIMER_HEAL) {
        heal_fault(world, (enum tw_sim_fault)timer->a, timer->b);
    } else if (timer->a == TW_SIM_FAULTS_COUNT) {
        note_sides(world, true);
        for (uint32_t i = 0; i < world->nodes_count; i++) world->nodes[i].side = i % 2;
        world->is_split = true;
        world->is_split_one_way = false;
        world->result->faults[TW_SIM_PARTITION]++;
    } else if (timer->a == TW_SIM_FAULTS_COUNT + 1) {
        kill_heads(world);
    } else {
        inject_fault(world, (enum tw_sim_fault)timer->a);
    }
}
