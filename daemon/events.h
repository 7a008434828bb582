/* events.h - what the node did lately, for /v1/events, /v1/rounds and `thinwire status`: two rings
 * of fixed size. The loop thread writes and reads them; nothing here is on disk. */
#ifndef TW_DAEMON_EVENTS_H
#define TW_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/log.h"
#include "proto/close.h"

enum { TW_EVENTS_KEPT = 256, TW_ROUND_ROWS_KEPT = 64 };

struct tw_event_row {
    uint64_t seq;     /* 1, 2, 3, ... since the start of the daemon */
    uint64_t time_ms; /* Unix time, for display only */
    enum tw_log_level level;
    char name[32];  /* "round_done" */
    char text[256]; /* `key=value` pairs, as logged */
};

/* One committed round as this node saw it. */
struct tw_round_row {
    uint64_t round;
    uint32_t fragment;
    struct tw_id lineage, digest; /* digest of the close manifest */
    uint64_t time_ms;             /* Unix time when this node learnt of the commit */
    uint64_t since_last_us;       /* since the round before it was known committed; 0 = unknown */
    uint64_t clock_tokens;
    uint64_t result_bytes; /* encoded results, all parts */
    uint32_t roster_count, contributors_count;
    uint32_t parts_count, parts_absent;
    bool is_contributed;   /* this node is among the contributors */
    uint64_t contributors; /* bit i = member i of the roster before the round */
};

struct tw_events {
    uint64_t events_count; /* ever */
    uint64_t rounds_count; /* ever */
    uint64_t last_round_us;
    struct tw_event_row events[TW_EVENTS_KEPT];
    struct tw_round_row rounds[TW_ROUND_ROWS_KEPT];
};

void tw_events_init(struct tw_events *events);

/* Logs the line and keeps it. */
void tw_events_add(struct tw_events *events, enum tw_log_level level, const char *name,
                   const char *fmt, ...) TW_PRINTF(4, 5);

/* Keeps a committed round. `self_idx` is this node's place in the roster that decided it, or -1. */
void tw_events_add_round(struct tw_events *events, const struct tw_close *close, int self_idx,
                         uint32_t roster_count, uint64_t now_us);

/* The i-th newest row, 0 = newest; NULL past the oldest kept. */
const struct tw_event_row *tw_events_row(const struct tw_events *events, uint64_t i);
const struct tw_round_row *tw_events_round(const struct tw_events *events, uint64_t i);

#endif
