/* map.c - a hash map: open addressing, linear probing, at most half full. */
#include "tests/sim/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct tw_sim_slot {
    struct tw_sim_key key;
    void *value; /* NULL = free */
};

static size_t place_of(const struct tw_sim_key *key, size_t capacity) {
    uint64_t h;
    memcpy(&h, key->id.bytes, sizeof h);
    h ^= key->a * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
    h ^= key->b * 0x94D049BB133111EBu;
    h = (h ^ (h >> 31)) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 17) & (capacity - 1);
}

static bool is_same(const struct tw_sim_key *a, const struct tw_sim_key *b) {
    return a->a == b->a && a->b == b->b && tw_id_equal(&a->id, &b->id);
}

static struct tw_sim_slot *find(const struct tw_sim_map *map, const struct tw_sim_key *key) {
    size_t i = place_of(key, map->capacity);
    while (map->slots[i].value != NULL && !is_same(&map->slots[i].key, key)) {
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->slots[i];
}

void tw_sim_map_init(struct tw_sim_map *map, size_t value_bytes) {
    *map = (struct tw_sim_map){.value_bytes = value_bytes, .capacity = 256};
    map->slots = calloc(map->capacity, sizeof *map->slots);
    TW_ASSERT(map->slots != NULL);
}

void tw_sim_map_deinit(struct tw_sim_map *map) {
    for (size_t i = 0; i < map->capacity; i++) free(map->slots[i].value);
    free(map->slots);
    *map = (struct tw_sim_map){0};
}

void *tw_sim_map_get(const struct tw_sim_map *map, const struct tw_sim_key *key) {
    return find(map, key)->value;
}

static void grow(struct tw_sim_map *map) {
    const struct tw_sim_map old = *map;
    map->capacity *= 2;
    map->slots = calloc(map->capacity, sizeof *map->slots);
    TW_ASSERT(map->slots != NULL);
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.slots[i].value != NULL) *find(map, &old.slots[i].key) = old.slots[i];
    }
    free(old.slots);
}

void *tw_sim_map_put(struct tw_sim_map *map, const struct tw_sim_key *key, bool *is_new) {
    struct tw_sim_slot *slot = find(map, key);
    if (is_new != NULL) *is_new = slot->value == NULL;
    if (slot->value != NULL) return slot->value;
    if (2 * (map->count + 1) > map->capacity) {
        grow(map);
        slot = find(map, key);
    }
    map->count++;
    slot->key = *key;
    slot->value = calloc(1, map->value_bytes);
    TW_ASSERT(slot->value != NULL);
    return slot->value;
}
