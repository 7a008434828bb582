/* local_address.h - addresses of this machine: which exist, and from which one it dials. */
#ifndef TW_DAEMON_NET_LOCAL_ADDRESS_H
#define TW_DAEMON_NET_LOCAL_ADDRESS_H

#include <stdbool.h>

#include "daemon/net/egress.h"

/* The address of `family` from which this machine would dial the internet, with port 0. That is the
 * address of the default route, whatever other interfaces (containers, bridges) exist. Without a
 * default route, as in an isolated network, it is the address of the first interface. Sends
 * nothing. False: no such address. */
bool tw_local_address(const struct tw_egress *egress, int family, struct sockaddr_storage *out);

/* The first address of `family` in the list that others in its network can dial, with port 0:
 * neither loopback nor link-local. `interface`: only addresses of that one; empty: any. */
bool tw_local_address_pick(const uv_interface_address_t *list, int count, const char *interface,
                           int family, struct sockaddr_storage *out);

/* True if this machine has this address (the port is ignored), or if the system cannot tell. */
bool tw_local_address_is(const struct sockaddr_storage *address);

#endif
