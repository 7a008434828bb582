/* view_sample.h - the status view of one fixed, busy node, for the tests of API, metrics and
 * screen. */
#ifndef TW_TESTS_VIEW_SAMPLE_H
#define TW_TESTS_VIEW_SAMPLE_H

#include "daemon/api/status_view.h"

/* Fills `view`, which tw_status_view_init must have set. */
void view_sample(struct tw_status_view *view);

#endif
