#include "daemon/runlog/alerts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/scores.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"
#include "daemon/process/hook.h"
#include "daemon/runlog/run_log.h"
#include "daemon/store/checkpoint.h"

/* ==== warnings ================================================================================ */

enum {
    LOOK_US = 1000 * 1000,
    HOOK_US = 30 * 1000 * 1000, /* time after which a hook is killed */
    REFILL_US = 60 * 1000 * 1000,
    LINE_BYTES = 16 * 1024,
    VALUE_BYTES = 1100, /* longest environment variable of the hook */
};

struct tw_alerts {
    struct tw_alerts_config config;
    struct tw_warning_watch watch;
    uint64_t look_us, refill_us;
    uint32_t credit; /* hooks that may start at once */
    struct tw_hook hook;
    char running[64];           /* the change that the running hook reports */
    struct tw_status_view view; /* scratch of look() */
};

/* ---- the hook ------------------------------------------------------------------------------ */

static void on_ended(void *user, const struct tw_hook_end *end) {
    struct tw_alerts *alerts = user;
    char text[TW_HOOK_TEXT_BYTES + 160];
    if (end->exit_status == 0 && end->signal == 0) return;
    if (end->is_late)
        (void)snprintf(text, sizeof(text), "the hook was killed after %u s, at %s",
                       (unsigned)(HOOK_US / 1000000), alerts->running);
    else if (end->signal > 0)
        (void)snprintf(text, sizeof(text), "the hook ended by signal %d, at %s", end->signal,
                       alerts->running);
    else
        (void)snprintf(text, sizeof(text), "the hook failed with status %d, at %s: %s",
                       end->exit_status, alerts->running,
                       end->text[0] != '\0' ? end->text : "it gave no reason");
    alerts->config.failed(alerts->config.user, text);
}

/* Writes "NAME=value". Control characters become spaces, because some texts come from other nodes.
 */
static const char *set_value(char text[VALUE_BYTES], const char *name, const char *value) {
    (void)snprintf(text, VALUE_BYTES, "%s=%s", name, value);
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = ' ';
    return text;
}

static void start_hook(struct tw_alerts *alerts, const struct tw_warning_row *row) {
    const struct tw_run_moment moment = tw_run_log_moment(alerts->config.log);
    const char *const state = row->is_raised ? "raised" : "cleared";
    const char *const name = tw_warning_name(row->warning.kind);
    char line[LINE_BYTES], texts[8][VALUE_BYTES];
    struct tw_error err;
    json_t *const json = tw_run_line_warning(&moment, &row->warning, row->is_raised);
    const size_t size = json_dumpb(json, line, sizeof(line) - 1, JSON_COMPACT);
    json_decref(json);
    if (size == 0 || size > sizeof(line) - 1) return;
    line[size] = '\n';
    const char *const values[] = {
        set_value(texts[0], "THINWIRE_STATE", state),
        set_value(texts[1], "THINWIRE_WARNING", name),
        set_value(texts[2], "THINWIRE_ABOUT", row->warning.about),
        set_value(texts[3], "THINWIRE_TEXT", row->warning.what),
        set_value(texts[4], "THINWIRE_WAY_OUT", row->warning.way_out),
        set_value(texts[5], "THINWIRE_NODE", moment.node_name),
        set_value(texts[6], "THINWIRE_RUN", moment.run_name),
        set_value(texts[7], "THINWIRE_CONFIG", alerts->config.config_path),
        NULL,
    };
    (void)snprintf(alerts->running, sizeof(alerts->running), "%s %s", name, state);
    if (tw_hook_run(&alerts->hook, line, size + 1, values, &err) == TW_OK) return;
    char text[512];
    (void)snprintf(text, sizeof(text), "the hook could not be started: %s", err.message);
    alerts->config.failed(alerts->config.user, text);
}

/* Starts the hook for the next change, if no hook is running and the rate limit allows it. */
static void tell(struct tw_alerts *alerts, uint64_t now_us) {
    if (alerts->config.hook[0] == '\0' || !tw_hook_is_idle(&alerts->hook)) return;
    while (alerts->credit < TW_HOOKS_BURST && now_us >= alerts->refill_us + REFILL_US) {
        alerts->credit++;
        alerts->refill_us += REFILL_US;
    }
    struct tw_warning_row *const row = tw_warning_watch_untold(&alerts->watch);
    if (row == NULL || alerts->credit == 0) return;
    if (alerts->credit == TW_HOOKS_BURST) alerts->refill_us = now_us;
    alerts->credit--;
    row->is_told = row->is_raised;
    start_hook(alerts, row);
}

