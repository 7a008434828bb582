/* run_budget.h - `run new --budget`: chooses period and codecs so that a node stays within its byte
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
    bool has_period, has_codec; /* keys that the user set, which stay unchanged */
};

/* Sets sync.period (and sync.interval with clock pace), sync.codec, sync.result and sync.feedback
 * so that the planned nodes stay within the limit at that speed. tw_run_refit sets the keys that
 * depend on them. Returns TW_CONFIG and leaves *run unchanged if nothing fits; the error names the
 * smallest possible budget. */
enum tw_status cli_budget_fit(struct tw_run *run, const struct cli_budget *budget,
                              struct tw_error *err);

/* Returns the bits per parameter that the limit leaves for contributions, at most the codec's own.
 */
double cli_budget_bits(const struct tw_run *run, const struct cli_budget *budget);

/* Returns speed, bits per parameter and bytes as an object for --json. */
json_t *cli_budget_json(const struct tw_run *run, const struct cli_budget *budget);

void cli_budget_explain(FILE *to, const struct tw_run *run, const struct cli_budget *budget);

#endif
