/* view_json.h - the status view as the JSON of the local API. Every key names its unit; a count is
 * its own unit (steps, tokens, rounds). A value that was not measured is null. */
#ifndef TW_DAEMON_API_VIEW_JSON_H
#define TW_DAEMON_API_VIEW_JSON_H

#include <jansson.h>

#include "daemon/api/status_view.h"

enum { TW_VIEW_STATUS_EVENTS = 6 }; /* newest events inside /v1/status */

/* Each returns a new reference; NULL without memory. */
json_t *tw_view_json_status(const struct tw_status_view *view);
json_t *tw_view_json_peers(const struct tw_status_view *view);
json_t *tw_view_json_rounds(const struct tw_status_view *view);
json_t *tw_view_json_events(const struct tw_status_view *view);

/* `manifest`: canonical text, NULL when the node has none. */
json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest);

#endif
