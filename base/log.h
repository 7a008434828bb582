/* log.h - one line per state transition or refusal, on stderr, for people and machines:
 *
 *     ts=2026-01-31T12:00:00.000Z level=info ev=round_done round=812 fragment=3 took_us=93210
 *
 * Event names are fixed, units are part of the key, text values are quoted. If stderr is systemd's
 * journal (JOURNAL_STREAM names it), the time is left out and the level is a <N> prefix. Only
 * daemon/ and worker/ log; no key, token or weight is ever logged. Thread-safe: each line is one
 * write(2). */
#ifndef TW_BASE_LOG_H
#define TW_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tw_log_level {
    TW_LOG_ERROR, /* the user must act */
    TW_LOG_WARN,  /* something was refused or lost; the node continues */
    TW_LOG_INFO,  /* a state changed */
    TW_LOG_DEBUG,
};

enum { TW_LOG_LINE_BYTES_MAX = 1024 }; /* bytes; longer lines are truncated */

/* Returns "error", "warn", "info" or "debug". */
const char *tw_log_level_name(enum tw_log_level level);

/* Drops lines less severe than `level` from now on. The default is INFO. */
void tw_log_set_level(enum tw_log_level level);

/* `event` is a snake_case word; `fmt` gives `key=value` pairs. Control characters become '?'. */
void tw_log(enum tw_log_level level, const char *event, const char *fmt, ...) TW_PRINTF(3, 4);

/* Rate limit of a repeating event: one line per `period_us`. Owned by the caller, initially zero,
 * used by one thread. */
struct tw_log_limit {
    uint64_t said_us;
    uint64_t held_back;
};

/* Returns true if a line may be written now; *held_back is then the number of lines suppressed
 * since the last one. */
bool tw_log_may_say(struct tw_log_limit *limit, uint64_t now_us, uint64_t period_us,
                    uint64_t *held_back);

#endif
