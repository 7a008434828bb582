#include "daemon/runlog/run_past.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/store/line_log.h"

enum { LINE_BYTES_MAX = 1 << 16, PATH_MORE = 1 + TW_LINE_LOG_NAME_BYTES };

/* ---- lines ----------------------------------------------------------------------------------- */

static bool take_count(const json_t *line, const char *key, uint64_t *count) {
    const json_t *const value = json_object_get(line, key);
    *count = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* Returns a loss in nats, or NaN if the line has none. */
static float take_nats(const json_t *line, const char *key) {
    const json_t *const value = json_object_get(line, key);
    return json_is_number(value) ? (float)json_number_value(value) : NAN;
}

static void take_loss(const json_t *line, struct tw_history *history) {
    struct tw_view_loss point = {.train = take_nats(line, "loss_nats"),
                                 .live = take_nats(line, "validation_live_nats"),
                                 .anchor = take_nats(line, "validation_anchor_nats")};
    if (take_count(line, "step", &point.step)) tw_history_loss(history, &point);
}

/* Returns the time of a line in microseconds since 1970, or 0. */
static uint64_t take_time(const json_t *line) {
    const char *const text = json_string_value(json_object_get(line, "time"));
    struct tm when = {.tm_isdst = 0};
    if (text == NULL || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &when.tm_year, &when.tm_mon,
                               &when.tm_mday, &when.tm_hour, &when.tm_min, &when.tm_sec) != 6)
        return 0;
    when.tm_year -= 1900;
    when.tm_mon -= 1;
    const time_t seconds = timegm(&when);
    return seconds > 0 ? (uint64_t)seconds * 1000000 : 0;
}

static void take_evaluation(const json_t *line, struct tw_history *history) {
    struct tw_past_evaluation past = {.unix_us = take_time(line),
                                      .live = take_nats(line, "validation_live_nats"),
                                      .anchor = take_nats(line, "validation_anchor_nats"),
                                      .distance = take_nats(line, "distance_ratio")};
    if (take_count(line, "step", &past.step) && past.unix_us > 0)
        tw_history_evaluated(history, &past);
}

static void take_round(const json_t *line, struct tw_history *history) {
    static const struct {
        const char *word;
        enum tw_outcome outcome;
    } WORDS[] = {{"ours", TW_OUTCOME_OURS},
                 {"others", TW_OUTCOME_OTHERS},
                 {"alone", TW_OUTCOME_ALONE},
                 {"empty", TW_OUTCOME_EMPTY}};
    const char *const word = json_string_value(json_object_get(line, "outcome"));
    uint64_t round;
    if (word == NULL || !take_count(line, "round", &round) || round == UINT64_MAX) return;
    for (unsigned i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        if (strcmp(word, WORDS[i].word) == 0) tw_history_round(history, round, WORDS[i].outcome);
    }
}

static void take_line(const char *text, size_t size, struct tw_history *history) {
    json_t *const line = json_loadb(text, size, 0, NULL);
    const char *const kind = json_string_value(json_object_get(line, "kind"));
    if (kind != NULL) {
        if (strcmp(kind, "step") == 0 || strcmp(kind, "evaluation") == 0) take_loss(line, history);
        if (strcmp(kind, "evaluation") == 0) take_evaluation(line, history);
        if (strcmp(kind, "round") == 0) take_round(line, history);
    }
    json_decref(line);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void path_of(const char *folder, uint64_t number, char *path, size_t room) {
    char name[TW_LINE_LOG_NAME_BYTES];
    tw_line_log_name(number, name);
    (void)snprintf(path, room, "%s/%s", folder, name);
}

/* Reads the lines of a file from byte offset `from` on. A line that begins before it is skipped. */
static void read_file(const char *path, long from, struct tw_history *history) {
    static char line[LINE_BYTES_MAX];
    FILE *const file = fopen(path, "re");
    if (file == NULL) return;
    bool is_whole = from == 0;
    if (from > 0 && fseek(file, from - 1, SEEK_SET) != 0) from = -1;
    while (from >= 0 && fgets(line, sizeof(line), file) != NULL) {
        const size_t size = strlen(line);
        const bool is_end = size > 0 && line[size - 1] == '\n';
        if (is_whole && is_end && size > 1) take_line(line, size - 1, history);
        is_whole = is_end;
    }
    (void)fclose(file);
}

void tw_run_past_read(const char *folder, uint64_t newest, struct tw_history *history) {
    const size_t room = strlen(folder) + PATH_MORE + 1;
    char *const path = malloc(room);
    uint64_t left = TW_RUN_PAST_BYTES, first = newest;
    long from = 0;
    struct stat info;
    for (; path != NULL && first > 0 && left > 0; first--) {
        path_of(folder, first, path, room);
        if (stat(path, &info) != 0) break;
        const uint64_t size = (uint64_t)info.st_size;
        from = size > left ? (long)(size - left) : 0;
        left -= size > left ? left : size;
    }
    for (uint64_t number = first + 1; path != NULL && number <= newest; number++) {
        path_of(folder, number, path, room);
        read_file(path, from, history);
        from = 0;
    }
    free(path);
}
