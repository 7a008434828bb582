/* pcp.h - encodes MAP requests of the Port Control Protocol for TCP over IPv4, and decodes their
 * answers (RFC 6887, sections 7 and 11). Pure. */
#ifndef TW_DAEMON_ROUTER_PCP_H
#define TW_DAEMON_ROUTER_PCP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/router/port_mapping.h"

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

#endif
