#include "daemon/router/port_router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "daemon/router/port_router_impl.h"

struct tw_port_router *tw_port_router_create(void) {
    struct tw_port_router *router = calloc(1, sizeof(*router));
    if (router != NULL) atomic_init(&router->is_hurried, false);
    return router;
}

void tw_port_router_destroy(struct tw_port_router *router) {
    if (router == NULL) return;
    tw_port_upnp_forget(router);
    free(router);
}

void tw_port_router_hurry(struct tw_port_router *router) {
    atomic_store(&router->is_hurried, true);
}

void tw_port_fail(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                  enum tw_port_outcome outcome, const char *words) {
    *answer = (struct tw_port_answer){.protocol = protocol, .outcome = outcome};
    for (size_t i = 0; i + 1 < sizeof(answer->words) && words[i] != '\0'; i++)
        answer->words[i] = words[i] >= ' ' && words[i] <= '~' && words[i] != '"' ? words[i] : '?';
}

bool tw_port_take_outer(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                        const char *host) {
    struct in_addr read;
    tw_port_fail(answer, protocol, TW_PORT_DOUBLE_NAT, "");
    if (inet_pton(AF_INET, host, &read) != 1 || read.s_addr == 0) return false;
    if (inet_ntop(AF_INET, &read, answer->outer_host, sizeof(answer->outer_host)) == NULL)
        return false;
    return tw_port_is_public(answer->outer_host);
}

uint16_t tw_port_router_outer(const struct tw_port_order *order, unsigned tries) {
    enum { FIRST = 20000, COUNT = 40000, STEP = 7919 };
    struct in_addr host = {0};
    if (tries == 0) return order->outer_port;
    (void)inet_pton(AF_INET, order->host, &host);
    const uint32_t mixed = (ntohl(host.s_addr) & 0xffff) * 31u + order->port + tries * STEP;
    return (uint16_t)(FIRST + mixed % COUNT);
}

static void ask(struct tw_port_router *router, enum tw_port_protocol protocol,
                const struct tw_port_order *order, struct tw_port_answer *answer) {
    switch (protocol) {
    case TW_PORT_NO_PROTOCOL: return;
    case TW_PORT_NATPMP: tw_port_natpmp(router, order, answer); return;
    case TW_PORT_PCP: tw_port_pcp(router, order, answer); return;
    case TW_PORT_UPNP: tw_port_upnp(router, order, answer); return;
    }
}

/* Tries all protocols, because a router that refuses by one may allow by another. Behind a
 * provider's NAT only PCP gets a port. */
void tw_port_router_do(struct tw_port_router *router, const struct tw_port_order *order,
                       struct tw_port_answer *answer) {
    tw_port_fail(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    if (order->is_removal) atomic_store(&router->is_hurried, false);
    for (enum tw_port_protocol p = TW_PORT_NATPMP; p <= TW_PORT_UPNP; p++) {
        const bool is_late = p > TW_PORT_NATPMP && p > order->protocol;
        struct tw_port_answer other;
        if (p < order->protocol ||
            (order->is_removal && order->protocol != TW_PORT_NO_PROTOCOL && p != order->protocol))
            continue;
        if (is_late && !order->is_removal && atomic_load(&router->is_hurried)) return;
        if (p == TW_PORT_UPNP && answer->outcome == TW_PORT_DOUBLE_NAT) return;
        ask(router, p, order, &other);
        if (answer->outcome == TW_PORT_NO_ROUTER || other.outcome == TW_PORT_MAPPED)
            *answer = other;
        if (answer->outcome == TW_PORT_MAPPED) return;
    }
}
