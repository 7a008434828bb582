/* line_log.h - a bounded log of lines: a ring of numbered files, of which the oldest is deleted
 * first.
 *
 * FOLDER/00000001.jsonl and so on, at most TW_LINE_LOG_FILES of them. A file only grows, keeps its
 * name, and holds whole lines. A line that a crash or a full disk truncated is blanked, so a reader
 * finds an empty line. Nothing is synced: a power cut may lose the last seconds.
 *
 * Each function may block on the disk. Use one thread at a time. */
#ifndef TW_DAEMON_STORE_LINE_LOG_H
#define TW_DAEMON_STORE_LINE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum { TW_LINE_LOG_FILES = 4, TW_LINE_LOG_NAME_BYTES = 32 };

struct tw_line_log {
    const struct tw_file_ops *ops; /* borrowed */
    int folder, file;              /* < 0: none */
    uint64_t number;               /* number of the present file, or of the newest one */
    uint64_t size;                 /* bytes of whole lines in the present file */
    uint64_t bytes_max;            /* limit of each file */
};

/* Writes the name of a file of the ring, such as 00000001.jsonl. */
void tw_line_log_name(uint64_t number, char name[TW_LINE_LOG_NAME_BYTES]);

/* Opens the folder, creates it if missing, and mends the newest file. `bytes_max`: bound of all
 * files together. Returns TW_IO on failure; then there is nothing to close. */
enum tw_status tw_line_log_open(struct tw_line_log *log, const struct tw_file_ops *ops,
                                const char *folder, uint64_t bytes_max, struct tw_error *err);

/* Appends whole lines. On TW_IO none of them is in the log. */
enum tw_status tw_line_log_write(struct tw_line_log *log, const char *lines, size_t size,
                                 struct tw_error *err);

void tw_line_log_close(struct tw_line_log *log);

#endif
