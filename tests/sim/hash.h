/* hash.h - the rolling hash of a run. It covers the fields of a struct, never its padding. */
#ifndef TW_SIM_HASH_H
#define TW_SIM_HASH_H

#include <stdint.h>

#include "sync/node.h"

static inline uint64_t tw_sim_mix(uint64_t hash, uint64_t value) {
    hash = (hash << 7 | hash >> 57) ^ value;
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t tw_sim_mix_id(uint64_t hash, const struct tw_id *id);
uint64_t tw_sim_message_hash(const struct tw_message *message);
uint64_t tw_sim_event_hash(const struct tw_event *event);
uint64_t tw_sim_action_hash(const struct tw_action *action);

#endif
