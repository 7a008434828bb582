/* local_address.h - the addresses of this machine: which one it dials from, and which it has. */
#ifndef TW_DAEMON_NET_LOCAL_ADDRESS_H
#define TW_DAEMON_NET_LOCAL_ADDRESS_H

#include <stdbool.h>

#include "daemon/net/egress.h"

/* The address of `family` that this machine would dial the internet from, with port 0: that of its
 * way out, whatever other interfaces (containers, bridges) it has; without a way out, as in a
 * network of its own, that of its first interface. Sends nothing. False: it has none. */
bool tw_local_address(const struct tw_egress *egress, int family, struct sockaddr_storage *out);

/* Of this list (count) the first address of `family` that others of its network can dial, with port
 * 0: not loopback, not link-local. `interface`: only of that one; empty: any. */
bool tw_local_address_pick(const uv_interface_address_t *list, int count, const char *interface,
                           int family, struct sockaddr_storage *out);

/* Has this machine this address (the port does not matter)? True where the
 * system does not say. */
bool tw_local_address_is(const struct sockaddr_storage *address);

#endif
