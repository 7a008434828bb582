/* cli.h - what the verbs of `thinwire` share: arguments, style, errors, the socket. */
#ifndef TW_DAEMON_CLI_COMMON_CLI_H
#define TW_DAEMON_CLI_COMMON_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/exit_codes.h"
#include "base/status.h"
#include "daemon/config/config.h"

/* Global flags, and what is left of the command line for the verb. */
struct cli {
    bool json;
    bool is_quiet;             /* no word when no daemon answers */
    bool has_colour, has_utf8; /* of standard output */
    const char *config_option; /* --config, or NULL */
    const char *socket_option; /* --socket, or NULL */
    /* NULL, or called about every second while a request waits, which then has no limit, and with 0
     * at its end. */
    void (*waiting)(unsigned waited_s);
    int argc; /* of the verb's own arguments, without the verb */
    char **argv;
};

/* One sentence on standard error, "thinwire: ...", and the exit status it was given. */
enum tw_exit cli_fail(enum tw_exit code, const char *fmt, ...) TW_PRINTF(2, 3);

/* ---- arguments of a verb: each call takes what it finds out of cli->argv --------------------- */

/* `--name value` or `--name=value`. Returns false when it is not there. A missing value is reported
 * by cli_done. The last of several wins; with cli_option in a loop each is seen, first one first.
 */
bool cli_option(struct cli *cli, const char *name, const char **value);
bool cli_flag(struct cli *cli, const char *name);
/* The next argument that is no option, or NULL. */
const char *cli_operand(struct cli *cli);
/* Refuses what is left over, and --json where `known` lacks it; `known` lists the options of the
 * verb for did-you-mean. TW_EXIT_OK or TW_EXIT_USAGE. */
enum tw_exit cli_done(const struct cli *cli, const char *verb, const char *const *known);

/* ---- configuration and socket -----------------------------------------------------------------
 */

/* Reads the configuration that --config, the environment or the default names. */
enum tw_exit cli_config(const struct cli *cli, struct tw_config *config);

/* The socket of the daemon that is meant. */
enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]);

/* One request. *body_out (malloc'd, with NUL) is what came back; *code_out the HTTP status.
 * Says what is wrong itself. TW_EXIT_UNREACHABLE when no daemon answers. */
enum tw_exit cli_request(const struct cli *cli, const char *method, const char *path,
                         long *code_out, char **body_out);

/* GET that must be JSON. With --json the body is printed as it came and *json_out is NULL. */
enum tw_exit cli_get(const struct cli *cli, const char *path, json_t **json_out);

/* POST /v1/PATH for a verb, and its sentence. *is_taken, unless NULL: the daemon did not refuse to
 * do it, whatever became of it. */
enum tw_exit cli_ask(const struct cli *cli, const char *verb, const char *path, bool *is_taken);

/* Becomes the program beside this one, with argv[0..argc) as its arguments; only returns when that
 * fails. */
enum tw_exit cli_become(const char *program, int argc, char **argv);

/* ---- verbs ------------------------------------------------------------------------------------
 */

enum tw_exit cli_init(struct cli *cli);
enum tw_exit cli_run(struct cli *cli);
enum tw_exit cli_invite(struct cli *cli);
enum tw_exit cli_join(struct cli *cli);
enum tw_exit cli_secret(struct cli *cli);
enum tw_exit cli_start(struct cli *cli);
enum tw_exit cli_status(struct cli *cli);
enum tw_exit cli_peers(struct cli *cli);
enum tw_exit cli_rounds(struct cli *cli);
enum tw_exit cli_events(struct cli *cli);
enum tw_exit cli_checkpoint(struct cli *cli);
enum tw_exit cli_leave(struct cli *cli);
enum tw_exit cli_pause(struct cli *cli);
enum tw_exit cli_resume(struct cli *cli);
enum tw_exit cli_reload(struct cli *cli);
enum tw_exit cli_limit(struct cli *cli);
enum tw_exit cli_unban(struct cli *cli);
enum tw_exit cli_doctor(struct cli *cli);
enum tw_exit cli_owner(struct cli *cli);
enum tw_exit cli_config_verb(struct cli *cli);
enum tw_exit cli_version(struct cli *cli);
enum tw_exit cli_help(struct cli *cli);

/* Text of `thinwire help TOPIC`, NULL when there is none ("" is the overview). */
const char *cli_help_text(const char *topic);

#endif
