#include "daemon/runlog/run_log.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <uv.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/api/history.h"
#include "daemon/api/ledger.h"
#include "daemon/store/file.h"
#include "daemon/store/line_log.h"

/* ==== one line ================================================================================ */

static json_t *text(const char *value) {
    json_t *const json = json_string(value);
    return json != NULL ? json : json_string("(not UTF-8)");
}

static json_t *count(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *full_id(const struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(id, hex);
    return json_string(hex);
}

static json_t *begin(const char *kind, const struct tw_run_moment *moment) {
    char time[TW_VIEW_TIME_BYTES];
    return json_pack("{s:s,s:s}", "kind", kind, "time", tw_view_time(moment->unix_us, time));
}

/* Adds the keys of `more` to the line, and frees `more`. */
static json_t *add(json_t *line, json_t *more) {
    (void)json_object_update(line, more);
    json_decref(more);
    return line;
}

static json_t *identity(const struct tw_run_moment *moment) {
    return json_pack("{s:o,s:o,s:o,s:o}", "node", full_id(moment->node), "node_name",
                     text(moment->node_name), "run", full_id(moment->run), "run_name",
                     text(moment->run_name));
}

static json_t *progress(const struct tw_run_moment *moment) {
    return json_pack("{s:o,s:o,s:o}", "step", count(moment->step), "tokens", count(moment->tokens),
                     "clock_tokens", count(moment->clock_tokens));
}

json_t *tw_run_line_start(const struct tw_run_moment *moment) {
    json_t *const line = add(begin("start", moment), identity(moment));
    return add(add(line, progress(moment)),
               json_pack("{s:o,s:s}", "boot", count(moment->boot), "version", TW_RELEASE));
}

json_t *tw_run_line_stop(const struct tw_run_moment *moment, int exit_status) {
    return add(add(begin("stop", moment), progress(moment)),
               json_pack("{s:i}", "exit_status", exit_status));
}

static json_t *training(const struct tw_run_step *step) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "loss_nats", real((double)step->loss),
                     "learning_rate", real((double)step->lr), "grad_norm",
                     real((double)step->grad_norm), "tokens_per_s", real(step->tokens_per_s),
                     "utilisation_ratio", real(step->utilisation));
}

json_t *tw_run_line_step(const struct tw_run_moment *moment, const struct tw_run_step *step) {
    return add(add(begin("step", moment), progress(moment)), training(step));
}

json_t *tw_run_line_evaluation(const struct tw_run_moment *moment, const struct tw_run_step *step) {
    json_t *const line = add(add(begin("evaluation", moment), progress(moment)), training(step));
    return add(line,
               json_pack("{s:o,s:o,s:o}", "validation_live_nats", real((double)step->loss_live),
                         "validation_anchor_nats", real((double)step->loss_anchor),
                         "distance_ratio", real((double)step->distance)));
}

json_t *tw_run_line_sample(const struct tw_run_moment *moment,
                           const struct tw_wmsg_sample *sample) {
    return add(
        add(begin("sample", moment), progress(moment)),
        json_pack("{s:o,s:o}", "prompt", text(sample->prompt), "sample", text(sample->text)));
}

json_t *tw_run_line_round(const struct tw_run_moment *moment, const struct tw_view_round *round,
                          const char *outcome) {
    char partner[9];
    tw_id_short(&round->partner, partner);
    const bool has_time = round->took_us != TW_VIEW_NEVER;
    json_t *const line = add(begin("round", moment), progress(moment));
    return add(line,
               json_pack("{s:o,s:o,s:o,s:o,s:s,s:o,s:o,s:o}", "round", count(round->round),
                         "fragment", count(round->fragment), "members", count(round->roster),
                         "contributors", count(round->contributors), "outcome", outcome,
                         "payload_bytes", has_time ? count(round->bytes) : json_null(), "took_s",
                         has_time ? real((double)round->took_us / 1e6) : json_null(), "partner",
                         tw_id_is_zero(&round->partner) ? json_null() : text(partner)));
}

