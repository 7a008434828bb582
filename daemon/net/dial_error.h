/* dial_error.h - why a link did not come up, and the remedy. The log, `status`, `peers`, `join`
 * and `doctor` share this list of causes and this form of sentence:
 *
 *     ADDRESS: what happened (detail); what to do */
#ifndef TW_DAEMON_NET_DIAL_ERROR_H
#define TW_DAEMON_NET_DIAL_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"

/* Causes of a failed dial. The numbers may change, as they are neither stored nor sent. JSON shows
 * the names. */
enum tw_dial_cause {
    TW_DIAL_NONE,      /* no failure, or only a detail to show */
    TW_DIAL_DNS,       /* the name has no address */
    TW_DIAL_CLOSED,    /* connection refused: nothing listens on the port */
    TW_DIAL_REJECTED,  /* another machine answers that this one cannot be reached: it is off, or a
                          firewall rejects the dial */
    TW_DIAL_SILENT,    /* no answer at all: packets are dropped, or the machine is off */
    TW_DIAL_NO_ROUTE,  /* this machine has no route to the address */
    TW_DIAL_OFFLINE,   /* this machine has no line at all */
    TW_DIAL_FORBIDDEN, /* this machine's own firewall */
    TW_DIAL_PRIVATE,   /* no answer, and the address belongs to a private network: NAT */
    TW_DIAL_STALLED,   /* TCP connects, then nothing arrives */
    TW_DIAL_BROKEN,    /* the connection ended during the handshake without GOODBYE */
    TW_DIAL_NOT_THINWIRE,
    TW_DIAL_WRONG_ID, /* WRONG_ID to CLOCK are refusals, which only a person can resolve */
    TW_DIAL_TWIN,     /* the dialled node has a link to another machine with this node's key */
    TW_DIAL_VERSION,
    TW_DIAL_OTHER_RUN,
    TW_DIAL_WRONG_SECRET,
    TW_DIAL_TICKET_UNKNOWN,
    TW_DIAL_TICKET_EXPIRED,
    TW_DIAL_TICKET_USED,
    TW_DIAL_NOT_ADMITTED, /* no valid certificate of the run's owner */
    TW_DIAL_REVOKED,
    TW_DIAL_BANNED, /* temporary: this node broke the protocol too often */
    TW_DIAL_CLOCK,  /* a certificate or ticket has a date that only a wrong clock explains */
    TW_DIAL_SELF,
    TW_DIAL_BUSY,
    TW_DIAL_NAT, /* neither of the two nodes can be dialled */
    TW_DIAL_CAUSES,
};

/* Returns the cause of a connect that failed with `code` after `took_us`. `code` is an errno, or
 * its negative as in libuv. `remote` (or NULL) is the struct sockaddr that was dialled. */
enum tw_dial_cause tw_dial_cause_of_errno(int code, uint64_t took_us, const void *remote);

/* Returns the cause of a connect to `remote` (or NULL) that timed out: TW_DIAL_SILENT or
 * TW_DIAL_PRIVATE. */
enum tw_dial_cause tw_dial_cause_of_silence(const void *remote);

/* Returns true if the lack of a line at this machine may be behind that cause. */
bool tw_dial_may_be_offline(enum tw_dial_cause cause);

/* Returns the cause for a status that ended a dial after TCP connected. This node found the status,
 * or received it in GOODBYE. */
enum tw_dial_cause tw_dial_cause_of_status(enum tw_status status);

/* Returns true if the other node refused this one. Only a person can change that. */
bool tw_dial_is_refusal(enum tw_dial_cause cause);

/* Returns the name used in JSON, such as "wrong_secret". Static storage. */
const char *tw_dial_cause_name(enum tw_dial_cause cause);

/* Writes the whole sentence to `text`. `detail` ("" or NULL if none) is truncated if it does not
 * fit; the advice never is. */
enum { TW_DIAL_SENTENCE_BYTES = 256 };
void tw_dial_sentence(enum tw_dial_cause cause, const char *address, const char *detail,
                      char text[TW_DIAL_SENTENCE_BYTES]);

#endif
