/* dial_history.h - what the newest dial to each address came to, for people: `status`, `peers`, the
 * log.
 *
 * Configured addresses have rows of their own; of all others, which gossip may invent at will, the
 * last TW_DIAL_HISTORY_OTHERS are kept. A failure that is news is a line in the log; the same one
 * again, and whatever had to displace another address, is one line of all these in ten seconds.
 *
 * Pure: results and time come in. */
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
    char sentence[TW_DIAL_SENTENCE_BYTES]; /* why it failed; "": it did not */
    enum tw_dial_cause cause;
    struct tw_id other; /* answers there instead of who was looked for; zero: that is not why */
    uint64_t failed_us;
    uint32_t failures; /* in a row */
};

struct tw_dial_history {
    uint32_t configured_count, others_next;
    struct tw_dial_row rows[TW_DIAL_HISTORY_ROWS]; /* those configured first */
    struct tw_log_limit limit;
};

/* Zero-initialised knows no address. This one is configured; the first TW_DIAL_HISTORY_CONFIGURED
 * have rows of their own. */
void tw_dial_history_configure(struct tw_dial_history *history, const char *address);

/* NULL: nothing is known of it. */
const struct tw_dial_row *tw_dial_history_find(const struct tw_dial_history *history,
                                               const char *address);

/* Why a dial failed. */
struct tw_dial_failure {
    enum tw_dial_cause cause;
    const char *sentence;
    const struct tw_id *other; /* answered instead of who was looked for; or NULL */
};

/* True: the log is to say so, and that *held_back lines were not said. */
bool tw_dial_history_failed(struct tw_dial_history *history, const char *address,
                            const struct tw_dial_failure *failure, uint64_t now_us,
                            uint64_t *held_back);

/* That address leads to whom it should. */
void tw_dial_history_worked(struct tw_dial_history *history, const char *address);

#endif
