/* paths.c - which pairs of nodes can have a link, and its path.
 *
 * Public nodes can be dialled. Homes are nodes behind NAT: they can only dial. So two homes have no
 * direct path. They have no link at all, or one through a public node that both are linked to (a
 * relay). Some pairs with a public end never have a path, as if a firewall were between them. Node
 * 0 is public and has a path to every node, so a group without relays still has a member that
 * reaches all. */
#include "base/assert.h"
#include "proto/record.h"
#include "tests/sim/world.h"

static bool is_home(const struct tw_sim_world *world, uint32_t node) {
    return node + world->options.homes_count >= world->nodes_count;
}

void tw_sim_paths_init(struct tw_sim_world *world) {
    const struct tw_sim_options *options = &world->options;
    struct tw_rng
        rng; /* a separate generator, so that the rest of the world does not depend on paths */
    tw_rng_seed(&rng, options->seed ^ UINT64_C(0x9A7B5));
    for (uint32_t i = 0; i < world->links_count; i++) {
        struct tw_sim_link *link = &world->links[i];
        const bool is_cut =
            link->nodes[0] > 0 && options->cut_share > 0 && tw_rng_unit(&rng) < options->cut_share;
        link->relay = TW_SIM_NO_RELAY;
        link->has_path =
            !is_cut && !(is_home(world, link->nodes[0]) && is_home(world, link->nodes[1]));
    }
}

bool tw_sim_paths_is_remote(struct tw_sim_world *world, uint32_t node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->nodes[node].links_count; i++)
        count += world->links[world->nodes[node].links[i]].has_path;
    return !world->options.has_relays && count <= tw_liars_max(world->nodes_count);
}

static bool is_linked(struct tw_sim_world *world, uint32_t a, uint32_t b) {
    const struct tw_sim_link *link = tw_sim_link_of(world, a, b);
    return link != NULL && link->has_path && link->ends[0].is_up && link->ends[1].is_up;
}

bool tw_sim_paths_choose(struct tw_sim_world *world, struct tw_sim_link *link) {
    if (link->has_path) return true;
    link->relay = TW_SIM_NO_RELAY;
    if (!world->options.has_relays) return false;
    const uint32_t count = world->nodes_count - world->options.homes_count;
    const uint32_t first = (uint32_t)tw_rng_below(&world->rng, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t relay = (first + i) % count;
        if (relay == link->nodes[0] || relay == link->nodes[1]) continue;
        if (!world->nodes[relay].is_running || world->nodes[relay].is_leaving) continue;
        if (!is_linked(world, relay, link->nodes[0]) || !is_linked(world, relay, link->nodes[1]))
            continue;
        link->relay = relay;
        return true;
    }
    return false;
}

void tw_sim_paths_relay_down(struct tw_sim_world *world, uint32_t relay) {
    for (uint32_t i = 0; i < world->links_count && world->options.has_relays; i++) {
        struct tw_sim_link *link = &world->links[i];
        if (!link->has_path && link->relay == relay) tw_sim_net_reset(world, link);
    }
}
