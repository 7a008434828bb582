/* json_path.h - reads values of nested objects by a dotted path, such as "train.loss_nats", and
 * prints objects. */
#ifndef TW_DAEMON_CLI_COMMON_JSON_PATH_H
#define TW_DAEMON_CLI_COMMON_JSON_PATH_H

#include <jansson.h>
#include <stdbool.h>

#include "base/exit_codes.h"

const json_t *json_at(const json_t *json, const char *path); /* NULL when absent */
double json_num(const json_t *json, const char *path);       /* NaN when absent or null */
const char *json_str(const json_t *json, const char *path);  /* "" when absent or null */
bool json_yes(const json_t *json, const char *path);

/* Prints the object for a program, on standard output, and frees it. Returns TW_EXIT_FAILURE if
 * that cannot be written. */
enum tw_exit json_print(json_t *json);

#endif
