/* main.c - the program thinwire-replay, which `thinwire replay` runs. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <jansson.h>

#include "base/exit_codes.h"
#include "base/units.h"
#include "daemon/replay/replay.h"
#include "daemon/replay/words.h"

enum { LINES_MAX = 100000 };

struct options {
    const char *path, *against; /* path: log to replay; against: another node's log, or NULL */
    const char *at;             /* a time, or #NUMBER for an event; NULL = the end of the log */
    unsigned lines;             /* number of events shown before that moment */
    bool is_json;
};

static enum tw_exit fail(enum tw_exit code, const char *text) {
    (void)fprintf(stderr, "thinwire: replay: %s\n", text);
    return code;
}

static enum tw_exit exit_of(enum tw_status status) {
    return status == TW_VERSION ? TW_EXIT_FAILURE : TW_EXIT_DATA;
}

/* ---- a moment -------------------------------------------------------------------------------- */

/* The last lines before a moment of the log, and the core's state at it. */
struct moment {
    uint64_t number, unix_us; /* event number or time of the moment; the other one is 0 */
    char (*lines)[WORDS_LINE_BYTES + WORDS_TIME_BYTES];
    unsigned room, count; /* size of the ring of lines, lines in it */
};

/* Reads a time of day, on the day when the log ends, or a date with time, in UTC. */
static bool read_time(const char *text, uint64_t last_unix_us, uint64_t *unix_us) {
    const time_t last_s = (time_t)(last_unix_us / 1000000);
    struct tm parts;
    double seconds = 0;
    int used = 0;
    if (gmtime_r(&last_s, &parts) == NULL) return false;
    int year, month, day, hour, minute;
    if (sscanf(text, "%d-%d-%d%*1[T ]%d:%d:%lf%n", &year, &month, &day, &hour, &minute, &seconds,
               &used) == 6) {
        parts.tm_year = year - 1900;
        parts.tm_mon = month - 1;
        parts.tm_mday = day;
    } else if (sscanf(text, "%d:%d:%lf%n", &hour, &minute, &seconds, &used) != 3) {
        return false;
    }
    if (strcmp(text + used, "Z") != 0 && text[used] != '\0') return false;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || !(seconds >= 0 && seconds < 61))
        return false;
    parts.tm_hour = hour;
    parts.tm_min = minute;
    parts.tm_sec = 0;
    const time_t whole = timegm(&parts);
    if (whole < 0) return false;
    *unix_us = (uint64_t)whole * 1000000 + (uint64_t)(seconds * 1e6);
    return true;
}

static void add_line(struct moment *moment, const char *text) {
    if (moment->room == 0) return;
    (void)snprintf(moment->lines[moment->count++ % moment->room], sizeof(moment->lines[0]), "%s",
                   text);
}

static void see_event(void *self, const struct replay *replay, const struct tw_event *event) {
    char time[WORDS_TIME_BYTES], words[WORDS_LINE_BYTES], line[WORDS_LINE_BYTES + WORDS_TIME_BYTES];
    if (event->kind == TW_EV_STEP || event->kind == TW_EV_TICK) return;
    (void)tw_words_time(time, tw_replay_unix_us(replay, replay->now_us));
    (void)snprintf(line, sizeof(line), "  %.15s  #%" PRIu64 "  %.200s", time + 11, replay->number,
                   tw_words_event(words, event));
    add_line(self, line);
}

static void see_action(void *self, const struct replay *replay, const struct tw_action *action) {
    char words[WORDS_LINE_BYTES], line[WORDS_LINE_BYTES + WORDS_TIME_BYTES];
    (void)replay;
    (void)snprintf(line, sizeof(line), "                     -> %.200s",
                   tw_words_action(words, action));
    add_line(self, line);
}

static void see_drop(void *self, const struct replay *replay, enum tw_drop why) {
    char line[WORDS_LINE_BYTES];
    (void)replay;
    (void)snprintf(line, sizeof(line), "                     no effect (%s): %s", tw_drop_word(why),
                   tw_drop_sentence(why));
    add_line(self, line);
}

static bool is_reached(void *self, const struct replay *replay) {
    const struct moment *const moment = self;
    if (moment->number > 0) return replay->number < moment->number;
    return moment->unix_us == 0 || tw_replay_unix_us(replay, replay->now_us) < moment->unix_us;
}

static enum tw_exit show_moment(const struct options *options, struct moment *moment) {
    static struct replay replay;
    static struct tw_node_view view;
    char time[WORDS_TIME_BYTES];
    struct tw_error err;
    const struct replay_eyes eyes = {.self = moment,
                                     .event = see_event,
                                     .action = see_action,
                                     .dropped = see_drop,
                                     .done = is_reached};
    const enum tw_status status = tw_replay_run(&replay, options->path, &eyes, &err);
    if (status != TW_OK) {
        tw_replay_free(&replay);
        return fail(exit_of(status), err.message);
    }
    const unsigned first = moment->count > moment->room ? moment->count - moment->room : 0;
    for (unsigned i = first; i < moment->count; i++)
        (void)printf("%s\n", moment->lines[i % moment->room]);
    tw_node_view(replay.node, &view);
    (void)printf("\nnode %s after event #%" PRIu64 ", %s\n", replay.about.node, replay.number,
                 tw_words_time(time, tw_replay_unix_us(&replay, replay.now_us)));
    tw_words_view(stdout, &view);
    tw_replay_free(&replay);
    return TW_EXIT_OK;
}

