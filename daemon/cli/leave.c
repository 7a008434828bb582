/* leave.c - `thinwire leave`: asks the daemon to end, and waits until it has. The daemon can then
 * be started again at once. */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/ended.h"
#include "daemon/cli/common/node_user.h"

/* A service comes back with the machine: says how to keep it off. */
static void say_boot(const struct cli *cli) {
    static struct tw_config config;
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (tw_config_find(cli->config_option, path, &err) != TW_OK || !cli_is_service(path) ||
        tw_config_load(&config, path, &err) != TW_OK)
        return;
    (void)printf(
        "So does the next boot, if it was enabled. For good: %ssystemctl disable thinwired@%s "
        "thinwire-worker@%s, and move %s away\n",
        cli_needs_sudo(path) || getenv("SUDO_USER") != NULL ? "sudo " : "", config.instance,
        config.instance, path);
}

/* The daemon would end although its state cannot be saved. Refuses that while its last checkpoint
 * failed, and says how much would be lost. */
static enum tw_exit check_saved(struct cli *cli) {
    struct cli asking = *cli;
    json_t *status = NULL;
    asking.json = false;
    asking.is_quiet = true;
    if (cli_get(&asking, "/v1/status", &status) != TW_EXIT_OK || status == NULL) return TW_EXIT_OK;
    const json_t *const checkpoint = json_object_get(status, "checkpoint"), *const train =
                                                                                json_object_get(
                                                                                    status,
                                                                                    "train");
    const char *const error = json_string_value(json_object_get(checkpoint, "error"));
    const json_int_t lost = json_integer_value(json_object_get(train, "steps")) -
                            json_integer_value(json_object_get(checkpoint, "steps"));
    enum tw_exit rc = TW_EXIT_OK;
    if (error != NULL && lost > 0)
        rc =
            cli_fail(TW_EXIT_STATE_DIR,
                     "leave: the last checkpoint failed, so %lld steps of this node would be lost: "
                     "%s. The daemon goes on; save first, or leave with --unsaved",
                     (long long)lost, error);
    json_decref(status);
    return rc;
}

enum tw_exit cli_leave(struct cli *cli) {
    char socket_path[TW_PATH_BYTES];
    bool is_taken = false;
    const bool is_unsaved = cli_flag(cli, "--unsaved");
    enum tw_exit rc = cli_done(cli, "leave");
    if (rc == TW_EXIT_OK) rc = cli_socket(cli, socket_path);
    if (rc == TW_EXIT_OK && !is_unsaved) rc = check_saved(cli);
    if (rc != TW_EXIT_OK) return rc;
    const int process = ended_open(socket_path);
    cli->waiting = ended_say;
    rc = cli_ask(cli, "leave", "leave", &is_taken);
    if (is_taken && process >= 0) { /* the daemon ends even if its last checkpoint failed */
        (void)fflush(stdout);
        ended_wait(process);
        char start[CLI_COMMAND_BYTES];
        if (!cli->json)
            (void)printf("the daemon has ended; `%s` continues\n",
                         cli_next_command(cli, "start", start));
        if (!cli->json) say_boot(cli);
    }
    if (process >= 0) (void)close(process);
    return rc;
}
