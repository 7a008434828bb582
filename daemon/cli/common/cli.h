/* cli.h - shared by the commands of `thinwire` (its verbs, such as `status`): arguments, style,
 * errors, the socket. */
#ifndef TW_DAEMON_CLI_COMMON_CLI_H
#define TW_DAEMON_CLI_COMMON_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/exit_codes.h"
#include "base/status.h"
#include "daemon/config/config.h"

/* Global flags, and the rest of the command line for the command. */
struct cli {
    bool json;
    bool is_quiet;             /* print no message if no daemon answers */
    bool has_colour, has_utf8; /* properties of standard output */
    const char *config_option; /* --config, or NULL */
    const char *socket_option; /* --socket, or NULL */
    /* NULL, or called about every second while a request waits, and with 0 at its end. The request
     * then has no time limit. */
    void (*waiting)(unsigned waited_s);
    int argc; /* arguments of the command, without its name */
    char **argv;
};

/* Prints "thinwire: ..." on standard error and returns `code`. */
enum tw_exit cli_fail(enum tw_exit code, const char *fmt, ...) TW_PRINTF(2, 3);

/* ---- arguments of a command: each call removes the words that it takes from cli->argv -------- */

/* Reads `--name value` or `--name=value`. False: the option is absent. cli_done reports a missing
 * value. If given more than once, the last one wins; cli_option in a loop returns each, the first
 * one first. */
bool cli_option(struct cli *cli, const char *name, const char **value);
bool cli_flag(struct cli *cli, const char *name);
/* The next argument that is not an option, or NULL. The caller may overwrite it. */
char *cli_operand(struct cli *cli);
/* Refuses arguments that no call has taken, and --json if `known` lacks it. `known` lists the
 * command's options, for suggestions. TW_EXIT_OK or TW_EXIT_USAGE. */
enum tw_exit cli_done(const struct cli *cli, const char *verb, const char *const *known);

/* ---- configuration and socket -----------------------------------------------------------------
 */

/* Reads the configuration given by --config, the environment or the default. */
enum tw_exit cli_config(const struct cli *cli, struct tw_config *config);

/* The socket of the selected daemon. */
enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]);

/* Sends one request. *body_out (malloc'd, with NUL): body of the answer. *code_out: its HTTP
 * status. Prints errors itself. TW_EXIT_UNREACHABLE: no daemon answers. */
enum tw_exit cli_request(const struct cli *cli, const char *method, const char *path,
                         long *code_out, char **body_out);

/* Sends a GET with a JSON answer. With --json the body is printed unchanged and *json_out is
 * NULL. */
enum tw_exit cli_get(const struct cli *cli, const char *path, json_t **json_out);

/* POST /v1/PATH for the command `verb`; prints the daemon's sentence. *is_taken (unless NULL): the
 * daemon accepted the request, even if it failed later. */
enum tw_exit cli_ask(const struct cli *cli, const char *verb, const char *path, bool *is_taken);

/* Replaces this process by a program in the same folder, with argv[0..argc) as arguments. Returns
 * only on failure. */
enum tw_exit cli_become(const char *program, int argc, char **argv);

/* ---- commands -------------------------------------------------------------------------------- */

enum tw_exit cli_init(struct cli *cli);
enum tw_exit cli_run(struct cli *cli);
enum tw_exit cli_plan(struct cli *cli);
enum tw_exit cli_invite(struct cli *cli);
enum tw_exit cli_join(struct cli *cli);
enum tw_exit cli_secret(struct cli *cli);
enum tw_exit cli_start(struct cli *cli);
enum tw_exit cli_status(struct cli *cli);
enum tw_exit cli_peers(struct cli *cli);
enum tw_exit cli_rounds(struct cli *cli);
enum tw_exit cli_ledger(struct cli *cli);
enum tw_exit cli_events(struct cli *cli);
enum tw_exit cli_logs(struct cli *cli);
enum tw_exit cli_checkpoint(struct cli *cli);
enum tw_exit cli_leave(struct cli *cli);
enum tw_exit cli_pause(struct cli *cli);
enum tw_exit cli_resume(struct cli *cli);
enum tw_exit cli_reload(struct cli *cli);
enum tw_exit cli_limit(struct cli *cli);
enum tw_exit cli_unban(struct cli *cli);
enum tw_exit cli_web(struct cli *cli);
enum tw_exit cli_top(struct cli *cli);
enum tw_exit cli_rollback(struct cli *cli);
enum tw_exit cli_replay(struct cli *cli);
enum tw_exit cli_doctor(struct cli *cli);
enum tw_exit cli_owner(struct cli *cli);
enum tw_exit cli_config_verb(struct cli *cli);
enum tw_exit cli_version(struct cli *cli);
enum tw_exit cli_help(struct cli *cli);

/* Text of `thinwire help TOPIC`; NULL: no such topic. "" is the overview. */
const char *cli_help_text(const char *topic);

#endif
