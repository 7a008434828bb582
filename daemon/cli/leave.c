/* leave.c - `thinwire leave`: asks the daemon to end, and waits until it has. The daemon can then
 * be started again at once. */
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
        "So does the next boot, if it was enabled. For good: systemctl disable thinwired@%s "
        "thinwire-worker@%s\n",
        config.instance, config.instance);
}

enum tw_exit cli_leave(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", "--config", "--socket", "--color", NULL};
    char socket_path[TW_PATH_BYTES];
    bool is_taken = false;
    enum tw_exit rc = cli_done(cli, "leave", OPTIONS);
    if (rc == TW_EXIT_OK) rc = cli_socket(cli, socket_path);
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
