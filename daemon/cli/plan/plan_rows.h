/* plan_rows.h - the alternative runs that `thinwire plan` compares. */
#ifndef TW_DAEMON_CLI_PLAN_PLAN_ROWS_H
#define TW_DAEMON_CLI_PLAN_PLAN_ROWS_H

#include "daemon/cli/plan/plan_row.h"
#include "daemon/cli/run/run_wish.h"

enum { PLAN_ROWS_MAX = 24 };

/* Fills rows[PLAN_ROWS_MAX]: the run itself, other presets, longer periods and coarser codecs. If
 * the user chose a preset, only that one is listed. Keys that the user set stay. The last row is a
 * node alone. Returns the number of rows. */
unsigned plan_rows_make(const struct tw_run *run, const struct cli_wish *wish, double params,
                        const struct plan_nodes *nodes, struct plan_row *rows);

#endif
