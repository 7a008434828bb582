/* verbs.c - commands that send a request to the daemon, such as `thinwire status`. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/line.h"
#include "daemon/cli/common/node_id.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/node/owner.h"
#include "daemon/cli/run/ways.h"
#include "daemon/cli/show/follow.h"
#include "daemon/cli/show/screen.h"

enum { WIDTH_PIPE = 80, WIDTH_MIN = 20 };

/* A screen of the daemon's state, and the command that shows it. */
struct view {
    const char *verb, *path;
    void (*draw)(const struct screen *, const json_t *);
    bool is_newest_last;
    void (*add)(const struct cli *, json_t *); /* adds values to the JSON; NULL: nothing to add */
};

static struct screen screen_of(const struct cli *cli) {
    static char typed[CLI_COMMAND_BYTES];
    unsigned columns, rows;
    tw_page_size(STDOUT_FILENO, &columns, &rows);
    const unsigned width = tw_page_width(STDOUT_FILENO, WIDTH_PIPE);
    return (struct screen){.to = stdout,
                           .has_colour = cli->has_colour,
                           .has_utf8 = cli->has_utf8,
                           .typed = cli_next_command(cli, "", typed),
                           .width = columns >= WIDTH_MIN && columns < width ? columns : width};
}

/* Reads the view. With --json, prints it, and *json is NULL. */
static enum tw_exit get_view(const struct cli *cli, const struct view *view, json_t **json) {
    if (view->add == NULL) return cli_get(cli, view->path, json);
    struct cli reading = *cli;
    reading.json = false;
    const enum tw_exit rc = cli_get(&reading, view->path, json);
    if (rc != TW_EXIT_OK) return rc;
    view->add(&reading, *json);
    if (!cli->json) return TW_EXIT_OK;
    const int printed = json_dumpf(*json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(7));
    json_decref(*json);
    *json = NULL;
    return printed == 0 && fputc('\n', stdout) != EOF ? TW_EXIT_OK : TW_EXIT_FAILURE;
}

/* ---- --watch ------------------------------------------------------------------------------- */

static void clear_screen(void) {
    (void)fputs("\033[H\033[2J", stdout);
    (void)fflush(stdout);
}

/* Draws over the last drawing: erasing all of it first would flicker. The cursor ends in the
 * last row, which stays free, because a line feed there moves everything up. */
static void draw_over(const char *drawn) {
    (void)fputs("\033[H", stdout);
    while (*drawn != '\0') {
        const size_t size = strcspn(drawn, "\n");
        (void)fprintf(stdout, "%.*s\033[K\n", (int)size, drawn);
        drawn += size + (drawn[size] == '\n');
    }
    (void)fputs("\033[J", stdout);
}

/* Draws the view within the terminal's present size. */
static void draw_within(const struct cli *cli, const struct view *view, const json_t *json) {
    char *drawn = NULL, *fitted = NULL;
    size_t size;
    unsigned columns, rows;
    struct screen screen = screen_of(cli);
    tw_page_size(STDOUT_FILENO, &columns, &rows);
    screen.height = rows > 2 ? rows - 1 : 0;
    screen.to = open_memstream(&drawn, &size);
    if (screen.to == NULL) return;
    view->draw(&screen, json);
    const bool is_drawn = fclose(screen.to) == 0;
    screen.to = is_drawn ? open_memstream(&fitted, &size) : NULL;
    if (screen.to != NULL) {
        fit_list(&screen, drawn, view->is_newest_last, view->verb);
        if (fclose(screen.to) == 0) draw_over(fitted);
    }
    free(drawn);
    free(fitted);
}

static void on_resize(int number) {
    (void)number; /* the handler is there to end the pause */
}

/* Redraws the screen until interrupted, and at once when the terminal changes its size. If the
 * daemon does not answer, waits for it. */
