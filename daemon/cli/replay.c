/* replay.c - `thinwire replay`: finds the selected node's flight recorder, for thinwire-replay. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/common/cli.h"

/* Returns whether an option of thinwire-replay has a value. */
static bool has_value(const char *argument) {
    return strcmp(argument, "--at") == 0 || strcmp(argument, "--against") == 0 ||
           strcmp(argument, "--lines") == 0;
}

static bool has_path(const struct cli *cli) {
    for (int i = 0; i < cli->argc; i++) {
        if (cli->argv[i][0] != '-') return true;
        if (has_value(cli->argv[i])) i++;
    }
    return false;
}

/* Finds the newest folder STATE_DIR/RUN/recorder. */
static bool find_newest(const char *state_dir, char path[TW_PATH_BYTES]) {
    DIR *const dir = opendir(state_dir);
    const struct dirent *row;
    time_t newest = 0;
    path[0] = '\0';
    while (dir != NULL && (row = readdir(dir)) != NULL) {
        char name[TW_PATH_BYTES + 300];
        struct stat about;
        (void)snprintf(name, sizeof(name), "%s/%s/recorder", state_dir, row->d_name);
        if (row->d_name[0] == '.' || strlen(name) >= TW_PATH_BYTES || stat(name, &about) != 0 ||
            about.st_mtime < newest)
            continue;
        newest = about.st_mtime;
        memcpy(path, name, strlen(name) + 1);
    }
    if (dir != NULL) (void)closedir(dir);
    return path[0] != '\0';
}

enum tw_exit cli_replay(struct cli *cli) {
    static struct tw_config config;
    char path[TW_PATH_BYTES], json[] = "--json";
    char **const args = calloc((size_t)cli->argc + 2, sizeof(*args));
    int count = 0;
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    for (int i = 0; i < cli->argc; i++) args[count++] = cli->argv[i];
    if (cli->json) args[count++] = json;
    enum tw_exit rc = TW_EXIT_OK;
    if (!has_path(cli)) {
        rc = cli_config(cli, &config);
        if (rc == TW_EXIT_OK && access(config.node.state_dir, R_OK | X_OK) != 0 && errno == EACCES)
            rc = cli_fail(TW_EXIT_STATE_DIR, "replay: %s: %s; use sudo", config.node.state_dir,
                          strerror(errno));
        if (rc == TW_EXIT_OK && !find_newest(config.node.state_dir, path))
            rc = cli_fail(TW_EXIT_DATA,
                          "replay: %s has no run with a flight recorder: it is off (`recorder` of "
                          "the configuration), or the daemon never ran",
                          config.node.state_dir);
        args[count++] = path;
    }
    if (rc == TW_EXIT_OK) rc = cli_become("thinwire-replay", count, args);
    free(args);
    return rc;
}
