/* run_value.h - converts numbers of a manifest to text and back: exact decimals, no floating point.
 */
#ifndef TW_PROTO_RUN_RUN_VALUE_H
#define TW_PROTO_RUN_RUN_VALUE_H

#include <stdbool.h>
#include <stdint.h>

enum { TW_DECIMAL_BYTES = 32 }; /* 20 digits, a point, a unit and a NUL */

/* A unit, such as "m" for 1000000. A table ends with a NULL name; an empty name is for numbers
 * without a unit. */
struct tw_unit {
    const char *name;
    uint64_t scale;
};

/* Reads a decimal such as "12", "0.5", ".5" or "1.5m" and multiplies it by the unit's scale. Units
 * match in either case. Returns false and leaves *value unchanged if the text is not a plain
 * decimal with a unit of the table, is not whole after scaling ("0.1ms"), or does not fit 64 bits.
 */
bool tw_value_parse(const char *text, const struct tw_unit *units, uint64_t *value);

/* Writes value / 10^decimals (decimals <= 9) without trailing zeros, then `unit`: the canonical
 * form. */
void tw_value_format(uint64_t value, unsigned decimals, const char *unit,
                     char text[TW_DECIMAL_BYTES]);

#endif
