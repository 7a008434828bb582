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
    uv_tcp_t tcp;  /* first member, so that a uv_tcp_t can be cast; tcp.data is the owner's */
    uint16_t port; /* port that is bound */
    int family;
    bool is_open, is_loopback, is_wildcard;
    bool is_absent;  /* [::] on a machine without IPv6: nothing to listen on, not an error */
    bool is_stalled; /* a connection waits to be accepted; libuv reports no other one until then */
};

struct tw_listen_options {
    const char *address;            /* "host:port" of this machine; port 0 = any free port */
    bool is_loopback_only;          /* `open` admission: refuse an address that other machines can
                                       reach */
    bool is_one_of_many;            /* one of several addresses: [::] may fail to bind, and leaves
                                       IPv4 to another listener */
    const struct tw_egress *egress; /* interface to listen on */
    uv_connection_cb accept;        /* called with &listener->tcp */
};

/* Binds and listens. Returns TW_CONFIG for an invalid address, or for one that others can reach
 * where only loopback is allowed. Returns TW_IO if the port is in use, the address is not this
 * machine's, or permission is missing. The sentence names the remedy. Resolves names and blocks, so
 * call it only at start. */
enum tw_status tw_listener_open(struct tw_listener *listener, uv_loop_t *loop,
                                const struct tw_listen_options *options, struct tw_error *err);

/* Starts to close a listener whose is_open is true. libuv then calls `closed`. */
void tw_listener_close(struct tw_listener *listener, uv_close_cb closed);

/* Returns true for 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104. */
bool tw_sockaddr_is_loopback(const struct sockaddr *address);

#endif