static enum tw_exit watch_view(struct cli *cli, const struct view *view, double every_s) {
    const struct timespec pause = {(time_t)every_s,
                                   (long)((every_s - (double)(time_t)every_s) * 1e9)};
    const bool is_terminal = isatty(STDOUT_FILENO) == 1 && !cli->json;
    const struct sigaction resize = {.sa_handler = on_resize};
    json_t *json = NULL;
    (void)sigaction(SIGWINCH, &resize, NULL);
    for (bool is_first = true;; is_first = false) {
        json_t *fresh = NULL;
        if (is_terminal && is_first) clear_screen();
        if (is_terminal) cli->before_words = clear_screen;
        const enum tw_exit rc = get_view(cli, view, &fresh);
        if (rc != TW_EXIT_OK && is_first) return rc;
        json_decref(json);
        json = fresh;
        struct timespec left = pause;
        for (bool is_resized = true; is_resized;) {
            const struct screen screen = screen_of(cli);
            if (json != NULL && is_terminal) draw_within(cli, view, json);
            if (json != NULL && !is_terminal) view->draw(&screen, json);
            if (fflush(stdout) != 0) return TW_EXIT_FAILURE;
            is_resized = nanosleep(&left, &left) != 0 && errno == EINTR;
        }
    }
}

static enum tw_exit show_view(struct cli *cli, const struct view *view) {
    const char *every = "2";
    const bool is_watch = cli_flag(cli, "--watch");
    (void)cli_option(cli, "--every", &every);
    const enum tw_exit usage = cli_done(cli, view->verb);
    if (usage != TW_EXIT_OK) return usage;
    char *end;
    const double every_s = strtod(every, &end);
    if (*end != 0 || !(every_s >= 0.2 && every_s <= 3600)) {
        return cli_fail(TW_EXIT_USAGE, "--every %s: seconds from 0.2 to 3600", every);
    }
    if (is_watch) return watch_view(cli, view, every_s);
    json_t *json = NULL;
    const enum tw_exit rc = get_view(cli, view, &json);
    if (rc != TW_EXIT_OK || json == NULL) return rc;
    const struct screen screen = screen_of(cli);
    view->draw(&screen, json);
    json_decref(json);
    return TW_EXIT_OK;
}

/* ---- commands ------------------------------------------------------------------------------ */

/* Adds the expected loss, which the daemon does not know. */
static void add_expected(const struct cli *cli, json_t *status) {
    static struct tw_run run;
    struct tw_error err;
    json_t *json = NULL;
    if (cli_get(cli, "/v1/run", &json) != TW_EXIT_OK) return;
    const char *const text = json_str(json, "manifest");
    if (tw_run_decode(text, strlen(text), &run, &err) == TW_OK)
        (void)json_object_set_new(status, "expected", ways_expected_json(&run, status));
    json_decref(json);
}

enum tw_exit cli_status(struct cli *cli) {
    static const struct view VIEW = {"status", "/v1/status", screen_status, false, add_expected};
    return show_view(cli, &VIEW);
}

enum tw_exit cli_peers(struct cli *cli) {
    static const struct view VIEW = {"peers", "/v1/peers", screen_peers, false, NULL};
    return show_view(cli, &VIEW);
}

enum tw_exit cli_rounds(struct cli *cli) {
    static const struct view VIEW = {"rounds", "/v1/rounds", screen_rounds, false, NULL};
    return show_view(cli, &VIEW);
}

enum tw_exit cli_ledger(struct cli *cli) {
    static const struct view VIEW = {"ledger", "/v1/ledger", screen_ledger, false, NULL};
    return show_view(cli, &VIEW);
}

/* The events are in the daemon's memory: says where those of one that has ended are. */
static void say_logs(const struct cli *cli) {
    char path[TW_PATH_BYTES], logs[CLI_COMMAND_BYTES];
    struct tw_error err;
    if (tw_config_find(cli->config_option, path, &err) != TW_OK || access(path, F_OK) != 0) return;
    tw_page_say("the events of a daemon that has ended are in its log: `%s`",
                cli_command(path, cli_needs_sudo(path), "logs", logs));
}

enum tw_exit cli_events(struct cli *cli) {
    const bool is_short = cli_flag(cli, "-f");
    if (cli_flag(cli, "--follow") || is_short) {
        const enum tw_exit usage = cli_done(cli, "events");
        const struct screen screen = screen_of(cli);
        return usage != TW_EXIT_OK ? usage : follow_events(cli, &screen);
    }
    static const struct view VIEW = {"events", "/v1/events", screen_events, true, NULL};
    const enum tw_exit rc = show_view(cli, &VIEW);
    if (rc == TW_EXIT_UNREACHABLE && cli->socket_option == NULL) say_logs(cli);
    return rc;
}

