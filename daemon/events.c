#include "daemon/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void tw_events_init(struct tw_events *events) {
    *events = (struct tw_events){0};
}

static uint64_t wall_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void tw_events_add(struct tw_events *events, enum tw_log_level level, const char *name,
                   const char *fmt, ...) {
    struct tw_event_row *row = &events->events[events->events_count % TW_EVENTS_KEPT];
    *row =
        (struct tw_event_row){.seq = ++events->events_count, .time_ms = wall_ms(), .level = level};
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(row->text, sizeof(row->text), fmt, args);
    va_end(args);
    tw_log(level, name, "%s", row->text);
}

void tw_events_add_round(struct tw_events *events, const struct tw_close *close, int self_idx,
                         uint32_t roster_count, uint64_t now_us) {
    struct tw_round_row *row = &events->rounds[events->rounds_count % TW_ROUND_ROWS_KEPT];
    *row = (struct tw_round_row){
        .round = close->round,
        .fragment = close->fragment,
        .lineage = close->lineage,
        .digest = tw_close_digest(close),
        .time_ms = wall_ms(),
        .since_last_us = events->last_round_us == 0 ? 0 : now_us - events->last_round_us,
        .clock_tokens = close->clock_tokens,
        .roster_count = roster_count,
        .contributors_count = close->contributors_count,
        .parts_count = close->parts_count,
    };
    for (uint32_t k = 0; k < close->parts_count; k++) {
        row->result_bytes += close->parts[k].bytes;
        if (close->parts[k].bytes == 0) row->parts_absent++;
    }
    for (uint32_t i = 0; i < close->contributors_count; i++) {
        const uint32_t member = close->contributors[i].member_idx;
        row->contributors |= (uint64_t)1 << member;
        if (self_idx >= 0 && member == (uint32_t)self_idx) row->is_contributed = true;
    }
    events->last_round_us = now_us;
    events->rounds_count++;
}

const struct tw_event_row *tw_events_row(const struct tw_events *events, uint64_t i) {
    if (i >= events->events_count || i >= TW_EVENTS_KEPT) return NULL;
    return &events->events[(events->events_count - 1 - i) % TW_EVENTS_KEPT];
}

const struct tw_round_row *tw_events_round(const struct tw_events *events, uint64_t i) {
    if (i >= events->rounds_count || i >= TW_ROUND_ROWS_KEPT) return NULL;
    return &events->rounds[(events->rounds_count - 1 - i) % TW_ROUND_ROWS_KEPT];
}
