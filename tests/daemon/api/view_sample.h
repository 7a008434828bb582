/* view_sample.h - one fixed, busy node: the view that API, metrics and screen tests print. */
#ifndef TW_TESTS_VIEW_SAMPLE_H
#define TW_TESTS_VIEW_SAMPLE_H

#include "daemon/api/status_view.h"

/* *view has been through tw_status_view_init. */
void view_sample(struct tw_status_view *view);

#endif
