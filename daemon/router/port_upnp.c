/* port_upnp.c - requests by UPnP-IGD: a router is discovered by multicast and asked by SOAP. */
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/router/port_router_impl.h"

enum {
    DISCOVER_MS = 1000,
    DISCOVERIES = 2,
    TRIES = 4, /* outer ports to try */
    ALREADY_TAKEN = 718,
    WITHOUT_END = 725, /* the router supports only mappings without a lease */
    URL_HOST_BYTES = 64,
};

void tw_port_upnp_forget(struct tw_port_router *router) {
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

/* Finds a gateway that this machine reaches from its address `host`. */
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

static bool find_igd(struct tw_port_router *router, const char *host) {
    tw_port_upnp_forget(router);
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
        tw_port_upnp_forget(router);
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
    tw_port_fail(answer, TW_PORT_UPNP, TW_PORT_REFUSED, words);
}

static void map(const struct tw_port_router *router, const struct tw_port_order *order,
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
    if (!tw_port_take_outer(answer, TW_PORT_UPNP, host)) return;
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

static void unmap(const struct tw_port_router *router, const struct tw_port_order *order) {
    char outer[8];
    (void)snprintf(outer, sizeof(outer), "%u", (unsigned)order->outer_port);
    (void)UPNP_DeletePortMapping(router->urls.controlURL, router->igd.first.servicetype, outer,
                                 "TCP", NULL);
}

void tw_port_upnp(struct tw_port_router *router, const struct tw_port_order *order,
                  struct tw_port_answer *answer) {
    tw_port_fail(answer, TW_PORT_NO_PROTOCOL, TW_PORT_NO_ROUTER, "");
    const bool is_renewal = order->protocol == TW_PORT_UPNP && router->has_igd;
    if (order->is_removal) {
        if (is_renewal || find_igd(router, order->host)) unmap(router, order);
        return;
    }
    if (is_renewal) map(router, order, answer);
    if (answer->outcome == TW_PORT_MAPPED || answer->outcome == TW_PORT_DOUBLE_NAT) return;
    if (find_igd(router, order->host)) map(router, order, answer);
}
