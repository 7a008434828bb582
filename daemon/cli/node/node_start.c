/* node_start.c - `thinwire start`, and the last step of `thinwire join --start`. */
#include "daemon/cli/node/node_start.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/page.h"
#include "daemon/cli/common/checkpoint_progress.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/ended.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/net/socket.h"
#include "daemon/store/checkpoint.h"

/* ---- needs of a daemon ----------------------------------------------------------------------- */

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

/* ---- `start --fresh` ------------------------------------------------------------------------- */

struct fresh {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_id run_id;
    char folder[TW_PATH_BYTES]; /* the run's state folder */
    struct tw_checkpoint *files;
};

static enum tw_exit open_files(const struct tw_config *config, struct fresh *fresh) {
    char hex[TW_ID_HEX_BYTES];
    struct tw_error err = {0};
    if (cli_manifest_load(config->node.run, &fresh->run, &err) != TW_OK ||
        tw_layout_init(&fresh->layout, &fresh->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    fresh->run_id = tw_run_id(&fresh->run);
    tw_id_hex(&fresh->run_id, hex);
    const int size =
        snprintf(fresh->folder, sizeof(fresh->folder), "%s/%.16s", config->node.state_dir, hex);
    if (size >= (int)sizeof(fresh->folder)) return cli_fail(TW_EXIT_USAGE, "state_dir is too long");
    if (tw_checkpoint_create(&fresh->files, tw_file_system(), fresh->folder, &fresh->layout,
                             &fresh->run_id, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "start: %s", err.message);
    checkpoint_progress_watch(fresh->files);
    return TW_EXIT_OK;
}

static enum tw_exit set_aside(const struct fresh *fresh, uint32_t file, FILE *out) {
    char path[TW_PATH_BYTES + 32], aside[TW_PATH_BYTES + 48];
    (void)snprintf(path, sizeof(path), "%s/%s", fresh->folder, tw_checkpoint_file_name(file));
    (void)snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (rename(path, aside) != 0)
        return cli_fail(TW_EXIT_STATE_DIR, "start: %s: %s", path, strerror(errno));
    (void)fprintf(out, "Set aside as %s\n", aside);
    return TW_EXIT_OK;
}

static enum tw_exit judge(const struct fresh *fresh, FILE *out) {
    enum tw_exit rc = TW_EXIT_OK;
    bool is_damaged[TW_CHECKPOINT_SLOTS] = {false};
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        struct tw_checkpoint_about about;
        struct tw_error err = {0};
        tw_checkpoint_look(fresh->files, i, &about);
        if (!about.exists) continue;
        const enum tw_status status = tw_checkpoint_verify(fresh->files, i, &err);
        checkpoint_progress_end();
        if (status == TW_OK) {
            (void)fprintf(out,
                          "%s is intact: the node starts from it, and --fresh changes nothing\n",
                          tw_checkpoint_file_name(i));
            return TW_EXIT_OK;
        }
        if (status != TW_CORRUPT && status != TW_IO)
            return cli_fail(TW_EXIT_MANIFEST, "start: %s", err.message);
        is_damaged[i] = true;
    }
    for (uint32_t i = 0; i < TW_CHECKPOINT_SLOTS && rc == TW_EXIT_OK; i++)
        if (is_damaged[i]) rc = set_aside(fresh, i, out);
    return rc;
}

/* Renames the checkpoints that a start would load to *.damaged, if all of them are damaged, so that
 * the node starts without any. Otherwise changes nothing. Says which it did on `out`. Needs a
 * stopped daemon, and does nothing while one runs. Prints errors itself. */
static enum tw_exit set_damaged_aside(const struct tw_config *config, FILE *out) {
    static struct fresh fresh;
    char path[TW_PATH_BYTES + 8];
    (void)snprintf(path, sizeof(path), "%s/lock", config->node.state_dir);
    const int lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0 && errno == ENOENT) return TW_EXIT_OK; /* it never ran */
    if (lock < 0) return cli_fail(TW_EXIT_STATE_DIR, "start: %s: %s", path, strerror(errno));
    enum tw_exit rc = TW_EXIT_OK;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        rc = open_files(config, &fresh);
        if (rc == TW_EXIT_OK) rc = judge(&fresh, out);
        if (fresh.files != NULL) tw_checkpoint_destroy(fresh.files);
    }
    (void)close(lock);
    return rc;
}

