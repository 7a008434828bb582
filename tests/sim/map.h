/* map.h - a hash map of the checkers: keys to values, which are never removed during a run.
 *
 * Nothing walks a map, so its order cannot leak into a result. */
#ifndef TW_SIM_MAP_H
#define TW_SIM_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

struct tw_sim_key {
    struct tw_id id;
    uint64_t a, b;
};

struct tw_sim_map {
    size_t value_bytes;
    struct tw_sim_slot *slots;
    size_t count, capacity; /* capacity: a power of two */
};

void tw_sim_map_init(struct tw_sim_map *map, size_t value_bytes);
void tw_sim_map_deinit(struct tw_sim_map *map);

/* Returns the value of this key, or NULL. Its address is stable for the life of the map. */
void *tw_sim_map_get(const struct tw_sim_map *map, const struct tw_sim_key *key);

/* Returns the value of this key, added as zeros if absent. Sets *is_new to whether it was added;
 * `is_new` may be NULL. */
void *tw_sim_map_put(struct tw_sim_map *map, const struct tw_sim_key *key, bool *is_new);

#endif
