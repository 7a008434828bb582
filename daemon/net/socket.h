/* socket.h - this machine's end of a connection: the line that it uses, the address that others
 * see, and listeners. */
#ifndef TW_DAEMON_NET_SOCKET_H
#define TW_DAEMON_NET_SOCKET_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/dial.h"
#include "daemon/net/handshake.h"
#include "daemon/net/pacer.h"

/* ==== the line ================================================================================ */

/* How connections leave this machine: by one network interface, from given source
 * addresses, or freely. */

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

/* ==== local addresses ========================================================================= */

/* Addresses of this machine: which ones exist, and which one it dials from. */

/* Finds the address of `family` from which this machine would dial the internet, with port 0. That
 * is the source address of the default route, whatever other interfaces (containers, bridges)
 * exist. Without a default route, as in an isolated network, it is the address of the first
 * interface. Sends nothing. Returns false if there is no such address. */
bool tw_local_address(const struct tw_egress *egress, int family, struct sockaddr_storage *out);

/* Finds the first address of `family` in the list that other machines of its network can dial, so
 * neither loopback nor link-local. The port becomes 0. Considers only addresses of `interface`,
 * unless that is empty. */
bool tw_local_address_pick(const uv_interface_address_t *list, int count, const char *interface,
                           int family, struct sockaddr_storage *out);

/* Returns true if this machine has this address (the port is ignored), or if the system cannot
 * tell. */
bool tw_local_address_is(const struct sockaddr_storage *address);

/* Returns true if an interface of the list, other than the loopback, is in the network of the
 * address "host:port". Returns false for a name. */
bool tw_local_address_is_on_link(const uv_interface_address_t *list, int count,
                                 const char *address);

/* The same for the network address `remote`, a struct sockaddr. */
bool tw_local_address_is_near(const uv_interface_address_t *list, int count, const void *remote);

/* Returns TW_DIAL_SILENT instead of TW_DIAL_PRIVATE for a neighbour in a network of this machine:
 * it is away, and no NAT is between. */
enum tw_dial_cause tw_local_address_judge(enum tw_dial_cause cause, const void *remote);

/* Returns false if this machine is offline: the interface with the address `own` has lost its
 * cable or its wireless network, or the address is gone. If `own` is unspecified or NULL, returns
 * false if no interface but the loopback has both an address and a line. Returns true if the system
 * cannot tell. */
bool tw_local_address_has_line(const struct sockaddr_storage *own);

/* ==== listeners =============================================================================== */

/* Listening sockets. */

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

#endif
