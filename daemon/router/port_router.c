#include "daemon/router/port_router.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>
#include <natpmp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <uv.h>

#include "base/hash.h"

struct tw_port_router {
    atomic_bool is_hurried;
    bool has_igd; /* UPnP: a gateway was found; `urls` and `igd` describe it */
    struct UPNPUrls urls;
    struct IGDdatas igd;
};

enum { TURN_MS = 250 }; /* first pause before a request is repeated */

/* ==== answers and the gateway ================================================================= */

/* Fills in an answer without a mapping. Characters of `words` that are not printable become '?'. */
static void set_failure(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                        enum tw_port_outcome outcome, const char *words) {
    *answer = (struct tw_port_answer){.protocol = protocol, .outcome = outcome};
    for (size_t i = 0; i + 1 < sizeof(answer->words) && words[i] != '\0'; i++)
        answer->words[i] = words[i] >= ' ' && words[i] <= '~' && words[i] != '"' ? words[i] : '?';
}

/* Writes the outer address that a router reports to the answer. If it is not public, sets the
 * outcome TW_PORT_DOUBLE_NAT and returns false. */
static bool take_outer(struct tw_port_answer *answer, enum tw_port_protocol protocol,
                       const char *host) {
    struct in_addr read;
    set_failure(answer, protocol, TW_PORT_DOUBLE_NAT, "");
    if (inet_pton(AF_INET, host, &read) != 1 || read.s_addr == 0) return false;
    if (inet_ntop(AF_INET, &read, answer->outer_host, sizeof(answer->outer_host)) == NULL)
        return false;
    return tw_port_is_public(answer->outer_host);
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

/* Opens a socket to port 5351 of the default gateway, which the caller closes by closenatpmp.
 * Returns false if there is no gateway, or if `host` is not the local address that reaches it. */
static bool open_gateway(natpmp_t *gateway, const char *host) {
    gateway->s = -1;
    const bool is_open = initnatpmp(gateway, 0, 0) == 0;
    if (is_open) (void)fcntl(gateway->s, F_SETFD, FD_CLOEXEC);
    if (is_open && is_our_line(gateway, host)) return true;
    if (gateway->s >= 0) (void)closenatpmp(gateway);
    return false;
}

/* ==== PCP messages ============================================================================ */

enum {
    VERSION = 2,
    MAP = 1,
    ANSWER = 0x80, /* bit that marks an answer; the rest is the opcode */
    TCP = 6,
    HEAD_BYTES = 24,
    ADDRESS_BYTES = 16,
};

/* Offsets in the 36 bytes of a MAP body, which follows the header. */
enum { AT_NONCE = 0, AT_PROTOCOL = 12, AT_PORT = 16, AT_OUTER_PORT = 18, AT_OUTER_HOST = 20 };

/* Prefix of an IPv4 address as an IPv6 address: ::ffff:a.b.c.d. */
static const uint8_t MAPPED_PREFIX[12] = {[10] = 0xff, [11] = 0xff};

/* PCP numbers are big-endian. */
static void put(uint8_t *to, uint32_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static uint32_t get(const uint8_t *from, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; i++) value = value << 8 | from[i];
    return value;
}

enum tw_status tw_pcp_request(const struct tw_pcp_map *map, uint8_t bytes[TW_PCP_MAP_BYTES]) {
    uint8_t *const body = bytes + HEAD_BYTES;
    struct in_addr host;
    if (inet_pton(AF_INET, map->host, &host) != 1) return TW_CONFIG;
    memset(bytes, 0, TW_PCP_MAP_BYTES);
    bytes[0] = VERSION;
    bytes[1] = MAP;
    put(bytes + 4, map->lease_s, 4);
    memcpy(bytes + 8, MAPPED_PREFIX, sizeof(MAPPED_PREFIX));
    memcpy(bytes + 20, &host, sizeof(host));
    memcpy(body + AT_NONCE, map->nonce, sizeof(map->nonce));
    body[AT_PROTOCOL] = TCP;
    put(body + AT_PORT, map->port, 2);
    put(body + AT_OUTER_PORT, map->outer_port, 2);
    memcpy(body + AT_OUTER_HOST, MAPPED_PREFIX, sizeof(MAPPED_PREFIX)); /* any IPv4 address */
    return TW_OK;
}

enum tw_status tw_pcp_answer(const struct tw_pcp_map *map, const uint8_t *bytes, size_t size,
                             struct tw_pcp_mapped *mapped) {
    const uint8_t *const body = bytes + HEAD_BYTES, *const host = body + AT_OUTER_HOST;
    *mapped = (struct tw_pcp_mapped){.result = 0};
    if (size < HEAD_BYTES || bytes[1] != (ANSWER | MAP)) return TW_PROTO;
    mapped->result = bytes[3];
    /* A router of another version answers with its own version, and possibly without a body. */
    if (mapped->result != 0 && size < TW_PCP_MAP_BYTES) return TW_OK;
    if (bytes[0] != VERSION || size < TW_PCP_MAP_BYTES) return TW_PROTO;
    if (memcmp(body + AT_NONCE, map->nonce, sizeof(map->nonce)) != 0 || body[AT_PROTOCOL] != TCP ||
        get(body + AT_PORT, 2) != map->port)
        return TW_PROTO;
    if (mapped->result != 0) return TW_OK;
    mapped->lease_s = get(bytes + 4, 4);
    mapped->outer_port = (uint16_t)get(body + AT_OUTER_PORT, 2);
    if (memcmp(host, MAPPED_PREFIX, sizeof(MAPPED_PREFIX)) == 0)
        (void)inet_ntop(AF_INET, host + sizeof(MAPPED_PREFIX), mapped->outer_host,
                        sizeof(mapped->outer_host));
    return TW_OK;
}

const char *tw_pcp_words(uint8_t result) {
    static const char *const WORDS[] = {
        [1] = "it does not speak this version", [2] = "not authorized",
        [3] = "it did not understand",          [4] = "it does not forward ports",
        [5] = "it does not know an option",     [6] = "it did not understand an option",
        [7] = "it has no connection",           [8] = "it has no room for another mapping",
        [9] = "it does not forward TCP",        [10] = "this machine has as many as it may",
        [11] = "it cannot give the outer port", [12] = "this machine has another address there",
        [13] = "too many remote peers",
    };
    if (result >= sizeof(WORDS) / sizeof(WORDS[0]) || WORDS[result] == NULL)
        return "an error without a name";
    return WORDS[result];
}

/* ==== PCP ===================================================================================== */

/* Requests by PCP (RFC 6887): one datagram to the default gateway, one back. The router may pass
 * the request on to the provider's NAT, so a home behind two NATs can get a port. */

/* A request is sent three times, 250 and 500 ms apart. */
enum { TURNS = 3, MACHINE_BYTES = 64 };

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
static bool ask_pcp(const struct tw_port_router *router, int fd, const struct tw_pcp_map *map,
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

static void map_pcp(const struct tw_port_router *router, int fd, struct tw_pcp_map *map,
                    struct tw_port_answer *answer) {
    struct tw_pcp_mapped mapped;
    if (!ask_pcp(router, fd, map, &mapped)) {
        set_failure(answer, TW_PORT_PCP, TW_PORT_NO_ROUTER, "");
        return;
    }
    if (mapped.result != 0 || mapped.lease_s == 0 || mapped.outer_port == 0) {
        set_failure(answer, TW_PORT_PCP, TW_PORT_REFUSED,
                    mapped.result != 0 ? tw_pcp_words(mapped.result) : "its answer is no mapping");
        return;
    }
    if (!take_outer(answer, TW_PORT_PCP, mapped.outer_host)) {
        map->lease_s = 0; /* remove the mapping: an address that is not public is of no use */
        (void)ask_pcp(router, fd, map, &mapped);
        return;
    }
    answer->outcome = TW_PORT_MAPPED;
    answer->outer_port = mapped.outer_port;
    answer->lease_s = mapped.lease_s;
}

static void do_pcp(const struct tw_port_router *router, const struct tw_port_order *order,
                   struct tw_port_answer *answer) {
    natpmp_t gateway = {.s = -1};
    struct tw_pcp_mapped ignored;
    struct tw_pcp_map map = {.port = order->port,
                             .outer_port = order->is_removal ? 0 : order->outer_port,
                             .lease_s = order->is_removal ? 0 : order->lease_s};
    memcpy(map.host, order->host, sizeof(map.host));
    make_nonce(&map);
    set_failure(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    if (!open_gateway(&gateway, order->host)) return;
    if (order->is_removal)
        (void)ask_pcp(router, gateway.s, &map, &ignored);
    else
        map_pcp(router, gateway.s, &map, answer);
    (void)closenatpmp(&gateway);
}

/* ==== NAT-PMP ================================================================================= */

/* Requests by NAT-PMP (RFC 6886): one datagram to the default gateway, one back.
 *
 * The library repeats its request after 250, 500 and 1000 ms. That suffices, because the router is
 * nearby. */
enum { PATIENCE_US = 1750 * 1000 };

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
static int ask_natpmp(const struct tw_port_router *router, natpmp_t *gateway,
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

static void map_natpmp(const struct tw_port_router *router, natpmp_t *gateway,
                       const struct tw_port_order *order, struct tw_port_answer *answer) {
    char host[INET_ADDRSTRLEN] = "";
    natpmpresp_t response;
    bool is_there = false;
    int code = ask_natpmp(router, gateway, NULL, &response);
    if (code == 0) {
        is_there = true;
        (void)inet_ntop(AF_INET, &response.pnu.publicaddress.addr, host, sizeof(host));
        if (!take_outer(answer, TW_PORT_NATPMP, host)) return;
        code = ask_natpmp(router, gateway, order, &response);
    }
    if (code == NATPMP_ERR_NETWORKFAILURE) { /* the gateway has no outer address */
        set_failure(answer, TW_PORT_NATPMP, TW_PORT_DOUBLE_NAT, "");
        return;
    }
    if (code != 0 && !is_there && !is_answer(code)) {
        set_failure(answer, TW_PORT_NATPMP, TW_PORT_NO_ROUTER, "");
        return;
    }
    if (code != 0) {
        set_failure(answer, TW_PORT_NATPMP, TW_PORT_REFUSED,
                    is_answer(code) ? words_of(code) : "no answer to the request for a port");
        return;
    }
    if (response.pnu.newportmapping.lifetime == 0 ||
        response.pnu.newportmapping.mappedpublicport == 0 ||
        response.pnu.newportmapping.privateport != order->port) {
        set_failure(answer, TW_PORT_NATPMP, TW_PORT_REFUSED, "its answer is no mapping");
        return;
    }
    answer->outcome = TW_PORT_MAPPED;
    answer->outer_port = response.pnu.newportmapping.mappedpublicport;
    answer->lease_s = response.pnu.newportmapping.lifetime;
}

static void do_natpmp(const struct tw_port_router *router, const struct tw_port_order *order,
                      struct tw_port_answer *answer) {
    natpmp_t gateway = {.s = -1};
    natpmpresp_t ignored;
    set_failure(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    if (!open_gateway(&gateway, order->host)) return;
    if (order->is_removal)
        (void)ask_natpmp(router, &gateway, order, &ignored);
    else
        map_natpmp(router, &gateway, order, answer);
    (void)closenatpmp(&gateway);
}

/* ==== UPnP ==================================================================================== */

uint16_t tw_port_router_outer(const struct tw_port_order *order, unsigned tries) {
    enum { FIRST = 20000, COUNT = 40000, STEP = 7919 };
    struct in_addr host = {0};
    if (tries == 0) return order->outer_port;
    (void)inet_pton(AF_INET, order->host, &host);
    const uint32_t mixed = (ntohl(host.s_addr) & 0xffff) * 31u + order->port + tries * STEP;
    return (uint16_t)(FIRST + mixed % COUNT);
}

/* Requests by UPnP-IGD: a router is discovered by multicast and asked by SOAP. */

enum {
    DISCOVER_MS = 1000,
    DISCOVERIES = 2,
    TRIES = 4, /* outer ports to try */
    ALREADY_TAKEN = 718,
    WITHOUT_END = 725, /* the router supports only mappings without a lease */
    URL_HOST_BYTES = 64,
};

static void forget_igd(struct tw_port_router *router) {
    if (router->has_igd) FreeUPNPUrls(&router->urls);
    router->has_igd = false;
}

/* Returns true if the URL's host is a private IPv4 address. Any machine of the network may answer a
 * discovery, and must not make this node send requests to other hosts. */
static bool is_near(const char *url) {
    static const char SCHEME[] = "http://";
    char host[URL_HOST_BYTES] = "";
    struct in_addr ignored;
    if (url == NULL || strncmp(url, SCHEME, sizeof(SCHEME) - 1) != 0) return false;
    const char *begin = url + sizeof(SCHEME) - 1;
    const size_t size = strcspn(begin, ":/");
    if (size == 0 || size >= sizeof(host)) return false;
    memcpy(host, begin, size);
    return inet_pton(AF_INET, host, &ignored) == 1 && !tw_port_is_public(host);
}

/* Removes from the list the devices whose description is not at a private address. */
static void keep_near(struct UPNPDev **list) {
    while (*list != NULL) {
        struct UPNPDev *one = *list;
        if (is_near(one->descURL)) {
            list = &one->pNext;
            continue;
        }
        *list = one->pNext;
        one->pNext = NULL;
        freeUPNPDevlist(one);
    }
}

static int choose_igd(struct UPNPDev *list, struct UPNPUrls *urls, struct IGDdatas *igd,
                      char own[TW_PORT_HOST_BYTES]) {
#if MINIUPNPC_API_VERSION >= 18
    char outer[TW_PORT_HOST_BYTES] = "";
    return UPNP_GetValidIGD(list, urls, igd, own, TW_PORT_HOST_BYTES, outer, sizeof(outer));
#else
    return UPNP_GetValidIGD(list, urls, igd, own, TW_PORT_HOST_BYTES);
#endif
}

/* Returns false if no multicast leaves `host` now: its line is down. The library would print that
 * on standard error, among the lines of the log. */
static bool has_line(const char *host) {
    struct in_addr own = {0};
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(1900)};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool is_good = inet_pton(AF_INET, host, &own) == 1 &&
                         inet_pton(AF_INET, "239.255.255.250", &group.sin_addr) == 1 &&
                         setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof(own)) == 0 &&
                         connect(fd, (const struct sockaddr *)&group, sizeof(group)) == 0;
    (void)close(fd);
    return is_good;
}

/* Finds a gateway that this machine reaches from its address `host`. */
static bool find_igd(struct tw_port_router *router, const char *host) {
    forget_igd(router);
    for (int i = 0; i < DISCOVERIES && has_line(host) && !atomic_load(&router->is_hurried); i++) {
        int ignored = 0;
        char own[TW_PORT_HOST_BYTES] = "";
        struct UPNPDev *list =
            upnpDiscover(DISCOVER_MS, host, NULL, UPNP_LOCAL_PORT_ANY, 0, 2, &ignored);
        keep_near(&list);
        memset(&router->urls, 0, sizeof(router->urls));
        router->has_igd = list != NULL && choose_igd(list, &router->urls, &router->igd, own) != 0;
        freeUPNPDevlist(list);
        if (router->has_igd && router->igd.first.servicetype[0] != '\0' &&
            is_near(router->urls.controlURL) && strcmp(own, host) == 0)
            return true;
        forget_igd(router);
    }
    return false;
}

/* Returns true if another machine, or another port of this one, uses the outer port. Some routers
 * would let this node take over their mapping. */
static bool is_taken(const struct tw_port_router *router, const struct tw_port_order *order,
                     const char *outer) {
    char host[64] = "", port[16] = "", description[128] = "", enabled[16] = "", lease[32] = "";
    char own_port[8];
    (void)snprintf(own_port, sizeof(own_port), "%u", (unsigned)order->port);
    if (UPNP_GetSpecificPortMappingEntry(router->urls.controlURL, router->igd.first.servicetype,
                                         outer, "TCP", NULL, host, port, description, enabled,
                                         lease) != UPNPCOMMAND_SUCCESS)
        return false;
    return strcmp(host, order->host) != 0 || strcmp(port, own_port) != 0;
}

/* Asks for a mapping. Returns 0, or the error of the router or the library. */
static int add_mapping(const struct tw_port_router *router, const struct tw_port_order *order,
                       const char *outer, uint32_t lease_s) {
    char port[8], lease[16];
    (void)snprintf(port, sizeof(port), "%u", (unsigned)order->port);
    (void)snprintf(lease, sizeof(lease), "%u", (unsigned)lease_s);
    return UPNP_AddPortMapping(router->urls.controlURL, router->igd.first.servicetype, outer, port,
                               order->host, "thinwire", "TCP", NULL, lease);
}

static void say_refused(struct tw_port_answer *answer, int code) {
    char words[TW_PORT_WORDS_BYTES];
    const char *text = strupnperror(code);
    if (code == UPNPCOMMAND_HTTP_ERROR) text = "it does not answer";
    (void)snprintf(words, sizeof(words), "error %d, %s", code, text != NULL ? text : "unknown");
    set_failure(answer, TW_PORT_UPNP, TW_PORT_REFUSED, words);
}

static void map_upnp(const struct tw_port_router *router, const struct tw_port_order *order,
                     struct tw_port_answer *answer) {
    char host[64] = "";
    int code =
        UPNP_GetExternalIPAddress(router->urls.controlURL, router->igd.first.servicetype, host);
    if (code == UPNPCOMMAND_HTTP_ERROR) {
        say_refused(answer, code);
        return;
    }
    /* The router's error may only mean that it has no outer address. */
    if (code != UPNPCOMMAND_SUCCESS) host[0] = '\0';
    if (!take_outer(answer, TW_PORT_UPNP, host)) return;
    code = ALREADY_TAKEN;
    for (unsigned i = 0; i < TRIES && code == ALREADY_TAKEN; i++) {
        const uint16_t outer_port = tw_port_router_outer(order, i);
        uint32_t lease_s = order->lease_s;
        char outer[8];
        (void)snprintf(outer, sizeof(outer), "%u", (unsigned)outer_port);
        if (is_taken(router, order, outer)) continue;
        code = add_mapping(router, order, outer, lease_s);
        if (code == WITHOUT_END) code = add_mapping(router, order, outer, lease_s = 0);
        answer->outer_port = outer_port;
        answer->lease_s = lease_s;
    }
    if (code == UPNPCOMMAND_SUCCESS)
        answer->outcome = TW_PORT_MAPPED;
    else
        say_refused(answer, code);
}

static void unmap_upnp(const struct tw_port_router *router, const struct tw_port_order *order) {
    char outer[8];
    (void)snprintf(outer, sizeof(outer), "%u", (unsigned)order->outer_port);
    (void)UPNP_DeletePortMapping(router->urls.controlURL, router->igd.first.servicetype, outer,
                                 "TCP", NULL);
}

static void do_upnp(struct tw_port_router *router, const struct tw_port_order *order,
                    struct tw_port_answer *answer) {
    set_failure(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    const bool is_renewal = order->protocol == TW_PORT_UPNP && router->has_igd;
    if (order->is_removal) {
        if (is_renewal || find_igd(router, order->host)) unmap_upnp(router, order);
        return;
    }
    if (is_renewal) map_upnp(router, order, answer);
    if (answer->outcome == TW_PORT_MAPPED || answer->outcome == TW_PORT_DOUBLE_NAT) return;
    if (find_igd(router, order->host)) map_upnp(router, order, answer);
}

/* ==== the calls =============================================================================== */

struct tw_port_router *tw_port_router_create(void) {
    struct tw_port_router *router = calloc(1, sizeof(*router));
    if (router != NULL) atomic_init(&router->is_hurried, false);
    return router;
}

void tw_port_router_destroy(struct tw_port_router *router) {
    if (router == NULL) return;
    forget_igd(router);
    free(router);
}

void tw_port_router_hurry(struct tw_port_router *router) {
    atomic_store(&router->is_hurried, true);
}

static void ask(struct tw_port_router *router, enum tw_port_protocol protocol,
                const struct tw_port_order *order, struct tw_port_answer *answer) {
    switch (protocol) {
    case TW_PORT_NO_PROTOCOL: return;
    case TW_PORT_NATPMP: do_natpmp(router, order, answer); return;
    case TW_PORT_PCP: do_pcp(router, order, answer); return;
    case TW_PORT_UPNP: do_upnp(router, order, answer); return;
    }
}

/* Tries all protocols, because a router that refuses by one may allow by another. Behind a
 * provider's NAT only PCP gets a port. */
void tw_port_router_do(struct tw_port_router *router, const struct tw_port_order *order,
                       struct tw_port_answer *answer) {
    set_failure(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
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
