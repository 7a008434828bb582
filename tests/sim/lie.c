/* lie.c - nodes that lie about results, and how the other nodes judge results.
 *
 * A liar has an honest core and a lying worker. As an owner it publishes a false result: far too
 * large, not decodable, or of plausible size, which only an audit can find. It judges every
 * liar's result as fair, and half of the honest results as outliers. As a proposer it thus insists
 * on lies, and as an acceptor it vetoes honest results. Judgement differs between nodes: some
 * honest ones miss a lie, or take a good result for an outlier. All this follows from hashes and
 * takes no random draw, so worlds without liars stay the same. */
#include <math.h>
#include <string.h>

#include "tests/sim/hash.h"
#include "tests/sim/world.h"

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
    const uint64_t draw = tw_sim_mix_id(node->idx, result) >> 32;
    const bool is_lie = tw_sim_is_lie(world, result);
    const uint64_t one_in = world->options.has_doubt ? 8 : 32;
    bool is_outlier = is_lie ? draw % 8 != 0 : draw % one_in == 0;
    if (tw_sim_is_liar(world, node)) is_outlier = !is_lie && draw % 2 == 0;
    return is_outlier ? TW_SANITY_OUTLIER : TW_SANITY_FAIR;
}
