/* trace.h - events and actions as hashes, and events as bytes: for the simulator and the flight
 * recorder. */
#ifndef TW_SYNC_TRACE_TRACE_H
#define TW_SYNC_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sync/core/interface.h"

/* ---- hashes ---------------------------------------------------------------------------------- */

/* Hashes of events and actions. They cover the fields of a struct, never its padding.
 * Equal runs of the core have equal hashes. */

static inline uint64_t tw_trace_mix(uint64_t hash, uint64_t value) {
    hash = (hash << 7 | hash >> 57) ^ value;
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t tw_trace_mix_id(uint64_t hash, const struct tw_id *id);
uint64_t tw_trace_message(const struct tw_message *message);
uint64_t tw_trace_event(const struct tw_event *event);
uint64_t tw_trace_action(const struct tw_action *action);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Little-endian, without padding.
 *
 * Bytes: kind, flags, peer (u16), then the fields of the kind. A message is its frame kind (u16)
 * and its body as on the wire. */

enum { TW_EVENT_BYTES_MAX = 16 + TW_CONTROL_BYTES_MAX };

/* Encodes *event, and returns the number of bytes. A message must keep the bounds that
 * tw_message_check checks, as every decoded message does. */
size_t tw_event_encode(const struct tw_event *event, uint8_t bytes[TW_EVENT_BYTES_MAX]);

/* Strict inverse for untrusted bytes. A message is decoded into *message, and the state of a worker
 * into *worker, which *event then points to. After TW_CORRUPT, *event is undefined. */
enum tw_status tw_event_decode(const uint8_t *bytes, size_t size, struct tw_event *event,
                               struct tw_message *message, struct tw_worker_state *worker,
                               struct tw_error *err);

#endif
