/* json_value.h - values and lists of the status view as JSON. Private to view_status.c and
 * view_json.c.
 *
 * All return a new reference, or NULL if memory runs out. A zero id, TW_VIEW_NEVER and a number
 * that is not finite become null. */
#ifndef TW_DAEMON_API_JSON_VALUE_H
#define TW_DAEMON_API_JSON_VALUE_H

#include <jansson.h>

#include "daemon/api/status_view.h"

json_t *tw_json_id(const struct tw_id *id);
json_t *tw_json_id_short(const struct tw_id *id);
json_t *tw_json_seconds(uint64_t us);
json_t *tw_json_count(uint64_t value);
json_t *tw_json_maybe(uint64_t value);
json_t *tw_json_real(double value);
/* Text from a peer or a file may be invalid UTF-8, which must not spoil the whole answer. */
json_t *tw_json_text(const char *value);

/* Returns the name of a node, or null. */
json_t *tw_json_name(const struct tw_status_view *view, const struct tw_id *id);
/* Returns the newest events, at most `most`. */
json_t *tw_json_events(const struct tw_status_view *view, uint32_t most);
/* Returns the port mapping at the router. */
json_t *tw_json_mapping(const struct tw_status_view *view);
/* Returns "direct", "mapped", "punched" or "relayed". */
const char *tw_view_path_name(const struct tw_view_peer *peer);

#endif
