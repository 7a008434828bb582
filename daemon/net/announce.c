/* announce.c - the addresses that this node announces in HELLO and to its peers. */
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport_impl.h"

static void self_add(struct tw_member_row *self, const char *host, uint16_t port) {
    char text[TW_ADDR_BYTES] = "";
    const bool is_v6 = strchr(host, ':') != NULL;
    const int length =
        snprintf(text, sizeof(text), is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    if (length <= 0 || length >= TW_ADDR_BYTES) return;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (strcmp(self->addrs[i], text) == 0) return;
        if (self->addrs[i][0] != '\0') continue;
        memcpy(self->addrs[i], text, sizeof(text));
        return;
    }
}

/* For a wildcard listener, adds this machine's address on the default route. A peer sees only one
 * of our addresses, and behind NAT it sees the router's. Nodes in our own network can dial the real
 * one. */
static void self_add_own(const struct tw_transport *t, const struct tw_listener *listener,
                         struct tw_member_row *self) {
    static const int families[2] = {AF_INET6, AF_INET};
    for (unsigned i = 0; i < 2; i++) {
        struct sockaddr_storage own;
        char host[INET6_ADDRSTRLEN];
        const bool is_covered = listener->family == families[i] ||
                                (listener->family == AF_INET6 && t->config.listen_count == 1);
        if (!is_covered || !tw_local_address(&t->egress, families[i], &own)) continue;
        if (uv_ip_name((const struct sockaddr *)&own, host, sizeof(host)) != 0) continue;
        self_add(self, host, listener->port);
    }
}

/* Adds the outer address that a router forwards to this node. If all address entries are used, it
 * replaces the IPv6 wildcard: peers learn this machine's IPv6 address anyway. */
static void self_add_mapped(const struct tw_transport *t, struct tw_member_row *self) {
    unsigned at = 0;
    if (t->mapped[0] == '\0') return;
    while (at < TW_ADDRS_MAX && self->addrs[at][0] != '\0') at++;
    for (unsigned i = 0; i < TW_ADDRS_MAX && at == TW_ADDRS_MAX; i++) {
        if (strncmp(self->addrs[i], "[::]:", 5) == 0) at = i;
    }
    memcpy(self->addrs[at < TW_ADDRS_MAX ? at : TW_ADDRS_MAX - 1], t->mapped, TW_ADDR_BYTES);
}

void tw_announce_fill(const struct tw_transport *t, struct tw_member_row *self) {
    const struct tw_transport_config *config = &t->config;
    *self = (struct tw_member_row){.id = config->identity->id};
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++)
        memcpy(self->addrs[i], config->advertise[i], TW_ADDR_BYTES);
    if (self->addrs[0][0] != '\0') return;
    /* A wildcard is announced as it is: the receiver substitutes the address from which we
     * connected. */
    for (uint32_t i = 0; i < config->listen_count; i++) {
        char host[TW_ADDR_BYTES];
        uint16_t ignored = 0;
        const bool is_named = tw_address_split(config->listen[i], host, &ignored);
        TW_ASSERT(is_named);
        if (!t->listeners[i].is_absent) self_add(self, host, t->listeners[i].port);
    }
    for (uint32_t i = 0; i < config->listen_count; i++) {
        const struct tw_listener *listener = &t->listeners[i];
        if (listener->is_wildcard && !listener->is_absent) self_add_own(t, listener, self);
    }
    self_add_mapped(t, self);
}

bool tw_transport_set_mapped(struct tw_transport *t, const char *address) {
    if (strcmp(t->mapped, address) == 0) return false;
    (void)snprintf(t->mapped, sizeof(t->mapped), "%s", address);
    return true;
}

bool tw_transport_own_v4(const struct tw_transport *t, char host[TW_ADDR_BYTES]) {
    struct sockaddr_storage own;
    return tw_local_address(&t->egress, AF_INET, &own) &&
           uv_ip_name((const struct sockaddr *)&own, host, TW_ADDR_BYTES) == 0;
}

bool tw_transport_inner(const struct tw_transport *t, char host[TW_ADDR_BYTES], uint16_t *port) {
    for (uint32_t i = 0; i < t->config.listen_count; i++) {
        const struct tw_listener *listener = &t->listeners[i];
        const bool is_v4 =
            listener->family == AF_INET || (listener->is_wildcard && t->config.listen_count == 1);
        char address[TW_ADDR_BYTES];
        uint16_t ignored = 0;
        if (!is_v4 || listener->is_absent || listener->is_loopback) continue;
        if (!listener->is_wildcard) {
            if (!tw_address_split(t->config.listen[i], host, &ignored)) continue;
        } else if (!tw_transport_own_v4(t, host)) {
            continue;
        }
        *port = listener->port;
        (void)snprintf(address, sizeof(address), "%.64s:%u", host, (unsigned)*port);
        if (tw_reachability_is_private(address)) return true;
    }
    return false;
}
