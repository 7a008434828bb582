/* main.c - the program `thinwire`: the table of its commands (verbs). Some commands are other
 * programs in the same folder. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "daemon/cli/common/cli.h"

/* A command of this program or, if `program` is not NULL, of a program beside it, as in git. */
struct verb {
    const char *name;
    enum tw_exit (*run)(struct cli *cli);
    const char *program;
};

#define VERB(name, run) {#name, run, NULL},
#define PROGRAM(name, program) {#name, NULL, program},
static const struct verb VERBS[] = {CLI_VERBS_EACH(VERB, PROGRAM)};
#undef VERB
#undef PROGRAM
enum { VERBS_COUNT = sizeof(VERBS) / sizeof(VERBS[0]) };

/* Takes `--NAME value` or `--NAME=value` from the words. Returns the value, or NULL. */
static const char *take_option(char **words, int *count, const char *name) {
    const size_t size = strlen(name);
    for (int i = 0; i < *count && strcmp(words[i], "--") != 0; i++) {
        const bool has_equals = strncmp(words[i], name, size) == 0 && words[i][size] == '=';
        if (!has_equals && (strcmp(words[i], name) != 0 || i + 1 >= *count)) continue;
        const char *const value = has_equals ? words[i] + size + 1 : words[i + 1];
        const int used = has_equals ? 1 : 2;
        memmove(words + i, words + i + used, (size_t)(*count - i - used) * sizeof(*words));
        *count -= used;
        return value;
    }
    return NULL;
}

enum { NODE_WORDS = 4 };

/* Commands that use a model take the node's without a file: that of --config, or the one that other
 * commands find. Adds its folder and data for the engine. Words have room for NODE_WORDS more. */
static enum tw_exit add_node(const char *verb, char **words, int *count) {
    static const char *const VERBS_OF_MODELS[] = {"generate", "eval", "export", "info"};
    static char node[] = "--node", data[] = "--node-data";
    static struct tw_config config;
    char path[TW_PATH_BYTES];
    struct tw_error err;
    bool is_one = false;
    for (unsigned i = 0; i < 4; i++) is_one = is_one || strcmp(verb, VERBS_OF_MODELS[i]) == 0;
    if (!is_one) return TW_EXIT_OK;
    const char *const named = take_option(words, count, "--config");
    (void)take_option(words, count, "--socket");
    if (strcmp(verb, "info") == 0) return TW_EXIT_OK; /* of the machine */
    enum tw_status status = tw_config_find(named, path, &err);
    if (status == TW_OK) status = tw_config_load(&config, path, &err);
    if (status != TW_OK)
        return named == NULL ? TW_EXIT_OK : cli_fail(TW_EXIT_USAGE, "%s", err.message);
    words[(*count)++] = node;
    words[(*count)++] = config.node.state_dir;
    if (strcmp(verb, "export") == 0 || config.node.data[0] == '\0') return TW_EXIT_OK;
    words[(*count)++] = data;
    words[(*count)++] = config.node.data;
    return TW_EXIT_OK;
}

/* Runs a command's program. A program with several commands gets the command's name as an argument;
 * `sim` is a program with one command. Flags before the command, argv[1] to argv[at - 1], are moved
 * behind the other arguments. */
static enum tw_exit run_program(const struct verb *verb, int argc, char **argv, int at) {
    const int skipped = strcmp(verb->program, "thinwire-sim") == 0 ? 1 : 0;
    char **const args = calloc((size_t)argc + NODE_WORDS, sizeof(*args));
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    int count = 0;
    for (int i = at + skipped; i < argc; i++) args[count++] = argv[i];
    for (int i = 1; i < at; i++) args[count++] = argv[i];
    enum tw_exit rc = add_node(verb->name, args, &count);
    if (rc == TW_EXIT_OK) rc = cli_become(verb->program, count, args);
    free(args);
    return rc;
}

static enum tw_exit set_colour(struct cli *cli) {
    const char *when = "auto";
    (void)cli_option(cli, "--color", &when);
    const char *const term = getenv("TERM");
    const bool is_terminal = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL &&
                             term != NULL && strcmp(term, "dumb") != 0;
    if (strcmp(when, "auto") != 0 && strcmp(when, "always") != 0 && strcmp(when, "never") != 0) {
        return cli_fail(TW_EXIT_USAGE, "--color=%s: it is auto, always or never", when);
    }
    cli->has_colour = strcmp(when, "always") == 0 || (strcmp(when, "auto") == 0 && is_terminal);
    cli->has_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    return TW_EXIT_OK;
}

/* Words of other programs for a command. */
static const struct {
    const char *word, *command;
} SYNONYMS[] = {
    {"stop", "leave"},
    {"drain", "leave"},
    {"quit", "leave"},
    {"exit", "leave"},
    {"down", "leave"},
    {"up", "start"},
    {"restart", "leave` and `thinwire start"},
    {"new", "run new"},
    {"create", "init"},
    {"setup", "init"},
    {"ticket", "invite"},
    {"add", "invite"},
    {"connect", "join"},
    {"nodes", "peers"},
    {"members", "peers"},
    {"ps", "peers"},
    {"list", "peers"},
    {"watch", "status --watch"},
    {"monitor", "status --watch"},
    {"log", "logs"},
    {"history", "events"},
    {"save", "checkpoint"},
    {"health", "doctor"},
    {"check", "config check"},
    {"diagnose", "doctor"},
    {"ban", "owner revoke"},
    {"kick", "owner revoke"},
    {"revoke", "owner revoke"},
    {"models", "run models"},
    {"presets", "run presets"},
    {"sample", "generate"},
    {"evaluate", "eval"},
    {"continue", "resume"},
    {"undo", "rollback"},
    {"prepare", "data prepare"},
    {"page", "web"},
    {"dashboard", "web"},
};

