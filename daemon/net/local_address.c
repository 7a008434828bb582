#include "daemon/net/local_address.h"

#include <errno.h>
#include <string.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"

/* Sets `out` to an arbitrary internet address. A UDP socket connected to it gets the source address
 * of packets to the internet, without sending any. */
static void internet_address(int family, struct sockaddr_storage *out) {
    memset(out, 0, sizeof(*out));
    if (family == AF_INET6)
        (void)uv_ip6_addr("2000::1", 9, (struct sockaddr_in6 *)out);
    else
        (void)uv_ip4_addr("198.41.0.4", 9, (struct sockaddr_in *)out);
}

/* Finds the source address of the default route. */
static bool own_by_route(const struct tw_egress *egress, int family, struct sockaddr_storage *out) {
    struct sockaddr_storage to;
    socklen_t size = sizeof(*out);
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    internet_address(family, &to);
    bool is_found = egress->interface[0] == '\0' ||
                    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, egress->interface,
                               (socklen_t)strlen(egress->interface) + 1) == 0;
    is_found = is_found && connect(fd, (const struct sockaddr *)&to,
                                   family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in)) == 0;
    memset(out, 0, sizeof(*out));
    is_found = is_found && getsockname(fd, (struct sockaddr *)out, &size) == 0;
    (void)close(fd);
    if (!is_found) return false;
    if (family == AF_INET6)
        ((struct sockaddr_in6 *)out)->sin6_port = 0;
    else
        ((struct sockaddr_in *)out)->sin_port = 0;
    return true;
}

static bool is_dialable(const uv_interface_address_t *row) {
    if (row->is_internal) return false;
    if (row->address.address4.sin_family == AF_INET)
        return ntohl(row->address.address4.sin_addr.s_addr) >> 16 != 0xa9fe;
    return !IN6_IS_ADDR_LINKLOCAL(&row->address.address6.sin6_addr);
}

bool tw_local_address_pick(const uv_interface_address_t *list, int count, const char *interface,
                           int family, struct sockaddr_storage *out) {
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < count; i++) {
        const uv_interface_address_t *row = &list[i];
        if (row->address.address4.sin_family != family || !is_dialable(row)) continue;
        if (interface[0] != '\0' && strcmp(row->name, interface) != 0) continue;
        if (family == AF_INET6) {
            struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
            in6->sin6_family = AF_INET6;
            in6->sin6_addr = row->address.address6.sin6_addr;
        } else {
            struct sockaddr_in *in4 = (struct sockaddr_in *)out;
            in4->sin_family = AF_INET;
            in4->sin_addr = row->address.address4.sin_addr;
        }
        return true;
    }
    return false;
}

/* Finds the first usable address of an interface. Also returns false if the system does not list
 * its interfaces, as in a sandbox without netlink. */
static bool own_by_interface(const struct tw_egress *egress, int family,
                             struct sockaddr_storage *out) {
    uv_interface_address_t *list = NULL;
    int count = 0;
    if (uv_interface_addresses(&list, &count) != 0) return false;
    const bool is_found = tw_local_address_pick(list, count, egress->interface, family, out);
    uv_free_interface_addresses(list, count);
    return is_found;
}

bool tw_local_address(const struct tw_egress *egress, int family, struct sockaddr_storage *out) {
    const bool has = family == AF_INET6 ? egress->has_v6 : egress->has_v4;
    if (has) *out = family == AF_INET6 ? egress->v6 : egress->v4;
    if (has || egress->has_v4 || egress->has_v6) return has;
    return own_by_route(egress, family, out) || own_by_interface(egress, family, out);
}

/* Tries to bind to the address, which needs neither a list of interfaces nor netlink. */
bool tw_local_address_is(const struct sockaddr_storage *address) {
    struct sockaddr_storage at = *address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        struct sockaddr_in in4 = {.sin_family = AF_INET};
        memcpy(&in4.sin_addr, &in6->sin6_addr.s6_addr[12], sizeof(in4.sin_addr));
        memcpy(&at, &in4, sizeof(in4));
    }
    const bool is_v6 = at.ss_family == AF_INET6;
    if (is_v6)
        ((struct sockaddr_in6 *)&at)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&at)->sin_port = 0;
    const int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return true;
    const socklen_t size = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    const bool is_gone =
        bind(fd, (const struct sockaddr *)&at, size) != 0 && errno == EADDRNOTAVAIL;
    (void)close(fd);
    return !is_gone;
}

/* Copies the address, and an IPv4 address that is mapped to IPv6 as IPv4. Returns false if it is
 * unspecified. */
