/* local_address.h - addresses of this machine: which ones exist, and which one it dials from. */
#ifndef TW_DAEMON_NET_LOCAL_ADDRESS_H
#define TW_DAEMON_NET_LOCAL_ADDRESS_H

#include <stdbool.h>

#include "daemon/net/dial_error.h"
#include "daemon/net/egress.h"

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

#endif
