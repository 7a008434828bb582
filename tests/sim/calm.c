/* calm.c - samples all nodes, and at the end checks the outcome of the calm: one lineage, all nodes
 * members and contributing, rounds at their pace, a low loss. If the budget is spent, all nodes
 * have finished with equal anchors. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/check.h"
#include "tests/sim/world.h"

enum { SECOND_US = 1000 * 1000 };

static bool is_finite(const float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

static bool is_sound(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    const struct tw_sim_replica *replica = &node->worker.replica;
    const uint32_t n = world->model.dims_count;
    return is_finite(replica->theta, n) && is_finite(replica->phi, n) && is_finite(replica->u, n);
}

/* Returns whether an anchor is not finite, in a run where liars were half of a roster. The anchor
 * cannot be encoded, so the nodes never form a group again. */
static bool is_ruined(const struct tw_sim_world *world) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (world->nodes[i].is_running && !is_sound(world, &world->nodes[i]))
            return world->liars_ruled;
    }
    return false;
}

static void sample_node(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_node_view *view = world->view;
    tw_node_view(node->core, view);
    if (view->roster_count > world->options.members_max) {
        tw_sim_fail(world, node, "20", "has a roster of %u members", view->roster_count);
    }
    if (view->alive >= world->nodes_count || view->mixed >= world->nodes_count) {
        tw_sim_fail(world, node, "1", "counts %u alive, %u mixed", view->alive, view->mixed);
    }
    if (!world->liars_ruled && node->worker.is_up && !is_sound(world, node)) {
        tw_sim_fail(world, node, "13", "parameters are not finite");
    }
    if (world->is_calm_noted) return;
    node->calm_rounds = view->rounds;
    node->calm_rounds_contributed = view->rounds_contributed;
    node->calm_merged = view->pairs.merged;
    node->was_finished = view->state == TW_STATE_FINISHED;
}

void tw_sim_calm_sample(struct tw_sim_world *world) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (world->nodes[i].is_running) sample_node(world, &world->nodes[i]);
    }
    const uint64_t middle_us = world->options.chaos_us + world->options.calm_us / 2;
    if (world->now_us >= middle_us) world->is_calm_noted = true;
}

static double slowest_step_us(const struct tw_sim_world *world) {
    double slowest = 0;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        const double us = (double)world->options.step_us / world->nodes[i].speed;
        if (us > slowest) slowest = us;
    }
    return slowest;
}

double tw_sim_calm_round_us(const struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    double us = (double)options->period_steps * slowest_step_us(world);
    if ((double)options->pace_us > us) us = (double)options->pace_us;
    const double bytes = 4.0 * options->dims_per_fragment * options->bytes_per_dim;
    us += bytes / (0.3 * (double)options->upload_bytes_per_s) * 1e6;
    us += 20.0 * (double)(options->latency_us + options->jitter_us);
    return 2 * us + (double)options->grace_us + 4 * slowest_step_us(world);
}

/* A grace period shorter than a node's step may leave that node out for ever. */
static bool is_grace_fair(const struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    const double step_us = slowest_step_us(world);
    const double bytes = (double)options->dims_per_fragment * options->bytes_per_dim;
    const double travel_us = 4.0 * (double)(options->latency_us + options->jitter_us) +
                             bytes / (0.3 * (double)options->upload_bytes_per_s) * 1e6;
    return options->quorum >= options->nodes_count ||
           (double)options->grace_us > 3 * step_us + travel_us;
}

/* A member behind NAT without a link to this node is present by hearsay: other members report links
 * to it. Hearsay expires after eight rounds that do not list the member (sync/core/membership.h).
 * With a short grace period, the member may thus lose its seat until a proposer is linked to it. */
static bool may_lose_seat(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    return node->idx >= world->nodes_count - world->options.homes_count && !is_grace_fair(world);
}

