/* hours.h - what the line may be used for at which time of the day: `network.hours`. Pure: the time
 * of day comes in, as minutes since midnight of the machine's clock.
 *
 *   08:00-18:00 1mbit, 18-23 off     by day a megabit, in the evening no links at all, else as
 *                                    `upload` and `download` say
 *
 * A rate bounds upload and download each; of two entries for one minute the first one counts. An
 * entry may go over midnight (22:00-06:00). */
#ifndef TW_DAEMON_CONFIG_HOURS_H
#define TW_DAEMON_CONFIG_HOURS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_HOURS_MAX = 8, TW_DAY_MINUTES = 24 * 60, TW_HOURS_TEXT_BYTES = TW_HOURS_MAX * 40 };

struct tw_hours {
    uint32_t count; /* 0: every hour is the same */
    struct tw_hours_entry {
        uint16_t begin_min,
            end_min; /* minutes of the day; end 1 to 1440; begin > end: to the next */
        bool is_off;
        uint64_t bytes_per_s; /* not off: > 0 */
    } entries[TW_HOURS_MAX];
};

/* "" is none. TW_CONFIG with a sentence that says what would be accepted. */
enum tw_status tw_hours_parse(const char *text, struct tw_hours *hours, struct tw_error *err);

/* As tw_hours_parse would read it back, into text[capacity]. */
void tw_hours_print(const struct tw_hours *hours, char *text, size_t capacity);

struct tw_hours_now {
    bool is_off;
    uint64_t bytes_per_s; /* 0: none of its own */
    uint32_t until_min;   /* of the day, when that changes; TW_DAY_MINUTES: it never does */
};

struct tw_hours_now tw_hours_at(const struct tw_hours *hours, uint32_t minute);

#endif
