#include "daemon/net/egress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/net/local_address.h"

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
