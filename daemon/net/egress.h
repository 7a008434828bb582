/* egress.h - by which line connections leave: a network interface, source addresses, or any. */
#ifndef TW_DAEMON_NET_EGRESS_H
#define TW_DAEMON_NET_EGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <net/if.h>
#include <uv.h>

#include "base/limits.h"
#include "base/status.h"

struct tw_egress {
    char interface[IF_NAMESIZE]; /* empty: any */
    bool has_v4, has_v6;         /* neither: any */
    struct sockaddr_storage v4, v6;
};

/* `bind` (TW_BIND_MAX texts, empty after the last): IP addresses, one of a family at most.
 * TW_CONFIG for what is none; TW_IO for an interface that this machine has not (now). */
enum tw_status tw_egress_init(struct tw_egress *egress, const char *interface,
                              const char bind[TW_BIND_MAX][TW_ADDR_BYTES], struct tw_error *err);

/* Makes a fresh socket, which is to be connected to an address of `family`, leave as configured.
 * Returns 0 or a code of libuv with a sentence: no source address of that family, an address or an
 * interface that is gone, no right to choose one. */
int tw_egress_apply(const struct tw_egress *egress, uv_tcp_t *tcp, int family,
                    struct tw_error *err);

/* Ties a socket, which has been made, to the interface. As tw_egress_apply. */
int tw_egress_tie(const struct tw_egress *egress, const uv_tcp_t *tcp, struct tw_error *err);

#endif
