/* port_router.h - asks the router of this network for a port: PCP, NAT-PMP, UPnP. The calls block.
 */
#ifndef TW_DAEMON_ROUTER_PORT_ROUTER_H
#define TW_DAEMON_ROUTER_PORT_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/router/port_mapping.h"

/* ==== PCP messages ============================================================================ */

/* Encodes MAP requests of the Port Control Protocol for TCP over IPv4, and decodes their answers
 * (RFC 6887, sections 7 and 11). Pure. */

enum { TW_PCP_MAP_BYTES = 60, TW_PCP_ANSWER_MAX = 1100, TW_PCP_NONCE_BYTES = 12 };

/* A MAP request. A mapping can be renewed or removed only with the nonce that made it. */
struct tw_pcp_map {
    uint8_t nonce[TW_PCP_NONCE_BYTES];
    char host[TW_PORT_HOST_BYTES]; /* address of this machine, IPv4 */
    uint16_t port, outer_port;     /* outer_port is the port to ask for; 0 = any */
    uint32_t lease_s;              /* lease to ask for; 0 = remove the mapping */
};

/* A router's answer to a MAP request. */
struct tw_pcp_mapped {
    uint8_t result; /* 0 = success, otherwise an error of section 7.4 */
    uint32_t lease_s;
    uint16_t outer_port;
    char outer_host[TW_PORT_HOST_BYTES]; /* "" unless it is an IPv4 address */
};

/* Returns TW_CONFIG if `host` is no IPv4 address. */
enum tw_status tw_pcp_request(const struct tw_pcp_map *map, uint8_t bytes[TW_PCP_MAP_BYTES]);

/* Returns TW_PROTO if these bytes do not answer that request. If the router reports an error, only
 * `result` is set. */
enum tw_status tw_pcp_answer(const struct tw_pcp_map *map, const uint8_t *bytes, size_t size,
                             struct tw_pcp_mapped *mapped);

/* Describes a result, for use within a sentence. Static storage. */
const char *tw_pcp_words(uint8_t result);

/* ==== the calls =============================================================================== */

/* Sends requests to the router of this network, by NAT-PMP, PCP and UPnP-IGD.
 *
 * A call blocks for seconds: run it on a thread. Everything that a router sends is checked: its
 * outer address is an IPv4 address, its texts are printable. Only routers at private addresses are
 * asked. */

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
