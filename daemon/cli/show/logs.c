/* logs.c - `thinwire logs`: the log of daemon and worker. For a node under /etc/thinwire it is read
 * from systemd's journal, otherwise from the file beside the configuration. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/node/node_start.h"
#include "daemon/cli/show/follow.h"
#include "daemon/cli/show/screen.h"

enum { BLOCK_BYTES = 64 * 1024, LINES_MAX = 1000000 };

extern char **environ;

/* ---- one line ------------------------------------------------------------------------------ */

/* Returns true at the space before the next `key=`, and at the end of the line. */
static bool is_end_of_value(const char *at) {
    if (*at == '\0') return true;
    if (*at != ' ') return false;
    const size_t key = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return key > 0 && at[1 + key] == '=';
}

/* Adds a value. JSON cannot hold a value that is not UTF-8. */
static void set_text(json_t *object, const char *key, const char *text, size_t size) {
    json_t *const value = json_stringn(text, size);
    (void)json_object_set_new(object, key, value != NULL ? value : json_string("(not UTF-8)"));
}

/* Returns the fields of a log line `key=value key="text"`, all as strings. A line of another form
 * becomes one field, `text`. Returns a new reference, or NULL if memory runs out. */
static json_t *log_line_json(const char *line) {
    json_t *const object = json_object();
    const char *at = line;
    while (object != NULL && *at != '\0') {
        char key[64];
        const size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (size == 0 || size >= sizeof(key) || at[size] != '=') break;
        (void)snprintf(key, sizeof(key), "%.*s", (int)size, at);
        const char *begin = at + size + 1, *end = begin;
        const bool is_quoted = *begin == '"';
        if (is_quoted) end = ++begin;
        while (*end != '\0' &&
               !(is_quoted ? *end == '"' && is_end_of_value(end + 1) : is_end_of_value(end)))
            end++;
        set_text(object, key, begin, (size_t)(end - begin));
        at = is_quoted && *end == '"' ? end + 1 : end;
        if (*at == ' ') at++;
    }
    if (*at == '\0' && json_object_get(object, "ev") != NULL) return object;
    (void)json_object_clear(object);
    set_text(object, "text", line, strlen(line));
    return object;
}

static void print_json(json_t *object) {
    (void)json_dumpf(object, stdout, JSON_COMPACT);
    (void)fputc('\n', stdout);
    json_decref(object);
}

/* Replaces control characters: a program that the node runs could otherwise control the terminal.
 */
static void print_line(char *line, bool is_json) {
    for (char *at = line; *at != '\0'; at++)
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 127) *at = '?';
    if (is_json)
        print_json(log_line_json(line));
    else
        (void)puts(line);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Returns the offset at which the last `lines` lines begin. */
static off_t find_tail(FILE *file, unsigned long lines) {
    static char block[BLOCK_BYTES];
    if (fseeko(file, 0, SEEK_END) != 0) return 0;
    off_t at = ftello(file);
    bool is_last = true; /* the newline at the end of the last line does not begin another one */
    while (at > 0) {
        const size_t size = at < (off_t)sizeof(block) ? (size_t)at : sizeof(block);
        at -= (off_t)size;
        if (fseeko(file, at, SEEK_SET) != 0 || fread(block, 1, size, file) != size) return at;
        for (size_t i = size; i-- > 0;) {
            if (block[i] == '\n' && !is_last && lines-- <= 1) return at + (off_t)i + 1;
            is_last = false;
        }
    }
    return 0;
}

struct tail {
    const char *path;
    FILE *file;
    struct stat about; /* status of `file` */
    off_t at;          /* end of the printed lines */
    bool is_json, is_follow;
};

/* Prints the complete lines from `at` on. Without --follow, also prints an incomplete last line. */
static void print_rest(struct tail *tail) {
    char *line = NULL;
    size_t capacity = 0;
    if (fseeko(tail->file, tail->at, SEEK_SET) != 0) return;
    for (ssize_t size; (size = getline(&line, &capacity, tail->file)) > 0;) {
        const bool is_whole = line[size - 1] == '\n';
        if (!is_whole && tail->is_follow && size < BLOCK_BYTES) break;
        if (is_whole) line[size - 1] = '\0';
        print_line(line, tail->is_json);
        tail->at += size;
    }
    free(line);
}

