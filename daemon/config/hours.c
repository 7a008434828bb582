#include "daemon/config/hours.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/config/config.h"

static const char WANT[] = "entries such as 08:00-18:00 1mbit or 18-23 off, with commas between";
static const char WANT_OFF[] = "entries such as 08:00-18:00 off, with commas between";

static void skip_spaces(const char **text) {
    while (**text == ' ' || **text == '\t') (*text)++;
}

/* Reads at most `digits` decimal digits. Returns false if there is none. */
static bool read_number(const char **text, unsigned digits, unsigned *value) {
    unsigned read = 0;
    *value = 0;
    for (; read < digits && isdigit((unsigned char)**text); (*text)++, read++)
        *value = *value * 10 + (unsigned)(**text - '0');
    return read > 0;
}

/* Reads "8", "08:30" or "24:00". */
static bool read_minute(const char **text, uint16_t *minute) {
    unsigned hour = 0, minutes = 0;
    skip_spaces(text);
    if (!read_number(text, 2, &hour)) return false;
    if (**text == ':') {
        (*text)++;
        const char *const before = *text;
        if (!read_number(text, 2, &minutes) || *text - before != 2) return false;
    }
    if (hour * 60 + minutes > TW_DAY_MINUTES || minutes > 59) return false;
    *minute = (uint16_t)(hour * 60 + minutes);
    return true;
}

static enum tw_status read_entry(const char *text, bool wants_off, struct tw_hours_entry *entry,
                                 struct tw_error *err) {
    const char *const want = wants_off ? WANT_OFF : WANT;
    const char *at = text;
    const bool has_begin = read_minute(&at, &entry->begin_min);
    skip_spaces(&at);
    if (!has_begin || *at++ != '-' || !read_minute(&at, &entry->end_min) ||
        entry->begin_min == entry->end_min || entry->begin_min == TW_DAY_MINUTES)
        return tw_fail(err, TW_CONFIG, "`%.40s` names no hours; write %s", text, want);
    if (entry->end_min == 0) entry->end_min = TW_DAY_MINUTES;
    skip_spaces(&at);
    if (*at == '=') at++;
    skip_spaces(&at);
    entry->is_off = strcmp(at, "off") == 0;
    if (entry->is_off) return TW_OK;
    if (wants_off)
        return tw_fail(err, TW_CONFIG, "`%.40s` does not end with off; write %s", text, want);
    if (tw_rate_parse(at, &entry->bytes_per_s, NULL) != TW_OK || entry->bytes_per_s == 0)
        return tw_fail(err, TW_CONFIG, "`%.40s` ends with no rate and not with off; write %s", text,
                       want);
    return TW_OK;
}

static enum tw_status read_hours(const char *text, bool wants_off, struct tw_hours *hours,
                                 struct tw_error *err) {
    struct tw_hours read = {0};
    while (*text != '\0') {
        char entry[64];
        skip_spaces(&text);
        size_t size = strcspn(text, ",");
        const char *const next = text[size] == ',' ? text + size + 1 : text + size;
        while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t')) size--;
        if (size >= sizeof(entry))
            return tw_fail(err, TW_CONFIG, "`%.40s...` is too long; write %s", text,
                           wants_off ? WANT_OFF : WANT);
        memcpy(entry, text, size);
        entry[size] = '\0';
        text = next;
        if (size == 0) continue;
        if (read.count == TW_HOURS_MAX)
            return tw_fail(err, TW_CONFIG, "more than %d entries", TW_HOURS_MAX);
        TW_TRY(read_entry(entry, wants_off, &read.entries[read.count++], err));
    }
    *hours = read;
    return TW_OK;
}

enum tw_status tw_hours_parse(const char *text, struct tw_hours *hours, struct tw_error *err) {
    return read_hours(text, false, hours, err);
}

enum tw_status tw_hours_parse_off(const char *text, struct tw_hours *hours, struct tw_error *err) {
    return read_hours(text, true, hours, err);
}

void tw_hours_print(const struct tw_hours *hours, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < hours->count && used < capacity; i++) {
        const struct tw_hours_entry *entry = &hours->entries[i];
        char rate[32] = "off";
        if (!entry->is_off) tw_rate_print(entry->bytes_per_s, rate, sizeof(rate));
        used += (size_t)snprintf(text + used, capacity - used, "%s%02u:%02u-%02u:%02u %s",
                                 i > 0 ? ", " : "", entry->begin_min / 60u, entry->begin_min % 60u,
                                 entry->end_min / 60u, entry->end_min % 60u, rate);
    }
}

static int find_entry(const struct tw_hours *hours, uint32_t minute) {
    for (uint32_t i = 0; i < hours->count; i++) {
        const struct tw_hours_entry *entry = &hours->entries[i];
        const bool is_over_midnight = entry->begin_min > entry->end_min;
        const bool has_begun = minute >= entry->begin_min, has_not_ended = minute < entry->end_min;
        if (is_over_midnight ? has_begun || has_not_ended : has_begun && has_not_ended)
            return (int)i;
    }
    return -1;
}

struct tw_hours_now tw_hours_at(const struct tw_hours *hours, uint32_t minute) {
    TW_ASSERT(minute < TW_DAY_MINUTES);
    const int at = find_entry(hours, minute);
    struct tw_hours_now now = {.until_min = TW_DAY_MINUTES};
    if (at >= 0) {
        now.is_off = hours->entries[at].is_off;
        now.bytes_per_s = hours->entries[at].bytes_per_s;
    }
    for (uint32_t step = 1; step < TW_DAY_MINUTES; step++) {
        if (find_entry(hours, (minute + step) % TW_DAY_MINUTES) == at) continue;
        now.until_min = (minute + step) % TW_DAY_MINUTES;
        break;
    }
    return now;
}
