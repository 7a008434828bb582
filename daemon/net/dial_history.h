/* dial_history.h - result of the newest dial to each address, shown in `status`, `peers` and the
 * log.
 *
 * Configured addresses have their own rows. Other addresses come from gossip, which may invent any
 * number; the last TW_DIAL_HISTORY_OTHERS are kept. A new failure is logged at once. Repeated
 * failures, and failures that displaced another address, share one log line in ten seconds.
 *
 * Pure: the caller passes results and time. */
#ifndef TW_DAEMON_NET_DIAL_HISTORY_H
#define TW_DAEMON_NET_DIAL_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "daemon/net/dial_error.h"

enum {
    TW_DIAL_HISTORY_CONFIGURED = 32,
    TW_DIAL_HISTORY_OTHERS = TW_PEERS_MAX,
    TW_DIAL_HISTORY_ROWS = TW_DIAL_HISTORY_CONFIGURED + TW_DIAL_HISTORY_OTHERS,
    TW_DIAL_HISTORY_LINE_US = 10 * 1000 * 1000,
};

struct tw_dial_row {
    char address[TW_ADDR_BYTES];
    char sentence[TW_DIAL_SENTENCE_BYTES]; /* why the dial failed; "" if it did not fail */
    enum tw_dial_cause cause;
    struct tw_id other; /* node that answered instead of the expected one; zero if none */
    uint64_t failed_us;
    uint32_t failures; /* consecutive failures */
    uint32_t alike;    /* the last of them that have the same cause */
};

struct tw_dial_history {
    uint32_t configured_count, others_next;
    struct tw_dial_row rows[TW_DIAL_HISTORY_ROWS]; /* configured addresses first */
    struct tw_log_limit limit;
};

/* Adds a configured address. The first TW_DIAL_HISTORY_CONFIGURED have their own rows. A zeroed
 * history is empty. */
void tw_dial_history_configure(struct tw_dial_history *history, const char *address);

/* Returns true if the address is configured and has its own row. */
bool tw_dial_history_is_configured(const struct tw_dial_history *history, const char *address);

/* Returns NULL if the address is unknown. */
const struct tw_dial_row *tw_dial_history_find(const struct tw_dial_history *history,
                                               const char *address);

/* Cause of a failed dial, with the sentence for people. */
struct tw_dial_failure {
    enum tw_dial_cause cause;
    const char *sentence;
    const struct tw_id *other; /* node that answered instead of the expected one; or NULL */
};

/* Records a failure. Returns true if it is to be logged. The line then adds that *held_back lines
 * were suppressed before it. */
bool tw_dial_history_failed(struct tw_dial_history *history, const char *address,
                            const struct tw_dial_failure *failure, uint64_t now_us,
                            uint64_t *held_back);

/* Returns true if the newest failure of the address is worth an event: the first of its cause, the
 * tenth, the hundredth and so on. */
bool tw_dial_history_is_event(const struct tw_dial_history *history, const char *address);

/* Records that the address leads to the expected node. */
void tw_dial_history_worked(struct tw_dial_history *history, const char *address);

#endif
