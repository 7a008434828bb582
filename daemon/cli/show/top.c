/* top.c - `thinwire top`: the node's status on a terminal, redrawn every second with curses. All
 * texts end at the terminal's edge, and texts of other nodes cannot leave their cells. */
#define NCURSES_WIDECHAR 1
#include <math.h>
#include <ncurses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"

enum {
    REFRESH_MS = 1000,
    ROWS_MIN = 12,
    ROWS_OF_SAMPLE = 20,
    COLUMNS_MIN = 60,
    TEXT_BYTES = 1100,
    PEERS_SHOWN = 1024
};
enum colour { PLAIN, GREEN, YELLOW, RED, BLUE, DIM };
enum sort { BY_LINK, BY_RATE, BY_RTT, BY_STEP, SORTS };

static const char *const SORT_NAMES[SORTS] = {"link", "rate", "round trip", "step"};

struct top {
    bool has_utf8, is_lost; /* is_lost: the daemon does not answer */
    enum sort sort;
    size_t first; /* index of the first peer shown */
    json_t *status, *peers, *history;
};

/* Writes text at a position. Returns the column after it. */
static int put(int row, int column, int look, const char *fmt, ...) {
    char text[TEXT_BYTES];
    wchar_t wide[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    size_t count = mbstowcs(wide, text, TEXT_BYTES - 1);
    if (count == (size_t)-1)
        count = mbstowcs(wide, "?", 2); /* not representable in the terminal's
                                           locale */
    if (row >= LINES || column >= COLS) return column;
    for (size_t i = 0; i < count; i++) {
        if (wide[i] < 32 || (wide[i] >= 127 && wide[i] < 160)) wide[i] = L' ';
    }
    (void)(attrset)(look); /* brackets force the function, because the macro mixes signed and
                              unsigned */
    (void)mvaddnwstr(row, column, wide, COLS - column);
    (void)(attrset)(0);
    return column + (int)count;
}

/* Writes text over at most `rows` rows, broken at spaces. Returns the row after it. */
static int put_rows(int row, int column, int look, const char *text, int rows) {
    const size_t room = COLS > column ? (size_t)(COLS - column) : 1;
    for (int i = 0; i < rows && *text != 0; i++) {
        size_t size = 0, fit = 0, points = 0; /* fit: bytes up to the last space that fits */
        for (; text[size] != 0 && points <= room; size++) {
            if (text[size] == ' ') fit = size;
            points += ((unsigned char)text[size] & 0xC0) != 0x80;
        }
        const bool is_rest = text[size] == 0 && points <= room;
        if (is_rest || fit == 0 || i + 1 == rows) fit = strlen(text); /* cut at the edge */
        (void)put(row++, column, look, "%.*s", (int)fit, text);
        text += fit;
        while (*text == ' ') text++;
    }
    return row;
}

static int paint(enum colour colour) {
    if (colour == DIM) return (int)A_DIM;
    if (colour == PLAIN) return (int)A_NORMAL;
    return has_colors() ? (int)COLOR_PAIR((unsigned)colour) : (int)A_BOLD;
}

/* ---- the upper part ------------------------------------------------------------------------ */

static int draw_head(const struct top *top) {
    const json_t *const warnings = json_at(top->status, "warnings");
    const size_t count = json_array_size(warnings);
    const bool is_bad = strcmp(json_str(top->status, "state"), "worker_failed") == 0;
    const size_t most = LINES >= 40 ? 4 : 1;
    const int rows = LINES >= 20 ? 3 : 2; /* of each text */
    const enum colour colour = is_bad || top->is_lost ? RED : count > 0 ? YELLOW : GREEN;
    const int column = put(0, 0, paint(colour), "%s ", top->has_utf8 ? "●" : "*");
    int row = put_rows(0, column, (int)A_BOLD,
                       top->is_lost ? "The daemon does not answer; trying again"
                                    : json_str(top->status, "sentence"),
                       rows);
    for (size_t i = 0; i < count && i < most; i++) {
        const json_t *const warning = json_array_get(warnings, i);
        (void)put(row, 0, paint(YELLOW), "!");
        row = put_rows(row, 2, paint(YELLOW), json_str(warning, "what"), rows);
        (void)put(row, 2, 0, "%s", top->has_utf8 ? "→" : ">");
        row = put_rows(row, 4, 0, json_str(warning, "way_out"), rows);
    }
    if (count > most)
        (void)put(row++, 2, paint(DIM), "and %zu more: `thinwire status`", count - most);
    return row + 1;
}

/* Draws the curve of the training loss, from column `column` on. */
static void draw_curve(const struct top *top, int row, int column) {
    static const char *const FINE[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const COARSE[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
    const json_t *const losses = json_at(top->history, "losses.train_nats");
    const size_t count = json_array_size(losses);
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        const json_t *const value = json_array_get(losses, i);
        if (!json_is_number(value)) continue;
        low = fmin(low, json_number_value(value));
        high = fmax(high, json_number_value(value));
    }
    const int room = COLS - column - 1;
    if (count < 2 || room < 8) return;
    const size_t shown = count < (size_t)room ? count : (size_t)room;
    for (size_t i = 0; i < shown; i++) {
        const json_t *const value = json_array_get(losses, i * (count - 1) / (shown - 1));
        if (!json_is_number(value)) continue;
        const double share = high > low ? (json_number_value(value) - low) / (high - low) : 0;
        (void)put(row, column + (int)i, paint(BLUE), "%s",
                  (top->has_utf8 ? FINE : COARSE)[(unsigned)(7.999 * share)]);
    }
}

static void draw_speed(const json_t *status, int row) {
    char a[TW_UNITS_BYTES];
    const double others = json_num(status, "run.others_training"),
                 all = json_num(status, "run.tokens_per_s");
    const bool is_paused = strcmp(json_str(status, "worker.state"), "paused") == 0;
    int column = put(row, 0, 0, "Speed  ");
    if (is_paused)
        column = put(row, column, paint(YELLOW), "paused");
    else
        column = put(row, column, 0, "%s tokens/s",
                     tw_units_short(a, json_num(status, "train.tokens_per_s")));
    if (json_str(status, "join.phase")[0] != 0)
        column = put(row, column, paint(DIM), ", not in the run yet");
    if (others > 0 && all > 0)
        column = put(row, column, 0, ", with %.0f other%s %s", others, tw_units_s(others),
                     tw_units_short(a, all));
    column = put(row, column, 0, ", step %s", tw_units_count(a, json_num(status, "train.steps")));
    if (!is_paused)
        (void)put(row, column, 0, ", %s busy",
                  tw_units_percent(a, json_num(status, "train.utilisation_minute_ratio")));
}

/* Draws the losses that are measured. Returns the column behind them. */
static int draw_losses(const json_t *status, int row) {
    char a[TW_UNITS_BYTES], b[TW_UNITS_BYTES];
    const double live = json_num(status, "train.validation_live_nats"),
                 train = json_num(status, "train.loss_nats"),
                 age_s = json_num(status, "train.validation_age_s");
    int column = put(row, 0, 0, "Loss   ");
    if (isfinite(live)) {
        column = put(row, column, 0, "%s validation, %s anchor", tw_units_loss(a, live),
                     tw_units_loss(b, json_num(status, "train.validation_anchor_nats")));
        if (isfinite(age_s))
            column = put(row, column, paint(DIM), ", %s ago", tw_units_duration(a, age_s));
    } else if (isfinite(train)) {
        column = put(row, column, 0, "not validated yet");
    } else {
        const bool is_joining = json_str(status, "join.phase")[0] != 0;
        column =
            put(row, column, 0,
                is_joining ? "not measured before the run's state is here" : "not measured yet");
    }
    if (isfinite(train)) column = put(row, column, 0, ", %s training", tw_units_loss(a, train));
    return put(row, column, 0, "  ");
}

static int draw_training(const struct top *top, int row) {
    const json_t *const status = top->status;
    char a[TW_UNITS_BYTES], b[TW_UNITS_BYTES];
    const double done = json_num(status, "run.done_percent"), percent = done > 100 ? 100 : done,
                 eta = json_num(status, "run.eta_s");
    draw_curve(top, row, draw_losses(status, row));
    row++;
    int column = put(row, 0, 0, "Run    ");
    const int cells = COLS >= 120 ? 48 : COLS >= 78 ? 20 : 6;
    const int filled = isfinite(percent) ? (int)(fmin(percent, 100) / 100 * cells + 0.5) : 0;
    for (int i = 0; i < cells; i++) {
        const bool is_done = i < filled;
        column = put(row, column, paint(is_done ? GREEN : DIM), "%s",
                     top->has_utf8 ? (is_done ? "█" : "░") : (is_done ? "#" : "."));
    }
    if (isfinite(percent)) column = put(row, column, 0, " %.1f %%", percent);
    column = put(row, column, 0, " of %s tokens",
                 tw_units_short(a, json_num(status, "run.budget_tokens")));
    if (isfinite(eta)) (void)put(row, column, 0, ", %s left", tw_units_duration(b, eta));
    row++;
    draw_speed(status, row++);
    return row;
}

/* Returns the last `points` code points of a text. */
static const char *tail_of(const char *text, size_t points) {
    const char *at = text + strlen(text);
    while (at > text && points > 0) {
        at--;
        points -= ((unsigned char)*at & 0xC0) != 0x80;
    }
    return at;
}

/* Draws a text sample: the end of a passage of the held-out text, dimmed, and the model's
 * continuation of it. */
static int draw_sample(const struct top *top, int row) {
    const char *const text = json_str(top->status, "train.sample.text");
    if (*text == 0 || LINES < ROWS_OF_SAMPLE) return row;
    int column = put(row, 0, 0, "Text   ");
    column = put(row, column, paint(DIM), "%s",
                 tail_of(json_str(top->status, "train.sample.prompt"), (size_t)COLS / 3));
    (void)put(row, column, 0, "%s", text);
    return row + 1;
}

static int put_rate(int row, int column, const char *name, double now, double most) {
    char a[TW_UNITS_BYTES], b[TW_UNITS_BYTES];
    if (!isfinite(now)) return column;
    const bool is_full = isfinite(most) && now > 1.05 * most;
    column =
        put(row, column, paint(is_full ? YELLOW : PLAIN), "%s %s/s", name, tw_units_bytes(a, now));
    if (isfinite(most)) column = put(row, column, 0, " of %s/s", tw_units_bytes(b, most));
    return put(row, column, 0, "  ");
}

static int draw_line(const struct top *top, int row) {
    const json_t *const status = top->status;
    char a[TW_UNITS_BYTES], b[TW_UNITS_BYTES];
    const double quota = json_num(status, "network.caps.quota_bytes");
    int column = put(row, 0, 0, "Line   ");
    column = put_rate(row, column, "up", json_num(status, "network.out_bytes_per_s"),
                      json_num(status, "network.caps.upload_bytes_per_s"));
    column = put_rate(row, column, "down", json_num(status, "network.in_bytes_per_s"),
                      json_num(status, "network.caps.download_bytes_per_s"));
    if (isfinite(json_num(status, "contributions.budget_bytes_per_s")))
        column = put_rate(row, column, "budget", json_num(status, "contributions.used_bytes_per_s"),
                          json_num(status, "contributions.budget_bytes_per_s"));
    if (isfinite(quota))
        (void)put(row, column, 0, "month %s of %s",
                  tw_units_bytes(a, json_num(status, "network.caps.month_bytes")),
                  tw_units_bytes(b, quota));
    return row + 1;
}

/* Draws the newest rounds, one cell each, the newest at the right. */
static int draw_rounds(const struct top *top, int row) {
    const char *const outcomes = json_str(top->history, "rounds.outcomes");
    const size_t count = strlen(outcomes), room = COLS > 8 ? (size_t)COLS - 8 : 0;
    const size_t shown = count < room ? count : room;
    (void)put(row, 0, 0, "Rounds %s", count == 0 ? "none yet" : "");
    for (size_t i = 0; i < shown; i++) {
        const char letter = outcomes[count - shown + i];
        const enum colour colour = letter == 'm' || letter == 's' ? GREEN
                                   : letter == 'o'                ? BLUE
                                                                  : YELLOW;
        const char *const block = letter == 'm'   ? "█"
                                  : letter == 's' ? "▄"
                                  : letter == 'o' ? "▒"
                                                  : "·";
        if (top->has_utf8)
            (void)put(row, 7 + (int)i, paint(colour), "%s", block);
        else
            (void)put(row, 7 + (int)i, paint(colour), "%c", letter);
    }
    (void)put(row + 1, 7, paint(DIM), "%s",
              top->has_utf8
                  ? "█ merged with our work  ▄ ours alone  ▒ without it  · none or not seen"
                  : "m merged with our work  s ours alone  o without it  e . none, unseen");
    return row + 2;
}

/* ---- peers --------------------------------------------------------------------------------- */

static double rate_of(const json_t *peer) {
    return fmax(fmax(json_num(peer, "in_bytes_per_s"), json_num(peer, "out_bytes_per_s")), 0);
}

/* Returns the sort key of a peer's row. Rows are sorted in ascending order. */
static double rank(const json_t *peer, enum sort sort) {
    static const char *const LINKS[] = {"refused", "alive", "up",   "dialing", "known",
                                        "paused",  "away",  "left", "gone"};
    const double rtt = json_num(peer, "rtt_us"), step = json_num(peer, "steps");
    switch (sort) {
    case BY_RATE: return -rate_of(peer);
    case BY_RTT: return isfinite(rtt) ? rtt : INFINITY;
    case BY_STEP: return isfinite(step) ? -step : INFINITY;
    case BY_LINK:
    case SORTS: break;
    }
    const unsigned count = sizeof(LINKS) / sizeof(LINKS[0]);
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(json_str(peer, "link"), LINKS[i]) == 0) return i;
    }
    return count;
}

