#include "daemon/runlog/alerts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/status_view.h"
#include "daemon/api/warning_watch.h"
#include "daemon/process/hook.h"
#include "daemon/runlog/run_log.h"

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
