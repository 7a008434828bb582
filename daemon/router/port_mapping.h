/* port_mapping.h - decides when to ask a router to forward this node's port. Pure: the caller
 * passes the time, and sends the requests (struct tw_port_order), one at a time, by port_router.h.
 *
 *   state      meaning                             left for
 *   IDLE       nothing is to be forwarded          WAITING when that changes
 *   WAITING    no mapping; the next request is     ASKING by tw_port_mapping_next
 *              due at due_us
 *   ASKING     a request is in progress            MAPPED; WAITING after a failure
 *   MAPPED     the router forwards the port        RENEWING by tw_port_mapping_next at due_us;
 *                                                  REMOVING when it is no longer needed; WAITING at
 *                                                  the end of the lease, or at a new address
 *   RENEWING   MAPPED, a request is in progress    MAPPED, also after a failure; WAITING when the
 *                                                  router turns out to be behind another one
 *   REMOVING   a removal is in progress            IDLE or WAITING, in any case
 *
 * A mapping is renewed at half of its lease. Failed requests are repeated after pauses that double.
 * A mapping that may be gone, because peers do not reach this node, is renewed earlier. After a
 * change of this machine's address, the old mapping is left to expire: a router lets only the old
 * address remove it. */
#ifndef TW_DAEMON_ROUTER_PORT_MAPPING_H
#define TW_DAEMON_ROUTER_PORT_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

enum {
    TW_PORT_LEASE_S = 3600,
    TW_PORT_LEASE_SHARE = 64, /* divisor: renewals are at least requested lease / 64 apart */
    TW_PORT_RETRY_MIN_US = 30 * 1000 * 1000,
    TW_PORT_DOUBT_US = 10 * 1000 * 1000, /* first pause before a doubtful mapping is renewed */
    TW_PORT_HOST_BYTES = 16,             /* "255.255.255.255" and NUL */
    TW_PORT_WORDS_BYTES = 96,
    TW_PORT_SENTENCE_BYTES = 400,
};
#define TW_PORT_RETRY_MAX_US UINT64_C(3600000000)

/* Whether a mapping is needed, or why not. */
enum tw_port_need {
    TW_PORT_IS_OFF,        /* network.port_mapping or network.links is off */
    TW_PORT_DIAL_ONLY,     /* the node does not listen */
    TW_PORT_IS_ADVERTISED, /* network.advertise is set: a person has arranged the forwarding */
    TW_PORT_NOT_PRIVATE,   /* the node listens on no private IPv4 address, or is offline */
    TW_PORT_IS_REACHED,    /* a peer reached the node at a public address without a mapping */
    TW_PORT_NEEDED,
};

/* Protocols, in the order in which they are tried. */
enum tw_port_protocol { TW_PORT_NO_PROTOCOL, TW_PORT_NATPMP, TW_PORT_PCP, TW_PORT_UPNP };

enum tw_port_outcome {
    TW_PORT_MAPPED,
    TW_PORT_NO_ROUTER,  /* no router answered */
    TW_PORT_REFUSED,    /* a router answered, but refused to forward */
    TW_PORT_DOUBLE_NAT, /* the router has no public address itself */
};

/* The mapping that is wanted now. */
struct tw_port_want {
    enum tw_port_need need;
    char host[TW_PORT_HOST_BYTES]; /* this machine's address to forward to; "" unless NEEDED */
    uint16_t port;                 /* port that the node listens on */
    bool is_doubtful;              /* no peer is linked, or none reaches this node */
};

/* One request to a router. */
struct tw_port_order {
    bool is_removal;
    char host[TW_PORT_HOST_BYTES];
    uint16_t port, outer_port;      /* outer_port: first outer port to try, or the one to remove */
    uint32_t lease_s;               /* lease to ask for */
    enum tw_port_protocol protocol; /* protocol that made the present mapping */
};

/* The router's answer. It comes from the network, but port_router.h has checked it: texts are
 * printable, and the host is an IPv4 address. */
struct tw_port_answer {
    enum tw_port_outcome outcome;
    enum tw_port_protocol protocol;      /* protocol by which the router answered */
    char outer_host[TW_PORT_HOST_BYTES]; /* MAPPED, DOUBLE_NAT: outer address of the router, or ""
                                            if it has none */
    uint16_t outer_port;                 /* MAPPED: port at the router */
    uint32_t lease_s;                    /* MAPPED: lease; 0 = it never ends */
    char words[TW_PORT_WORDS_BYTES];     /* REFUSED: reason; otherwise "" */
};

enum tw_port_state {
    TW_PORT_STATE_IDLE,
    TW_PORT_STATE_WAITING,
    TW_PORT_STATE_ASKING,
    TW_PORT_STATE_MAPPED,
    TW_PORT_STATE_RENEWING,
    TW_PORT_STATE_REMOVING,
};

struct tw_port_mapping {
    uint32_t lease_s; /* lease to ask for; 0 = TW_PORT_LEASE_S; shorter in tests */
    enum tw_port_state state;
    struct tw_port_want want;   /* mapping that the caller wants */
    struct tw_port_order order; /* ASKING, RENEWING, REMOVING: the request in progress */
    uint64_t due_us;            /* WAITING, MAPPED: time of the next request */
    bool has_answer;
    struct tw_port_answer answer; /* newest answer for this machine's address */
    /* MAPPED, RENEWING, REMOVING: answer that made the present mapping */
    struct tw_port_answer held;
    uint64_t asked_us, expires_us, doubt_us; /* time of the last success; end of the lease; pause
                                                before a doubtful mapping is renewed */
    uint64_t retry_us; /* last pause after a failure; 0 = the last request did not fail */
    uint64_t renewals; /* successful renewals since the start */
};

/* Updates the wanted mapping. A zeroed struct is valid and IDLE. */
void tw_port_mapping_look(struct tw_port_mapping *mapping, const struct tw_port_want *want,
                          uint64_t now_us);

/* Starts the request that is due. When it has ended, call tw_port_mapping_done once. Returns false
 * if no request is due. */
bool tw_port_mapping_next(struct tw_port_mapping *mapping, uint64_t now_us,
                          struct tw_port_order *order);

/* Handles the end of the request. After a removal, `answer` is ignored. */
void tw_port_mapping_done(struct tw_port_mapping *mapping, const struct tw_port_answer *answer,
                          uint64_t now_us);

/* Returns true while a router forwards the port. */
bool tw_port_mapping_is_held(const struct tw_port_mapping *mapping);

/* Writes the outer "host:port" while a router forwards it, otherwise "". */
void tw_port_mapping_address(const struct tw_port_mapping *mapping, char address[TW_ADDR_BYTES]);

/* Returns the name used in JSON: "off", "not_needed", "asking", "mapped", "no_router", "refused" or
 * "double_nat". Static storage. */
const char *tw_port_mapping_name(const struct tw_port_mapping *mapping);

/* Writes a sentence for people: the result, and the remedy if no port is forwarded. */
void tw_port_mapping_sentence(const struct tw_port_mapping *mapping,
                              char text[TW_PORT_SENTENCE_BYTES]);

/* Returns "NAT-PMP", "PCP", "UPnP" or "". Static storage. */
const char *tw_port_protocol_name(enum tw_port_protocol protocol);

/* Returns true if this is an IPv4 address that the whole internet can route to. */
bool tw_port_is_public(const char *host);

#endif