/* ---- the start ------------------------------------------------------------------------------- */

enum { PATIENCE_MS = 30 * 1000, WORKER_MS = 10 * 1000, LOOK_MS = 100, CHECK_BYTES = 16 * 1024 };

extern char **environ;

bool node_is_listening(const char *socket_path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(socket_path) >= sizeof(address.sun_path)) return false;
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_up =
        fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0) (void)close(fd);
    return is_up;
}

static void pause_look(void) {
    static const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Asks the daemon for its status. Returns NULL if there is no answer; the caller owns the answer.
 */
static json_t *ask_status(const char *socket_path) {
    const struct cli cli = {.socket_option = socket_path, .is_quiet = true};
    long code = 0;
    char *body = NULL;
    json_error_t err;
    if (cli_request(&cli, "GET", "/v1/status", &code, &body) != TW_EXIT_OK) return NULL;
    json_t *const json = json_loads(body, 0, &err);
    free(body);
    return json;
}

/* Sets *is_up if a daemon answers and is not stopping. Waits for the end of one that is. Fails if a
 * daemon listens, but does not answer. */
static enum tw_exit look_for_daemon(const char *socket_path, bool *is_up) {
    /* opened before the query, because the daemon may end meanwhile */
    const int process = ended_open(socket_path);
    json_t *const status = node_is_listening(socket_path) ? ask_status(socket_path) : NULL;
    const bool is_leaving =
        json_is_true(json_object_get(json_object_get(status, "node"), "leaving"));
    *is_up = status != NULL && !is_leaving;
    if (is_leaving) {
        if (process >= 0) ended_wait(process);
        while (process < 0 && node_is_listening(socket_path)) pause_look();
    }
    if (process >= 0) (void)close(process);
    json_decref(status);
    if (status != NULL || !node_is_listening(socket_path)) return TW_EXIT_OK;
    const struct cli loud = {.socket_option = socket_path}; /* it says why there is no answer */
    json_t *json = NULL;
    const enum tw_exit rc = cli_get(&loud, "/v1/status", &json);
    *is_up = rc == TW_EXIT_OK;
    json_decref(json);
    return rc;
}

/* Returns true while the first word of the node's own worker is not there, or if the daemon ends:
 * by that word it knows whether the data are the run's. */
static bool awaits_worker(const char *socket_path) {
    json_t *const status = ask_status(socket_path);
    const char *const state =
        json_string_value(json_object_get(json_object_get(status, "worker"), "state"));
    const bool is_so = state == NULL || strcmp(state, "starting") == 0 ||
                       json_is_true(json_object_get(json_object_get(status, "node"), "leaving"));
    json_decref(status);
    return is_so;
}

/* Runs a program of the system without its words of trouble, and waits for it. Its output is read
 * into `text`, as far as there is room; NULL: it is dropped. Returns its exit status, or -1 if it
 * could not run. */
static int run_program(char *const argv[], char *text, size_t text_bytes) {
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int status = 0, ends[2];
    char dropped[256];
    size_t used = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const int code = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    for (ssize_t size = 1; code == 0 && size != 0;) {
        const bool has_room = text != NULL && used + 1 < text_bytes;
        size = read(ends[0], has_room ? text + used : dropped,
                    has_room ? text_bytes - used - 1 : sizeof(dropped));
        if (size < 0 && errno != EINTR) break;
        if (size > 0 && has_room) used += (size_t)size;
    }
    (void)close(ends[0]);
    if (text != NULL) text[used] = '\0';
    if (code != 0) return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Checks the node of a service before its units are touched, by `thinwire config check` as the
 * node's user. Prints the first finding. */
static enum tw_exit check_first(const struct node_files *files) {
    static char text[CHECK_BYTES];
    char program[] = "/proc/self/exe", option[] = "--config", path[TW_PATH_BYTES],
         verb[] = "config", word[] = "check", form[] = "--json";
    json_error_t parse;
    size_t at;
    json_t *row;
    memcpy(path, files->config_path, sizeof(path));
    char *const argv[] = {program, option, path, verb, word, form, NULL};
    const int code = run_program(argv, text, sizeof(text));
    json_t *const json = code > 0 ? json_loads(text, 0, &parse) : NULL;
    enum tw_exit rc = TW_EXIT_OK;
    json_array_foreach(json_object_get(json, "findings"), at, row) {
        if (json_is_true(json_object_get(row, "ok"))) continue;
        const char *const why = json_string_value(json_object_get(row, "error"));
        rc = cli_fail((enum tw_exit)code, "not started: %s", why != NULL ? why : "a check failed");
        break;
    }
    json_decref(json);
    return rc;
}

/* Writes the last reason that the daemon gave in the journal, without its own name. "" if there is
 * none: systemd's lines and the log's name numbers, and no reason. */
static void last_words(char *daemon, char reason[CHECK_BYTES]) {
    char journal[] = "journalctl", unit[] = "--unit", lines[] = "--lines=20",
         who[] = "--identifier=thinwired", form[] = "--output=cat", pager[] = "--no-pager";
    char *const tail[] = {journal, unit, daemon, who, lines, form, pager, NULL};
    static const char MARK[] = "thinwired: ";
    static char text[CHECK_BYTES];
    reason[0] = '\0';
    if (run_program(tail, text, sizeof(text)) != 0) return;
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        if (strncmp(line, MARK, sizeof(MARK) - 1) == 0)
            (void)snprintf(reason, CHECK_BYTES, "%s", line + sizeof(MARK) - 1);
    }
}

/* Says why systemd did not start the unit, with the way out. */
static enum tw_exit explain_units(const struct node_files *files, char *daemon) {
    static char reason[CHECK_BYTES];
    char name[] = "systemctl", cat[] = "cat", command[CLI_COMMAND_BYTES];
    char *const look[] = {name, cat, daemon, NULL};
    if (run_program(look, NULL, 0) != 0)
        return cli_fail(TW_EXIT_FAILURE,
                        "systemd has no unit thinwired@: install the package, or the unit files "
                        "(`cmake --install BUILD --prefix /usr`); a node without systemd is made "
                        "by --dir FOLDER");
    if (geteuid() != 0)
        return cli_fail(TW_EXIT_FAILURE, "only root starts the service %s: `%s`", daemon,
                        cli_command(files->config_path, true, "start", command));
    last_words(daemon, reason);
    return cli_fail(
        TW_EXIT_FAILURE, "%s did not start%s%s; `%s` shows its log", daemon,
        reason[0] != '\0' ? ": " : "", reason,
        cli_command(files->config_path, cli_needs_sudo(files->config_path), "logs", command));
}

/* Starts daemon and worker. If the daemon does not start, nothing is left running, nor enabled if
 * it was not. */
static enum tw_exit start_units(const struct node_files *files, FILE *to) {
    char daemon[80], worker[96];
    (void)snprintf(daemon, sizeof(daemon), "thinwired@%s", files->config.instance);
    (void)snprintf(worker, sizeof(worker), "thinwire-worker@%s", files->config.instance);
    char name[] = "systemctl", enable[] = "enable", now[] = "--now", ask[] = "--no-ask-password",
         is_enabled[] = "is-enabled", disable[] = "disable", stop[] = "stop";
    char *const argv[] = {name, ask, enable, now, daemon, worker, NULL};
    char *const look[] = {name, is_enabled, daemon, NULL};
    char *const undo[] = {name, ask, disable, now, daemon, worker, NULL};
    char *const halt[] = {name, ask, stop, daemon, worker, NULL};
    const enum tw_exit rc = geteuid() == 0 ? check_first(files) : TW_EXIT_OK;
    if (rc != TW_EXIT_OK) return rc;
    const bool was_enabled = run_program(look, NULL, 0) == 0;
    /* The words of a failure are silenced: explain_units has better ones. */
    const int code = run_program(argv, NULL, 0);
    if (code < 0)
        return cli_fail(TW_EXIT_FAILURE,
                        "this system has no systemctl, which starts nodes of " TW_CONFIG_FOLDER
                        ": run `thinwired --config %s` by another supervisor, or make a node by "
                        "--dir FOLDER",
                        files->config.instance);
    if (code != 0) {
        const enum tw_exit why = explain_units(files, daemon);
        if (geteuid() == 0) (void)run_program(was_enabled ? halt : undo, NULL, 0);
        return why;
    }
    (void)fprintf(to, "It runs as %s and starts with the machine.\n", daemon);
    return TW_EXIT_OK;
}

/* Prints the end of the log of a daemon that failed at the start. Skips the first `begin` bytes,
 * which are of earlier processes. */
static void log_tail(const char *path, long begin) {
    enum { NARROW = 60 }; /* columns of a narrower terminal, which breaks the lines itself */
    char text[1024];
    FILE *const file = fopen(path, "re");
    if (file == NULL) return;
    const long tail = (long)sizeof(text) - 1;
    const long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    (void)fseek(file, end - begin > tail ? end - tail : begin, SEEK_SET);
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    const char *said = strstr(text, "thinwired: ");
    if (said == NULL) said = text;
    if (isatty(STDERR_FILENO) == 1)
        tw_page_print(stderr, tw_page_width(STDERR_FILENO, NARROW), said);
    else
        (void)fputs(said, stderr);
}

static int spawn_daemon(const struct node_files *files, const char *log, pid_t *pid) {
    char program[TW_PATH_BYTES], config[TW_PATH_BYTES], option[] = "--config", keep[] = "--keep";
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    const ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 32);
    if (size <= 0) return errno;
    program[size] = '\0';
    char *const slash = strrchr(program, '/');
    (void)snprintf(slash + 1, 16, "thinwired");
    memcpy(config, files->config_path, sizeof(config));
    char *const argv[] = {program, option, config, keep, NULL};
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0640);
    const int code = posix_spawn(pid, program, &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return code;
}

