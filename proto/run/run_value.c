#include "proto/run/run_value.h"

#include <string.h>

#include "base/assert.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static char lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static const struct tw_unit *find_unit(const char *text, const struct tw_unit *units) {
    for (; units->name != NULL; units++) {
        size_t i = 0;
        while (text[i] != '\0' && lower(text[i]) == units->name[i]) i++;
        if (text[i] == '\0' && units->name[i] == '\0') return units;
    }
    return NULL;
}

/* Appends one digit to *value. Returns false on overflow. */
static bool push_digit(uint64_t *value, char digit) {
    const uint64_t add = (uint64_t)(digit - '0');
    if (*value > (UINT64_MAX - add) / 10) return false;
    *value = *value * 10 + add;
    return true;
}

bool tw_value_parse(const char *text, const struct tw_unit *units, uint64_t *value) {
    uint64_t digits = 0;
    unsigned decimals = 0;
    if (!is_digit(*text) && *text != '.') return false;
    for (; is_digit(*text); text++) {
        if (!push_digit(&digits, *text)) return false;
    }
    if (*text == '.') {
        text++;
        if (!is_digit(*text)) return false;
        for (; is_digit(*text); text++, decimals++) {
            if (!push_digit(&digits, *text)) return false;
        }
    }
    const struct tw_unit *unit = find_unit(text, units);
    if (unit == NULL) return false;
    while (decimals > 0 && digits % 10 == 0) {
        digits /= 10;
        decimals--;
    }
    uint64_t scale = unit->scale;
    for (; decimals > 0; decimals--) {
        if (scale % 10 == 0) {
            scale /= 10;
        } else if (digits % 10 == 0) {
            digits /= 10;
        } else {
            return false;
        }
    }
    if (digits > UINT64_MAX / scale) return false;
    *value = digits * scale;
    return true;
}

void tw_value_format(uint64_t value, unsigned decimals, const char *unit,
                     char text[TW_DECIMAL_BYTES]) {
    TW_ASSERT(decimals <= 9);
    TW_ASSERT(strlen(unit) <= 4);
    while (decimals > 0 && value % 10 == 0) {
        value /= 10;
        decimals--;
    }
    char reversed[TW_DECIMAL_BYTES];
    unsigned count = 0;
    for (unsigned i = 0; i <= decimals || value > 0; i++) {
        if (i == decimals && decimals > 0) reversed[count++] = '.';
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    }
    while (count > 0) *text++ = reversed[--count];
    while (*unit != '\0') *text++ = *unit++;
    *text = '\0';
}
