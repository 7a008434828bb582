/* pcp.h - bytes of the Port Control Protocol: MAP requests for TCP over IPv4, and their answers
 * (RFC 6887, sections 7 and 11). Pure. */
#ifndef TW_DAEMON_ROUTER_PCP_H
#define TW_DAEMON_ROUTER_PCP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/router/port_mapping.h"

enum { TW_PCP_MAP_BYTES = 60, TW_PCP_ANSWER_MAX = 1100, TW_PCP_NONCE_BYTES = 12 };

/* The router lets only the holder of the nonce renew or remove a mapping. */
struct tw_pcp_map {
    uint8_t nonce[TW_PCP_NONCE_BYTES];
    char host[TW_PORT_HOST_BYTES]; /* address of this machine, IPv4 */
    uint16_t port, outer_port;     /* outer_port: the wanted one; 0: any */
    uint32_t lease_s;              /* 0: remove the mapping */
};

/* The answer of a router. */
struct tw_pcp_mapped {
    uint8_t result; /* 0: success; otherwise an error of section 7.4 */
    uint32_t lease_s;
    uint16_t outer_port;
    char outer_host[TW_PORT_HOST_BYTES]; /* "" if it is no IPv4 address */
};

/* TW_CONFIG: `host` is no IPv4 address. */
enum tw_status tw_pcp_request(const struct tw_pcp_map *map, uint8_t bytes[TW_PCP_MAP_BYTES]);

/* TW_PROTO: these bytes are no answer to that request. Of an error, only `result` is set. */
enum tw_status tw_pcp_answer(const struct tw_pcp_map *map, const uint8_t *bytes, size_t size,
                             struct tw_pcp_mapped *mapped);

/* A result as words for a sentence. Static storage. */
const char *tw_pcp_words(uint8_t result);

#endif