void node_log_path(const struct node_files *files, char path[TW_PATH_BYTES + 8]) {
    char folder[TW_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s", files->config_path);
    (void)snprintf(path, TW_PATH_BYTES + 8, "%s/log", dirname(folder));
}

static enum tw_exit start_here(const struct node_files *files, FILE *to) {
    char log[TW_PATH_BYTES + 8];
    pid_t pid = 0;
    int status = 0;
    node_log_path(files, log);
    struct stat before = {.st_size = 0};
    (void)stat(log, &before);
    const int code = spawn_daemon(files, log, &pid);
    if (code != 0)
        return cli_fail(TW_EXIT_FAILURE, "thinwired could not be started with its log in %s: %s",
                        log, strerror(code));
    int worker_ms = 0;
    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += LOOK_MS) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            log_tail(log, (long)before.st_size);
            return cli_fail(WIFEXITED(status) && WEXITSTATUS(status) != 0
                                ? (enum tw_exit)WEXITSTATUS(status)
                                : TW_EXIT_FAILURE,
                            "thinwired did not start; its log is %s", log);
        }
        const bool is_up = node_is_listening(files->config.api.socket);
        const bool is_early =
            is_up && worker_ms < WORKER_MS && awaits_worker(files->config.api.socket);
        worker_ms += is_early ? LOOK_MS : 0;
        if (is_up && !is_early) {
            (void)fprintf(to, "It runs as process %ld, until a reboot; its log is %s.\n", (long)pid,
                          log);
            return TW_EXIT_OK;
        }
        pause_look();
    }
    return cli_fail(TW_EXIT_UNREACHABLE,
                    "thinwired runs as process %ld but does not answer on %s yet: a large state "
                    "takes longer to load; see its log %s",
                    (long)pid, files->config.api.socket, log);
}

