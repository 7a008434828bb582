/* quota.h - how much this node may send: caps by the hour, the quota of the month, the byte
 * budget of a round, and the configured pacing. */
#ifndef TW_DAEMON_CONFIG_QUOTA_H
#define TW_DAEMON_CONFIG_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/store/file.h"

/* ==== caps by the time of day ================================================================= */

/* Caps by time of day: `network.hours`, `worker.hours`. Pure: the caller passes the minutes since
 * midnight by the machine's clock.
 *
 *   08:00-18:00 1mbit, 18-23 off     by day 1 Mbit/s, in the evening no links at all, otherwise
 *                                    `upload` and `download`
 *
 * `worker.hours` has the same form, but with `off` alone (tw_hours_parse_off).
 *
 * A rate caps upload and download separately. If two entries contain the same minute, the first one
 * applies. An entry may span midnight (22:00-06:00). */

enum { TW_HOURS_MAX = 8, TW_DAY_MINUTES = 24 * 60, TW_HOURS_TEXT_BYTES = TW_HOURS_MAX * 40 };

struct tw_hours {
    uint32_t count; /* 0: the day is not divided */
    struct tw_hours_entry {
        uint16_t begin_min,
            end_min; /* minutes of the day; end_min 1 to 1440, on the next day if below begin_min */
        bool is_off;
        uint64_t bytes_per_s; /* rate cap, above 0 unless the entry is `off` */
    } entries[TW_HOURS_MAX];
};

/* Parses entries; "" means none. Returns TW_CONFIG with the accepted forms. */
enum tw_status tw_hours_parse(const char *text, struct tw_hours *hours, struct tw_error *err);

/* Like tw_hours_parse, but every entry must be `off`. */
enum tw_status tw_hours_parse_off(const char *text, struct tw_hours *hours, struct tw_error *err);

/* Writes text[capacity] that tw_hours_parse can read. */
void tw_hours_print(const struct tw_hours *hours, char *text, size_t capacity);

struct tw_hours_now {
    bool is_off;
    uint64_t bytes_per_s; /* 0: no cap by hours */
    uint32_t until_min; /* minute of the day at which the cap changes next; TW_DAY_MINUTES: never */
};

struct tw_hours_now tw_hours_at(const struct tw_hours *hours, uint32_t minute);

/* ==== the quota of the month ================================================================== */

/* Traffic of this calendar month, and of strangers and nodes outside the roster today, for
 * `network.quota`. All are kept across restarts.
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

/* ==== the budget of a round =================================================================== */

/* Byte budget of a node: how large its next contribution may be. Pure: the caller passes time and
 * traffic.
 *
 * A node controls only one part of its traffic: the size of its contributions. All other traffic
 * (results, votes, state for joiners) follows from the run. The rate of that traffic (`rest` below)
 * is measured and subtracted from the budget. A contribution may use the bytes that are left until
 * the next contribution of the same fragment:
 *
 *     may = share * ((budget - rest) * cycle + credit / 2)
 *
 * - share: elements of the fragment, as a fraction of the model's
 * - budget, rest: bytes per second
 * - cycle: seconds in which every fragment has its round
 * - credit: bytes of the budget not used so far; may be negative. Spending half of it per cycle
 *   settles without oscillation.
 *
 * Bytes known to accompany every contribution (the anchor, in pairs) count as rest even before they
 * are measured. If the allowance is below the smallest contribution, the node skips the round,
 * unless its credit alone pays for one. A node that can afford only every k-th round thus takes
 * part in every k-th. */

/* The configured budget: bytes per second of upload, or bytes per 30 days in both directions
 * together. */
struct tw_budget_config {
    uint64_t bytes; /* 0: no budget */
    bool is_month;
};

enum { TW_MONTH_S = 30 * 86400 };

struct tw_allowance {
    double bytes_per_s; /* 0: no budget */
    bool is_month, has_looked;
    uint64_t started_us, at_us, bytes; /* time of the first and last measurement; total traffic at
                                          the last one */
    double credit;                     /* bytes */
    double pending;                    /* bytes of the newest contribution that are not sent yet */
    double rest_per_s;                 /* bytes per second other than contributions */
    double cycle_s, least; /* seconds per cycle, bytes of the smallest contribution; 0: no request
                              yet */
};

void tw_allowance_init(struct tw_allowance *allowance, const struct tw_budget_config *config);

/* Measures traffic. `bytes` is the node's total so far, in the directions that the budget counts.
 * Call about once a second. */
void tw_allowance_look(struct tw_allowance *allowance, uint64_t now_us, uint64_t bytes);

/* Records that a contribution of that many bytes was encoded for other nodes. */
void tw_allowance_sent(struct tw_allowance *allowance, uint64_t bytes);

struct tw_allowance_ask {
    uint64_t cycle_us; /* time between two rounds of one fragment; 0: unknown */
    double share;      /* elements of this fragment, as a fraction of the model's, in (0, 1] */
    uint64_t least;    /* bytes of the smallest possible contribution */
    uint64_t besides;  /* bytes sent with the contribution whatever its size */
};

/* Returns false if this round must be skipped. Otherwise the contribution may have *bytes_max
 * bytes: at least `least`, or UINT64_MAX without a budget. */
bool tw_allowance_ask(struct tw_allowance *allowance, const struct tw_allowance_ask *ask,
                      uint64_t *bytes_max);

/* Returns true if traffic other than contributions alone exceeds the budget: no codec can help
 * then. */
bool tw_allowance_is_hopeless(const struct tw_allowance *allowance);

/* ---- split among the owners of the parts --------------------------------------------------- */

struct tw_allowance_part {
    uint64_t elements;
    uint64_t link_max;  /* bytes that the link to the part's owner can carry in time; UINT64_MAX:
                           unknown */
    uint64_t bytes_max; /* out: bytes for this part */
};

/* Splits `bytes_max` in proportion to the elements, but gives no part more than `link_max`. The
 * excess goes to the other parts. */
void tw_allowance_deal(struct tw_allowance_part *parts, uint32_t parts_count, uint64_t bytes_max);

/* ==== pacing ================================================================================== */

/* Configured pacing rate of payloads on one link (`network.pace`), and rate of links that this
 * node relays for others (`network.relay`). */

enum tw_link_pace_mode { TW_LINK_PACE_AUTO, TW_LINK_PACE_OFF, TW_LINK_PACE_FIXED };

struct tw_link_pace {
    enum tw_link_pace_mode mode; /* AUTO: the rate follows the measured path (net/pacer.h) */
    uint64_t bytes_per_s;        /* FIXED */
};

struct tw_relay_config {
    bool is_on;
    /* cap of relayed traffic, both directions together; 0: none besides the node's other caps */
    uint64_t bytes_per_s;
};

#endif
