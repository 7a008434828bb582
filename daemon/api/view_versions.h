/* view_versions.h - the committed versions of the model that the linked nodes hold, as JSON.
 *
 * A version is a lineage, its number of committed rounds and the digest of the newest round record.
 * Nodes with the same version have equal anchors once they have applied it. Each node reports its
 * own version in STATUS every second. */
#ifndef TW_DAEMON_API_VIEW_VERSIONS_H
#define TW_DAEMON_API_VIEW_VERSIONS_H

#include <jansson.h>

#include "daemon/api/status_view.h"

/* Answer to GET /v1/versions:
 *
 * - "versions": all versions with their nodes, the version of most nodes first
 * - "unknown": linked nodes and members of the roster whose version is not known now
 * - "checkpoint": this node's newest checkpoint
 *
 * Returns a new reference, or NULL if memory runs out. */
json_t *tw_view_json_versions(const struct tw_status_view *view);

#endif
