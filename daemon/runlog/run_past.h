/* run_past.h - the past of a run from its log, so that the page still shows it after a restart. */
#ifndef TW_DAEMON_RUNLOG_RUN_PAST_H
#define TW_DAEMON_RUNLOG_RUN_PAST_H

#include <stdint.h>

#include "daemon/api/history.h"

enum { TW_RUN_PAST_BYTES = 8 << 20 }; /* of the newest lines, which are read: about four days */

/* Adds losses and rounds of the newest lines to the history, oldest first. `newest`: number of the
 * newest file of the ring (store/line_log.h). Lines that cannot be read are left out. Blocks for
 * about 0.2 s. */
void tw_run_past_read(const char *folder, uint64_t newest, struct tw_history *history);

#endif
