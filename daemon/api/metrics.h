/* metrics.h - the status view as Prometheus text (version 0.0.4), with prefix thinwire_ and base
 * units. */
#ifndef TW_DAEMON_API_METRICS_H
#define TW_DAEMON_API_METRICS_H

#include <stddef.h>

#include "daemon/api/status_view.h"

/* Writes into text[capacity] with NUL. Returns the size of the whole text without NUL; above
 * capacity - 1 the text was cut. An unmeasured value has no line. */
size_t tw_metrics_encode(const struct tw_status_view *view, char *text, size_t capacity);

#endif