enum tw_exit cli_ask(const struct cli *cli, const char *verb, const char *path, bool *is_taken) {
    char url[160];
    long code = 0;
    char *body = NULL;
    json_error_t err;
    (void)snprintf(url, sizeof(url), "/v1/%s", path);
    enum tw_exit rc = cli_request(cli, "POST", url, &code, &body);
    if (rc != TW_EXIT_OK) return rc;
    json_t *const json = json_loads(body, 0, &err);
    const char *const message = json_string_value(json_object_get(json, "message"));
    const char *const error = json_string_value(json_object_get(json, "error"));
    if (cli->json) (void)puts(body);
    /* the daemon executed the request, or tried and failed */
    if (is_taken != NULL) *is_taken = code == 200 || code == 503;
    if (code == 200) {
        if (!cli->json) (void)puts(message != NULL ? message : "done");
    } else {
        rc = cli_fail(TW_EXIT_FAILURE, "%s: %s", verb, error != NULL ? error : "no reason given");
    }
    json_decref(json);
    free(body);
    return rc;
}

static enum tw_exit ask_daemon(struct cli *cli, const char *verb) {
    const enum tw_exit rc = cli_done(cli, verb);
    return rc != TW_EXIT_OK ? rc : cli_ask(cli, verb, verb, NULL);
}

enum tw_exit cli_checkpoint(struct cli *cli) {
    static const struct view VERSIONS = {"checkpoint", "/v1/versions", screen_versions, false,
                                         NULL};
    if (cli_flag(cli, "--run")) return show_view(cli, &VERSIONS);
    return ask_daemon(cli, "checkpoint");
}

enum tw_exit cli_pause(struct cli *cli) {
    if (cli_flag(cli, "--run")) return owner_pause_run(cli, true);
    return ask_daemon(cli, "pause");
}

enum tw_exit cli_resume(struct cli *cli) {
    if (cli_flag(cli, "--run")) return owner_pause_run(cli, false);
    return ask_daemon(cli, "resume");
}

enum tw_exit cli_reload(struct cli *cli) {
    return ask_daemon(cli, "reload");
}

/* True if the link is most likely opened on another machine: this one was reached by ssh, shows no
 * windows, or runs the node as a service. */
static bool is_without_browser(const struct cli *cli) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    const bool is_service =
        tw_config_find(cli->config_option, path, &err) == TW_OK && cli_is_service(path);
    return is_service || getenv("SSH_CONNECTION") != NULL ||
           (getenv("DISPLAY") == NULL && getenv("WAYLAND_DISPLAY") == NULL);
}

enum tw_exit cli_web(struct cli *cli) {
    const bool is_new = cli_flag(cli, "--new");
    const enum tw_exit usage = cli_done(cli, "web");
    if (usage != TW_EXIT_OK) return usage;
    const enum tw_exit rc = cli_ask(cli, "web", is_new ? "web?new=1" : "web", NULL);
    if (rc == TW_EXIT_OK && isatty(STDERR_FILENO) == 1 && is_without_browser(cli)) {
        char host[256] = "";
        (void)gethostname(host, sizeof(host) - 1);
        tw_page_say(
            "from another machine, first `ssh -L PORT:localhost:PORT %s` with the port of the "
            "link",
            host[0] != '\0' ? host : "MACHINE");
    }
    return rc;
}

enum tw_exit cli_unban(struct cli *cli) {
    const char *const node = cli_operand(cli);
    char path[TW_ID_HEX_BYTES + 16], hex[TW_ID_HEX_BYTES];
    struct tw_id id;
    if (node == NULL)
        return cli_fail(TW_EXIT_USAGE, "unban: which node? `thinwire peers` names the banned ones");
    enum tw_exit rc = cli_done(cli, "unban");
    /* The daemon finds the beginning of a banned node's id itself, which may be no peer now. */
    const bool is_begin =
        strlen(node) < TW_ID_HEX_BYTES && strspn(node, "0123456789abcdef") == strlen(node);
    if (rc == TW_EXIT_OK && !is_begin) rc = cli_node_id(cli, node, &id);
    if (rc != TW_EXIT_OK) return rc;
    if (!is_begin) tw_id_hex(&id, hex);
    (void)snprintf(path, sizeof(path), "unban?node=%s", is_begin ? node : hex);
    return cli_ask(cli, "unban", path, NULL);
}
