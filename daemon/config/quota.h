/* quota.h - bytes that the line carried in this calendar month, and those of strangers today, kept
 * across restarts: `network.quota`.
 *
 * One small text file, written once a minute and at the end. A crash loses the traffic since the
 * last write.
 *
 * A month begins at midnight of the machine's clock, which may be wrong. A machine without a clock
 * battery starts in 1970, or a false date may be years ahead for an hour. A sum is therefore kept
 * for each of the last months seen, so that a corrected clock finds the sum of its month. While the
 * clock is not set, the newest month counts.
 *
 * Bytes of strangers are no part of the months. A day is one of UTC. When the clock goes back, the
 * sum of the day goes on, so that no restart gives strangers a second share. */
#ifndef TW_DAEMON_CONFIG_QUOTA_H
#define TW_DAEMON_CONFIG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_QUOTA_MONTHS = 4,
    /* percentage of the line's bytes that the sockets carry; the rest is headers */
    TW_SOCKET_PERCENT = 97,
};

struct tw_quota_row {
    uint32_t month; /* year * 12 + month, January = 0; 0: not used */
    uint64_t bytes; /* both directions */
};

struct tw_quota {
    uint32_t month; /* current month; 0: unknown */
    uint64_t bytes; /* bytes of the current month */
    struct tw_quota_row others[TW_QUOTA_MONTHS - 1];
    uint64_t day;             /* of `strangers_bytes`, in days since 1970 */
    uint64_t strangers_bytes; /* bytes that strangers have used that day */
    bool is_saved;            /* the file has the current values */
};

/* The month of a time() value in the machine's present time zone; 0: the clock was never set. */
uint32_t tw_quota_month(int64_t unix_s);
/* Start of the month after this one, such as "2026-12-01". */
void tw_quota_next(uint32_t month, char text[16]);

/* Bytes on the line for that many bytes at the socket: providers count the headers of packets
 * too. */
uint64_t tw_quota_line_bytes(uint64_t socket_bytes);

/* Adds bytes of the line to that month. */
void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes);

/* Strangers have used `more` bytes of the line since the last call, and `less` turned out to be of
 * members. */
void tw_quota_strangers(struct tw_quota *quota, int64_t unix_s, uint64_t more, uint64_t less);

/* Reads the file `traffic` in the open folder `dir`. The current month is the one in which the file
 * was written. TW_OK without a file: counting starts at 0. TW_CORRUPT, with a sentence: the file is
 * damaged and *quota starts at 0. */
enum tw_status tw_quota_load(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

/* Writes the file, if anything changed. */
enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err);

#endif
