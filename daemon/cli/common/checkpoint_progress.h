/* checkpoint_progress.h - a line on the terminal while a command reads large checkpoints. */
#ifndef TW_DAEMON_CLI_COMMON_CHECKPOINT_PROGRESS_H
#define TW_DAEMON_CLI_COMMON_CHECKPOINT_PROGRESS_H

#include "daemon/store/checkpoint.h"

/* Shows the bytes read so far on standard error, if that is a terminal, once reading takes longer
 * than a second. */
void checkpoint_progress_watch(struct tw_checkpoint *files);

/* Clears the line, if there is one. */
void checkpoint_progress_end(void);

#endif