static enum tw_exit unknown_verb(const char *name) {
    const char *names[VERBS_COUNT];
    for (size_t i = 0; i < sizeof(SYNONYMS) / sizeof(SYNONYMS[0]); i++) {
        if (strcmp(SYNONYMS[i].word, name) == 0)
            return cli_fail(TW_EXIT_USAGE, "there is no command `%s`; did you mean `thinwire %s`?",
                            name, SYNONYMS[i].command);
    }
    for (size_t i = 0; i < VERBS_COUNT; i++) names[i] = VERBS[i].name;
    const char *near = tw_nearest(name, names, VERBS_COUNT);
    unsigned begun = 0; /* a word that is cut off means the verb that begins with it */
    for (size_t i = 0; i < VERBS_COUNT; i++)
        begun += name[0] != '\0' && strncmp(names[i], name, strlen(name)) == 0;
    for (size_t i = 0; i < VERBS_COUNT && begun == 1; i++)
        if (strncmp(names[i], name, strlen(name)) == 0) near = names[i];
    if (near != NULL) {
        return cli_fail(TW_EXIT_USAGE, "there is no command `%s`; did you mean `%s`?", name, near);
    }
    return cli_fail(TW_EXIT_USAGE, "there is no command `%s`; `thinwire help` lists them", name);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static enum tw_exit print_help(const char *verb) {
    const char *const text = cli_help_text(verb);
    (void)fputs(text != NULL ? text : cli_help_text(""), stdout);
    return TW_EXIT_OK;
}

/* Help is printed here: this program has the help pages of all commands, including other programs'.
 */
static bool wants_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) return true;
    }
    return false;
}

/* Keeps the words of the command, for errors that name a command which helps. */
static void keep_words(struct cli *cli, const char *verb) {
    size_t used = (size_t)snprintf(cli->words, sizeof(cli->words), "%s", verb);
    for (int i = 0; i < cli->argc && used < sizeof(cli->words); i++) {
        const int size =
            snprintf(cli->words + used, sizeof(cli->words) - used, " %s", cli->argv[i]);
        if (used + (size_t)size >= sizeof(cli->words)) cli->words[used] = '\0';
        used += (size_t)size;
    }
}

/* Runs a command of this program, argv[at], with the flags before and after it. */
static enum tw_exit run_verb(const char *verb, int argc, char **argv, int at) {
    static struct cli cli;
    for (int i = at; i < argc - 1; i++) argv[i] = argv[i + 1];
    cli.argc = at < argc ? argc - 2 : argc - 1;
    cli.argv = argv + 1;
    cli.json = cli_flag(&cli, "--json");
    (void)cli_option(&cli, "--config", &cli.config_option);
    (void)cli_option(&cli, "--socket", &cli.socket_option);
    keep_words(&cli, verb);
    const enum tw_exit coloured = set_colour(&cli);
    if (coloured != TW_EXIT_OK) return coloured;
    for (size_t i = 0; i < VERBS_COUNT; i++) {
        if (strcmp(VERBS[i].name, verb) != 0) continue;
        const bool is_short = cli_flag(&cli, "-h");
        if ((cli_flag(&cli, "--help") || is_short) && strcmp(verb, "help") != 0)
            return print_help(verb);
        return VERBS[i].run(&cli);
    }
    return unknown_verb(verb);
}

static enum tw_exit run_command(int argc, char **argv) {
    int at = 1; /* the command: the first argument that is neither a global flag nor its value */
    while (at < argc && argv[at][0] == '-') {
        const bool has_value =
            strcmp(argv[at], "--config") == 0 || strcmp(argv[at], "--socket") == 0;
        if (is_help(argv[at]) || strcmp(argv[at], "--version") == 0) break;
        at += has_value ? 2 : 1;
    }
    const char *verb = at < argc ? argv[at] : "help";
    if (is_help(verb)) verb = "help";
    if (strcmp(verb, "--version") == 0) verb = "version";
    for (size_t i = 0; i < VERBS_COUNT; i++) {
        if (VERBS[i].program == NULL || strcmp(VERBS[i].name, verb) != 0) continue;
        if (wants_help(argc - at, argv + at)) return print_help(verb);
        return run_program(&VERBS[i], argc, argv, at);
    }
    return run_verb(verb, argc, argv, at);
}

int main(int argc, char **argv) {
    (void)signal(SIGXFSZ, SIG_IGN); /* a file-size limit then fails a write instead of killing the
                                       process (as in daemon/node/main.c) */
    (void)setlocale(LC_CTYPE, "");
    const enum tw_exit rc = run_command(argc, argv);
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || rc != TW_EXIT_OK) return (int)rc;
    return (int)cli_fail(TW_EXIT_FAILURE, "standard output: %s", strerror(errno));
}
