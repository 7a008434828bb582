#include "daemon/runlog/alerts.h"

#include <stdlib.h>

#include "daemon/api/status_view.h"
#include "daemon/api/warning_watch.h"
#include "daemon/runlog/run_log.h"

enum { LOOK_US = 1000 * 1000 };

struct tw_alerts {
    struct tw_alerts_config config;
    struct tw_warning_watch watch;
    uint64_t look_us;
    struct tw_status_view view; /* scratch */
};

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

enum tw_status tw_alerts_open(struct tw_alerts **alerts_out, const struct tw_alerts_config *config,
                              struct tw_error *err) {
    struct tw_alerts *const alerts = calloc(1, sizeof(*alerts));
    if (alerts == NULL) return tw_fail(err, TW_NOMEM, "no memory for the look at warnings");
    alerts->config = *config;
    *alerts_out = alerts;
    return TW_OK;
}

void tw_alerts_tick(struct tw_alerts *alerts, uint64_t now_us) {
    if (now_us < alerts->look_us + LOOK_US) return;
    alerts->look_us = now_us;
    look(alerts, now_us);
}

void tw_alerts_free(struct tw_alerts *alerts) {
    free(alerts);
}
