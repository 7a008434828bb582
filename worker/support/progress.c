#include "worker/support/progress.h"

#include <stdio.h>

#include "base/units.h"

static const double QUIET_S = 1, SHOW_S = 0.2;

void tw_progress_show(struct tw_progress *progress, uint64_t done, double now_s) {
    char count[TW_UNITS_BYTES], all[TW_UNITS_BYTES], left[TW_UNITS_BYTES];
    const double took_s = now_s - progress->begin_s;
    progress->done = done;
    if (!progress->is_shown || done == 0 || done >= progress->all) return;
    if (took_s < QUIET_S || now_s - progress->shown_s < SHOW_S) return;
    progress->shown_s = now_s;
    (void)fprintf(stderr, "\r\033[K%s of %s %s, %s left, %.30s",
                  tw_units_short(count, (double)done), tw_units_short(all, (double)progress->all),
                  progress->unit,
                  tw_units_duration(left, took_s / (double)done * (double)(progress->all - done)),
                  progress->what);
}

void tw_progress_end(const struct tw_progress *progress) {
    if (progress->shown_s > 0) (void)fputs("\r\033[K", stderr);
}
