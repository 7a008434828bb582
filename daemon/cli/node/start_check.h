/* start_check.h - checks the addresses, folders and programs that a daemon needs to start. */
#ifndef TW_DAEMON_CLI_NODE_START_CHECK_H
#define TW_DAEMON_CLI_NODE_START_CHECK_H

#include <stdbool.h>

#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/net/socket.h"

/* Checks `interface`, `bind` and `advertise`. Returns TW_CONFIG or TW_IO, with the remedy in the
 * error. */
enum tw_status cli_line_check(const struct tw_config *config, struct tw_egress *egress,
                              struct tw_error *err);

/* Tries to listen on an address for a moment. is_one_of_many, is_loopback_only: see socket.h.
 * Returns TW_CONFIG if it is not an address, or not loopback where only loopback is allowed.
 * Returns TW_IO if it is in use, not of this machine, or not permitted. */
enum tw_status cli_listen_check(const char *address, const struct tw_egress *egress,
                                bool is_one_of_many, bool is_loopback_only, struct tw_error *err);

/* Checks that the folder of sockets can be used or created. Returns TW_IO otherwise. */
enum tw_status cli_folder_check(const char *path, struct tw_error *err);

/* If the daemon starts the worker, checks that its program can be executed. Returns TW_CONFIG
 * otherwise. */
enum tw_status cli_worker_check(const struct tw_config *config, struct tw_error *err);

#endif
