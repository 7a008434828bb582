#include "daemon/cli/node/start_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/socket.h"

enum tw_status cli_line_check(const struct tw_config *config, struct tw_egress *egress,
                              struct tw_error *err) {
    char bind[TW_BIND_MAX][TW_ADDR_BYTES] = {{0}};
    for (uint32_t i = 0; i < config->network.bind_count; i++) {
        memcpy(bind[i], config->network.bind[i].text, TW_ADDR_BYTES);
    }
    TW_TRY(
        tw_egress_init(egress, config->network.interface, (const char(*)[TW_ADDR_BYTES])bind, err));
    for (uint32_t i = 0; i < config->network.advertise_count; i++) {
        const char *const address = config->network.advertise[i].text;
        if (tw_address_is_valid(address)) continue;
        return tw_fail(err, TW_CONFIG, "advertise = %.80s is not host:port with a port", address);
    }
    return TW_OK;
}

static void on_connection(uv_stream_t *listener, int code) {
    (void)listener; /* never called: the loop does not run while the socket listens */
    (void)code;
}

static void on_closed(uv_handle_t *handle) {
    (void)handle;
}

enum tw_status cli_listen_check(const char *address, const struct tw_egress *egress,
                                bool is_one_of_many, bool is_loopback_only, struct tw_error *err) {
    struct tw_listener listener = {.port = 0};
    const struct tw_listen_options options = {.address = address,
                                              .is_loopback_only = is_loopback_only,
                                              .is_one_of_many = is_one_of_many,
                                              .egress = egress,
                                              .accept = on_connection};
    uv_loop_t loop;
    if (uv_loop_init(&loop) != 0) return tw_fail(err, TW_NOMEM, "no memory for an event loop");
    const enum tw_status status = tw_listener_open(&listener, &loop, &options, err);
    if (listener.is_open) tw_listener_close(&listener, on_closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    TW_ASSERT(uv_loop_close(&loop) == 0);
    return status;
}

enum tw_status cli_folder_check(const char *path, struct tw_error *err) {
    char there[TW_PATH_BYTES];
    (void)snprintf(there, sizeof(there), "%s", path);
    while (access(there, F_OK) != 0 && errno == ENOENT) { /* goes up to a folder that exists */
        char *const slash = strrchr(there, '/');
        if (slash == NULL || slash == there) {
            (void)snprintf(there, sizeof(there), "%s", slash == NULL ? "." : "/");
            break;
        }
        *slash = '\0';
    }
    if (access(there, W_OK | X_OK) == 0) return TW_OK;
    return tw_fail(err, TW_IO, "run folder %.120s cannot be used or made: %s (node.run_dir)", path,
                   strerror(errno));
}

enum tw_status cli_worker_check(const struct tw_config *config, struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    const bool has_command = config->node.worker_command[0] != '\0';
    if (has_command && (!config->node.spawn_worker || config->node.worker_path[0] != '\0'))
        return tw_fail(err, TW_CONFIG,
                       "worker.command has no effect beside %s: leave one of them out",
                       config->node.spawn_worker ? "node.worker_path" : "node.spawn_worker = off");
    if (!config->node.spawn_worker || has_command) return TW_OK;
    (void)snprintf(path, sizeof(path), "%s", config->node.worker_path);
    if (path[0] == '\0') { /* default: thinwire-worker beside this program */
        const ssize_t size = readlink("/proc/self/exe", path, TW_PATH_BYTES - 1);
        path[size > 0 ? size : 0] = '\0';
        char *const slash = strrchr(path, '/');
        if (slash != NULL) (void)snprintf(slash, 32, "/thinwire-worker");
    }
    if (access(path, X_OK) == 0) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "the worker %.120s: %s (set node.worker_path, or node.spawn_worker = off)", path,
                   strerror(errno));
}
