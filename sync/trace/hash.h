/* hash.h - hashes of events and actions. They cover the fields of a struct, never its padding.
 * Equal runs of the core have equal hashes, which the simulator and the flight recorder compare. */
#ifndef TW_SYNC_TRACE_HASH_H
#define TW_SYNC_TRACE_HASH_H

#include <stdint.h>

#include "sync/core/action.h"
#include "sync/core/event.h"

static inline uint64_t tw_trace_mix(uint64_t hash, uint64_t value) {
    hash = (hash << 7 | hash >> 57) ^ value;
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t tw_trace_mix_id(uint64_t hash, const struct tw_id *id);
uint64_t tw_trace_message(const struct tw_message *message);
uint64_t tw_trace_event(const struct tw_event *event);
uint64_t tw_trace_action(const struct tw_action *action);

#endif
