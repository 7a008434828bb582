/* dial_error.h - why a link did not come to be, and the way out: one list of causes and one form of
 * sentence, for the log, `status`, `peers`, `join` and `doctor` alike.
 *
 *     ADDRESS: what happened (detail); what to do */
#ifndef TW_DAEMON_NET_DIAL_ERROR_H
#define TW_DAEMON_NET_DIAL_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"

/* Values are not stored and not sent; names are shown (JSON). */
enum tw_dial_cause {
    TW_DIAL_NONE,     /* no failure, or one with nothing to say but its detail */
    TW_DIAL_DNS,      /* the name has no address */
    TW_DIAL_CLOSED,   /* the machine answers that nothing listens on the port */
    TW_DIAL_REJECTED, /* a firewall or router answers instead of the machine */
    TW_DIAL_SILENT,   /* nothing answers at all: dropped, or the machine is off */
    TW_DIAL_NO_ROUTE, /* this machine has no way there */
    TW_DIAL_PRIVATE,  /* no answer, and the address is one of somebody's private network: NAT */
    TW_DIAL_STALLED,  /* TCP connects, then nothing comes */
    TW_DIAL_BROKEN,   /* the connection ended in the handshake without a word */
    TW_DIAL_NOT_THINWIRE,
    TW_DIAL_WRONG_ID, /* from here to CLOCK: refusals, which only a person can change */
    TW_DIAL_VERSION,
    TW_DIAL_OTHER_RUN,
    TW_DIAL_WRONG_SECRET,
    TW_DIAL_TICKET_UNKNOWN,
    TW_DIAL_TICKET_EXPIRED,
    TW_DIAL_TICKET_USED,
    TW_DIAL_NOT_ADMITTED, /* no valid certificate of the run's owner */
    TW_DIAL_REVOKED,
    TW_DIAL_BANNED, /* for a while: it broke the protocol too often */
    TW_DIAL_CLOCK,  /* a certificate or ticket is dated by a clock that is far off */
    TW_DIAL_SELF,
    TW_DIAL_BUSY,
    TW_DIAL_NAT, /* neither of the two can be dialled */
    TW_DIAL_CAUSES,
};

/* What a connect that failed with `code` (an errno, or its negative as libuv has it) after
 * `took_us` says. `remote` (or NULL) is where it went, struct sockaddr. */
enum tw_dial_cause tw_dial_cause_of_errno(int code, uint64_t took_us, const void *remote);

/* No answer to a connect to `remote` (or NULL) until the time was up: TW_DIAL_SILENT or PRIVATE. */
enum tw_dial_cause tw_dial_cause_of_silence(const void *remote);

/* What a status that was found or heard (GOODBYE) after the TCP connect says. */
enum tw_dial_cause tw_dial_cause_of_status(enum tw_status status);

/* Did the other node turn us down, so that only a person can change it? */
bool tw_dial_is_refusal(enum tw_dial_cause cause);

/* "wrong_secret": for JSON. Static storage. */
const char *tw_dial_cause_name(enum tw_dial_cause cause);

/* Writes the whole sentence to `text`. `detail` ("" or NULL: none) is cut where it does not fit;
 * what to do never is. */
enum { TW_DIAL_SENTENCE_BYTES = 256 };
void tw_dial_sentence(enum tw_dial_cause cause, const char *address, const char *detail,
                      char text[TW_DIAL_SENTENCE_BYTES]);

#endif
