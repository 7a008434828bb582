#include "daemon/cli/node/node_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/node_user.h"

enum { EXAMPLE_BYTES = 32 * 1024 };

#define SERVICE_USER "thinwire" /* user of the unit thinwired@ */

const char *node_files_from_here(const char *path, char absolute[TW_PATH_BYTES]) {
    char here[TW_PATH_BYTES];
    if (*path == '/') return path;
    if (getcwd(here, sizeof(here)) == NULL) return NULL;
    while (path[0] == '.' && path[1] == '/') path += 2;
    const bool is_here = strcmp(path, ".") == 0;
    const int n =
        snprintf(absolute, TW_PATH_BYTES, "%s%s%s", here, is_here ? "" : "/", is_here ? "" : path);
    return n < TW_PATH_BYTES ? absolute : NULL;
}

void node_files_put(struct node_files *files, const char *key, const char *text) {
    if (text == NULL) return;
    TW_ASSERT(files->count < TW_NODE_VALUES_MAX);
    files->values[files->count].key = key;
    files->values[files->count++].text = text;
}

const char *node_files_value(const struct node_files *files, const char *key) {
    for (unsigned i = 0; i < files->count; i++) {
        if (strcmp(files->values[i].key, key) == 0) return files->values[i].text;
    }
    return NULL;
}

/* Returns the reason in the error of a configuration that is not written yet: `key: reason`, if the
 * key is one that a flag set. Otherwise NULL. */
static const char *flag_reason(const struct node_files *files, const char *message) {
    const char *reason = NULL;
    for (unsigned i = 0; reason == NULL && i < files->count; i++) {
        char key[48];
        (void)snprintf(key, sizeof(key), " %s: ", files->values[i].key);
        reason = strstr(message, key);
    }
    return reason != NULL ? reason + 1 : NULL;
}

/* Returns the index of the value that replaces this line of the example, or -1. */
static int find_value(const struct node_files *files, const char *line) {
    for (unsigned i = 0; line[0] == '#' && i < files->count; i++) {
        const size_t size = strlen(files->values[i].key);
        if (strncmp(line + 1, files->values[i].key, size) != 0) continue;
        if (strncmp(line + 1 + size, " =", 2) == 0) return (int)i;
    }
    return -1;
}

/* Prints a value. A list gets one line per entry, because lines of the file are limited in length.
 */
static void print_value(FILE *to, const char *key, const char *text) {
    const bool is_list = strcmp(key, "peers") == 0 || strcmp(key, "listen") == 0;
    const char *rest = text;
    size_t size = 0;
    do {
        rest += size + (size > 0);
        size = is_list ? strcspn(rest, ",") : strlen(rest);
        (void)fprintf(to, "%s = %.*s\n", key, (int)size, rest);
    } while (size > 0 && rest[size] == ',');
}

/* Writes the commented example with the given values filled in. */
static void fill_example(FILE *to, const struct node_files *files) {
    static char example[EXAMPLE_BYTES];
    (void)tw_config_example(example, sizeof(example));
    for (const char *line = example; *line != 0;) {
        const size_t size = strcspn(line, "\n");
        const int value = find_value(files, line);
        if (value >= 0) {
            print_value(to, files->values[value].key, files->values[value].text);
        } else {
            (void)fprintf(to, "%.*s\n", (int)size, line);
        }
        line += size + (line[size] == '\n');
    }
}

/* Like mkdir(2), but also syncs the parent, so that the new folder survives a power cut. */
static int folder_make(const char *path, mode_t mode) {
    struct tw_error
        ignored; /* ignored: a failing disk is reported by a later sync of the folder's files */
    if (mkdir(path, mode) != 0) return -1;
    (void)tw_folder_sync(path, &ignored);
    return 0;
}

/* Like `mkdir -p`, except that the last folder gets `mode`. */
static enum tw_exit make_folder(const char *path, mode_t mode, enum tw_exit code) {
    char part[TW_PATH_BYTES];
    (void)snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (folder_make(part, 0755) != 0 && errno != EEXIST) {
            return cli_fail(code, "cannot make %s: %s; use sudo, or --dir FOLDER for one of yours",
                            part, strerror(errno));
        }
        *slash = '/';
    }
    if (folder_make(path, mode) == 0) return TW_EXIT_OK;
    const int why = errno;
    struct stat info;
    if (why == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (access(path, W_OK) == 0) return TW_EXIT_OK;
        return cli_fail(code, "%s is not writable; use sudo, or --dir FOLDER for one of yours",
                        path);
    }
    return cli_fail(code, "%s: %s; use sudo, or --dir FOLDER for one of yours", path,
                    strerror(why));
}