/* ---- the whole log --------------------------------------------------------------------------- */

static json_t *log_json(const struct decisions *decisions) {
    const struct replay *const replay = &decisions->replay;
    const struct replay_counts *const counts = &replay->counts;
    uint64_t rounds = 0;
    for (size_t i = 0; i < decisions->count; i++) rounds += !decisions->rows[i].is_anchor;
    return json_pack(
        "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:b,s:I,s:o}", "node", replay->about.node, "id",
        replay->about.id, "run", replay->about.run, "files", (json_int_t)counts->files, "starts",
        (json_int_t)counts->starts, "events", (json_int_t)counts->events, "actions",
        (json_int_t)counts->actions, "gaps", (json_int_t)counts->gaps, "first_unix_s",
        (double)counts->first_us / 1e6, "last_unix_s", (double)counts->last_us / 1e6,
        "ends_within_event", (int)counts->is_cut, "rounds", (json_int_t)rounds, "first_difference",
        replay->difference.event > 0 ? json_integer((json_int_t)replay->difference.event)
                                     : json_null());
}

static void print_log(const struct decisions *decisions) {
    const struct replay *const replay = &decisions->replay;
    const struct replay_counts *const counts = &replay->counts;
    char first[WORDS_TIME_BYTES], last[WORDS_TIME_BYTES], took[TW_UNITS_BYTES],
        events[TW_UNITS_BYTES], actions[TW_UNITS_BYTES];
    uint64_t rounds = 0;
    for (size_t i = 0; i < decisions->count; i++) rounds += !decisions->rows[i].is_anchor;
    (void)printf("node %s (%.8s), run %.8s\n", replay->about.node, replay->about.id,
                 replay->about.run);
    (void)printf("  time      %.19s to %.19s UTC, %s; %" PRIu32 " file%s, %" PRIu64 " start%s\n",
                 tw_words_time(first, counts->first_us), tw_words_time(last, counts->last_us),
                 tw_units_duration(took, (double)(counts->last_us - counts->first_us) / 1e6),
                 counts->files, tw_units_s(counts->files), counts->starts,
                 tw_units_s((double)counts->starts));
    if (counts->gaps > 0)
        (void)printf("  gaps      %" PRIu64 ": the disk was too slow, or full\n", counts->gaps);
    if (counts->is_cut)
        (void)printf("  end       within an event: the daemon was killed, or crashed\n");
    (void)printf("  replayed  %s events and %" PRIu64 " rounds; %s actions, %s\n",
                 tw_units_count(events, (double)counts->events), rounds,
                 tw_units_count(actions, (double)counts->actions),
                 replay->difference.event == 0 ? "all as recorded" : "NOT as recorded");
    if (replay->difference.event > 0)
        (void)printf("  differs   first after event #%" PRIu64 ": %" PRIu32 " actions, %" PRIu32
                     " recorded; `--at #%" PRIu64 "` shows it\n",
                     replay->difference.event, replay->difference.actions,
                     replay->difference.recorded_actions, replay->difference.event);
}

static enum tw_exit show_log(const struct options *options) {
    static struct decisions decisions;
    struct tw_error err;
    const enum tw_status status = tw_decisions_read(&decisions, options->path, &err);
    enum tw_exit rc = status == TW_OK ? TW_EXIT_OK : fail(exit_of(status), err.message);
    if (status == TW_OK && options->is_json) {
        json_t *const json = log_json(&decisions);
        (void)json_dumpf(json, stdout, JSON_INDENT(1));
        (void)printf("\n");
        json_decref(json);
    } else if (status == TW_OK) {
        print_log(&decisions);
    }
    if (status == TW_OK && decisions.replay.difference.event > 0) rc = TW_EXIT_FAILURE;
    tw_decisions_free(&decisions);
    return rc;
}

/* ---- two nodes ------------------------------------------------------------------------------- */

static void print_decision(const char *node, const struct decision *row) {
    char time[WORDS_TIME_BYTES], hex[9], lineage[9];
    tw_id_short(&row->digest, hex);
    tw_id_short(&row->lineage, lineage);
    if (row->is_anchor) {
        (void)printf("  %-9s anchor %s, %s\n", node, hex, tw_words_time(time, row->unix_us));
        return;
    }
    (void)printf("  %-9s record %s, %" PRIu32 " contributors, lineage %s, %s\n", node, hex,
                 row->contributors, lineage, tw_words_time(time, row->unix_us));
}

static json_t *decision_json(const struct decision *row) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&row->digest, hex);
    return json_pack("{s:s,s:I,s:I,s:s,s:f}", "kind", row->is_anchor ? "anchor" : "record", "round",
                     (json_int_t)row->round, "fragment", (json_int_t)row->fragment, "digest", hex,
                     "unix_s", (double)row->unix_us / 1e6);
}