json_t *tw_run_line_scores(const struct tw_run_moment *moment, const struct tw_run_scores *scores) {
    json_t *const values = json_object();
    for (uint32_t i = 0; i < scores->scores->count; i++)
        (void)json_object_set_new(values, scores->scores->rows[i].name,
                                  real(scores->scores->rows[i].value));
    return add(add(begin("scores", moment), progress(moment)),
               json_pack("{s:o,s:o,s:o}", "rounds", count(scores->rounds), "evaluation_s",
                         real((double)scores->took_us / 1e6), "scores", values));
}

json_t *tw_run_line_warning(const struct tw_run_moment *moment, const struct tw_warning *warning,
                            bool is_raised) {
    json_t *const line = add(begin("warning", moment), identity(moment));
    return add(line, json_pack("{s:s,s:s,s:o,s:o,s:o}", "state", is_raised ? "raised" : "cleared",
                               "warning", tw_warning_name(warning->kind), "about",
                               warning->about[0] != '\0' ? text(warning->about) : json_null(),
                               "text", text(warning->what), "way_out", text(warning->way_out)));
}

json_t *tw_run_line_gap(const struct tw_run_moment *moment, uint64_t lines) {
    return add(begin("gap", moment), json_pack("{s:o}", "lines", count(lines)));
}

/* ==== the log ================================================================================= */

enum {
    BUFFER_BYTES = 256 << 10,
    STEP_US = 10 * 1000 * 1000,
    RETRY_US = 30 * 1000 * 1000,
};

struct buffer {
    char bytes[BUFFER_BYTES];
    size_t size;
    uint32_t lines;
};

struct tw_run_log {
    struct tw_run_log_config config;
    struct tw_line_log file;
    bool is_on, is_writing, has_failed, is_closing;
    uv_work_t work;
    struct buffer buffers[2];
    struct buffer *filling, *writing;
    uint64_t lost; /* lines lost since the last one that was stored */
    uint64_t step_due_us, retry_us;
    struct tw_view_round round; /* round whose line is not written yet, if has_round */
    bool has_round;
    struct tw_run_moment round_moment;
    enum tw_outcome outcome;
    enum tw_status status; /* result of the last write; owned by the thread pool while is_writing */
    struct tw_error err;
};

static uint64_t now_us(void) {
    return uv_hrtime() / 1000;
}