/* ---- the look ------------------------------------------------------------------------------ */

static void look(struct tw_alerts *alerts, uint64_t now_us) {
    struct tw_warning warnings[TW_WARNINGS_MAX];
    const struct tw_warning_row *changed[TW_WARNING_ROWS_MAX];
    tw_status_view_init(&alerts->view);
    alerts->config.fill(alerts->config.user, &alerts->view);
    const uint32_t count = tw_view_warnings(&alerts->view, warnings);
    const uint32_t changes =
        tw_warning_watch_look(&alerts->watch, warnings, count, now_us, changed);
    for (uint32_t i = 0; i < changes; i++)
        tw_run_log_warning(alerts->config.log, &changed[i]->warning, changed[i]->is_raised);
}

void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us) {
    if (now_us >= alerts->look_us + LOOK_US) {
        alerts->look_us = now_us;
        look(alerts, now_us);
    }
    tell(alerts, now_us);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_alerts_open(struct tw_alerts **alerts_out, const struct tw_alerts_config *config,
                              struct tw_error *err) {
    struct tw_alerts *const alerts = calloc(1, sizeof(*alerts));
    if (alerts == NULL) return tw_fail(err, TW_NOMEM, "no memory for the look at warnings");
    alerts->config = *config;
    alerts->credit = TW_HOOKS_BURST;
    const struct tw_hook_config hook = {.loop = config->loop,
                                        .command = config->hook,
                                        .timeout_us = HOOK_US,
                                        .user = alerts,
                                        .ended = on_ended};
    tw_hook_init(&alerts->hook, &hook);
    *alerts_out = alerts;
    return TW_OK;
}

void tw_alerts_close(struct tw_alerts *alerts) {
    tw_hook_close(&alerts->hook);
}

void tw_alerts_free(struct tw_alerts *alerts) {
    free(alerts);
}

/* ==== evaluations ============================================================================= */

enum {
    /* Wait after a checkpoint, or a start of the program, that failed. */
    RETRY_US = 60 * 1000 * 1000,
    PATH_BYTES = 1200, /* longest path, with NUL */
    TEXT_BYTES_MAX = PATH_BYTES + 64,
    VALUES = 10,
    TEXT_BYTES = 1024,
};

/* The checkpoint that the program measures. */
struct subject {
    uint64_t rounds, step, tokens;
};

struct tw_evaluations {
    struct tw_evaluations_config config;
    struct tw_hook hook;
    bool has_passed;        /* `passed` is known */
    bool is_asked;          /* a checkpoint was requested: SAVING */
    uint64_t passed;        /* round up to which no evaluation is needed any more */
    uint64_t retry_us;      /* time before which nothing is tried again */
    uint64_t now_us;        /* time of the last tick */
    uint64_t begin_us;      /* start of the running program */
    struct subject subject; /* checkpoint of the running program */
    char path[PATH_BYTES];
    char output[TW_SCORES_TEXT_BYTES];
    struct tw_view_scores last;
    uint64_t last_us; /* end of the evaluation in `last` */
};

static void note(struct tw_evaluations *evaluations, bool is_warning, const char *name,
                 const char *text) {
    evaluations->config.note(evaluations->config.user, is_warning, name, text);
}

/* ---- its end ------------------------------------------------------------------------------- */

/* Appends " name=value" for each value, as far as there is room. */
static void list_scores(char *text, size_t capacity, const struct tw_scores *scores) {
    size_t at = strlen(text);
    for (uint32_t i = 0; i < scores->count && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, " %s=%.6g", scores->rows[i].name,
                               scores->rows[i].value);
}

/* Writes a sentence about a program that failed, or "" if it did not fail. */
static void say_fault(const struct tw_evaluations *evaluations, const struct tw_hook_end *end,
                      const struct tw_scores *scores, char text[TW_VIEW_TEXT_BYTES]) {
    text[0] = '\0';
    if (end->is_late)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "the program was killed after %" PRIu64 " s; evaluate_timeout in [node] is "
                       "its time",
                       evaluations->config.timeout_us / 1000000);
    else if (end->signal > 0)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "the program ended by signal %d", end->signal);
    else if (end->exit_status != 0)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "the program failed with status %d: %.180s",
                       end->exit_status, end->text[0] != '\0' ? end->text : "it gave no reason");
    else if (scores->count == 0 && scores->refused == 0)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "the program printed no line \"name value\"");
}