/* Opens the file, also if another file has replaced it. */
static void open_file(struct tail *tail) {
    struct stat now;
    if (stat(tail->path, &now) != 0) return;
    if (tail->file != NULL && now.st_ino == tail->about.st_ino &&
        now.st_dev == tail->about.st_dev && now.st_size >= tail->at)
        return;
    if (tail->file != NULL) (void)fclose(tail->file);
    tail->file = fopen(tail->path, "re");
    tail->at = 0;
    if (tail->file != NULL) (void)fstat(fileno(tail->file), &tail->about);
}

static enum tw_exit show_file(struct tail *tail, unsigned long lines) {
    static const struct timespec PAUSE = {.tv_nsec = FOLLOW_LOOK_MS * 1000000L};
    open_file(tail);
    if (tail->file == NULL && !tail->is_follow)
        return cli_fail(TW_EXIT_FAILURE,
                        "%s: %s; `thinwire start` writes it, and a daemon that you start yourself "
                        "logs to its terminal",
                        tail->path, strerror(errno));
    if (tail->file == NULL)
        (void)fprintf(stderr, "thinwire: waiting for %s\n", tail->path);
    else
        tail->at = lines > 0 ? find_tail(tail->file, lines) : tail->about.st_size;
    do {
        if (tail->file != NULL) print_rest(tail);
        if (fflush(stdout) != 0) return TW_EXIT_FAILURE;
        if (!tail->is_follow) break;
        (void)nanosleep(&PAUSE, NULL);
        open_file(tail);
    } while (true);
    (void)fclose(tail->file);
    return TW_EXIT_OK;
}

/* ---- the journal --------------------------------------------------------------------------- */

