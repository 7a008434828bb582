/* check_model.c - a model belongs to one lineage.
 *
 * The replica notes the lineage of each fragment's theta and phi. LOAD sets phi's lineage to the
 * node's lineage at the request; SOLO sets it to theta's. Once all fragments of a node are of one
 * lineage, they are renamed to the node's present one: a child's state and its parent's are the
 * same model. */
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "tests/sim/check.h"

/* Returns the first fragment whose lineage differs from fragment 0's, or 0. */
static uint32_t find_other_lineage(const struct tw_id *of, uint32_t count) {
    for (uint32_t f = 1; f < count; f++) {
        if (!tw_id_equal(&of[f], &of[0])) return f;
    }
    return 0;
}

/* Renames the lineage of all state to the node's present lineage. */
static void rename_lineage(const struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_replica *replica = &node->worker.replica;
    for (uint32_t f = 0; f < world->options.fragments_count; f++)
        replica->phi_of[f] = replica->theta_of[f] = node->core->at.lineage;
}

void tw_sim_check_model(struct tw_sim_world *world, struct tw_sim_node *node) {
    const uint32_t odd =
        find_other_lineage(node->worker.replica.theta_of, world->options.fragments_count);
    if (odd != 0)
        tw_sim_fail(world, node, "41", "trains fragments 0 and %u of different lineages", odd);
}

void tw_sim_check_theta(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    struct tw_sim_replica *replica = &node->worker.replica;
    const uint32_t fragment = action->u.apply.fragment;
    /* This event ended the move to the lineage. theta is kept: its distance from phi is the next
     * Delta. */
    if (node->core->at.is_moving == 0 &&
        find_other_lineage(replica->phi_of, world->options.fragments_count) == 0)
        rename_lineage(world, node);
    if (tw_id_equal(&replica->theta_of[fragment], &replica->phi_of[fragment])) return;
    for (uint32_t k = 0; k < action->u.apply.parts_count; k++) {
        const enum tw_apply_mode mode = action->u.apply.parts[k].mode;
        if (mode == TW_APPLY_MIX || mode == TW_APPLY_SHIFT || action->u.apply.is_final)
            tw_sim_fail(world, node, "41",
                        "moves theta of fragment %u by a merge of another lineage", fragment);
    }
}

void tw_sim_check_whole(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_replica *replica = &node->worker.replica;
    const struct tw_position *at = &node->core->at;
    uint32_t first = UINT32_MAX, held_count = 0;
    if (!node->worker.has_memory || !node->core_sees_worker) return;
    for (uint32_t f = 0; f < world->options.fragments_count; f++) {
        if (at->fragment_rounds[f] == NOT_HELD || tw_progress_is_applying(node->core, f)) continue;
        if (first == UINT32_MAX) first = f;
        held_count++;
        if (node->state == TW_STATE_RECEIVER ||
            tw_id_equal(&replica->phi_of[f], &replica->phi_of[first]))
            continue;
        tw_sim_fail(world, node, "41", "holds fragments %u and %u of different lineages", first, f);
        return;
    }
    if (held_count < world->options.fragments_count || at->is_moving != 0) return;
    if (find_other_lineage(replica->phi_of, held_count) == 0) rename_lineage(world, node);
}
