/* egress.h - how connections leave this machine: by one network interface, from given source
 * addresses, or freely. */
#ifndef TW_DAEMON_NET_EGRESS_H
#define TW_DAEMON_NET_EGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <net/if.h>
#include <uv.h>

#include "base/limits.h"
#include "base/status.h"

struct tw_egress {
    char interface[IF_NAMESIZE]; /* "" = any interface */
    bool has_v4, has_v6;         /* source addresses that are set; if none, any */
    struct sockaddr_storage v4, v6;
};

/* `bind` has TW_BIND_MAX entries, empty after the last: IP addresses, at most one per family.
 * Returns TW_CONFIG if an entry is invalid, or TW_IO if this machine does not have the interface
 * now. */
enum tw_status tw_egress_init(struct tw_egress *egress, const char *interface,
                              const char bind[TW_BIND_MAX][TW_ADDR_BYTES], struct tw_error *err);

/* Returns TW_IO if this machine does not have an address of `bind` now: dials would fail. */
enum tw_status tw_egress_check(const struct tw_egress *egress, struct tw_error *err);

/* Binds a fresh socket as configured, before it connects to an address of `family`. Returns 0, or a
 * libuv error code with a sentence: no source address of that family, address or interface gone, or
 * no permission. */
int tw_egress_apply(const struct tw_egress *egress, uv_tcp_t *tcp, int family,
                    struct tw_error *err);

/* Binds an existing socket to the interface. Returns the same codes as tw_egress_apply. */
int tw_egress_tie(const struct tw_egress *egress, const uv_tcp_t *tcp, struct tw_error *err);

#endif
