/* args.c - parses the command line. */
#include <stdarg.h>
#include <string.h>

#include "base/nearest.h"
#include "daemon/cli/common/cli.h"

enum tw_exit cli_fail(enum tw_exit code, const char *fmt, ...) {
    va_list args;
    (void)fputs("thinwire: ", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return code;
}

static void remove_args(struct cli *cli, int at, int count) {
    for (int i = at; i + count <= cli->argc; i++) cli->argv[i] = cli->argv[i + count];
    cli->argc -= count;
}

bool cli_option(struct cli *cli, const char *name, const char **value) {
    const size_t size = strlen(name);
    for (int i = 0; i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++) {
        char *const arg = cli->argv[i];
        if (strncmp(arg, name, size) != 0) continue;
        if (arg[size] == '=') {
            *value = arg + size + 1;
            remove_args(cli, i, 1);
            return true;
        }
        if (arg[size] == 0 && i + 1 < cli->argc) {
            *value = cli->argv[i + 1];
            remove_args(cli, i, 2);
            return true;
        }
    }
    return false;
}

bool cli_flag(struct cli *cli, const char *name) {
    for (int i = 0; i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++) {
        if (strcmp(cli->argv[i], name) != 0) continue;
        remove_args(cli, i, 1);
        return true;
    }
    return false;
}

char *cli_operand(struct cli *cli) {
    for (int i = 0; i < cli->argc; i++) {
        char *const arg = cli->argv[i];
        if (arg[0] == '-' && arg[1] != 0) continue;
        remove_args(cli, i, 1);
        return arg;
    }
    return NULL;
}

enum tw_exit cli_done(const struct cli *cli, const char *verb, const char *const *known) {
    size_t count = 0;
    bool has_json = false;
    for (; known != NULL && known[count] != NULL; count++) {
        has_json = has_json || strcmp(known[count], "--json") == 0;
    }
    if (cli->json && !has_json) return cli_fail(TW_EXIT_USAGE, "%s: there is no --json", verb);
    if (cli->argc == 0) return TW_EXIT_OK;
    char name[64];
    const char *const left = cli->argv[0];
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(left, "="), left);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(known[i], name) == 0) {
            const bool has_value =
                left[strlen(name)] == '=' || (cli->argc > 1 && cli->argv[1][0] != '-');
            return cli_fail(TW_EXIT_USAGE, "%s: %s %s", verb, name,
                            has_value ? "is given twice, or takes no value"
                                      : "wants a value, or is given twice");
        }
    }
    const char *const near = tw_nearest(name, known, count);
    if (near != NULL) {
        return cli_fail(TW_EXIT_USAGE, "%s: `%s` is unknown; did you mean %s?", verb, left, near);
    }
    /* the help page named by the first word also covers subcommands, such as `run keys` */
    return cli_fail(TW_EXIT_USAGE, "%s: `%s` is %s; `thinwire help %.*s` explains it", verb, left,
                    left[0] == '-' ? "unknown" : "too much", (int)strcspn(verb, " "), verb);
}

enum tw_exit cli_config(const struct cli *cli, struct tw_config *config) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (tw_config_find(cli->config_option, path, &err) != TW_OK ||
        tw_config_load(config, path, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    return TW_EXIT_OK;
}
