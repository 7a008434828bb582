/* ledger_file.h - the ledger of a run (daemon/api/ledger.h) and its file, which is saved once a
 * minute and at the end. */
#ifndef TW_DAEMON_RUNLOG_LEDGER_FILE_H
#define TW_DAEMON_RUNLOG_LEDGER_FILE_H

#include <stdint.h>

#include "base/status.h"

struct tw_ledger;
struct tw_ledger_file;
struct tw_record;

/* Loads the file from `folder`, which is borrowed. A damaged file is logged, and the ledger begins
 * anew. Returns TW_NOMEM without memory. */
enum tw_status tw_ledger_file_open(struct tw_ledger_file **file, const char *folder,
                                   struct tw_error *err);
/* Returns the ledger, borrowed until tw_ledger_file_free. */
const struct tw_ledger *tw_ledger_file_table(const struct tw_ledger_file *file);
/* Like tw_ledger_begin: the next records follow `tip`. NULL if no record is known. */
void tw_ledger_file_begin(struct tw_ledger_file *file, const struct tw_record *tip);
/* Adds a committed record to the ledger. */
void tw_ledger_file_note(struct tw_ledger_file *file, const struct tw_record *record);
/* Call at least once a minute. */
void tw_ledger_file_tick(struct tw_ledger_file *file, uint64_t now_us);
/* Saves the ledger. NULL is allowed, here and below. */
void tw_ledger_file_close(struct tw_ledger_file *file);
void tw_ledger_file_free(struct tw_ledger_file *file);

#endif