struct tw_run_moment tw_run_log_moment(const struct tw_run_log *log) {
    struct tw_run_moment moment = {0};
    log->config.moment(log->config.user, &moment);
    return moment;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void on_work(uv_work_t *work) {
    struct tw_run_log *log = work->data;
    log->status = tw_line_log_write(&log->file, log->writing->bytes, log->writing->size, &log->err);
}

static void flush(struct tw_run_log *log);

/* Reports once that the disk refuses lines, and once that it accepts them again. */
static void note_state(struct tw_run_log *log) {
    const bool has_failed = log->status != TW_OK;
    if (has_failed == log->has_failed) return;
    log->has_failed = has_failed;
    log->config.failed(log->config.user, has_failed ? log->err.message : NULL);
}

static void on_done(uv_work_t *work, int status) {
    struct tw_run_log *log = work->data;
    log->is_writing = false;
    if (status != 0) return;
    if (log->status != TW_OK) {
        log->lost += log->writing->lines;
        log->retry_us = now_us() + RETRY_US;
    }
    log->writing->size = log->writing->lines = 0;
    note_state(log);
    if (log->is_closing && log->status == TW_OK) flush(log);
}

static void flush(struct tw_run_log *log) {
    if (!log->is_on || log->is_writing || log->filling->size == 0) return;
    struct buffer *const full = log->filling;
    log->filling = log->writing;
    log->writing = full;
    log->is_writing = true;
    log->work.data = log;
    TW_ASSERT(uv_queue_work(log->config.loop, &log->work, on_work, on_done) == 0);
}

/* Appends a line and a newline, if there is room, and frees `line`. */
static bool put_line(struct buffer *to, json_t *line) {
    const size_t room = BUFFER_BYTES - to->size;
    const size_t size =
        json_dumpb(line, to->bytes + to->size, room, JSON_COMPACT | JSON_REAL_PRECISION(7));
    json_decref(line);
    if (size == 0 || size + 1 > room) return false;
    to->bytes[to->size + size] = '\n';
    to->size += size + 1;
    to->lines++;
    return true;
}

static void append(struct tw_run_log *log, json_t *line) {
    if (!log->is_on || line == NULL) {
        json_decref(line);
        return;
    }
    if (log->lost > 0) {
        const struct tw_run_moment moment = tw_run_log_moment(log);
        if (put_line(log->filling, tw_run_line_gap(&moment, log->lost))) log->lost = 0;
    }
    if (log->lost > 0) {
        json_decref(line);
        log->lost++;
    } else if (!put_line(log->filling, line)) {
        log->lost++;
    }
}

/* ---- lines --------------------------------------------------------------------------------- */

static void write_round(struct tw_run_log *log) {
    if (!log->has_round) return;
    log->has_round = false;
    append(log, tw_run_line_round(&log->round_moment, &log->round,
                                  log->outcome == TW_OUTCOME_OURS     ? "ours"
                                  : log->outcome == TW_OUTCOME_OTHERS ? "others"
                                  : log->outcome == TW_OUTCOME_ALONE  ? "alone"
                                                                      : "empty"));
}

/* Appends a line, and frees it. */
static void add_line(struct tw_run_log *log, json_t *line) {
    write_round(log);
    append(log, line);
}

bool tw_run_log_is_due(const struct tw_run_log *log) {
    return log->is_on && now_us() >= log->step_due_us;
}

void tw_run_log_step(struct tw_run_log *log, const struct tw_run_step *step) {
    const struct tw_run_moment moment = tw_run_log_moment(log);
    log->step_due_us = now_us() + STEP_US;
    add_line(log, tw_run_line_step(&moment, step));
}

void tw_run_log_evaluation(struct tw_run_log *log, const struct tw_run_step *step, uint64_t at) {
    struct tw_run_moment moment = tw_run_log_moment(log);
    moment.step = at;
    add_line(log, tw_run_line_evaluation(&moment, step));
}

void tw_run_log_sample(struct tw_run_log *log, const struct tw_wmsg_sample *sample) {
    struct tw_run_moment moment = tw_run_log_moment(log);
    moment.step = sample->step;
    add_line(log, tw_run_line_sample(&moment, sample));
}

void tw_run_log_scores(struct tw_run_log *log, const struct tw_run_scores *scores) {
    struct tw_run_moment moment = tw_run_log_moment(log);
    moment.step = scores->step;
    moment.tokens = scores->tokens;
    add_line(log, tw_run_line_scores(&moment, scores));
}

void tw_run_log_warning(struct tw_run_log *log, const struct tw_warning *warning, bool is_raised) {
    const struct tw_run_moment moment = tw_run_log_moment(log);
    add_line(log, tw_run_line_warning(&moment, warning, is_raised));
}

void tw_run_log_start(struct tw_run_log *log) {
    const struct tw_run_moment moment = tw_run_log_moment(log);
    add_line(log, tw_run_line_start(&moment));
}

void tw_run_log_round(struct tw_run_log *log, const struct tw_view_round *round,
                      enum tw_outcome outcome) {
    write_round(log);
    log->round = *round;
    log->round_moment = tw_run_log_moment(log);
    log->outcome = outcome;
    log->has_round = true;
}

void tw_run_log_pair(struct tw_run_log *log, const struct tw_id *partner) {
    log->round.partner = *partner;
    log->outcome = TW_OUTCOME_OURS;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_run_log_open(struct tw_run_log **log_out, const struct tw_run_log_config *config,
                               struct tw_error *err) {
    struct tw_run_log *const log = calloc(1, sizeof(*log));
    struct tw_error reason = {0};
    if (log == NULL) return tw_fail(err, TW_NOMEM, "no memory for the run log");
    *log_out = log;
    log->config = *config;
    log->filling = &log->buffers[0];
    log->writing = &log->buffers[1];
    if (config->bytes_max == 0) return TW_OK;
    log->is_on = tw_line_log_open(&log->file, tw_file_system(), config->folder, config->bytes_max,
                                  &reason) == TW_OK;
    if (!log->is_on) config->failed(config->user, reason.message);
    if (log->is_on && config->history != NULL)
        tw_run_past_read(config->folder, log->file.number, config->history);
    return TW_OK;
}

void tw_run_log_tick(struct tw_run_log *log) {
    write_round(log);
    if (now_us() >= log->retry_us) flush(log);
}

void tw_run_log_close(struct tw_run_log *log, int exit_status) {
    const struct tw_run_moment moment = tw_run_log_moment(log);
    add_line(log, tw_run_line_stop(&moment, exit_status));
    log->is_closing = true;
    flush(log);
}

void tw_run_log_free(struct tw_run_log *log) {
    if (log == NULL) return;
    if (log->is_on) tw_line_log_close(&log->file);
    free(log);
}

/* ==== the past of a run ======================================================================= */

enum { LINE_BYTES_MAX = 1 << 16, PATH_MORE = 1 + TW_LINE_LOG_NAME_BYTES };

/* ==== lines =================================================================================== */

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

/* ==== files =================================================================================== */

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

/* ==== the ledger on disk ====================================================================== */

enum { MINUTE_US = 60 * 1000 * 1000 };

static const char FILE_NAME[] = "ledger";

struct tw_ledger_file {
    const char *folder;
    struct tw_ledger table;
    bool is_changed; /* changed since it was last saved */
    uint64_t due_us;
    char text[TW_LEDGER_TEXT_MAX]; /* scratch of loading and saving */
};

enum tw_status tw_ledger_file_open(struct tw_ledger_file **out, const char *folder,
                                   struct tw_error *err) {
    struct tw_ledger_file *const file = *out = calloc(1, sizeof(*file));
    if (file == NULL) return tw_fail(err, TW_NOMEM, "no memory for the ledger");
    file->folder = folder;
    const size_t size = tw_cache_file_load(folder, FILE_NAME, file->text, TW_LEDGER_TEXT_MAX);
    if (size > 0 && tw_ledger_decode(&file->table, file->text, size) != TW_OK)
        tw_log(TW_LOG_WARN, "ledger_damaged", "text=\"the ledger begins anew\"");
    return TW_OK;
}

const struct tw_ledger *tw_ledger_file_table(const struct tw_ledger_file *file) {
    return &file->table;
}

void tw_ledger_file_begin(struct tw_ledger_file *file, const struct tw_record *tip) {
    tw_ledger_begin(&file->table, tip);
}

void tw_ledger_file_note(struct tw_ledger_file *file, const struct tw_record *record) {
    tw_ledger_note(&file->table, record);
    file->is_changed = true;
}

static void save(struct tw_ledger_file *file) {
    if (!file->is_changed) return;
    const size_t size = tw_ledger_encode(&file->table, file->text);
    tw_cache_file_save(file->folder, FILE_NAME, file->text, size);
    file->is_changed = false;
}

void tw_ledger_file_tick(struct tw_ledger_file *file, uint64_t now_us) {
    if (now_us < file->due_us) return;
    file->due_us = now_us + MINUTE_US;
    save(file);
}

void tw_ledger_file_close(struct tw_ledger_file *file) {
    if (file != NULL) save(file);
}

void tw_ledger_file_free(struct tw_ledger_file *file) {
    free(file);
}