/* Parses the configuration that node_files_write_config will write. */
enum tw_exit node_files_plan(struct node_files *files) {
    static char text[EXAMPLE_BYTES];
    struct tw_error err;
    FILE *const memory = fmemopen(text, sizeof(text), "w");
    if (memory == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    fill_example(memory, files);
    (void)fclose(memory);
    if (tw_config_parse(&files->config, files->config_path, text, strlen(text), &err) != TW_OK) {
        const char *const reason = flag_reason(files, err.message);
        return cli_fail(TW_EXIT_USAGE, "%s%s", reason != NULL ? "--" : "",
                        reason != NULL ? reason : err.message);
    }
    const int n = snprintf(files->key_path, sizeof(files->key_path), "%s/identity.key",
                           files->config.node.state_dir);
    if (n >= (int)sizeof(files->key_path)) return cli_fail(TW_EXIT_USAGE, "state_dir is too long");
    return TW_EXIT_OK;
}

enum tw_exit node_files_folders(const struct node_files *files) {
    char folder[TW_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s", files->config_path);
    const enum tw_exit rc = make_folder(files->config.node.state_dir, 0700, TW_EXIT_STATE_DIR);
    return rc != TW_EXIT_OK ? rc : make_folder(dirname(folder), 0755, TW_EXIT_USAGE);
}

/* Writes the configuration completely or not at all, so that an interrupted command can be
 * repeated. An existing file stays. */
enum tw_exit node_files_write_config(const struct node_files *files) {
    const char *const path = files->config_path;
    char fresh[TW_PATH_BYTES + 8];
    struct tw_error err;
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    (void)unlink(fresh); /* left over from an interrupted command */
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *const file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) return cli_fail(TW_EXIT_USAGE, "%s: %s", fresh, strerror(errno));
    fill_example(file, files);
    bool is_good = ferror(file) == 0;
    is_good = fflush(file) == 0 && fsync(fd) == 0 && is_good;
    is_good = fclose(file) == 0 && is_good;
    /* link() fails if another process has just created the file, while rename() would replace it.
     * On file systems without hard links (EPERM), only rename() works. */
    const bool is_placed =
        is_good && (link(fresh, path) == 0 ||
                    (errno != EEXIST && access(path, F_OK) != 0 && rename(fresh, path) == 0));
    const bool is_taken = is_good && !is_placed && access(path, F_OK) == 0;
    (void)unlink(fresh);
    if (is_taken) return cli_fail(TW_EXIT_USAGE, "%s exists and is not overwritten", path);
    if (is_placed && tw_folder_sync(path, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "%s: the disk is full or failing", path);
}

/* Copies the configuration line by line. The value takes the place of the present one or of the
 * commented example, or stands at the begin of its section if there is neither. */
static void copy_with(FILE *to, FILE *from, const char *key, const char *text) {
    char line[TW_PATH_BYTES], place[64];
    bool has_example = false, is_done = false;
    for (unsigned i = 0; i < 2 && !has_example; i++) {
        (void)snprintf(place, sizeof(place), "%s%s =", i == 0 ? "" : "#", key);
        while (!has_example && fgets(line, sizeof(line), from) != NULL)
            has_example = strncmp(line, place, strlen(place)) == 0;
        rewind(from);
    }
    if (!has_example) (void)snprintf(place, sizeof(place), "[node]");
    while (fgets(line, sizeof(line), from) != NULL) {
        const bool is_place = !is_done && strncmp(line, place, strlen(place)) == 0;
        const size_t size = strlen(line);
        if (!is_place || !has_example) (void)fputs(line, to);
        if (size > 0 && line[size - 1] != '\n') (void)fputc('\n', to); /* the last line */
        if (is_place) print_value(to, key, text);
        is_done |= is_place;
    }
    if (!is_done) (void)fprintf(to, "\n[node]\n%s = %s\n", key, text);
}

enum tw_exit node_files_add_value(const struct node_files *files, const char *key,
                                  const char *text) {
    const char *const path = files->config_path;
    char fresh[TW_PATH_BYTES + 8];
    struct tw_error err;
    struct stat info;
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    (void)unlink(fresh); /* left over from an interrupted command */
    FILE *const from = fopen(path, "re");
    if (from == NULL || fstat(fileno(from), &info) != 0) {
        if (from != NULL) (void)fclose(from);
        return cli_fail(TW_EXIT_USAGE, "%s: %s", path, strerror(errno));
    }
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, info.st_mode & 07777);
    FILE *const to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (to == NULL) {
        const int why = errno;
        (void)fclose(from);
        return cli_fail(TW_EXIT_USAGE, "%s: %s", fresh, strerror(why));
    }
    copy_with(to, from, key, text);
    bool is_good = ferror(from) == 0 && ferror(to) == 0;
    (void)fclose(from);
    /* root keeps the owner of the file */
    if (geteuid() == 0) is_good = fchown(fd, info.st_uid, info.st_gid) == 0 && is_good;
    is_good = fflush(to) == 0 && fsync(fd) == 0 && is_good;
    is_good = fclose(to) == 0 && is_good;
    is_good = is_good && rename(fresh, path) == 0 && tw_folder_sync(path, &err) == TW_OK;
    if (is_good) return TW_EXIT_OK;
    (void)unlink(fresh);
    return cli_fail(TW_EXIT_USAGE, "%s: the disk is full or failing", path);
}

bool node_files_is_service(const struct node_files *files) {
    return cli_is_service(files->config_path);
}

enum tw_exit node_files_hand_over(const struct node_files *files) {
    const char *const folder = files->config.node.state_dir;
    const struct passwd *const user = getpwnam(SERVICE_USER);
    struct stat info;
    if (!node_files_is_service(files) || geteuid() != 0 || user == NULL) return TW_EXIT_OK;
    DIR *const dir = opendir(folder);
    bool is_good = dir != NULL && fstat(dirfd(dir), &info) == 0;
    const bool is_ours = is_good && info.st_uid == 0;
    for (const struct dirent *at; is_ours && is_good && (at = readdir(dir)) != NULL;) {
        if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0) continue;
        is_good =
            fchownat(dirfd(dir), at->d_name, user->pw_uid, user->pw_gid, AT_SYMLINK_NOFOLLOW) == 0;
    }
    if (is_ours && is_good) is_good = fchown(dirfd(dir), user->pw_uid, user->pw_gid) == 0;
    const int why = errno;
    if (dir != NULL) (void)closedir(dir);
    if (is_good) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s cannot be given to user %s: %s", folder, SERVICE_USER,
                    strerror(why));
}

