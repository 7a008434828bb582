/* run_budget.h - `run new --budget`: how often and in what to merge, so that a node keeps to it. */
#ifndef TW_DAEMON_CLI_RUN_RUN_BUDGET_H
#define TW_DAEMON_CLI_RUN_RUN_BUDGET_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "base/status.h"
#include "daemon/config/allowance.h"
#include "proto/run/run.h"

struct cli_budget {
    struct tw_budget_config limit; /* bytes 0: none wanted */
    double steps_per_s;
    bool has_period, has_codec; /* set by the user: left as they are */
};

/* Sets sync.period (by the clock sync.interval with it), and sync.codec, sync.result and
 * sync.feedback, so that the planned nodes keep to the limit at that speed; what follows from them
 * is for tw_run_refit. TW_CONFIG with a sentence that says what the least costs, when nothing fits;
 * *run is then as it was. */
enum tw_status cli_budget_fit(struct tw_run *run, const struct cli_budget *budget,
                              struct tw_error *err);

/* Bits per parameter that the limit leaves for contributions, at most the codec's own. */
double cli_budget_bits(const struct tw_run *run, const struct cli_budget *budget);

/* What it says, as an object for --json. */
json_t *cli_budget_json(const struct tw_run *run, const struct cli_budget *budget);

void cli_budget_explain(FILE *to, const struct tw_run *run, const struct cli_budget *budget);

#endif
