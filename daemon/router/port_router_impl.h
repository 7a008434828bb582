/* port_router_impl.h - shared by port_router.c, port_natpmp.c, port_pcp.c and port_upnp.c.
 * Private to them. */
#ifndef TW_DAEMON_ROUTER_PORT_ROUTER_IMPL_H
#define TW_DAEMON_ROUTER_PORT_ROUTER_IMPL_H

#include <stdatomic.h>

#include <miniupnpc/miniupnpc.h>
#include <natpmp.h>

#include "daemon/router/port_router.h"

struct tw_port_router {
    atomic_bool is_hurried;
    bool has_igd; /* UPnP: a gateway was found; `urls` and `igd` describe it */
    struct UPNPUrls urls;
    struct IGDdatas igd;
};

/* Fills in an answer without a mapping. Characters of `words` that are not printable become '?'. */
void tw_port_fail(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                  enum tw_port_outcome outcome, const char *words);

/* Writes the outer address that a router reports to the answer. If it is not public, sets the
 * outcome TW_PORT_DOUBLE_NAT and returns false. */
bool tw_port_take_outer(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                        const char *host);

/* Opens a socket to port 5351 of the default gateway, which the caller closes by closenatpmp.
 * Returns false if there is no gateway, or if `host` is not the local address that reaches it. */
bool tw_port_gateway_open(natpmp_t *gateway, const char *host);

/* Like tw_port_router_do, each by one protocol. */
void tw_port_natpmp(const struct tw_port_router *router, const struct tw_port_order *order,
                    struct tw_port_answer *answer);
void tw_port_pcp(const struct tw_port_router *router, const struct tw_port_order *order,
                 struct tw_port_answer *answer);
void tw_port_upnp(struct tw_port_router *router, const struct tw_port_order *order,
                  struct tw_port_answer *answer);
void tw_port_upnp_forget(struct tw_port_router *router);

#endif
