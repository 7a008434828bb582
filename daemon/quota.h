/* quota.h - what passed the socket in this calendar month, kept over restarts: `network.quota`.
 *
 * One small text file, written now and then and at the end: what a crash loses is what passed since
 * the last time. A month begins at midnight of the machine's clock; a clock that goes back to an
 * earlier month gives nothing back. */
#ifndef TW_DAEMON_QUOTA_H
#define TW_DAEMON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/file.h"

struct tw_quota {
    uint32_t month; /* year * 12 + month, January = 0; 0: not known */
    uint64_t bytes; /* in it, both directions */
    uint64_t saved_bytes;
};

/* Of a time as time() gives it, in the machine's zone. */
uint32_t tw_quota_month(int64_t unix_s);
/* "2026-12-01": when the month after this one begins. */
void tw_quota_next(uint32_t month, char text[16]);

/* So many bytes passed, in that month. */
void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes);

/* Reads `traffic` of the open folder `dir`. TW_OK without a file: nothing passed yet. TW_CORRUPT:
 * the file is damaged (the sentence says so), *quota begins at nothing. */
enum tw_status tw_quota_load(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

/* Writes it, if anything passed since. */
enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

#endif