struct ranked {
    const json_t *peer;
    double rank;
};

static int compare(const void *left, const void *right) {
    const struct ranked *const a = left, *const b = right;
    if (a->rank < b->rank) return -1;
    if (a->rank > b->rank) return 1;
    return strcmp(json_str(a->peer, "id"), json_str(b->peer, "id"));
}

/* Formats a rate such as "41.0 kB/s", or "-" if it was not measured. */
static const char *speed(char text[TW_UNITS_BYTES], double bytes_s) {
    char bytes[TW_UNITS_BYTES];
    (void)tw_units_bytes(bytes, bytes_s);
    (void)snprintf(text, TW_UNITS_BYTES, "%.30s%s", bytes, isfinite(bytes_s) ? "/s" : "");
    return text;
}

static void draw_peer(const json_t *peer, int row) {
    char rtt[TW_UNITS_BYTES], in[TW_UNITS_BYTES], out[TW_UNITS_BYTES], step[TW_UNITS_BYTES];
    const char *const link = json_str(peer, "link"), *const id = json_str(peer, "id_short"),
                      *const name = json_str(peer, "name");
    const char *const notes[] = {json_str(peer, "absence"), json_str(peer, "error"),
                                 json_str(peer, "anomaly"), json_str(peer, "stall"),
                                 json_str(peer, "strike"),  json_str(peer, "refused"),
                                 json_str(peer, "refuses")};
    const char *note = "";
    for (unsigned i = 0; i < sizeof(notes) / sizeof(notes[0]) && *note == 0; i++) note = notes[i];
    const bool is_alive = strcmp(link, "alive") == 0;
    const bool is_refused = strcmp(link, "refused") == 0;
    const enum colour colour = is_refused ? RED : !is_alive ? DIM : *note != 0 ? YELLOW : GREEN;
    const int column = put(row, 0, paint(colour), "%-8s ", link);
    (void)put(row, column, 0, "%-14.14s %-8s %8s %11s %11s %11s  %s",
              *name != 0 ? name
              : *id != 0 ? id
                         : "?",
              json_str(peer, "path"), tw_units_duration(rtt, json_num(peer, "rtt_us") / 1e6),
              speed(in, json_num(peer, "in_bytes_per_s")),
              speed(out, json_num(peer, "out_bytes_per_s")),
              tw_units_count(step, json_num(peer, "steps")), note);
}