static bool address_plain(const struct sockaddr_storage *from, struct sockaddr_storage *out) {
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    memset(out, 0, sizeof(*out));
    if (from == NULL) return false;
    *out = *from;
    if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        struct sockaddr_in in4 = {.sin_family = AF_INET};
        memcpy(&in4.sin_addr, &in6->sin6_addr.s6_addr[12], sizeof(in4.sin_addr));
        memcpy(out, &in4, sizeof(in4));
    }
    if (out->ss_family == AF_INET) return ((struct sockaddr_in *)out)->sin_addr.s_addr != 0;
    return out->ss_family == AF_INET6 &&
           !IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)out)->sin6_addr);
}

static bool is_same_host(const struct sockaddr *row, const struct sockaddr_storage *own) {
    struct sockaddr_in6 in6;
    struct sockaddr_in in4;
    if (row->sa_family != own->ss_family) return false;
    if (row->sa_family == AF_INET) {
        memcpy(&in4, row, sizeof(in4));
        return in4.sin_addr.s_addr == ((const struct sockaddr_in *)own)->sin_addr.s_addr;
    }
    memcpy(&in6, row, sizeof(in6));
    return IN6_ARE_ADDR_EQUAL(&in6.sin6_addr, &((const struct sockaddr_in6 *)own)->sin6_addr);
}

bool tw_local_address_has_line(const struct sockaddr_storage *own) {
    struct sockaddr_storage plain;
    const bool is_named = address_plain(own, &plain);
    struct ifaddrs *rows = NULL;
    bool has_line = false;
    if (getifaddrs(&rows) != 0) return true;
    for (const struct ifaddrs *row = rows; row != NULL && !has_line; row = row->ifa_next) {
        if (row->ifa_addr == NULL) continue;
        const bool is_inet =
            row->ifa_addr->sa_family == AF_INET || row->ifa_addr->sa_family == AF_INET6;
        const bool is_up = (row->ifa_flags & IFF_UP) != 0 && (row->ifa_flags & IFF_RUNNING) != 0;
        const bool is_meant =
            is_named ? is_same_host(row->ifa_addr, &plain) : (row->ifa_flags & IFF_LOOPBACK) == 0;
        has_line = is_inet && is_up && is_meant;
    }
    freeifaddrs(rows);
    return has_line;
}

/* True if two addresses agree in the bits of the mask. */
static bool is_in_network(const uint8_t *a, const uint8_t *b, const uint8_t *mask, size_t size) {
    bool is_in = true;
    for (size_t i = 0; i < size; i++) is_in &= ((a[i] ^ b[i]) & mask[i]) == 0;
    return is_in;
}

static bool is_network_of(const uv_interface_address_t *row, int family, const uint8_t *ip) {
    if (row->address.address4.sin_family != family) return false;
    if (family == AF_INET6)
        return is_in_network(ip, (const uint8_t *)&row->address.address6.sin6_addr,
                             (const uint8_t *)&row->netmask.netmask6.sin6_addr, 16);
    return is_in_network(ip, (const uint8_t *)&row->address.address4.sin_addr,
                         (const uint8_t *)&row->netmask.netmask4.sin_addr, 4);
}

static bool is_in_list(const uv_interface_address_t *list, int count, int family,
                       const uint8_t *ip) {
    for (int i = 0; i < count; i++) {
        if (!list[i].is_internal && is_network_of(&list[i], family, ip)) return true;
    }
    return false;
}

bool tw_local_address_is_on_link(const uv_interface_address_t *list, int count,
                                 const char *address) {
    char host[TW_ADDR_BYTES];
    uint8_t ip[16];
    uint16_t port;
    if (!tw_address_split(address, host, &port)) return false;
    const int family = inet_pton(AF_INET6, host, ip) == 1 ? AF_INET6 : AF_INET;
    if (family == AF_INET && inet_pton(AF_INET, host, ip) != 1) return false;
    return is_in_list(list, count, family, ip);
}

bool tw_local_address_is_near(const uv_interface_address_t *list, int count, const void *remote) {
    struct sockaddr_in6 in6;
    struct sockaddr_in in4;
    memcpy(&in4, remote, sizeof(in4));
    if (in4.sin_family == AF_INET)
        return is_in_list(list, count, AF_INET, (const uint8_t *)&in4.sin_addr);
    if (in4.sin_family != AF_INET6) return false;
    memcpy(&in6, remote, sizeof(in6));
    return is_in_list(list, count, AF_INET6, in6.sin6_addr.s6_addr);
}

enum tw_dial_cause tw_local_address_judge(enum tw_dial_cause cause, const void *remote) {
    uv_interface_address_t *list = NULL;
    int count = 0;
    if (cause != TW_DIAL_PRIVATE || uv_interface_addresses(&list, &count) != 0) return cause;
    const bool is_near = tw_local_address_is_near(list, count, remote);
    uv_free_interface_addresses(list, count);
    return is_near ? TW_DIAL_SILENT : cause;
}
