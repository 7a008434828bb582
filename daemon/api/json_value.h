/* json_value.h - JSON of single values, as all answers of the API have them. */
#ifndef TW_DAEMON_API_JSON_VALUE_H
#define TW_DAEMON_API_JSON_VALUE_H

#include <stdint.h>

#include <jansson.h>

#include "base/id.h"

/* All return a new reference, or NULL without memory. A zero id, and TW_VIEW_NEVER, are null. */
json_t *tw_json_id(const struct tw_id *id);
json_t *tw_json_id_short(const struct tw_id *id);
json_t *tw_json_seconds(uint64_t us); /* in whole milliseconds */

#endif
