/* port_natpmp.c - requests by NAT-PMP (RFC 6886): one datagram to the default gateway, one back. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <arpa/inet.h>
#include <natpmp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <uv.h>

#include "daemon/router/port_router_impl.h"

/* The library repeats its request after 250, 500 and 1000 ms. That suffices, because the router is
 * nearby. */
enum { PATIENCE_US = 1750 * 1000, TURN_MS = 250 };

static const char *words_of(int code) {
    switch (code) {
    case NATPMP_ERR_UNSUPPORTEDVERSION: return "it does not speak this version";
    case NATPMP_ERR_NOTAUTHORIZED: return "not authorized";
    case NATPMP_ERR_OUTOFRESOURCES: return "it has no room for another mapping";
    case NATPMP_ERR_UNSUPPORTEDOPCODE: return "it does not forward TCP";
    default: return "an error without a name";
    }
}

/* Returns true if the error is an answer of the gateway. Returns false if it is one of this
 * machine, or means that the gateway does not listen. */
static bool is_answer(int code) {
    return code == NATPMP_ERR_UNSUPPORTEDVERSION || code == NATPMP_ERR_UNSUPPORTEDOPCODE ||
           code == NATPMP_ERR_NOTAUTHORIZED || code == NATPMP_ERR_OUTOFRESOURCES ||
           code == NATPMP_ERR_UNDEFINEDERROR;
}

/* Sends a request. If `order` is NULL, it asks for the outer address. Returns 0 or an error of the
 * library. */
static int send_request(natpmp_t *gateway, const struct tw_port_order *order) {
    if (order == NULL) {
        const int sent = sendpublicaddressrequest(gateway);
        return sent < 0 ? sent : 0;
    }
    const uint32_t lease_s = order->is_removal ? 0 : order->lease_s;
    const uint16_t outer = order->is_removal ? 0 : order->outer_port;
    const int sent =
        sendnewportmappingrequest(gateway, NATPMP_PROTOCOL_TCP, order->port, outer, lease_s);
    return sent < 0 ? sent : 0;
}

/* Sends the request and waits for its answer. Returns 0 or an error of the library. */
static int exchange(const struct tw_port_router *router, natpmp_t *gateway,
                    const struct tw_port_order *order, natpmpresp_t *response) {
    const uint64_t end_us = uv_hrtime() / 1000 + PATIENCE_US;
    const uint16_t type =
        order == NULL ? NATPMP_RESPTYPE_PUBLICADDRESS : NATPMP_RESPTYPE_TCPPORTMAPPING;
    memset(response, 0, sizeof(*response));
    int code = send_request(gateway, order);
    while (code == 0 || code == NATPMP_TRYAGAIN) {
        struct timeval left = {0};
        struct pollfd one = {.fd = gateway->s, .events = POLLIN};
        if (uv_hrtime() / 1000 >= end_us || atomic_load(&router->is_hurried)) break;
        if (getnatpmprequesttimeout(gateway, &left) != 0) break;
        const int64_t wait_ms = (int64_t)left.tv_sec * 1000 + left.tv_usec / 1000 + 1;
        const bool is_short = wait_ms > 0 && wait_ms < TURN_MS;
        (void)poll(&one, 1, is_short ? (int)wait_ms : TURN_MS);
        code = readnatpmpresponseorretry(gateway, response);
        if (code == 0 && response->type == type) return 0;
        /* A late answer to the previous request arrived: send this request again. */
        if (code == 0) code = send_request(gateway, order);
    }
    return code == 0 || code == NATPMP_TRYAGAIN ? NATPMP_ERR_NOGATEWAYSUPPORT : code;
}

/* Returns true if the default route leaves from `host`, the local address to which the port is to
 * be forwarded. */
static bool is_our_line(const natpmp_t *gateway, const char *host) {
    struct sockaddr_in own = {0};
    socklen_t size = sizeof(own);
    char text[INET_ADDRSTRLEN];
    if (getsockname(gateway->s, (struct sockaddr *)&own, &size) != 0) return false;
    if (own.sin_family != AF_INET) return false;
    if (inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text)) == NULL) return false;
    return strcmp(text, host) == 0;
}

bool tw_port_gateway_open(natpmp_t *gateway, const char *host) {
    gateway->s = -1;
    const bool is_open = initnatpmp(gateway, 0, 0) == 0;
    if (is_open) (void)fcntl(gateway->s, F_SETFD, FD_CLOEXEC);
    if (is_open && is_our_line(gateway, host)) return true;
    if (gateway->s >= 0) (void)closenatpmp(gateway);
    return false;
}

static void map(const struct tw_port_router *router, natpmp_t *gateway,
                const struct tw_port_order *order, struct tw_port_answer *answer) {
    char host[INET_ADDRSTRLEN] = "";
    natpmpresp_t response;
    bool is_there = false;
    int code = exchange(router, gateway, NULL, &response);
    if (code == 0) {
        is_there = true;
        (void)inet_ntop(AF_INET, &response.pnu.publicaddress.addr, host, sizeof(host));
        if (!tw_port_take_outer(answer, TW_PORT_NATPMP, host)) return;
        code = exchange(router, gateway, order, &response);
    }
    if (code == NATPMP_ERR_NETWORKFAILURE) { /* the gateway has no outer address */
        tw_port_fail(answer, TW_PORT_NATPMP, TW_PORT_DOUBLE_NAT, "");
        return;
    }
    if (code != 0 && !is_there && !is_answer(code)) {
        tw_port_fail(answer, TW_PORT_NATPMP, TW_PORT_NO_ROUTER, "");
        return;
    }
    if (code != 0) {
        tw_port_fail(answer, TW_PORT_NATPMP, TW_PORT_REFUSED,
                     is_answer(code) ? words_of(code) : "no answer to the request for a port");
        return;
    }
    if (response.pnu.newportmapping.lifetime == 0 ||
        response.pnu.newportmapping.mappedpublicport == 0 ||
        response.pnu.newportmapping.privateport != order->port) {
        tw_port_fail(answer, TW_PORT_NATPMP, TW_PORT_REFUSED, "its answer is no mapping");
        return;
    }
    answer->outcome = TW_PORT_MAPPED;
    answer->outer_port = response.pnu.newportmapping.mappedpublicport;
    answer->lease_s = response.pnu.newportmapping.lifetime;
}

void tw_port_natpmp(const struct tw_port_router *router, const struct tw_port_order *order,
                    struct tw_port_answer *answer) {
    natpmp_t gateway = {.s = -1};
    natpmpresp_t ignored;
    tw_port_fail(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    if (!tw_port_gateway_open(&gateway, order->host)) return;
    if (order->is_removal)
        (void)exchange(router, &gateway, order, &ignored);
    else
        map(router, &gateway, order, answer);
    (void)closenatpmp(&gateway);
}
