#include "daemon/cli/common/cli.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/nearest.h"
#include "base/page.h"
#include "daemon/cli/common/node_user.h"

enum {
    OPTION_BYTES = 64,
    OPTIONS_MAX = 96, /* options that a help page names, with repetitions */
};

/* ---- arguments ------------------------------------------------------------------------------- */

enum tw_exit cli_fail(enum tw_exit code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    tw_page_say_va(fmt, args);
    va_end(args);
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

/* Options that every command understands. */
#define EVERYWHERE "--json --config --socket --color --help"

/* Copies the next option that the text names, such as --upload, and moves *at behind it. Returns
 * false if there is none. */
static bool next_option(const char **at, char name[OPTION_BYTES]) {
    for (const char *begin = *at; (begin = strstr(begin, "--")) != NULL;) {
        const size_t size = 2 + strspn(begin + 2, "abcdefghijklmnopqrstuvwxyz-");
        *at = begin += size;
        if (size == 2 || size >= OPTION_BYTES) continue;
        (void)snprintf(name, OPTION_BYTES, "%.*s", (int)size, begin - size);
        return true;
    }
    return false;
}

/* Reads the options that the command's help page names. Returns their number. */
static size_t options_of(const char *topic, char names[OPTIONS_MAX][OPTION_BYTES]) {
    const char *const texts[] = {EVERYWHERE, cli_help_text(topic)};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *at = texts[i];
        while (at != NULL && count < OPTIONS_MAX && next_option(&at, names[count])) count++;
    }
    return count;
}

enum tw_exit cli_done(const struct cli *cli, const char *verb) {
    static char names[OPTIONS_MAX][OPTION_BYTES];
    const char *known[OPTIONS_MAX];
    char name[OPTION_BYTES], topic[OPTION_BYTES];
    if (cli->argc == 0) return TW_EXIT_OK;
    const char *const left = cli->argv[0];
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(left, "="), left);
    /* the page of the first word also covers subcommands, such as `run keys` */
    (void)snprintf(topic, sizeof(topic), "%.*s", (int)strcspn(verb, " "), verb);
    const size_t count = options_of(topic, names);
    for (size_t i = 0; i < count; i++) {
        known[i] = names[i];
        if (strcmp(known[i], name) != 0) continue;
        const bool has_value =
            left[strlen(name)] == '=' || (cli->argc > 1 && cli->argv[1][0] != '-');
        return cli_fail(TW_EXIT_USAGE, "%s: %s %s%s", verb, name,
                        has_value ? "is given twice, or takes no value"
                                  : "wants a value, or is given twice",
                        strcmp(topic, verb) == 0 ? "" : ", or is no option of this command");
    }
    const char *const near = tw_nearest(name, known, count);
    if (near != NULL) {
        return cli_fail(TW_EXIT_USAGE, "%s: `%s` is unknown; did you mean %s?", verb, left, near);
    }
    return cli_fail(TW_EXIT_USAGE, "%s: `%s` is %s; `thinwire help %s` explains it", verb, left,
                    left[0] == '-' ? "unknown" : "too much", topic);
}

