#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *print_none(char *text) {
    memcpy(text, "-", 2);
    return text;
}

const char *tw_units_count(char *text, double value) {
    char digits[TW_UNITS_BYTES];
    if (!isfinite(value) || fabs(value) >= 1e18) return print_none(text);
    (void)snprintf(digits, sizeof(digits), "%.0f", value);
    const size_t size = strlen(digits);
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        const size_t left = size - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

/* Prints `value` with three digits and a fitting unit. Each unit of the list is 1000 times the one
 * before. */
static const char *print_scaled(char *text, double value, const char *const *units,
                                const char *gap) {
    unsigned i = 0;
    if (!isfinite(value)) return print_none(text);
    while (fabs(value) >= 999.5 && units[i + 1] != NULL) {
        value /= 1000;
        i++;
    }
    const int decimals = i == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    (void)snprintf(text, TW_UNITS_BYTES, "%.*f%s%s", decimals, value, gap, units[i]);
    return text;
}

const char *tw_units_short(char *text, double value) {
    static const char *const UNITS[] = {"", "k", "M", "G", "T", NULL};
    return print_scaled(text, value, UNITS, "");
}

const char *tw_units_bytes(char *text, double bytes) {
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB", NULL};
    return print_scaled(text, bytes, UNITS, " ");
}

const char *tw_units_bit_rate(char *text, double bytes_s) {
    static const char *const UNITS[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s"};
    const double bits_s = bytes_s * 8;
    if (!isfinite(bits_s) || bits_s < 0) return print_none(text);
    unsigned unit = 0;
    double scaled = bits_s;
    for (; scaled >= 1000 && unit < 3; unit++) scaled /= 1000;
    (void)snprintf(text, TW_UNITS_BYTES, "%.4g %s", scaled, UNITS[unit]);
    return text;
}

const char *tw_units_flops(char *text, double flops_s) {
    static const char *const UNITS[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", NULL};
    return print_scaled(text, flops_s, UNITS, " ");
}

const char *tw_units_duration(char *text, double s) {
    if (!isfinite(s) || s < 0 || s > 1e12) return print_none(text);
    const unsigned long long whole = (unsigned long long)s;
    const unsigned long long minutes = whole / 60, hours = minutes / 60, days = hours / 24;
    if (s < 1) {
        (void)snprintf(text, TW_UNITS_BYTES, "%.0f ms", s * 1000);
    } else if (s < 9.95) {
        (void)snprintf(text, TW_UNITS_BYTES, "%.1f s", s);
    } else if (minutes < 2) {
        (void)snprintf(text, TW_UNITS_BYTES, "%llu s", whole);
    } else if (hours < 1) {
        (void)snprintf(text, TW_UNITS_BYTES, "%llu min", minutes);
    } else if (days < 1) {
        (void)snprintf(text, TW_UNITS_BYTES, "%llu h %llu min", hours, minutes % 60);
    } else {
        (void)snprintf(text, TW_UNITS_BYTES, "%llu d %llu h", days, hours % 24);
    }
    return text;
}

const char *tw_units_loss(char *text, double nats) {
    if (!isfinite(nats)) return print_none(text);
    (void)snprintf(text, TW_UNITS_BYTES, "%.3f", nats);
    return text;
}

const char *tw_units_percent(char *text, double ratio) {
    if (!isfinite(ratio)) return print_none(text);
    (void)snprintf(text, TW_UNITS_BYTES, "%.1f %%", 100 * ratio);
    return text;
}

const char *tw_units_s(double count) {
    return count == 1.0 ? "" : "s";
}

static bool is_leap(unsigned year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Computed without gmtime(), because base/ is pure. */
const char *tw_units_utc(char *text, uint64_t unix_s) {
    static const unsigned DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const uint64_t last_s = UINT64_C(253402300799); /* end of the year 9999 */
    if (unix_s > last_s) return print_none(text);
    unsigned days = (unsigned)(unix_s / 86400), year = 1970, month = 0;
    const unsigned minutes = (unsigned)(unix_s % 86400) / 60;
    for (; days >= 365u + is_leap(year); year++) days -= 365u + is_leap(year);
    for (;; month++) {
        const unsigned length = DAYS[month] + (month == 1 && is_leap(year));
        if (days < length) break;
        days -= length;
    }
    (void)snprintf(text, TW_UNITS_BYTES, "%04u-%02u-%02u %02u:%02u UTC", year, month + 1, days + 1,
                   minutes / 60, minutes % 60);
    return text;
}

static const struct {
    const char *name;
    uint64_t bytes;
} SIZES[] = {{"B", 1},
             {"kB", 1000},
             {"MB", 1000000},
             {"GB", 1000000000},
             {"TB", UINT64_C(1000000000000)},
             {"KiB", 1024},
             {"MiB", 1048576},
             {"GiB", 1073741824},
             {"TiB", UINT64_C(1) << 40}};
enum { SIZES_COUNT = sizeof(SIZES) / sizeof(SIZES[0]) };

/* Unlike tolower, independent of the locale. */
static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_same_word(const char *a, const char *b) {
    while (*a != 0 && lower(*a) == lower(*b)) a++, b++;
    return *a == 0 && *b == 0;
}

bool tw_units_parse_bytes(const char *text, uint64_t *bytes) {
    uint64_t whole = 0, part = 0, scale = 1; /* value = whole + part / scale */
    if (!is_digit(*text)) return false;
    for (; is_digit(*text); text++) {
        if (whole > 1000000000000000) return false;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    if (*text == '.') {
        if (!is_digit(*++text)) return false;
        for (; is_digit(*text) && scale < 1000000; text++) {
            part = part * 10 + (uint64_t)(*text - '0');
            scale *= 10;
        }
    }
    while (*text == ' ') text++;
    if (*text == 0 && whole == 0 && part == 0) {
        *bytes = 0;
        return true;
    }
    for (unsigned i = 0; i < SIZES_COUNT; i++) {
        if (!is_same_word(text, SIZES[i].name)) continue;
        if (whole > (UINT64_MAX >> 1) / SIZES[i].bytes) return false;
        /* part < 10^6 and units are at most 2^40 bytes, so the product is below 2^60 */
        *bytes = whole * SIZES[i].bytes + part * SIZES[i].bytes / scale;
        return true;
    }
    return false;
}

const char *tw_units_exact_bytes(char *text, uint64_t bytes) {
    unsigned best = 0;
    for (unsigned i = 0; i < SIZES_COUNT; i++) {
        const bool is_whole = bytes % SIZES[i].bytes == 0;
        if (is_whole && SIZES[i].bytes > SIZES[best].bytes) best = i;
    }
    if (bytes == 0) {
        (void)snprintf(text, TW_UNITS_BYTES, "0");
    } else {
        (void)snprintf(text, TW_UNITS_BYTES, "%" PRIu64 "%s", bytes / SIZES[best].bytes,
                       SIZES[best].name);
    }
    return text;
}
