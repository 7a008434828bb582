/* follow_events.c - `thinwire events --follow`: prints each new event, across restarts of the
 * daemon. New ones are recognised by the daemon's number of starts and the event's number since the
 * start. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/cli/common/json_path.h"
#include "daemon/cli/show/follow.h"

enum { TIME_BYTES = 32 };

struct follow {
    uint64_t boot, id; /* numbers of the newest event printed; 0: none yet */
    bool is_json, is_waiting;
    struct screen screen;
};

static uint64_t number_of(const json_t *json, const char *key) {
    const json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (uint64_t)value : 0;
}

/* Writes the event's local time, such as "2026-01-31 12:00:00". */
static void local_time(const json_t *event, char text[TIME_BYTES]) {
    const time_t at = time(NULL) - (time_t)json_num(event, "age_s");
    struct tm local;
    (void)localtime_r(&at, &local);
    (void)strftime(text, TIME_BYTES, "%Y-%m-%d %H:%M:%S", &local);
}

static void print_event(const struct follow *follow, json_t *event) {
    char time[TIME_BYTES];
    if (follow->is_json) {
        (void)json_object_del(event, "age_s"); /* an age is true only at the moment of the answer */
        (void)json_object_set_new(event, "boot", json_integer((json_int_t)follow->boot));
        (void)json_dumpf(event, stdout, JSON_COMPACT);
        (void)fputc('\n', stdout);
        return;
    }
    local_time(event, time);
    struct line line = line_begin(&follow->screen, NULL);
    line_put(&line, DIM, "%s  ", time);
    line_put(&line, json_yes(event, "warning") ? YELLOW : PLAIN, "%s", json_str(event, "name"));
    line_put(&line, DIM, "  %s", json_str(event, "text"));
    line_end(&line);
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
            (void)fprintf(stderr,
                          "thinwire: %" PRIu64
                          " events came too fast to be seen; `thinwire logs` has them\n",
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
