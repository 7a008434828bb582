/* reachability.h - can this node be dialled? What peers found that were asked to try (PROBE,
 * PROBED).
 *
 * A node knows what it listens on, and cannot know what firewalls and routers let through. So up to
 * TW_REACHABILITY_ASKED_MAX peers are asked to dial it back, once links stand, whenever its
 * addresses change and now and then. Nothing depends on the answer: a node that nobody can dial
 * works by dialling. But two such nodes never link, and a person can change it: so status says what
 * to open.
 *
 * Pure: time and messages come in. */
#ifndef TW_DAEMON_NET_REACHABILITY_H
#define TW_DAEMON_NET_REACHABILITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"

enum {
    TW_REACHABILITY_ASKED_MAX = 3,
    TW_REACHABILITY_ROWS_MAX = TW_REACHABILITY_ASKED_MAX * TW_ADDRS_MAX,
    TW_REACHABILITY_SETTLE_US = 5 * 1000 * 1000,  /* after the first link: others may come */
    TW_REACHABILITY_ANSWER_US = 30 * 1000 * 1000, /* a prober gives up before that */
    TW_REACHABILITY_AGAIN_US = 600 * 1000 * 1000, /* while it cannot be dialled, or nobody says */
    TW_REACHABILITY_SENTENCE_BYTES = 480,
};
#define TW_REACHABILITY_FINE_US UINT64_C(3600000000) /* while it can */

enum tw_reachability_state {
    TW_REACHABILITY_UNKNOWN,   /* nobody has tried, or nobody could */
    TW_REACHABILITY_YES,       /* the internet, or all there is to try */
    TW_REACHABILITY_LOCAL,     /* its own network alone: a public address of it cannot be dialled */
    TW_REACHABILITY_NO,        /* not at any address */
    TW_REACHABILITY_DIAL_ONLY, /* it does not listen */
};

struct tw_reachability_row {
    char address[TW_ADDR_BYTES];
    enum tw_probe_outcome outcome;
    struct tw_id by;
};

struct tw_reachability {
    uint64_t due_us;            /* of the next questions; 0: none planned */
    uint64_t until_us;          /* answers count until then */
    uint64_t token, checked_us; /* of the newest questions; when the last answer came, 0: never */
    uint32_t rows_count;
    struct tw_reachability_row rows[TW_REACHABILITY_ROWS_MAX]; /* of the newest questions */
};

/* Zero-initialised knows nothing. Somebody is linked: questions are due soon, if none are planned.
 */
void tw_reachability_linked(struct tw_reachability *reachability, uint64_t now_us);

/* The addresses changed: what is known is void, and questions are due soon. */
void tw_reachability_moved(struct tw_reachability *reachability, uint64_t now_us);

bool tw_reachability_is_due(const struct tw_reachability *reachability, uint64_t now_us);

/* The questions go out now (or `asked` is false: there was nobody to ask). */
void tw_reachability_ask(struct tw_reachability *reachability, uint64_t token, bool asked,
                         uint64_t now_us);

/* A PROBED came from `by`. Dropped: another token, too late, of an address that is none of this
 * node's, or more rows than belong. */
void tw_reachability_heard(struct tw_reachability *reachability, const struct tw_member_row *self,
                           const struct tw_msg_probed *probed, const struct tw_id *by,
                           uint64_t now_us);

/* Can a peer have this address from what the node says of itself? One it says, or, where it says
 * that it listens on all of them, any IP address at that port: as the peer sees it. */
bool tw_reachability_is_own(const struct tw_member_row *self, const char *address);

enum tw_reachability_state tw_reachability_state(const struct tw_reachability *reachability,
                                                 bool is_listening);

/* What it means and what to open, for a person; `port`: listened on. */
void tw_reachability_sentence(const struct tw_reachability *reachability, bool is_listening,
                              uint16_t port, char text[TW_REACHABILITY_SENTENCE_BYTES]);

/* "yes", "no", ... and "no answer", "nothing listens there", ...: for JSON. Static storage. */
const char *tw_reachability_state_name(enum tw_reachability_state state);
const char *tw_reachability_outcome_name(enum tw_probe_outcome outcome);

/* Is the host of this address one of a private network, or of this machine alone? */
bool tw_reachability_is_private(const char *address);

#endif