enum tw_exit cli_done_text(const struct cli *cli, const char *verb) {
    return cli->json ? cli_fail(TW_EXIT_USAGE, "%s: there is no --json", verb)
                     : cli_done(cli, verb);
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

/* ---- requests to the daemon ------------------------------------------------------------------ */

enum { ANSWER_BYTES_MAX = 8 * 1024 * 1024, READ_S = 10, VERB_S = 300, SAY_S = 2 };

struct answer {
    char *bytes;
    size_t size;
};

static size_t on_bytes(char *bytes, size_t one, size_t count, void *user) {
    struct answer *const answer = user;
    (void)one;
    if (answer->size + count > ANSWER_BYTES_MAX) return 0;
    char *const grown = realloc(answer->bytes, answer->size + count + 1);
    if (grown == NULL) return 0;
    memcpy(grown + answer->size, bytes, count);
    answer->bytes = grown;
    answer->size += count;
    grown[answer->size] = 0;
    return count;
}

/* The selected daemon: its socket, and the ways out if it does not answer. */
struct target {
    bool is_none; /* no node is configured here */
    bool is_post; /* the request acts, which only the node's user and root may ask for */
    char socket[TW_PATH_BYTES];
    char start[CLI_COMMAND_BYTES + 2]; /* how to start it */
    char as_root[CLI_COMMAND_BYTES +
                 2]; /* the same command for a user who may not open the socket */
};

/* Finds the socket: --socket, else the configuration's, else (without a configuration file) the
 * default. */
static enum tw_exit find_target(const struct cli *cli, struct target *target) {
    static struct tw_config config;
    struct tw_error err;
    char file[TW_PATH_BYTES], command[CLI_COMMAND_BYTES];
    target->is_none = false;
    (void)snprintf(target->as_root, sizeof(target->as_root), "use sudo");
    if (cli->socket_option != NULL) {
        (void)snprintf(target->socket, sizeof(target->socket), "%s", cli->socket_option);
        (void)snprintf(target->start, sizeof(target->start), "`thinwire --config NAME start`");
        return TW_EXIT_OK;
    }
    if (tw_config_find(cli->config_option, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    const char *const asked = getenv("THINWIRE_CONFIG");
    const bool is_asked = cli->config_option != NULL || (asked != NULL && *asked != 0);
    const bool is_none = !is_asked && access(file, F_OK) != 0;
    target->is_none = is_none;
    if (is_none) {
        tw_config_defaults(&config, "thinwire");
    } else if (tw_config_load(&config, file, &err) != TW_OK) {
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    }
    (void)snprintf(target->socket, sizeof(target->socket), "%s", config.api.socket);
    if (is_none) {
        (void)snprintf(target->start, sizeof(target->start),
                       "`thinwire init` or `thinwire join` makes a node");
        return TW_EXIT_OK;
    }
    (void)snprintf(target->start, sizeof(target->start), "`%s`",
                   cli_command(file, cli_needs_sudo(file), "start", command));
    (void)snprintf(target->as_root, sizeof(target->as_root), "`%s`",
                   cli_command(file, true, cli->words, command));
    return TW_EXIT_OK;
}

enum tw_exit cli_socket(const struct cli *cli, char path[TW_PATH_BYTES]) {
    struct target target;
    const enum tw_exit rc = find_target(cli, &target);
    if (rc == TW_EXIT_OK) memcpy(path, target.socket, TW_PATH_BYTES);
    return rc;
}

/* ---- a daemon that does not answer --------------------------------------------------------- */

/* Returns the process that listens on the socket; 0: not known. */
static pid_t listener_of(const char *socket_path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    if (strlen(socket_path) >= sizeof(at.sun_path)) return 0;
    memcpy(at.sun_path, socket_path, strlen(socket_path));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return 0;
    const bool is_known = connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 &&
                          getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    (void)close(fd);
    return is_known ? peer.pid : 0;
}

/* Returns the letter of a process's state, as ps prints it; 0: not known. */
static char state_of(pid_t pid) {
    char path[64], stat[512] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *const file = pid > 0 ? fopen(path, "re") : NULL;
    if (file == NULL) return 0;
    stat[fread(stat, 1, sizeof(stat) - 1, file)] = '\0';
    (void)fclose(file);
    const char *const name_end = strrchr(stat, ')'); /* the name may contain brackets and spaces */
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 0;
}

/* Says why the daemon took a connection but gave no answer, as far as its process shows it. */
static enum tw_exit explain_silence(const char *socket_path) {
    const pid_t pid = listener_of(socket_path);
    switch (state_of(pid)) {
    case 'T':
    case 't':
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon (process %d) is stopped, by Ctrl-Z, `kill -STOP` or a "
                        "debugger: it trains nothing and answers nobody; `%skill -CONT %d` lets "
                        "it go on",
                        (int)pid, kill(pid, 0) == 0 ? "" : "sudo ", (int)pid);
    case 'D':
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon (process %d) waits for a disk that does not answer; "
                        "`dmesg` may name it; try again once the disk does",
                        (int)pid);
    case 0:
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon took the connection on %s but did not answer in time; it is "
                        "stopped, or the machine is overloaded: `uptime` shows the load",
                        socket_path);
    default:
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "the daemon (process %d) runs, but did not answer in time: the machine is "
                        "overloaded (`uptime` shows the load) or short of memory; try again",
                        (int)pid);
    }
}