static enum tw_exit print_comparison(const struct options *options, struct decisions *a,
                                     struct decisions *b) {
    struct decision of_a, of_b;
    size_t common;
    const bool differs = tw_decisions_differ(a, b, &of_a, &of_b, &common);
    if (options->is_json) {
        json_t *const json = json_pack("{s:s,s:s,s:I,s:o,s:o}", "a", a->replay.about.node, "b",
                                       b->replay.about.node, "common", (json_int_t)common,
                                       "first_of_a", differs ? decision_json(&of_a) : json_null(),
                                       "first_of_b", differs ? decision_json(&of_b) : json_null());
        (void)json_dumpf(json, stdout, JSON_INDENT(1));
        (void)printf("\n");
        json_decref(json);
    } else if (differs) {
        (void)printf(
            "The first decision in which they differ: %s %" PRIu64 ", fragment %" PRIu32 "\n",
            of_a.is_anchor ? "the anchor after rounds" : "round", of_a.round, of_a.fragment);
        print_decision(a->replay.about.node, &of_a);
        print_decision(b->replay.about.node, &of_b);
    } else {
        (void)printf("%s and %s agree in all %zu decisions that both have.\n", a->replay.about.node,
                     b->replay.about.node, common);
    }
    return differs ? TW_EXIT_FAILURE : TW_EXIT_OK;
}

static enum tw_exit compare(const struct options *options) {
    static struct decisions a, b;
    struct tw_error err;
    enum tw_status status = tw_decisions_read(&a, options->path, &err);
    if (status == TW_OK) status = tw_decisions_read(&b, options->against, &err);
    const enum tw_exit rc =
        status == TW_OK ? print_comparison(options, &a, &b) : fail(exit_of(status), err.message);
    tw_decisions_free(&a);
    tw_decisions_free(&b);
    return rc;
}

/* ---- options --------------------------------------------------------------------------------- */

static enum tw_exit read_lines(const char *text, unsigned *lines) {
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || end == text || value > LINES_MAX)
        return fail(TW_EXIT_USAGE, "--lines: a number up to 100000");
    *lines = (unsigned)value;
    return TW_EXIT_OK;
}

static enum tw_exit read_options(int argc, char **argv, struct options *options) {
    static const struct option LONG[] = {{"against", required_argument, NULL, 'b'},
                                         {"at", required_argument, NULL, 'a'},
                                         {"lines", required_argument, NULL, 'n'},
                                         {"json", no_argument, NULL, 'j'},
                                         {0}};
    int option;
    enum tw_exit rc = TW_EXIT_OK;
    options->lines = 30;
    while (rc == TW_EXIT_OK && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        switch (option) {
        case 'b': options->against = optarg; break;
        case 'a': options->at = optarg; break;
        case 'n': rc = read_lines(optarg, &options->lines); break;
        case 'j': options->is_json = true; break;
        default: return TW_EXIT_USAGE; /* getopt has printed the reason */
        }
    }
    options->path = optind < argc ? argv[optind] : NULL;
    if (rc == TW_EXIT_OK && optind + 1 != argc)
        return fail(TW_EXIT_USAGE, "name one log: a folder STATE_DIR/RUN/recorder, or one of its "
                                   "files; `thinwire help replay` explains it");
    return rc;
}

/* Finds the moment that the options ask for. A time of day needs the date, which is known only at
 * the end of the log. */
static enum tw_exit find_moment(const struct options *options, struct moment *moment) {
    static struct replay replay;
    static const struct replay_eyes none;
    struct tw_error err;
    if (options->at[0] == '#') {
        char *end;
        moment->number = strtoull(options->at + 1, &end, 10);
        if (*end == '\0' && moment->number > 0) return TW_EXIT_OK;
        return fail(TW_EXIT_USAGE, "--at: #1 is the first event");
    }
    const enum tw_status status = tw_replay_run(&replay, options->path, &none, &err);
    tw_replay_free(&replay);
    if (status != TW_OK) return fail(exit_of(status), err.message);
    if (read_time(options->at, replay.counts.last_us, &moment->unix_us)) return TW_EXIT_OK;
    return fail(TW_EXIT_USAGE, "--at: a time such as 14:03:22 or 2026-11-27T14:03:22, in UTC, or "
                               "#NUMBER of an event");
}

int main(int argc, char **argv) {
    struct options options = {0};
    struct moment moment = {0};
    enum tw_exit rc = read_options(argc, argv, &options);
    if (rc != TW_EXIT_OK) return rc;
    if (options.against != NULL) return compare(&options);
    if (options.at == NULL) return show_log(&options);
    rc = find_moment(&options, &moment);
    if (rc != TW_EXIT_OK) return rc;
    moment.room = options.lines;
    moment.lines = calloc(moment.room > 0 ? moment.room : 1, sizeof(moment.lines[0]));
    if (moment.lines == NULL) return fail(TW_EXIT_FAILURE, "out of memory");
    rc = show_moment(&options, &moment);
    free(moment.lines);
    return rc;
}
