/* reachability.h - can other nodes dial this one? Results of dials that peers made on request
 * (PROBE, PROBED).
 *
 * A node knows the addresses it listens on, but not whether firewalls and routers let connections
 * through. It asks up to TW_REACHABILITY_ASKED_MAX peers to dial it back: once links are up,
 * whenever its addresses change, and now and then. No decision depends on the answer: a node that
 * nobody can dial works by dialling others. But two such nodes cannot link directly. A person can
 * change that, so `status` says which port to open.
 *
 * Pure: the caller passes time and messages. */
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
    TW_REACHABILITY_SETTLE_US = 5 * 1000 * 1000, /* wait after the first link, as others may soon
                                                    follow */
    /* Time to wait for answers, longer than a probing peer needs to give up. */
    TW_REACHABILITY_ANSWER_US = 30 * 1000 * 1000,
    TW_REACHABILITY_AGAIN_US = 600 * 1000 * 1000, /* interval of requests while the answer is no or
                                                     unknown */
    TW_REACHABILITY_SENTENCE_BYTES = 480,
};
/* Interval of requests while the node can be dialled. */
#define TW_REACHABILITY_FINE_US UINT64_C(3600000000)

enum tw_reachability_state {
    TW_REACHABILITY_UNKNOWN,   /* no peer has tried to dial this node, or none could try */
    TW_REACHABILITY_YES,       /* reachable from the internet, or at every address that was tried */
    TW_REACHABILITY_LOCAL,     /* only from the node's own network, not at a public address */
    TW_REACHABILITY_NO,        /* reachable at no address */
    TW_REACHABILITY_DIAL_ONLY, /* the node does not listen */
};

struct tw_reachability_row {
    char address[TW_ADDR_BYTES];
    enum tw_probe_outcome outcome;
    struct tw_id by;
};

struct tw_reachability {
    uint64_t due_us;            /* time of the next request; 0 = none planned */
    uint64_t until_us;          /* latest time at which answers count */
    uint64_t token, checked_us; /* token of the newest request; time of the last answer, 0 = none
                                   yet */
    uint32_t rows_count;
    struct tw_reachability_row rows[TW_REACHABILITY_ROWS_MAX]; /* answers to the newest request */
};

/* Called when a peer is linked: plans a request soon, unless one is planned. A zeroed struct has no
 * results. */
void tw_reachability_linked(struct tw_reachability *reachability, uint64_t now_us);

/* Called when the addresses changed: forgets the results and plans a request soon. */
void tw_reachability_moved(struct tw_reachability *reachability, uint64_t now_us);

bool tw_reachability_is_due(const struct tw_reachability *reachability, uint64_t now_us);

/* Records that a request is sent now. `asked` is false if there was no peer to ask. */
void tw_reachability_ask(struct tw_reachability *reachability, uint64_t token, bool asked,
                         uint64_t now_us);

/* Processes a PROBED from the peer `by`. Ignores it if the token is wrong, the time is over, the
 * address is not this node's, or the table is full. */
void tw_reachability_heard(struct tw_reachability *reachability, const struct tw_member_row *self,
                           const struct tw_msg_probed *probed, const struct tw_id *by,
                           uint64_t now_us);

/* Returns true for any IP address with a port that the node announces: a peer dials the host where
 * it sees the node, which may differ from the announced one. */
bool tw_reachability_is_own(const struct tw_member_row *self, const char *address);

enum tw_reachability_state tw_reachability_state(const struct tw_reachability *reachability,
                                                 bool is_listening);

/* Returns true if a peer reached this node at a public IPv4 address. */
bool tw_reachability_has_public(const struct tw_reachability *reachability);

/* Writes a sentence for people: the result, and the port to open. `port` is the port listened on.
 */
void tw_reachability_sentence(const struct tw_reachability *reachability, bool is_listening,
                              uint16_t port, char text[TW_REACHABILITY_SENTENCE_BYTES]);

/* Names for JSON: "yes", "no", ... and "reached", "not reached". Static storage. */
const char *tw_reachability_state_name(enum tw_reachability_state state);
const char *tw_reachability_outcome_name(enum tw_probe_outcome outcome);

/* Returns true if the address leads to this machine, only to its own cable, or to no node:
 * loopback, link-local, multicast, wildcards, and the name localhost. */
bool tw_reachability_is_local(const char *address);

/* Returns true if both addresses "host:port" are of one IP address, in any spelling. */
bool tw_reachability_is_same_host(const char *a, const char *b);

/* Returns true if a node at the address `teller` (of its own connection; "" if it is relayed) may
 * tell this node of the address `told`. Public addresses and names may be told by anybody. A
 * private one only by a node of the same network: in the same /24 or /64, or if both are in the
 * same range (10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7) and `is_on_link`, as an interface
 * of this machine is in the network of `told`. One of this machine or of its cable
 * (tw_reachability_is_local) only by a node at such an address. */
bool tw_reachability_may_tell(const char *teller, const char *told, bool is_on_link);

/* Returns true if the host of this address is in a private network, or is this machine. */
bool tw_reachability_is_private(const char *address);

#endif
