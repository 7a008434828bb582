/* quota.h - what the line carried in this calendar month, kept over restarts: `network.quota`.
 *
 * One small text file, written once a minute and at the end: what a crash loses is what passed
 * since the last time. A month begins at midnight of the machine's clock. Clocks are wrong at
 * times: a machine without a battery starts in 1970, one with a false date may be years ahead for
 * an hour. So the last months that were seen each keep their own sum, and a clock that is put right
 * finds what passed in its month; and as long as a clock has not been set at all, it is the newest
 * month. */
#ifndef TW_DAEMON_CONFIG_QUOTA_H
#define TW_DAEMON_CONFIG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_QUOTA_MONTHS = 4,
    TW_SOCKET_PERCENT = 97, /* of a line's bytes, those at the socket; else headers of TCP and IP */
};

struct tw_quota_row {
    uint32_t month; /* year * 12 + month, January = 0; 0: not used */
    uint64_t bytes; /* in it, both directions */
};

struct tw_quota {
    uint32_t month; /* the present one; 0: not known */
    uint64_t bytes; /* in it */
    struct tw_quota_row others[TW_QUOTA_MONTHS - 1];
    bool is_saved; /* as it is now */
};

/* Of a time as time() gives it, in the zone the machine has now; 0: that clock was never set. */
uint32_t tw_quota_month(int64_t unix_s);
/* "2026-12-01": when the month after this one begins. */
void tw_quota_next(uint32_t month, char text[16]);

/* What the line carries for so many bytes at the socket. Who sells a line counts headers. */
uint64_t tw_quota_line_bytes(uint64_t socket_bytes);

/* The line carried so many bytes, in that month. */
void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes);

/* Reads `traffic` of the open folder `dir`; the present month is the one that was so when it was
 * written. TW_OK without a file: nothing passed yet. TW_CORRUPT: the file is damaged (the sentence
 * says so), *quota begins at nothing. */
enum tw_status tw_quota_load(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

/* Writes it, if anything passed since. */
enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

#endif
