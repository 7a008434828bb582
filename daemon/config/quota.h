/* quota.h - traffic of this calendar month, and of strangers and nodes outside the roster today,
 * for `network.quota`. All are kept across restarts.
 *
 * They are in one small text file, written once a minute and at exit. A crash loses the traffic
 * since the last write.
 *
 * A month begins at midnight by the machine's clock, which may be wrong. A machine without a clock
 * battery starts in 1970, and a wrong date may be years ahead for an hour. Each of the last months
 * seen therefore has its own sum, so that a corrected clock finds the sum of its month. While the
 * clock is not set, traffic counts towards the newest month.
 *
 * Traffic of strangers does not count towards the months. Its days are UTC days, and so are those
 * of nodes outside, whose traffic does count towards the months. If the clock goes back, the day's
 * sums are kept: a restart must not give anybody a second share. */
#ifndef TW_DAEMON_CONFIG_QUOTA_H
#define TW_DAEMON_CONFIG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_QUOTA_MONTHS = 4,
    /* share of the line's bytes that the sockets see, in percent; the rest is headers */
    TW_SOCKET_PERCENT = 97,
};

struct tw_quota_row {
    uint32_t month;  /* year * 12 + month, January = 0; 0: unused row */
    uint64_t bytes;  /* bytes in both directions */
    uint64_t served; /* part of `bytes` that served others alone (serving.h) */
};

/* Bytes of one UTC day. */
struct tw_quota_day {
    uint64_t day; /* counted from 1970 */
    uint64_t bytes;
};

struct tw_quota {
    struct tw_quota_row now; /* current month; its `month` is 0 if it is unknown */
    struct tw_quota_row others[TW_QUOTA_MONTHS - 1];
    struct tw_quota_day strangers, outside; /* traffic of strangers, and of nodes outside */
    bool is_saved;                          /* the file has the current values */
};

/* Returns the month of a Unix time in the machine's present time zone, or 0 if the clock was never
 * set. */
uint32_t tw_quota_month(int64_t unix_s);
/* Writes the first day of the month after this one, such as "2026-12-01". */
void tw_quota_next(uint32_t month, char text[16]);

/* Returns the bytes on the line for that many bytes at the socket: providers also bill packet
 * headers. */
uint64_t tw_quota_line_bytes(uint64_t socket_bytes);

/* Adds bytes on the line to a month, which becomes the current one. */
void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes);
/* Notes that so many of the bytes of the current month served others alone. */
void tw_quota_serve(struct tw_quota *quota, uint64_t bytes);

/* Counts traffic of strangers since the last call: `more` bytes on the line were theirs, and `less`
 * of those counted earlier turned out to be members'. */
void tw_quota_strangers(struct tw_quota *quota, int64_t unix_s, uint64_t more, uint64_t less);

/* Counts traffic of nodes outside the roster since the last call. */
void tw_quota_outside(struct tw_quota *quota, int64_t unix_s, uint64_t more);

/* Reads the file `traffic` in the open folder `dir`. The current month is the one in which the file
 * was last written. A missing file is TW_OK, and counting starts at 0. A damaged file is
 * TW_CORRUPT: *quota starts at 0. */
enum tw_status tw_quota_load(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

/* Writes the file, if anything changed. */
enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

#endif
