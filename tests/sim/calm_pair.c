/* calm_pair.c - checks at the end of a run in pairs: each node trains, merges with others at the
 * planned pace, and its clock is near the clocks of the others. */
#include <inttypes.h>
#include <math.h>

#include "tests/sim/world.h"

/* Each node runs, and is solo or finished. */
static void check_states(struct tw_sim_world *world) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running) {
            tw_sim_fail(world, node, "calm", "is still down");
        } else if (node->state != TW_STATE_SOLO && node->state != TW_STATE_FINISHED) {
            tw_sim_fail(world, node, "calm", "is still adopting the state of another node");
        }
    }
}

/* No clock is so far behind that its node would adopt another's state. The greatest clock is near
 * the number of tokens that all nodes trained. */
static void check_clocks(struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    const uint64_t slack = 3 * (uint64_t)options->period_steps * options->fragments_count *
                           options->tokens_per_step * (1 + world->nodes_count);
    const uint64_t greatest = world->result->clock_tokens;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        tw_node_view(world->nodes[i].core, world->view);
        if (world->view->clock_tokens + slack < greatest / 2) {
            tw_sim_fail(world, &world->nodes[i], "calm",
                        "its clock is at %" PRIu64 ", that of another at %" PRIu64,
                        world->view->clock_tokens, greatest);
        }
        if (world->nodes[i].was_finished && world->view->state != TW_STATE_FINISHED) {
            tw_sim_fail(world, &world->nodes[i], "calm", "goes on after the end");
        }
    }
    if (greatest > world->result->tokens + world->result->tokens / 2 + slack) {
        tw_sim_fail(world, NULL, "P4", "a clock at %" PRIu64 " of %" PRIu64 " tokens trained",
                    greatest, world->result->tokens);
    }
}

static void check_progress(struct tw_sim_world *world) {
    const double half_us = (double)world->options.calm_us / 2;
    const double wanted = half_us / tw_sim_calm_round_us(world) - 2;
    bool is_finishing = false;
    for (uint32_t i = 0; i < world->nodes_count; i++)
        is_finishing |= world->nodes[i].worker.is_finished;
    if (is_finishing || !world->is_calm_noted) return;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        tw_node_view(node->core, world->view);
        const uint64_t rounds = world->view->rounds - node->calm_rounds;
        if ((double)rounds < wanted) {
            tw_sim_fail(world, node, "calm", "%" PRIu64 " rounds in %.0f s, at least %.0f wanted",
                        rounds, half_us / 1e6, wanted);
        }
        if (wanted < 8 || world->nodes_count == 1 || tw_sim_is_liar(world, node)) continue;
        if (world->view->pairs.merged == node->calm_merged) {
            tw_sim_fail(world, node, "calm", "has merged with no other node in %" PRIu64 " rounds",
                        rounds);
        }
    }
}

/* Returns the rms distance of phi from the mean phi, over nodes and dims. */
static double consensus(const struct tw_sim_world *world) {
    double sum = 0;
    for (uint32_t d = 0; d < world->model.dims_count; d++) {
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < world->nodes_count; i++) {
            const double phi = (double)world->nodes[i].worker.replica.phi[d];
            mean += phi / world->nodes_count;
            squares += phi * phi / world->nodes_count;
        }
        sum += fmax(squares - mean * mean, 0);
    }
    return sqrt(sum / world->model.dims_count);
}

void tw_sim_calm_pair_end(struct tw_sim_world *world) {
    struct tw_sim_result *result = world->result;
    for (uint32_t i = 0; i < world->nodes_count; i++) result->tokens += world->nodes[i].tokens_ever;
    result->consensus_end = consensus(world);
    check_states(world);
    if (!result->is_failed) check_clocks(world);
    if (!result->is_failed) check_progress(world);
}
