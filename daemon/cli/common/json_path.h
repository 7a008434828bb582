/* json_path.h - reads values of nested objects by a dotted path, such as "train.loss_nats". */
#ifndef TW_DAEMON_CLI_COMMON_JSON_PATH_H
#define TW_DAEMON_CLI_COMMON_JSON_PATH_H

#include <jansson.h>
#include <stdbool.h>

const json_t *json_at(const json_t *json, const char *path); /* NULL when absent */
double json_num(const json_t *json, const char *path);       /* NaN when absent or null */
const char *json_str(const json_t *json, const char *path);  /* "" when absent or null */
bool json_yes(const json_t *json, const char *path);

#endif
