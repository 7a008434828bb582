#include "daemon/net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "daemon/net/sockopt.h"

/* ==== the line ================================================================================ */

enum tw_status tw_egress_init(struct tw_egress *egress, const char *interface,
                              const char bind[TW_BIND_MAX][TW_ADDR_BYTES], struct tw_error *err) {
    *egress = (struct tw_egress){0};
    for (unsigned i = 0; i < TW_BIND_MAX && bind[i][0] != '\0'; i++) {
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        const bool is_v4 = uv_ip4_addr(bind[i], 0, &in4) == 0;
        if (!is_v4 && uv_ip6_addr(bind[i], 0, &in6) != 0)
            return tw_fail(err, TW_CONFIG, "network.bind = %.80s is no IP address", bind[i]);
        if (is_v4 ? egress->has_v4 : egress->has_v6)
            return tw_fail(err, TW_CONFIG,
                           "network.bind = %s is the second IPv%d address: one of a family is "
                           "enough",
                           bind[i], is_v4 ? 4 : 6);
        egress->has_v4 |= is_v4;
        egress->has_v6 |= !is_v4;
        if (is_v4)
            memcpy(&egress->v4, &in4, sizeof(in4));
        else
            memcpy(&egress->v6, &in6, sizeof(in6));
    }
    if (interface == NULL || interface[0] == '\0') return TW_OK;
    if (strlen(interface) >= sizeof(egress->interface) || if_nametoindex(interface) == 0)
        return tw_fail(err, TW_IO,
                       "network.interface = %.40s: this machine has no such interface (`ip link` "
                       "lists them)",
                       interface);
    (void)snprintf(egress->interface, sizeof(egress->interface), "%s", interface);
    return TW_OK;
}

int tw_egress_tie(const struct tw_egress *egress, const uv_tcp_t *tcp, struct tw_error *err) {
    uv_os_fd_t fd = -1;
    if (egress->interface[0] == '\0') return 0;
    int code = uv_fileno((const uv_handle_t *)tcp, &fd);
    if (code == 0 && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, egress->interface,
                                (socklen_t)strlen(egress->interface) + 1) != 0)
        code = uv_translate_sys_error(errno);
    if (code != 0)
        (void)tw_fail(err, TW_IO, "network.interface = %s: %s%s", egress->interface,
                      uv_strerror(code),
                      code == UV_ENODEV ? "; it is gone (`ip link` lists them)" : "");
    return code;
}

static void fail_bind(int code, struct tw_error *err) {
    (void)tw_fail(err, TW_IO,
                  "cannot dial from the address of network.bind: %s (`ip addr` lists those of "
                  "this machine)",
                  uv_strerror(code));
}

enum tw_status tw_egress_check(const struct tw_egress *egress, struct tw_error *err) {
    if ((!egress->has_v4 || tw_local_address_is(&egress->v4)) &&
        (!egress->has_v6 || tw_local_address_is(&egress->v6)))
        return TW_OK;
    fail_bind(UV_EADDRNOTAVAIL, err);
    return TW_IO;
}

int tw_egress_apply(const struct tw_egress *egress, uv_tcp_t *tcp, int family,
                    struct tw_error *err) {
    struct sockaddr_storage from = {.ss_family = (sa_family_t)family};
    const bool is_bound = egress->has_v4 || egress->has_v6;
    const bool has = family == AF_INET6 ? egress->has_v6 : egress->has_v4;
    if (!is_bound && egress->interface[0] == '\0') return 0;
    if (is_bound && !has) {
        (void)tw_fail(err, TW_IO, "network.bind has no IPv%d address to dial it from",
                      family == AF_INET6 ? 6 : 4);
        return UV_EADDRNOTAVAIL;
    }
    if (has) from = family == AF_INET6 ? egress->v6 : egress->v4;
    /* libuv would defer this error to the connect and lose its reason. */
    const int code = has && !tw_local_address_is(&from)
                         ? UV_EADDRNOTAVAIL
                         : uv_tcp_bind(tcp, (const struct sockaddr *)&from, 0);
    if (code != 0) {
        fail_bind(code, err);
        return code;
    }
    return tw_egress_tie(egress, tcp, err);
}

/* ==== local addresses ========================================================================= */

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

/* ==== listeners =============================================================================== */