enum tw_exit node_start(const struct node_files *files, FILE *to) {
    bool is_up = false;
    (void)fflush(stdout);
    const enum tw_exit rc = look_for_daemon(files->config.api.socket, &is_up);
    if (rc != TW_EXIT_OK) return rc;
    if (is_up) {
        (void)fputs("It runs already.\n", to);
        return TW_EXIT_OK;
    }
    return node_files_is_service(files) ? start_units(files, to) : start_here(files, to);
}

enum tw_exit cli_start(struct cli *cli) {
    static struct node_files files;
    struct tw_error err;
    const bool is_fresh = cli_flag(cli, "--fresh");
    enum tw_exit rc = cli_done(cli, "start");
    if (rc == TW_EXIT_OK) rc = cli_config(cli, &files.config);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_config_find(cli->config_option, files.config_path, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (!node_files_is_service(&files) && cli_become_node_user(cli, &files.config, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    if (is_fresh) rc = set_damaged_aside(&files.config, cli->json ? stderr : stdout);
    if (rc == TW_EXIT_OK) rc = node_start(&files, cli->json ? stderr : stdout);
    if (rc != TW_EXIT_OK || !cli->json) return rc;
    json_t *const json =
        json_pack("{s:s,s:s}", "config", files.config_path, "socket", files.config.api.socket);
    return json_print(json);
}
