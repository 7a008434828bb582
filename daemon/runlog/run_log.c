#include "daemon/runlog/run_log.h"

#include <stdlib.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/runlog/run_past.h"
#include "daemon/store/line_log.h"

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
