/* run_past.h - reads the past of a run from its run log, so that the page still shows it after a
 * restart. */
#ifndef TW_DAEMON_RUNLOG_RUN_PAST_H
#define TW_DAEMON_RUNLOG_RUN_PAST_H

#include <stdint.h>

#include "daemon/api/history.h"

enum { TW_RUN_PAST_BYTES = 8 << 20 }; /* bytes of newest lines that are read: about four days */

/* Adds the losses, evaluations and rounds of the newest lines to the history, oldest first.
 * `newest` is the number of the newest file of the ring (store/line_log.h). Unreadable lines are
 * skipped. Blocks for about 0.2 s. */
void tw_run_past_read(const char *folder, uint64_t newest, struct tw_history *history);

#endif
