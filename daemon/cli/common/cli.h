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

enum { CLI_WORDS_BYTES = 128 };

/* Global flags, and the arguments of the command. */
struct cli {
    bool json;
    bool is_quiet;               /* print no message if no daemon answers */
    bool has_colour, has_utf8;   /* capabilities of standard output */
    const char *config_option;   /* --config, or NULL */
    const char *socket_option;   /* --socket, or NULL */
    char words[CLI_WORDS_BYTES]; /* the command as it was typed, without global flags; cut at a word
                                    if it is longer */
    /* Called about every second while a request waits, and with 0 at its end; may be NULL. With
     * this callback, requests have no time limit. */
    void (*waiting)(unsigned waited_s);
    /* Called before words about a request are printed, to make room for them; may be NULL. */
    void (*before_words)(void);
    int argc; /* arguments of the command, without its name */
    char **argv;
};

/* Prints the words as tw_page_say does, and returns `code`. */
enum tw_exit cli_fail(enum tw_exit code, const char *fmt, ...) TW_PRINTF(2, 3);

/* ---- arguments of a command: each call removes the words that it reads from cli->argv -------- */

/* Reads the first `--name value` or `--name=value`. Returns false if there is none. An option that
 * may be repeated is read in a loop. cli_done reports an option without a value, or one that is
 * left. */
bool cli_option(struct cli *cli, const char *name, const char **value);
bool cli_flag(struct cli *cli, const char *name);
/* Returns the next argument that is not an option, or NULL. The caller may overwrite it. */
char *cli_operand(struct cli *cli);
/* Refuses arguments that no call has read, with a suggestion from the options in the help page of
 * the command. `verb`: the command, such as "owner sign". Returns TW_EXIT_OK or TW_EXIT_USAGE. */
enum tw_exit cli_done(const struct cli *cli, const char *verb);
/* The same for a command without --json. */
enum tw_exit cli_done_text(const struct cli *cli, const char *verb);

/* ---- configuration and socket -----------------------------------------------------------------
 */

/* Reads the configuration: the file of --config, of the environment or the default one. */
enum tw_exit cli_config(const struct cli *cli, struct tw_config *config);

/* Finds the socket of the selected daemon. */
enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]);

/* Sends one request. *body_out is the answer's body, malloc'd and NUL-terminated; *code_out is its
 * HTTP status. Prints errors itself. Returns TW_EXIT_UNREACHABLE if no daemon answers. */
enum tw_exit cli_request(const struct cli *cli, const char *method, const char *path,
                         long *code_out, char **body_out);

/* Sends a GET whose answer is JSON. With --json, prints the body unchanged and sets *json_out to
 * NULL. */
enum tw_exit cli_get(const struct cli *cli, const char *path, json_t **json_out);

/* Sends POST /v1/PATH for the command `verb`, and prints the daemon's reply. *is_taken (may be
 * NULL): the daemon accepted the request, even if it failed later. */
enum tw_exit cli_ask(const struct cli *cli, const char *verb, const char *path, bool *is_taken);

/* Replaces this process by a program in the same folder, with the arguments argv[0..argc). Returns
 * only on failure. */
enum tw_exit cli_become(const char *program, int argc, char **argv);

/* ---- commands -------------------------------------------------------------------------------- */

/* All commands: those of this program with their functions, and those of other programs, as in git.
 * Each has a page in help.c. */
#define CLI_VERBS_EACH(VERB, PROGRAM)                                                              \
    VERB(init, cli_init)                                                                           \
    VERB(run, cli_run)                                                                             \
    VERB(plan, cli_plan)                                                                           \
    VERB(invite, cli_invite)                                                                       \
    VERB(join, cli_join)                                                                           \
    VERB(start, cli_start)                                                                         \
    VERB(secret, cli_secret)                                                                       \
    VERB(status, cli_status)                                                                       \
    VERB(peers, cli_peers)                                                                         \
    VERB(rounds, cli_rounds)                                                                       \
    VERB(ledger, cli_ledger)                                                                       \
    VERB(events, cli_events)                                                                       \
    VERB(logs, cli_logs)                                                                           \
    VERB(checkpoint, cli_checkpoint)                                                               \
    VERB(leave, cli_leave)                                                                         \
    VERB(pause, cli_pause)                                                                         \
    VERB(resume, cli_resume)                                                                       \
    VERB(reload, cli_reload)                                                                       \
    VERB(limit, cli_limit)                                                                         \
    VERB(unban, cli_unban)                                                                         \
    VERB(rollback, cli_rollback)                                                                   \
    VERB(replay, cli_replay)                                                                       \
    VERB(web, cli_web)                                                                             \
    VERB(doctor, cli_doctor)                                                                       \
    VERB(demo, cli_demo)                                                                           \
    VERB(owner, cli_owner)                                                                         \
    VERB(config, cli_config_verb)                                                                  \
    VERB(version, cli_version)                                                                     \
    VERB(help, cli_help)                                                                           \
    PROGRAM(generate, "thinwire-engine")                                                           \
    PROGRAM(eval, "thinwire-engine")                                                               \
    PROGRAM(train, "thinwire-engine")                                                              \
    PROGRAM(import, "thinwire-engine")                                                             \
    PROGRAM(export, "thinwire-engine")                                                             \
    PROGRAM(merge, "thinwire-engine")                                                              \
    PROGRAM(verify, "thinwire-engine")                                                             \
    PROGRAM(data, "thinwire-engine")                                                               \
    PROGRAM(info, "thinwire-engine")                                                               \
    PROGRAM(sim, "thinwire-sim")
#define VERB(name, run) enum tw_exit run(struct cli *cli);
#define PROGRAM(name, program)
CLI_VERBS_EACH(VERB, PROGRAM)
#undef VERB
#undef PROGRAM

/* Returns the text of `thinwire help TOPIC`, or NULL if there is no such topic. "" is the overview.
 */
const char *cli_help_text(const char *topic);

#endif
