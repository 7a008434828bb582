/* units.h - numbers formatted for people: three digits and one unit. */
#ifndef TW_BASE_UNITS_H
#define TW_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TW_UNITS_BYTES = 40 };

/* Each function writes into text[TW_UNITS_BYTES] and returns it; a non-finite value becomes "-". */
const char *tw_units_count(char *text, double value);      /* 1,234,567 */
const char *tw_units_short(char *text, double value);      /* 48.8M */
const char *tw_units_bytes(char *text, double bytes);      /* 75.0 MB, decimal units */
const char *tw_units_bit_rate(char *text, double bytes_s); /* 5 Mbit/s, as a person types caps */
const char *tw_units_flops(char *text, double flops_s);    /* 51.8 GFLOP/s */
const char *tw_units_duration(char *text, double s); /* 850 ms, 12 s, 3 min, 2 h 5 min, 3 d 4 h */
const char *tw_units_loss(char *text, double nats);  /* 1.652 */
const char *tw_units_percent(char *text, double ratio); /* 99.2 % */

/* Plural ending: "" if count is 1, else "s" (1 peer, 2 peers). Static storage. */
const char *tw_units_s(double count);

/* Formats Unix seconds as "2026-11-22 10:30 UTC"; "-" after the year 9999. */
const char *tw_units_utc(char *text, uint64_t unix_s);

/* Parses "8GB", "512 MiB", "1.5gb" or "1000B" to bytes; only 0 may lack a unit. Returns false for
 * any other text. */
bool tw_units_parse_bytes(const char *text, uint64_t *bytes);

/* Inverse of tw_units_parse_bytes: writes bytes into text[TW_UNITS_BYTES] in the largest unit that
 * divides it. */
const char *tw_units_exact_bytes(char *text, uint64_t bytes);

#endif
