/* start_check.h - tries addresses, folders and programs that a daemon needs to start. */
#ifndef TW_DAEMON_CLI_NODE_START_CHECK_H
#define TW_DAEMON_CLI_NODE_START_CHECK_H

#include <stdbool.h>

#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/net/egress.h"

/* Reads `interface`, `bind` and `advertise`. TW_CONFIG, TW_IO: the sentence says how to fix them.
 */
enum tw_status cli_line_check(const struct tw_config *config, struct tw_egress *egress,
                              struct tw_error *err);

/* Listens on an address for a moment. is_one_of_many, is_loopback_only: listen.h. TW_CONFIG: not an
 * address, or one that others can reach where only loopback is allowed; TW_IO: in use, not an
 * address of this machine, not permitted. */
enum tw_status cli_listen_check(const char *address, const struct tw_egress *egress,
                                bool is_one_of_many, bool is_loopback_only, struct tw_error *err);

/* Whether the folder of sockets can be used, or made. TW_IO. */
enum tw_status cli_folder_check(const char *path, struct tw_error *err);

/* Whether the program of the worker can be started, if the daemon starts it. TW_CONFIG. */
enum tw_status cli_worker_check(const struct tw_config *config, struct tw_error *err);

#endif
