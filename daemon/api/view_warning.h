/* view_warning.h - problems that a person should look into, each with a way out. Judged from the
 * status view alone. */
#ifndef TW_DAEMON_API_VIEW_WARNING_H
#define TW_DAEMON_API_VIEW_WARNING_H

#include <stdint.h>

#include "daemon/api/status_view.h"

enum { TW_WARNINGS_MAX = 16 };

struct tw_warning {
    char what[400];
    char way_out[200];
};

/* The fact that two machines have one key, as a sentence without its way out. */
void tw_view_twin_text(const struct tw_view_twin *twin, char text[TW_VIEW_TEXT_BYTES]);

/* The fact of a finding about merging, as a sentence without its way out. */
void tw_view_finding_text(const struct tw_view_health *health, enum tw_finding finding,
                          char text[TW_VIEW_TEXT_BYTES]);

/* Writes the worst first. Returns the number of warnings written. */
uint32_t tw_view_warnings(const struct tw_status_view *view,
                          struct tw_warning warnings[TW_WARNINGS_MAX]);

#endif
