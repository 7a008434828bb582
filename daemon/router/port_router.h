/* port_router.h - sends requests to the router of this network, by NAT-PMP, PCP and UPnP-IGD.
 *
 * A call blocks for seconds: run it on a thread. Everything that a router sends is checked: its
 * outer address is an IPv4 address, its texts are printable. Only routers at private addresses are
 * asked. */
#ifndef TW_DAEMON_ROUTER_PORT_ROUTER_H
#define TW_DAEMON_ROUTER_PORT_ROUTER_H

#include <stdbool.h>

#include "base/status.h"
#include "daemon/router/port_mapping.h"

/* State of the router that is kept between two requests. */
struct tw_port_router;

/* Returns an object that the caller destroys, or NULL without memory. */
struct tw_port_router *tw_port_router_create(void);
void tw_port_router_destroy(struct tw_port_router *router);

/* Performs the request with the first of NAT-PMP, PCP and UPnP that the router grants. A mapping is
 * renewed and removed by the protocol that made it. Blocks. One call at a time. */
void tw_port_router_do(struct tw_port_router *router, const struct tw_port_order *order,
                       struct tw_port_answer *answer);

/* Makes a running request for a mapping end as soon as possible, within about a second. May be
 * called from any thread. */
void tw_port_router_hurry(struct tw_port_router *router);

/* Returns the outer port to ask for, if `tries` others are in use. It differs between the machines
 * of a network, and is the same after a restart. Pure. */
uint16_t tw_port_router_outer(const struct tw_port_order *order, unsigned tries);

#endif
