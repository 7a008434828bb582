/* hours.h - caps by time of day: `network.hours`, `worker.hours`. Pure: the caller passes the
 * minutes since midnight by the machine's clock.
 *
 *   08:00-18:00 1mbit, 18-23 off     by day 1 Mbit/s, in the evening no links at all, otherwise
 *                                    `upload` and `download`
 *
 * `worker.hours` has the same form, but with `off` alone (tw_hours_parse_off).
 *
 * A rate caps upload and download separately. If two entries contain the same minute, the first one
 * applies. An entry may span midnight (22:00-06:00). */
#ifndef TW_DAEMON_CONFIG_HOURS_H
#define TW_DAEMON_CONFIG_HOURS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

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

#endif
