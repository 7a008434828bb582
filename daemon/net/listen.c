#include "daemon/net/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "daemon/net/sockopt.h"

enum { BACKLOG = 128 };

bool tw_sockaddr_is_loopback(const struct sockaddr *address) {
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
    listener->is_loopback = tw_sockaddr_is_loopback((struct sockaddr *)&address);
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
