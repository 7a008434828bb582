/* view_versions.h - the committed versions of the model that the linked nodes hold, as JSON.
 *
 * A version is a lineage, its number of committed rounds and the digest of the newest round record.
 * Nodes that follow one lineage to one record have equal anchors, as soon as they have applied it.
 * Each node tells its own position in STATUS, every second. */
#ifndef TW_DAEMON_API_VIEW_VERSIONS_H
#define TW_DAEMON_API_VIEW_VERSIONS_H

#include <jansson.h>

#include "daemon/api/status_view.h"

/* The answer to GET /v1/versions: "versions", that of most nodes first, each with its nodes;
 * "unknown", linked nodes and members of the roster that say nothing now; "checkpoint", the newest
 * one of this node. A new reference, or NULL without memory. */
json_t *tw_view_json_versions(const struct tw_status_view *view);

#endif
