/* metrics.h - the status view as Prometheus text (version 0.0.4), with prefix thinwire_ and base
 * units. */
#ifndef TW_DAEMON_API_METRICS_H
#define TW_DAEMON_API_METRICS_H

#include <stddef.h>

#include "daemon/api/status_view.h"

/* Writes the text to text[capacity], NUL-terminated. Returns the size of the whole text without the
 * NUL. A return value above capacity - 1 means that the text was truncated. Unmeasured values are
 * omitted. */
size_t tw_metrics_encode(const struct tw_status_view *view, char *text, size_t capacity);

#endif