static void on_measured(void *user, const struct tw_hook_end *end) {
    struct tw_evaluations *const evaluations = user;
    const struct subject *const subject = &evaluations->subject;
    char fault[TW_VIEW_TEXT_BYTES], text[TEXT_BYTES];
    struct tw_scores scores;
    const uint64_t took_us = uv_hrtime() / 1000 - evaluations->begin_us;
    (void)unlink(evaluations->path);
    tw_scores_read(&scores, evaluations->output, end->output_bytes, end->is_output_cut);
    say_fault(evaluations, end, &scores, fault);
    evaluations->last.is_running = false;
    if (scores.refused > 0) {
        (void)snprintf(text, sizeof(text), "rounds=%" PRIu64 " lines=%u text=\"%s\"",
                       subject->rounds, (unsigned)scores.refused, scores.reason);
        note(evaluations, true, "evaluation_lines", text);
    }
    if (fault[0] != '\0') {
        (void)snprintf(evaluations->last.error, sizeof(evaluations->last.error), "%s", fault);
        (void)snprintf(text, sizeof(text), "rounds=%" PRIu64 " step=%" PRIu64 " text=\"%s\"",
                       subject->rounds, subject->step, fault);
        note(evaluations, true, "evaluation_failed", text);
        return; /* values of a failed program are discarded */
    }
    evaluations->last_us = evaluations->begin_us + took_us;
    evaluations->last.rounds = subject->rounds;
    evaluations->last.step = subject->step;
    evaluations->last.took_us = took_us;
    evaluations->last.scores = scores;
    (void)snprintf(evaluations->last.error, sizeof(evaluations->last.error), "%s", scores.reason);
    (void)snprintf(text, sizeof(text), "rounds=%" PRIu64 " step=%" PRIu64 " took_us=%" PRIu64,
                   subject->rounds, subject->step, took_us);
    list_scores(text, sizeof(text), &scores);
    note(evaluations, false, "scored", text);
    const struct tw_run_scores line = {.rounds = subject->rounds,
                                       .step = subject->step,
                                       .tokens = subject->tokens,
                                       .took_us = took_us,
                                       .scores = &scores};
    tw_run_log_scores(evaluations->config.log, &line);
}

/* ---- its start ----------------------------------------------------------------------------- */

static const char *set_text(char text[TEXT_BYTES_MAX], const char *name, const char *value) {
    (void)snprintf(text, TEXT_BYTES_MAX, "%s=%s", name, value);
    return text;
}

static const char *set_count(char text[TEXT_BYTES_MAX], const char *name, uint64_t value) {
    (void)snprintf(text, TEXT_BYTES_MAX, "%s=%" PRIu64, name, value);
    return text;
}

static enum tw_status start(struct tw_evaluations *evaluations, struct tw_error *err) {
    const struct tw_evaluations_config *const config = &evaluations->config;
    const struct subject *const subject = &evaluations->subject;
    const struct tw_run_moment moment = tw_run_log_moment(config->log);
    char texts[VALUES][TEXT_BYTES_MAX];
    const char *const values[] = {
        set_text(texts[0], "THINWIRE_CHECKPOINT", evaluations->path),
        set_text(texts[1], "THINWIRE_MANIFEST", config->manifest_path),
        set_text(texts[2], "THINWIRE_DATA", config->data_path),
        set_text(texts[3], "THINWIRE_CONFIG", config->config_path),
        set_text(texts[4], "THINWIRE_NODE", moment.node_name),
        set_text(texts[5], "THINWIRE_RUN", moment.run_name),
        set_count(texts[6], "THINWIRE_ROUNDS", subject->rounds),
        set_count(texts[7], "THINWIRE_STEP", subject->step),
        set_count(texts[8], "THINWIRE_TOKENS", subject->tokens),
        NULL,
    };
    return tw_hook_run(&evaluations->hook, "", 0, values, err);
}