/* Says how a user who may not open the socket gets an answer. */
static enum tw_exit explain_access(const struct target *target) {
    struct stat info;
    const struct group *group = NULL;
    if (stat(target->socket, &info) == 0) group = getgrgid(info.st_gid);
    /* nobody joins the group of root */
    if (group == NULL || info.st_gid == 0 || target->is_post)
        return cli_fail(TW_EXIT_UNREACHABLE, "you may not open %s: %s", target->socket,
                        target->as_root);
    return cli_fail(TW_EXIT_UNREACHABLE,
                    "you may not open %s: %s; members of group %s may look without sudo: `sudo "
                    "usermod -aG %s $USER`, then log in anew",
                    target->socket, target->as_root, group->gr_name, group->gr_name);
}

static enum tw_exit explain_failure(const struct cli *cli, CURLcode rc,
                                    const struct target *target) {
    if (cli->before_words != NULL) cli->before_words();
    const int access_rc = access(target->socket, R_OK | W_OK);
    if (access_rc != 0 && errno == EACCES) return explain_access(target);
    if (rc == CURLE_OPERATION_TIMEDOUT) return explain_silence(target->socket);
    if (target->is_none)
        return cli_fail(TW_EXIT_UNREACHABLE,
                        "no node runs on %s, and none is configured here: %s, and --config names "
                        "one elsewhere",
                        target->socket, target->start);
    return cli_fail(TW_EXIT_UNREACHABLE,
                    "no daemon answers on %s; start it (%s) or name another with --config or "
                    "--socket",
                    target->socket, target->start);
}

struct wait {
    const struct cli *cli;
    const char *socket_path;
    time_t begin;
    long limit_s;
    bool is_said;
};

/* Says once that an answer takes long, and whose. */
static void say_wait(struct wait *wait) {
    const pid_t pid = listener_of(wait->socket_path);
    const char state = state_of(pid);
    char process[48] = "";
    wait->is_said = true;
    if (wait->cli->before_words != NULL) wait->cli->before_words();
    if (pid > 0)
        (void)snprintf(process, sizeof(process), " (process %d%s)", (int)pid,
                       state == 'T' || state == 't' ? ", which is stopped" : "");
    tw_page_say("waiting for the answer of the daemon%s, for %ld s at most; Ctrl-C ends only the "
                "waiting",
                process, wait->limit_s);
}

static int on_wait(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct wait *const wait = user;
    const time_t waited = time(NULL) - wait->begin;
    (void)a, (void)b, (void)c, (void)d;
    if (wait->cli->waiting != NULL) {
        if (waited > 0) wait->cli->waiting((unsigned)waited);
    } else if (waited >= SAY_S && !wait->is_said && !wait->cli->is_quiet) {
        say_wait(wait);
    }
    return 0;
}

/* Sets time limits: seconds for GET, minutes for POST, none for a command that shows its waiting.
 */
static void set_limits(CURL *curl, struct wait *wait) {
    const bool has_limit = wait->cli->waiting == NULL;
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 3L);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, has_limit ? wait->limit_s : 0L);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_wait);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, wait);
}

enum tw_exit cli_request(const struct cli *cli, const char *method, const char *path,
                         long *code_out, char **body_out) {
    struct target target;
    char *url = NULL;
    const enum tw_exit found = find_target(cli, &target);
    if (found != TW_EXIT_OK) return found;
    struct answer answer = {NULL, 0};
    CURL *const curl = curl_easy_init();
    if (curl == NULL) return cli_fail(TW_EXIT_FAILURE, "libcurl could not start");
    const bool is_post = target.is_post = strcmp(method, "POST") == 0;
    struct wait wait = {.cli = cli,
                        .socket_path = target.socket,
                        .begin = time(NULL),
                        .limit_s = is_post ? VERB_S : READ_S};
    if (asprintf(&url, "http://localhost%s", path) < 0) {
        curl_easy_cleanup(curl);
        return cli_fail(TW_EXIT_FAILURE, "out of memory");
    }
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    free(url); /* libcurl has copied it */
    (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, target.socket);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    set_limits(curl, &wait);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (is_post) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    const CURLcode rc = curl_easy_perform(curl);
    if (cli->waiting != NULL) cli->waiting(0);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, code_out);
    curl_easy_cleanup(curl);
    if (rc != CURLE_OK || answer.bytes == NULL) {
        free(answer.bytes);
        return cli->is_quiet ? TW_EXIT_UNREACHABLE : explain_failure(cli, rc, &target);
    }
    *body_out = answer.bytes;
    return TW_EXIT_OK;
}