void node_files_print_word(const char *text) {
    if (text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-")] ==
        '\0') {
        (void)fputs(text, stdout);
        return;
    }
    (void)putchar('\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            (void)fputs("'\\''", stdout);
        else
            (void)putchar(*text);
    }
    (void)putchar('\'');
}

void node_files_say_next(const struct node_files *files, const char *const *verbs) {
    char meant[TW_PATH_BYTES], command[CLI_COMMAND_BYTES];
    struct tw_error err;
    const char *const path = files->config_path;
    (void)fputc('\n', stdout);
    if (node_files_is_service(files)) {
        for (; *verbs != NULL; verbs++)
            (void)printf("    %s\n", cli_command(path, cli_needs_sudo(path), *verbs, command));
        return;
    }
    if (tw_config_find(NULL, meant, &err) != TW_OK || strcmp(meant, files->config_path) != 0) {
        (void)fputs("    export THINWIRE_CONFIG=", stdout);
        node_files_print_word(files->config_path);
        (void)putchar('\n');
    }
    for (; *verbs != NULL; verbs++) (void)printf("    thinwire %s\n", *verbs);
}

enum tw_exit node_files_options(struct cli *cli, struct node_files *files) {
    enum { PATHS = 4 }; /* number of keys at the start of KEYS whose values are paths */
    static const char *const KEYS[] = {"state_dir", "run_dir", "run",    "data",   "name",
                                       "listen",    "peers",   "upload", "threads"};
    static const char *const FLAGS[] = {"--state-dir", "--run-dir", "--run",
                                        "--data",      "--name",    "--listen",
                                        "--peers",     "--upload",  "--threads"};
    static char paths[PATHS][TW_PATH_BYTES], dir_path[TW_PATH_BYTES];
    const char *dir = NULL;
    if (cli_option(cli, "--dir", &dir)) {
        dir = node_files_from_here(dir, dir_path);
        const int n = dir == NULL ? TW_PATH_BYTES
                                  : snprintf(files->config_path, sizeof(files->config_path),
                                             "%s/node.conf", dir);
        if (n >= TW_PATH_BYTES) return cli_fail(TW_EXIT_USAGE, "--dir: the path is too long");
    }
    for (unsigned i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        const char *value = NULL;
        if (!cli_option(cli, FLAGS[i], &value)) {
            if (dir != NULL && i < 2) value = i == 0 ? "state" : "sockets";
            node_files_put(files, KEYS[i],
                           value); /* default with --dir: a file beside the configuration */
            continue;
        }
        if (i < PATHS) value = node_files_from_here(value, paths[i]);
        if (value == NULL) return cli_fail(TW_EXIT_USAGE, "%s: the path is too long", FLAGS[i]);
        node_files_put(files, KEYS[i], value);
    }
    return TW_EXIT_OK;
}

enum tw_exit node_files_find(const struct cli *cli, struct node_files *files) {
    struct tw_error err;
    if (files->config_path[0] == 0 &&
        tw_config_place(cli->config_option, files->config_path, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (node_files_is_service(files)) {
        node_files_put(files, "spawn_worker", "off");
        node_files_put(files, "worker_user", "thinwire-worker");
    }
    return TW_EXIT_OK;
}
