/* json_value.h - JSON forms of single values, the same in all answers of the API. */
#ifndef TW_DAEMON_API_JSON_VALUE_H
#define TW_DAEMON_API_JSON_VALUE_H

#include <stdint.h>

#include <jansson.h>

#include "base/id.h"

/* All return a new reference, or NULL if memory runs out. A zero id and TW_VIEW_NEVER become null.
 */
json_t *tw_json_id(const struct tw_id *id);
json_t *tw_json_id_short(const struct tw_id *id);
json_t *tw_json_seconds(uint64_t us); /* seconds, truncated to whole milliseconds */

#endif