static void check_unity(struct tw_sim_world *world) {
    const struct tw_sim_node *first = NULL;
    uint32_t members = 0, running = 0;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (tw_sim_is_traitor(world, node)) continue;
        if (!node->is_running) {
            tw_sim_fail(world, node, "calm", "is still down");
            continue;
        }
        running++;
        if (first == NULL) first = node;
        if (!tw_id_equal(&node->lineage, &first->lineage)) {
            tw_sim_fail(world, node, "calm", "is in another lineage than node %u", first->idx);
        }
        const bool is_member = node->state == TW_STATE_MEMBER || node->state == TW_STATE_FINISHED ||
                               (node->state == TW_STATE_SOLO && world->nodes_count == 1) ||
                               may_lose_seat(world, node);
        members += is_member;
        running -= !is_member && tw_sim_paths_is_remote(world, i);
    }
    const uint32_t limit = world->options.members_max;
    if (members < (running < limit ? running : limit)) {
        tw_sim_fail(world, NULL, "calm", "%u of %u running nodes are members", members, running);
    }
}

/* Returns whether a peer's contribution entered the anchor in the last 8 rounds. `view.mixed` alone
 * is not enough: with one fragment it covers two rounds, and a peer may be late twice in a row. */
static bool has_mixed(const struct tw_node_view *view) {
    bool is_mixed = view->mixed > 0;
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
        is_mixed |= view->peers[i].is_up && view->peers[i].last_mixed_round + 8 > view->rounds;
    }
    return is_mixed;
}

static void check_progress(struct tw_sim_world *world) {
    const double half_us = (double)world->options.calm_us / 2;
    double wanted = half_us / tw_sim_calm_round_us(world) - 2;
    if (world->options.liars_count + world->options.traitors_count > 0)
        wanted /= 2; /* lying proposals cost ballots, so only half of the rounds are required */
    bool is_finishing = false;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        is_finishing |= world->nodes[i].worker.is_finished;
    }
    if (is_finishing || !world->is_calm_noted) return;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (tw_sim_is_traitor(world, node)) continue;
        tw_node_view(node->core, world->view);
        const uint64_t rounds = world->view->rounds - node->calm_rounds;
        if ((double)rounds < wanted) {
            tw_sim_fail(world, node, "calm", "%" PRIu64 " rounds in %.0f s, at least %.0f wanted",
                        rounds, half_us / 1e6, wanted);
        }
        if (node->state != TW_STATE_MEMBER || wanted < 4 || !is_grace_fair(world)) continue;
        const bool trains = tw_sim_role(world, node) == TW_NODE_ROLE_TRAIN;
        if ((world->view->rounds_contributed == node->calm_rounds_contributed) == trains) {
            tw_sim_fail(world, node, "calm", "has %scontributed to any of %" PRIu64 " rounds",
                        trains ? "not " : "", rounds);
        }
        /* Honest nodes may leave a liar out. */
        if (world->nodes_count > 1 && !tw_sim_is_liar(world, node) && !has_mixed(world->view)) {
            tw_sim_fail(world, node, "calm", "mixes with no other node");
        }
    }
}

/* An owner that a contributor cannot reach merges without it. A slow uplink or a short grace period
 * leaves out a third at most; owners chosen without regard to their links would leave out half. */
static void check_reach(struct tw_sim_world *world) {
    const struct tw_sim_result *result = world->result;
    if (result->calm_listed < 50 || world->options.liars_count > 0) return;
    if (result->calm_missing * 100 > result->calm_listed * 47)
        tw_sim_fail(world, NULL, "calm", "%" PRIu64 " of %" PRIu64 " listed parts were not merged",
                    result->calm_missing, result->calm_listed);
}

static void check_finish(struct tw_sim_world *world) {
    const struct tw_sim_replica *first = NULL;
    uint32_t finished = 0;
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (world->nodes[i].state != TW_STATE_FINISHED) continue;
        if (finished++ == 0) first = &world->nodes[i].worker.replica;
    }
    if (finished == 0) return;
    /* Nodes finish up to a round after one another. */
    const bool is_late = (double)(world->end_us - world->finish_us) < tw_sim_calm_round_us(world);
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (node->state != TW_STATE_FINISHED && !is_late &&
            world->options.members_max >= world->nodes_count) {
            tw_sim_fail(world, node, "calm", "has not finished, %u others have", finished);
            return;
        }
        for (uint32_t f = 0; f < world->options.fragments_count; f++) {
            if (node->state != TW_STATE_FINISHED) break;
            if (!tw_id_equal(&node->worker.replica.digests[f], &first->digests[f])) {
                tw_sim_fail(world, node, "G2", "finished with another anchor of fragment %u", f);
            }
        }
    }
}

/* ---- pairs ----------------------------------------------------------------------------------- */

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

