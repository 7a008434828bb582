/* view_json.h - the status view, and the checkpoints of a run, as JSON. */
#ifndef TW_DAEMON_API_VIEW_JSON_H
#define TW_DAEMON_API_VIEW_JSON_H

#include <jansson.h>

#include "daemon/api/status_view.h"

/* ==== the status ============================================================================== */

/* The status view as the JSON of the local API. Every key names its unit, except
 * counts (steps, tokens, rounds). An unmeasured value is null. */

enum { TW_VIEW_STATUS_EVENTS = 6 }; /* newest events inside /v1/status */

/* Each returns a new reference, or NULL if memory runs out. */
json_t *tw_view_json_status(const struct tw_status_view *view);
json_t *tw_view_json_peers(const struct tw_status_view *view);
json_t *tw_view_json_rounds(const struct tw_status_view *view);
json_t *tw_view_json_events(const struct tw_status_view *view);

/* `manifest`: canonical text of the manifest, or NULL if the node has none. */
json_t *tw_view_json_run(const struct tw_status_view *view, const char *manifest);

/* ==== checkpoints of a run ==================================================================== */

/* The committed versions of the model that the linked nodes hold, as JSON.
 *
 * A version is a lineage, its number of committed rounds and the digest of the newest round record.
 * Nodes with the same version have equal anchors once they have applied it. Each node reports its
 * own version in STATUS every second. */

/* Answer to GET /v1/versions:
 *
 * - "versions": all versions with their nodes, the version of most nodes first
 * - "unknown": linked nodes and members of the roster whose version is not known now
 * - "checkpoint": this node's newest checkpoint
 *
 * Returns a new reference, or NULL if memory runs out. */
json_t *tw_view_json_versions(const struct tw_status_view *view);

/* ==== metrics ================================================================================= */

/* A value of the status that scrapers get. A counter's name ends in "_total". */
struct tw_view_metric {
    const char *name, *help;
    uint64_t count; /* of a whole number */
    double value;
};

/* Calls `put` for each known value of the list that is a metric. */
void tw_view_metrics(const struct tw_status_view *view,
                     void (*put)(void *user, const struct tw_view_metric *metric), void *user);

#endif
