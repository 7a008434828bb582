/* api_socket.h - listening sockets of the local API, and the access rights of a client. */
#ifndef TW_DAEMON_API_API_SOCKET_H
#define TW_DAEMON_API_API_SOCKET_H

#include <stdbool.h>

#include "base/status.h"

/* Listens on a Unix socket at `path`, mode 0660. A socket file without a listener is replaced.
 * Returns TW_IO if `path` is in use, not a socket, or not writable. Returns TW_CONFIG if `group` is
 * unknown or the process is not in it. */
enum tw_status tw_api_listen_unix(const char *path, const char *group, int *fd_out,
                                  struct tw_error *err);

/* Listens on "127.0.0.1:9747", "[::1]:9747" or "localhost:9747". `key` names the setting in errors.
 * Returns TW_CONFIG if the address is not loopback. */
enum tw_status tw_api_listen_tcp(const char *key, const char *address, int *fd_out,
                                 struct tw_error *err);

enum { TW_API_NOBODY = -1, TW_API_EXHAUSTED = -2 };

/* Accepts the next client. Returns its descriptor, close-on-exec and non-blocking, TW_API_NOBODY if
 * no client waits, or TW_API_EXHAUSTED if the machine is out of descriptors or memory. */
int tw_api_accept(int listen_fd);

/* Returns whether an address or Host header names this machine's loopback. */
bool tw_api_is_loopback(const char *host);

/* Returns whether the client of a Unix socket runs as root or as the daemon's user (SO_PEERCRED).
 */
bool tw_api_may_act(int fd);

#endif
