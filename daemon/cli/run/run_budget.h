/* run_budget.h - `run new --budget`: picks period and codecs so that a node stays within a
 * budget. */
#ifndef TW_DAEMON_CLI_RUN_RUN_BUDGET_H
#define TW_DAEMON_CLI_RUN_RUN_BUDGET_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "base/status.h"
#include "daemon/config/allowance.h"
#include "proto/run/run.h"

struct cli_budget {
    struct tw_budget_config limit; /* bytes 0: no limit */
    double steps_per_s;
    bool has_period, has_codec; /* the user set the key, so it stays unchanged */
};

/* Sets sync.period (and sync.interval if paced by the clock), sync.codec, sync.result and
 * sync.feedback so that the planned nodes stay within the limit at that speed. tw_run_refit sets
 * the keys that depend on them. TW_CONFIG: no choice fits; the error names the smallest possible
 * budget, and *run is unchanged. */
enum tw_status cli_budget_fit(struct tw_run *run, const struct cli_budget *budget,
                              struct tw_error *err);

/* Bits per parameter that the limit leaves for contributions, at most those of the codec. */
double cli_budget_bits(const struct tw_run *run, const struct cli_budget *budget);

/* The result as an object for --json. */
json_t *cli_budget_json(const struct tw_run *run, const struct cli_budget *budget);

void cli_budget_explain(FILE *to, const struct tw_run *run, const struct cli_budget *budget);

#endif
