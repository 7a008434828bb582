/* port_pcp.c - requests by PCP (RFC 6887): one datagram to the default gateway, one back. The
 * router may pass the request on to the provider's NAT, so a home behind two NATs can get a port.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <natpmp.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/hash.h"
#include "daemon/router/pcp.h"
#include "daemon/router/port_router_impl.h"

/* A request is sent three times, 250 and 500 ms apart. */
enum { TURNS = 3, TURN_MS = 250, MACHINE_BYTES = 64 };

/* Makes a nonce that is the same after a restart, so that a mapping left by a crash can be renewed.
 * Others on this network cannot guess it, because it depends on the machine's id, if there is one.
 */
static void make_nonce(struct tw_pcp_map *map) {
    char machine[MACHINE_BYTES] = "", text[2 * MACHINE_BYTES];
    FILE *const file = fopen("/etc/machine-id", "re");
    if (file != NULL) {
        machine[fread(machine, 1, sizeof(machine) - 1, file)] = '\0';
        (void)fclose(file);
    }
    const int size = snprintf(text, sizeof(text), "thinwire-pcp-v1 %s %s %u", machine, map->host,
                              (unsigned)map->port);
    const struct tw_id id = tw_sha256(text, (size_t)size);
    memcpy(map->nonce, id.bytes, sizeof(map->nonce));
}

/* Sends the request and waits for its answer. Returns false if none arrives. */
static bool exchange(const struct tw_port_router *router, int fd, const struct tw_pcp_map *map,
                     struct tw_pcp_mapped *mapped) {
    uint8_t request[TW_PCP_MAP_BYTES], answer[TW_PCP_ANSWER_MAX];
    if (tw_pcp_request(map, request) != TW_OK) return false;
    for (int turn = 0; turn < TURNS && !atomic_load(&router->is_hurried); turn++) {
        const uint64_t end_ms = uv_hrtime() / 1000000 + ((uint64_t)TURN_MS << turn);
        if (send(fd, request, sizeof(request), MSG_NOSIGNAL) < 0) return false;
        for (uint64_t now_ms; (now_ms = uv_hrtime() / 1000000) < end_ms;) {
            struct pollfd one = {.fd = fd, .events = POLLIN};
            if (poll(&one, 1, (int)(end_ms - now_ms)) <= 0) continue;
            const ssize_t size = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
            /* An ICMP error arrived: the router does not listen. */
            if (size < 0 && (one.revents & POLLERR) != 0) return false;
            if (size > 0 && tw_pcp_answer(map, answer, (size_t)size, mapped) == TW_OK) return true;
        }
    }
    return false;
}

static void map_port(const struct tw_port_router *router, int fd, struct tw_pcp_map *map,
                     struct tw_port_answer *answer) {
    struct tw_pcp_mapped mapped;
    if (!exchange(router, fd, map, &mapped)) {
        tw_port_fail(answer, TW_PORT_PCP, TW_PORT_NO_ROUTER, "");
        return;
    }
    if (mapped.result != 0 || mapped.lease_s == 0 || mapped.outer_port == 0) {
        tw_port_fail(answer, TW_PORT_PCP, TW_PORT_REFUSED,
                     mapped.result != 0 ? tw_pcp_words(mapped.result) : "its answer is no mapping");
        return;
    }
    if (!tw_port_take_outer(answer, TW_PORT_PCP, mapped.outer_host)) {
        map->lease_s = 0; /* remove the mapping: an address that is not public is of no use */
        (void)exchange(router, fd, map, &mapped);
        return;
    }
    answer->outcome = TW_PORT_MAPPED;
    answer->outer_port = mapped.outer_port;
    answer->lease_s = mapped.lease_s;
}

void tw_port_pcp(const struct tw_port_router *router, const struct tw_port_order *order,
                 struct tw_port_answer *answer) {
    natpmp_t gateway = {.s = -1};
    struct tw_pcp_mapped ignored;
    struct tw_pcp_map map = {.port = order->port,
                             .outer_port = order->is_removal ? 0 : order->outer_port,
                             .lease_s = order->is_removal ? 0 : order->lease_s};
    memcpy(map.host, order->host, sizeof(map.host));
    make_nonce(&map);
    tw_port_fail(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    if (!tw_port_gateway_open(&gateway, order->host)) return;
    if (order->is_removal)
        (void)exchange(router, gateway.s, &map, &ignored);
    else
        map_port(router, gateway.s, &map, answer);
    (void)closenatpmp(&gateway);
}