static void check_pairs_progress(struct tw_sim_world *world) {
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

static void check_pairs(struct tw_sim_world *world) {
    struct tw_sim_result *result = world->result;
    for (uint32_t i = 0; i < world->nodes_count; i++) result->tokens += world->nodes[i].tokens_ever;
    result->consensus_end = consensus(world);
    check_states(world);
    if (!result->is_failed) check_clocks(world);
    if (!result->is_failed) check_pairs_progress(world);
}

/* ---- the outcome ------------------------------------------------------------------------------
 */

/* Sums the tokens of hands that records list, and that they should, by each one's newest record.
 * Those of heads also count in lineages that they leave. */
static void measure_listed(struct tw_sim_world *world) {
    struct tw_sim_result *result = world->result;
    for (uint32_t i = world->options.heads_count; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running || !tw_id_equal(&node->offered, &node->lineage)) continue;
        tw_node_position(node->core, world->position);
        const uint64_t rounds = world->position->rounds;
        const struct tw_sim_commit *commit =
            rounds > 0 ? tw_sim_check_find(world, &node->lineage, rounds - 1) : NULL;
        const uint64_t answered = world->position->tokens_listed;
        const uint64_t open = node->worker.tokens > answered ? node->worker.tokens - answered : 0;
        result->tokens += node->tokens_ever;
        result->tokens_due += answered - node->tokens_before;
        if (open > result->tokens_open) result->tokens_open = open;
        if (commit != NULL) result->tokens_listed += commit->listed[i];
    }
}

static void measure_result(struct tw_sim_world *world) {
    struct tw_sim_result *result = world->result;
    result->calm_paced = UINT64_MAX;
    float mean[TW_SIM_DIMS_MAX] = {0};
    result->loss_start = tw_sim_model_loss(&world->model, mean);
    double loss = 0;
    struct tw_id *seen = calloc(world->nodes_count, sizeof *seen);
    TW_ASSERT(seen != NULL);
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        struct tw_sim_node *node = &world->nodes[i];
        if (!node->is_running || tw_sim_is_traitor(world, node)) continue;
        tw_node_view(node->core, world->view);
        const uint64_t rounds = world->view->rounds - node->calm_rounds;
        if (rounds < result->calm_paced) result->calm_paced = rounds;
        if (world->view->clock_tokens > result->clock_tokens) {
            result->clock_tokens = world->view->clock_tokens;
        }
        bool is_known = false;
        for (uint32_t k = 0; k < result->lineages_end; k++) {
            is_known |= tw_id_equal(&seen[k], &node->lineage);
        }
        if (!is_known) seen[result->lineages_end++] = node->lineage;
        result->running_end++;
        result->members_end += node->state == TW_STATE_MEMBER;
        result->finished_end += node->state == TW_STATE_FINISHED;
        loss += tw_sim_model_loss(&world->model, node->worker.replica.phi);
    }
    if (result->running_end > 0) result->loss_end = loss / result->running_end;
    if (world->options.crew_max > 0) measure_listed(world);
    free(seen);
}

void tw_sim_calm_end(struct tw_sim_world *world) {
    measure_result(world);
    if (is_ruined(world)) return;
    if (world->options.is_pair) {
        check_pairs(world);
    } else if (world->options.together_tokens >= world->options.budget_tokens) {
        check_unity(world);
        if (!world->result->is_failed) check_progress(world);
        if (!world->result->is_failed) check_reach(world);
        if (!world->result->is_failed) check_finish(world);
    }
    if (world->result->is_failed) return;
    /* A loss of 0.2 is far above the noise, and far below the loss with one fragment untrained. */
    const bool has_budget = world->options.budget_tokens < UINT64_MAX / 8;
    const uint64_t lied_us = world->result->lied_us;
    const double since_us = (double)(world->now_us - lied_us);
    /* After a lie, the outer step may have gone in the wrong direction, and recovery takes several
     * rounds. */
    if (lied_us > 0 && since_us < 8 * tw_sim_calm_round_us(world)) return;
    if (!has_budget && world->options.inner_lr >= 0.05f && world->result->loss_end > 0.2) {
        tw_sim_fail(world, NULL, "34", "loss %.3f at the end, %.3f at the start",
                    world->result->loss_end, world->result->loss_start);
    }
}