static void draw_peers(struct top *top, int row) {
    static struct ranked rows[PEERS_SHOWN];
    const json_t *const peers = json_at(top->peers, "peers");
    size_t count = json_array_size(peers);
    if (count > PEERS_SHOWN) count = PEERS_SHOWN;
    for (size_t i = 0; i < count; i++) {
        rows[i].peer = json_array_get(peers, i);
        rows[i].rank = rank(rows[i].peer, top->sort);
    }
    qsort(rows, count, sizeof(rows[0]), compare);
    const size_t room = LINES > row + 2 ? (size_t)(LINES - row - 2) : 0;
    if (top->first + room > count) top->first = count > room ? count - room : 0;
    (void)put(row, 0, (int)A_REVERSE, "%-*s", COLS, "");
    (void)put(row, 0, (int)A_REVERSE, "%-8s %-14s %-8s %8s %11s %11s %11s", "link", "node", "path",
              "rtt", "path from", "path to", "step");
    for (size_t i = 0; i < room && top->first + i < count; i++)
        draw_peer(rows[top->first + i].peer, row + 1 + (int)i);
    if (count == 0) (void)put(row + 1, 0, 0, "No other node is known yet; `thinwire invite`.");
    (void)put(LINES - 1, 0, (int)A_REVERSE,
              " q quit   s sort by %s   up, down: scroll   %zu peer%s ", SORT_NAMES[top->sort],
              count, tw_units_s((double)count));
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void draw(struct top *top) {
    (void)erase();
    if (LINES < ROWS_MIN || COLS < COLUMNS_MIN) {
        (void)put(0, 0, 0, "too small: %d columns and %d rows are the least", COLUMNS_MIN,
                  ROWS_MIN);
    } else {
        int row = draw_head(top);
        row = draw_training(top, row);
        row = draw_sample(top, row);
        row = draw_line(top, row);
        row = draw_rounds(top, row);
        draw_peers(top, row);
    }
    (void)refresh();
}

static void take(json_t **kept, json_t *taken) {
    json_decref(*kept);
    *kept = taken;
}

/* Fetches all views. While the daemon does not answer, keeps the last ones. */
static enum tw_exit ask(struct cli *cli, struct top *top) {
    static const char *const PATHS[] = {"/v1/status", "/v1/peers", "/v1/history"};
    json_t *answers[3] = {NULL, NULL, NULL};
    enum tw_exit rc = TW_EXIT_OK;
    for (unsigned i = 0; i < 3 && rc == TW_EXIT_OK; i++) rc = cli_get(cli, PATHS[i], &answers[i]);
    top->is_lost = rc != TW_EXIT_OK;
    for (unsigned i = 0; i < 3; i++) {
        json_t **const kept = i == 0 ? &top->status : i == 1 ? &top->peers : &top->history;
        if (rc == TW_EXIT_OK)
            take(kept, answers[i]);
        else
            json_decref(answers[i]);
    }
    return rc;
}

static void run(struct cli *cli, struct top *top) {
    for (bool is_over = false; !is_over;) {
        draw(top);
        const int key = getch();
        if (key == 'q' || key == 'Q') is_over = true;
        if (key == 's') top->sort = (top->sort + 1) % SORTS;
        if (key == KEY_DOWN || key == 'j') top->first++;
        if ((key == KEY_UP || key == 'k') && top->first > 0) top->first--;
        if (key == ERR && isatty(STDIN_FILENO) != 1) is_over = true; /* the terminal was closed */
        if (key == ERR && !is_over) (void)ask(cli, top);
    }
}

static void free_answers(struct top *top) {
    json_decref(top->status);
    json_decref(top->peers);
    json_decref(top->history);
}

enum tw_exit cli_top(struct cli *cli) {
    static const char *const OPTIONS[] = {"--config", "--socket", "--color", NULL};
    const char *const term = getenv("TERM");
    const enum tw_exit usage = cli_done(cli, "top", OPTIONS);
    if (usage != TW_EXIT_OK) return usage;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1 || term == NULL ||
        strcmp(term, "dumb") == 0) {
        return cli_fail(TW_EXIT_USAGE, "top needs a terminal that can place text; "
                                       "`thinwire status --watch` works on any");
    }
    struct top top = {.has_utf8 = cli->has_utf8};
    const enum tw_exit rc = ask(cli, &top);
    if (rc != TW_EXIT_OK) return rc;
    cli->is_quiet = true;
    SCREEN *const screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        free_answers(&top);
        return cli_fail(TW_EXIT_USAGE,
                        "the terminal type `%s` is not known here; `thinwire status --watch` "
                        "works on any",
                        term);
    }
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    if (cli->has_colour && start_color() == OK) {
        static const short COLOURS[] = {0, COLOR_GREEN, COLOR_YELLOW, COLOR_RED, COLOR_CYAN};
        (void)use_default_colors();
        for (short i = GREEN; i <= BLUE; i++) (void)init_pair(i, COLOURS[i], -1);
    }
    timeout(REFRESH_MS);
    run(cli, &top);
    (void)endwin();
    delscreen(screen);
    free_answers(&top);
    return TW_EXIT_OK;
}
