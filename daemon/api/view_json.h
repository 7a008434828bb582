/* view_json.h - the status view as the JSON of the local API. Every number has its unit in its key
 * (counts are their own unit: steps, tokens, rounds); what was never measured is null. */
#ifndef TW_DAEMON_API_VIEW_JSON_H
#define TW_DAEMON_API_VIEW_JSON_H

#include <jansson.h>

#include "daemon/api/status_view.h"

enum { TW_VIEW_STATUS_EVENTS = 6 }; /* newest events inside /v1/status */

/* New references; NULL when memory is short. */
json_t *tw_view_json_status(const struct tw_status_view *view);
json_t *tw_view_json_peers(const struct tw_status_view *view);
json_t *tw_view_json_rounds(const struct tw_status_view *view);
json_t *tw_view_json_events(const struct tw_status_view *view);

/* `manifest`: canonical text, NULL when the node has none. */
json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest);

#endif