enum { BACKLOG = 128 };

/* Returns true for 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104. */
static bool is_loopback(const struct sockaddr *address) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)address;
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): memcpy filled the
         * address. */
        return ntohl(in4->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family != AF_INET6) return false;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (memcmp(in6->s6_addr, mapped, sizeof(mapped)) == 0) return in6->s6_addr[12] == 127;
    return memcmp(in6, &in6addr_loopback, sizeof(*in6)) == 0;
}

static bool is_wildcard(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return memcmp(in6, &in6addr_any, sizeof(*in6)) == 0;
}

static enum tw_status resolve_address(const char *text, struct sockaddr_storage *out,
                                      struct tw_error *err) {
    char host[TW_ADDR_BYTES], service[8];
    uint16_t port = 0;
    if (!tw_address_split(text, host, &port))
        return tw_fail(err, TW_CONFIG,
                       "listen = %.80s is not host:port: write 0.0.0.0:4300, [::]:4300 or the like",
                       text);
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
    };
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        return tw_fail(err, TW_CONFIG, "listen = %s: %s; write an IP address of this machine", text,
                       gai_strerror(code));
    memset(out, 0, sizeof(*out));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return TW_OK;
}

static enum tw_status fail_listen(int code, const char *address, struct tw_error *err) {
    switch (code) {
    case UV_EADDRINUSE:
        return tw_fail(err, TW_IO,
                       "%s is in use: another process listens there; change `listen =` or stop it "
                       "(`ss -ltnp` names it)",
                       address);
    case UV_EADDRNOTAVAIL:
        return tw_fail(err, TW_IO,
                       "%s is not an address of this machine (`ip addr` lists them): change "
                       "`listen =`",
                       address);
    case UV_EACCES:
        return tw_fail(err, TW_IO,
                       "%s may not be listened on by this user: ports below 1024 need root; change "
                       "`listen =`",
                       address);
    default: return tw_fail(err, TW_IO, "cannot listen on %s: %s", address, uv_strerror(code));
    }
}

static uint16_t bound_port(const uv_tcp_t *tcp) {
    struct sockaddr_storage name;
    int size = sizeof(name);
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&name, &size) != 0) return 0;
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

enum tw_status tw_listener_open(struct tw_listener *listener, uv_loop_t *loop,
                                const struct tw_listen_options *options, struct tw_error *err) {
    struct sockaddr_storage address;
    void *owner = listener->tcp.data;
    uv_os_fd_t fd;
    *listener = (struct tw_listener){0};
    TW_TRY(resolve_address(options->address, &address, err));
    listener->is_loopback = is_loopback((struct sockaddr *)&address);
    listener->is_wildcard = is_wildcard(&address);
    listener->family = address.ss_family;
    if (options->is_loopback_only && !listener->is_loopback)
        return tw_fail(err, TW_CONFIG,
                       "security.admission = open lets anybody in, so it listens on loopback only, "
                       "not on %s: listen on 127.0.0.1, or make the run with admission = secret",
                       options->address);
    const bool may_lack = options->is_one_of_many && address.ss_family == AF_INET6;
    int code = uv_tcp_init_ex(loop, &listener->tcp, address.ss_family);
    listener->is_absent = code == UV_EAFNOSUPPORT && may_lack && listener->is_wildcard;
    if (listener->is_absent) return TW_OK;
    if (code != 0)
        return tw_fail(err, TW_IO, "no socket for %s: %s", options->address, uv_strerror(code));
    listener->tcp.data = owner;
    listener->is_open = true;
    if (tw_egress_tie(options->egress, &listener->tcp, err) != 0) return TW_IO;
    if (uv_fileno((uv_handle_t *)&listener->tcp, &fd) == 0) tw_sockopt_small_packets(fd);
    code = uv_tcp_bind(&listener->tcp, (struct sockaddr *)&address, may_lack ? UV_TCP_IPV6ONLY : 0);
    if (code == 0) code = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, options->accept);
    if (code != 0) return fail_listen(code, options->address, err);
    listener->port = bound_port(&listener->tcp);
    return TW_OK;
}

void tw_listener_close(struct tw_listener *listener, uv_close_cb closed) {
    listener->is_open = false;
    uv_close((uv_handle_t *)&listener->tcp, closed);
}
