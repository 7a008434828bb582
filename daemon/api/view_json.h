/* view_json.h - the status view as the JSON of the local API. Every key names its unit, except
 * counts (steps, tokens, rounds). An unmeasured value is null. */
#ifndef TW_DAEMON_API_VIEW_JSON_H
#define TW_DAEMON_API_VIEW_JSON_H

#include <jansson.h>

#include "daemon/api/status_view.h"

enum { TW_VIEW_STATUS_EVENTS = 6 }; /* newest events inside /v1/status */

/* Each returns a new reference, or NULL if memory runs out. */
json_t *tw_view_json_status(const struct tw_status_view *view);
json_t *tw_view_json_peers(const struct tw_status_view *view);
json_t *tw_view_json_rounds(const struct tw_status_view *view);
json_t *tw_view_json_events(const struct tw_status_view *view);

/* `manifest`: canonical text of the manifest, or NULL if the node has none. */
json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest);

#endif
