/* nat_kind.h - finds the kind of NAT between this node and the internet, by comparing the outer
 * ports at which two peers see connections from one local port. Pure: the caller passes time and
 * messages.
 *
 * Two peers at different public IPv4 addresses are dialled with probes that ask for a PUNCH of the
 * stage `seen` (PROTOCOL.md section 13). This is done soon after the links came up, after a change
 * of this machine's address, and once an hour. The result is only shown to people: a peer may lie,
 * so no decision depends on it. */
#ifndef TW_DAEMON_ROUTER_NAT_KIND_H
#define TW_DAEMON_ROUTER_NAT_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum {
    TW_NAT_SETTLE_US = 5 * 1000 * 1000,
    TW_NAT_ANSWER_US = 15 * 1000 * 1000,
    /* interval between tries while fewer than two peers can be asked */
    TW_NAT_LOOK_US = 10 * 1000 * 1000,
    /* wait after a request that did not get two answers */
    TW_NAT_RETRY_US = 300 * 1000 * 1000,
    TW_NAT_PEERS = 2,
    TW_NAT_SENTENCE_BYTES = 320,
};
#define TW_NAT_AGAIN_US UINT64_C(3600000000)

enum tw_nat {
    TW_NAT_UNKNOWN,
    TW_NAT_NONE,      /* peers see this machine's own address */
    TW_NAT_ENDPOINT,  /* one outer port per local port: endpoint-independent mapping */
    TW_NAT_SYMMETRIC, /* another outer port for each connection */
};

struct tw_nat_seen {
    struct tw_id by;
    bool is_seen;
    char address[TW_ADDR_BYTES];
};

struct tw_nat_kind {
    /* time of the next request; latest time for answers to the last one */
    uint64_t due_us, until_us;
    uint64_t token;          /* token of the open request; 0 = none is open */
    char own[TW_ADDR_BYTES]; /* this machine's address, without a port */
    struct tw_nat_seen seen[TW_NAT_PEERS];
    enum tw_nat result;
};

/* Returns true if a request is due. With zeroed memory it is due at once. */
bool tw_nat_kind_is_due(const struct tw_nat_kind *kind, uint64_t now_us);

/* Records that a request with `token` is sent to these peers. `own` is this machine's address.
 * `peers` is NULL if there are fewer than two. */
void tw_nat_kind_ask(struct tw_nat_kind *kind, uint64_t token, const struct tw_id *peers,
                     const char *own, uint64_t now_us);

/* Handles a peer's report of the address at which it saw the probe. */
void tw_nat_kind_heard(struct tw_nat_kind *kind, const struct tw_id *by, uint64_t token,
                       const char *address, uint64_t now_us);

/* Forgets the result, because this machine has another address. */
void tw_nat_kind_moved(struct tw_nat_kind *kind, uint64_t now_us);

/* Returns the name used in JSON: "unknown", "none", "endpoint_independent" or "symmetric". Static
 * storage. */
const char *tw_nat_kind_name(enum tw_nat nat);

/* Writes a sentence for people. `port` could be forwarded by the router; 0 if the node does not
 * listen. `is_reached` is true if other nodes reach this one, by a forwarded port or otherwise. */
void tw_nat_kind_sentence(enum tw_nat nat, uint16_t port, bool is_reached,
                          char text[TW_NAT_SENTENCE_BYTES]);

#endif
