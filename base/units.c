#include "base/units.h"

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

/* Three digits and a unit of a ladder of thousands. */
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
