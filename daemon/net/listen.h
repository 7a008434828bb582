/* listen.h - listening sockets. */
#ifndef TW_DAEMON_NET_LISTEN_H
#define TW_DAEMON_NET_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/egress.h"

struct tw_listener {
    uv_tcp_t tcp;  /* first member; tcp.data is the owner's */
    uint16_t port; /* port really bound */
    int family;
    bool is_open, is_loopback, is_wildcard;
    bool is_absent;  /* [::] on a machine without IPv6: nothing to listen on, not an error */
    bool is_stalled; /* a connection waits to be accepted; libuv reports no other one before that */
};

struct tw_listen_options {
    const char *address;            /* "host:port" of this machine; port 0 = any free one */
    bool is_loopback_only;          /* refuse an address that others can reach: `open` admission */
    bool is_one_of_many;            /* [::] may fail to bind, and leaves IPv4 to another listener */
    const struct tw_egress *egress; /* interface to listen on */
    uv_connection_cb accept;        /* called with &listener->tcp */
};

/* Binds and listens. TW_CONFIG: not a valid address, or reachable by others where only loopback is
 * allowed. TW_IO: port in use, not an address of this machine, not permitted; the sentence says
 * how to fix it. Resolves names and blocks (call only at start). */
enum tw_status tw_listener_open(struct tw_listener *listener, uv_loop_t *loop,
                                const struct tw_listen_options *options, struct tw_error *err);

/* Starts to close; `closed` as for uv_close. Only if is_open. */
void tw_listener_close(struct tw_listener *listener, uv_close_cb closed);

/* 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104. */
bool tw_sockaddr_is_loopback(const struct sockaddr *address);

#endif