/* Gives the checkpoint its second name (hard link), and starts the program. */
static void begin(struct tw_evaluations *evaluations, const struct tw_evaluations_now *now) {
    char from[PATH_BYTES], text[TEXT_BYTES];
    struct tw_error err;
    enum tw_status status = TW_OK;
    (void)snprintf(from, sizeof(from), "%s/%s", evaluations->config.folder,
                   tw_checkpoint_file_name(now->newest.file));
    evaluations->subject = (struct subject){
        .rounds = now->newest.rounds, .step = now->newest.step, .tokens = now->newest.tokens};
    evaluations->begin_us = uv_hrtime() / 1000;
    if (link(from, evaluations->path) != 0)
        status = tw_fail(&err, TW_IO, "%s: no second name: %s", from, strerror(errno));
    if (status == TW_OK) status = start(evaluations, &err);
    if (status == TW_OK) {
        evaluations->passed = now->newest.rounds;
        evaluations->last.is_running = true;
        return;
    }
    (void)unlink(evaluations->path);
    evaluations->retry_us = evaluations->now_us + RETRY_US;
    (void)snprintf(evaluations->last.error, sizeof(evaluations->last.error), "%.250s", err.message);
    (void)snprintf(text, sizeof(text), "text=\"the program could not be started: %s\"",
                   err.message);
    note(evaluations, true, "evaluation_failed", text);
}

/* Returns true if a multiple of config.rounds lies in (passed, rounds]. */
static bool is_due(const struct tw_evaluations *evaluations, uint64_t rounds) {
    const uint64_t every = evaluations->config.rounds;
    return rounds / every > evaluations->passed / every;
}

void tw_evaluations_tick(struct tw_evaluations *evaluations, const struct tw_evaluations_now *now,
                         uint64_t now_us) {
    evaluations->now_us = now_us;
    if (evaluations->config.command[0] == '\0') return;
    /* True in the first tick after a start, and after a change to a lineage with fewer rounds. */
    if (!evaluations->has_passed || now->rounds < evaluations->passed) {
        evaluations->passed = now->rounds;
        evaluations->has_passed = true;
    }
    if (!tw_hook_is_idle(&evaluations->hook) || now_us < evaluations->retry_us) return;
    if (!is_due(evaluations, now->rounds)) return;
    if (now->newest.is_whole && is_due(evaluations, now->newest.rounds)) {
        evaluations->is_asked = false;
        begin(evaluations, now);
        return;
    }
    if (now->is_saving) return;
    if (evaluations->is_asked) { /* the checkpoint failed, which has its own event, or it lacks a
                                    fragment */
        evaluations->is_asked = false;
        evaluations->retry_us = now_us + RETRY_US;
        return;
    }
    evaluations->is_asked = true;
    evaluations->config.save(evaluations->config.user);
}

/* ---- life ---------------------------------------------------------------------------------- */

void tw_evaluations_fill(const struct tw_evaluations *evaluations, uint64_t now_us,
                         struct tw_status_view *view) {
    view->scores = evaluations->last;
    if (evaluations->last_us != 0)
        view->scores.age_us = now_us > evaluations->last_us ? now_us - evaluations->last_us : 0;
}

enum tw_status tw_evaluations_open(struct tw_evaluations **evaluations_out,
                                   const struct tw_evaluations_config *config,
                                   struct tw_error *err) {
    struct tw_evaluations *const evaluations = calloc(1, sizeof(*evaluations));
    if (evaluations == NULL) return tw_fail(err, TW_NOMEM, "no memory for evaluations");
    evaluations->config = *config;
    (void)snprintf(evaluations->path, sizeof(evaluations->path), "%s/%s", config->folder,
                   TW_EVALUATIONS_FILE);
    evaluations->last.every_rounds = config->command[0] != '\0' ? config->rounds : 0;
    evaluations->last.age_us = evaluations->last.took_us = TW_VIEW_NEVER;
    (void)unlink(evaluations->path); /* left by a daemon that was killed */
    const struct tw_hook_config hook = {.loop = config->loop,
                                        .command = config->command,
                                        .timeout_us = config->timeout_us,
                                        .output = evaluations->output,
                                        .output_capacity = sizeof(evaluations->output),
                                        .user = evaluations,
                                        .ended = on_measured};
    tw_hook_init(&evaluations->hook, &hook);
    *evaluations_out = evaluations;
    return TW_OK;
}

void tw_evaluations_close(struct tw_evaluations *evaluations) {
    if (evaluations->last.is_running) (void)unlink(evaluations->path);
    tw_hook_close(&evaluations->hook);
}

void tw_evaluations_free(struct tw_evaluations *evaluations) {
    free(evaluations);
}
