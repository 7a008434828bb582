/* metrics.h - the status view as Prometheus text (version 0.0.4): prefix thinwire_, base units. */
#ifndef TW_DAEMON_API_METRICS_H
#define TW_DAEMON_API_METRICS_H

#include <stddef.h>

#include "daemon/api/status_view.h"

/* Writes into text[capacity] with NUL, and returns the bytes the whole text takes without NUL:
 * more than capacity - 1 means it was cut. Unmeasured values have no line. Cannot fail. */
size_t tw_metrics_encode(const struct tw_status_view *view, char *text, size_t capacity);

#endif
