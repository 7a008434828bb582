/* api_socket.h - listening sockets of the local API, and who is at the other end. */
#ifndef TW_DAEMON_API_API_SOCKET_H
#define TW_DAEMON_API_API_SOCKET_H

#include <stdbool.h>

#include "base/status.h"

/* A Unix socket at `path`, 0660, listening. A socket file nobody answers on is replaced. TW_IO: in
 * use, another kind of file, not writable; TW_CONFIG: unknown `group` or one we are not in. */
enum tw_status tw_api_listen_unix(const char *path, const char *group, int *fd_out,
                                  struct tw_error *err);

/* "127.0.0.1:9747", "[::1]:9747", "localhost:9747". TW_CONFIG when it is not loopback. */
enum tw_status tw_api_listen_tcp(const char *address, int *fd_out, struct tw_error *err);

/* Whether an address or Host header names this machine's loopback. */
bool tw_api_is_loopback(const char *host);

/* Whether the peer of a connected Unix socket runs as root or as we do (SO_PEERCRED). */
bool tw_api_may_act(int fd);

#endif