enum tw_exit cli_get(const struct cli *cli, const char *path, json_t **json_out) {
    long code = 0;
    char *body = NULL;
    json_error_t err;
    *json_out = NULL;
    const enum tw_exit rc = cli_request(cli, "GET", path, &code, &body);
    if (rc != TW_EXIT_OK) return rc;
    json_t *const json = json_loads(body, 0, &err);
    if (json == NULL || code != 200) {
        const char *const why = json_string_value(json_object_get(json, "error"));
        const enum tw_exit failed = cli_fail(TW_EXIT_FAILURE, "the daemon answered %ld to %s: %s",
                                             code, path, why != NULL ? why : "no JSON");
        json_decref(json);
        free(body);
        return failed;
    }
    if (cli->json) {
        (void)puts(body);
        json_decref(json);
    } else {
        *json_out = json;
    }
    free(body);
    return TW_EXIT_OK;
}

/* ---- other programs -------------------------------------------------------------------------- */

/* Where `cmake --install` puts the demo, seen from the folder of the programs. */
#define DEMO "../share/thinwire/demo/demo.py"

/* Writes the folder of this program, with a slash at its end, and `name` behind it. */
static enum tw_exit name_beside(char path[TW_PATH_BYTES], const char *name) {
    const ssize_t size = readlink("/proc/self/exe", path, TW_PATH_BYTES - 1);
    if (size <= 0) return cli_fail(TW_EXIT_FAILURE, "/proc/self/exe: %s", strerror(errno));
    path[size] = 0;
    const size_t folder = (size_t)(strrchr(path, '/') + 1 - path);
    if (strlen(name) >= TW_PATH_BYTES - folder)
        return cli_fail(TW_EXIT_FAILURE, "%s: the path is too long", path);
    memcpy(path + folder, name, strlen(name) + 1);
    return TW_EXIT_OK;
}

enum tw_exit cli_become(const char *program, int argc, char **argv) {
    char path[TW_PATH_BYTES];
    const enum tw_exit rc = name_beside(path, program);
    if (rc != TW_EXIT_OK) return rc;
    char **const args = calloc((size_t)argc + 2, sizeof(*args));
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    args[0] = path;
    for (int i = 0; i < argc; i++) args[i + 1] = argv[i];
    (void)execv(path, args);
    const int why = errno;
    free(args);
    return cli_fail(TW_EXIT_FAILURE, "%s: %s; it is installed beside thinwire, and built with it",
                    path, strerror(why));
}

/* thinwire demo: a program in Python, for people with the package and without the sources. */
enum tw_exit cli_demo(struct cli *cli) {
    enum { OWN_ARGS = 5 };
    char path[TW_PATH_BYTES], folder[TW_PATH_BYTES];
    char python[] = "python3", flags[] = "-uB", bin[] = "--bin";
    enum tw_exit rc = name_beside(path, DEMO);
    if (rc == TW_EXIT_OK) rc = name_beside(folder, "");
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json)
        return cli_fail(TW_EXIT_USAGE,
                        "demo: it has no --json; all numbers are in demo.json of its "
                        "output folder");
    if (access(path, R_OK) != 0)
        return cli_fail(TW_EXIT_FAILURE,
                        "demo: %s: %s; in a folder of the sources, type ./deploy/demo instead",
                        path, strerror(errno));
    char **const args = calloc((size_t)cli->argc + OWN_ARGS + 1, sizeof(*args));
    if (args == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    char *const own[OWN_ARGS] = {python, flags, path, bin, folder};
    memcpy(args, own, sizeof(own));
    for (int i = 0; i < cli->argc; i++) args[OWN_ARGS + i] = cli->argv[i];
    (void)execvp(python, args);
    const int why = errno;
    free(args);
    if (why == ENOENT)
        return cli_fail(
            TW_EXIT_FAILURE,
            "demo: it is a program in Python, and python3 is not installed: install the "
            "package python3 (Arch: python), and bible-kjv unless you give a text by --text");
    return cli_fail(TW_EXIT_FAILURE, "demo: python3: %s", strerror(why));
}
