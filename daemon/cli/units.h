/* units.h - numbers as a person reads them: one unit, three digits, no surprises. */
#ifndef TW_DAEMON_CLI_UNITS_H
#define TW_DAEMON_CLI_UNITS_H

#include <stddef.h>

enum { CLI_NUMBER_BYTES = 40 };

/* Each writes into text[CLI_NUMBER_BYTES] and returns it; a value that is not finite is "-". */
const char *cli_count(char *text, double value);   /* 1,234,567 */
const char *cli_short(char *text, double value);   /* 48.8M */
const char *cli_bytes(char *text, double bytes);   /* 75.0 MB, decimal units */
const char *cli_duration(char *text, double s);    /* 850 ms, 12 s, 3 min, 2 h 5 min, 3 d 4 h */
const char *cli_loss(char *text, double nats);     /* 1.652 */
const char *cli_percent(char *text, double ratio); /* 99.2 % */

#endif