/* Prints a line of `journalctl -o json` as the same object that a line of the log file becomes. */
static void print_entry(const char *entry) {
    json_error_t err;
    json_t *const row = json_loads(entry, 0, &err);
    const long long us = strtoll(json_str(row, "__REALTIME_TIMESTAMP"), NULL, 10);
    const time_t at = (time_t)(us / 1000000);
    char time[40];
    struct tm utc;
    (void)gmtime_r(&at, &utc);
    const size_t size = strftime(time, sizeof(time) - 8, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(time + size, sizeof(time) - size, ".%03dZ", (int)(us / 1000 % 1000));
    json_t *const object = log_line_json(json_str(row, "MESSAGE"));
    set_text(object, "ts", time, strlen(time));
    print_json(object);
    json_decref(row);
}

/* Runs journalctl, and prints its JSON in the form of `thinwire logs --json`. */
static enum tw_exit translate_journal(char *const argv[]) {
    int ends[2], status = 0;
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_fail(TW_EXIT_FAILURE, "%s", strerror(errno));
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    const int code = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (code != 0) {
        (void)close(ends[0]);
        return cli_fail(TW_EXIT_FAILURE, "journalctl: %s", strerror(code));
    }
    FILE *const rows = fdopen(ends[0], "r");
    char *line = NULL;
    size_t capacity = 0;
    while (rows != NULL && getline(&line, &capacity, rows) > 0) {
        print_entry(line);
        if (fflush(stdout) != 0) break;
    }
    free(line);
    if (rows != NULL) (void)fclose(rows);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? TW_EXIT_OK : TW_EXIT_FAILURE;
}

/* Whether this user may read the journal of services; journalctl shows nothing to others. */
static bool may_read_journal(void) {
    static const char *const READERS[] = {"systemd-journal", "adm", "wheel"};
    gid_t groups[64];
    const int count = getgroups(64, groups);
    if (geteuid() == 0) return true;
    for (unsigned k = 0; k < sizeof(READERS) / sizeof(READERS[0]); k++) {
        const struct group *const group = getgrnam(READERS[k]);
        for (int i = 0; group != NULL && i < count; i++)
            if (groups[i] == group->gr_gid) return true;
    }
    return false;
}

static enum tw_exit show_journal(const struct tail *tail, const char *instance, const char *lines) {
    if (!may_read_journal())
        return cli_fail(TW_EXIT_FAILURE,
                        "logs: only root and members of group systemd-journal may read the journal "
                        "of a service: use sudo");
    char daemon[96], worker[112], count[32];
    (void)snprintf(daemon, sizeof(daemon), "--unit=thinwired@%s", instance);
    (void)snprintf(worker, sizeof(worker), "--unit=thinwire-worker@%s", instance);
    (void)snprintf(count, sizeof(count), "--lines=%s", lines);
    char name[] = "journalctl", pager[] = "--no-pager", host[] = "--no-hostname",
         form[] = "--output=short-iso", json[] = "--output=json", follow[] = "--follow";
    char *const argv[] = {name,  pager,  host,   tail->is_json ? json : form,
                          count, daemon, worker, tail->is_follow ? follow : NULL,
                          NULL};
    if (tail->is_json) return translate_journal(argv);
    (void)execvp(argv[0], argv);
    return cli_fail(TW_EXIT_FAILURE, "journalctl: %s", strerror(errno));
}

/* ---- the verb ------------------------------------------------------------------------------ */

enum tw_exit cli_logs(struct cli *cli) {
    static struct node_files files;
    char path[TW_PATH_BYTES + 8], *end;
    const char *lines = "50";
    struct tw_error err;
    const bool is_short = cli_flag(cli, "-f");
    struct tail tail = {.path = path, .is_json = cli->json};
    tail.is_follow = cli_flag(cli, "--follow") || is_short;
    (void)cli_option(cli, "-n", &lines);
    (void)cli_option(cli, "--lines", &lines);
    const enum tw_exit usage = cli_done(cli, "logs");
    if (usage != TW_EXIT_OK) return usage;
    const unsigned long count = strtoul(lines, &end, 10);
    if (lines[0] < '0' || lines[0] > '9' || *end != '\0' || count > LINES_MAX)
        return cli_fail(TW_EXIT_USAGE, "logs: --lines %s: a number of lines up to %d", lines,
                        LINES_MAX);
    const enum tw_exit rc = cli_config(cli, &files.config);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_config_find(cli->config_option, files.config_path, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (node_files_is_service(&files)) return show_journal(&tail, files.config.instance, lines);
    node_log_path(&files, path);
    return show_file(&tail, count);
}

/* ---- events, as they come -------------------------------------------------------------------- */

struct follow {
    uint64_t boot, id; /* numbers of the newest event printed; 0: none yet */
    bool is_json, is_waiting;
    struct screen screen;
};

static uint64_t number_of(const json_t *json, const char *key) {
    const json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (uint64_t)value : 0;
}

static void print_event(const struct follow *follow, json_t *event) {
    if (follow->is_json) {
        (void)json_object_del(event, "age_s"); /* an age is true only at the moment of the answer */
        (void)json_object_set_new(event, "boot", json_integer((json_int_t)follow->boot));
        (void)json_dumpf(event, stdout, JSON_COMPACT);
        (void)fputc('\n', stdout);
        return;
    }
    screen_event(&follow->screen, event);
}

/* Prints the new events of an answer, oldest first. */
static void print_new(struct follow *follow, const json_t *answer) {
    const json_t *const events = json_at(answer, "events");
    const uint64_t boot = number_of(answer, "boot");
    if (boot != follow->boot) {
        follow->boot = boot;
        follow->id = 0;
    }
    for (size_t i = json_array_size(events); i-- > 0;) {
        json_t *const event = json_array_get(events, i);
        const uint64_t id = number_of(event, "id");
        if (id <= follow->id) continue;
        if (follow->id > 0 && id > follow->id + 1)
            tw_page_say("%" PRIu64 " events came too fast to be seen; `thinwire logs` has them",
                        id - follow->id - 1);
        print_event(follow, event);
        follow->id = id;
    }
}

enum tw_exit follow_events(struct cli *cli, const struct screen *screen) {
    static const struct timespec PAUSE = {.tv_nsec = FOLLOW_LOOK_MS * 1000000L};
    struct follow follow = {.is_json = cli->json, .screen = *screen};
    follow.screen.width = FOLLOW_WIDTH;
    cli->json = false; /* the events are printed one by one, instead of the whole answer */
    for (bool is_first = true;; is_first = false) {
        json_t *answer = NULL;
        const enum tw_exit rc = cli_get(cli, "/v1/events", &answer);
        if (is_first && rc != TW_EXIT_OK) return rc;
        cli->is_quiet = true;
        if ((rc != TW_EXIT_OK) != follow.is_waiting) {
            follow.is_waiting = rc != TW_EXIT_OK;
            (void)fputs(follow.is_waiting ? "thinwire: the daemon does not answer; waiting for it\n"
                                          : "thinwire: the daemon answers again\n",
                        stderr);
        }
        if (answer != NULL) print_new(&follow, answer);
        json_decref(answer);
        if (fflush(stdout) != 0) return TW_EXIT_FAILURE;
        (void)nanosleep(&PAUSE, NULL);
    }
}
