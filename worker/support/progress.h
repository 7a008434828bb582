/* progress.h - a line on a terminal that says how far something is that takes its time. */
#ifndef TW_WORKER_SUPPORT_PROGRESS_H
#define TW_WORKER_SUPPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Set `is_shown` where a person watches standard error; all is more than 0. */
struct tw_progress {
    bool is_shown;
    const char *unit, *what; /* "windows", and of what: cut at 30 characters. Borrowed. */
    uint64_t done, all;
    double begin_s, shown_s; /* shown_s 0: nothing was written */
};

/* As far as that; written from the second second on, five times a second at most. */
void tw_progress_show(struct tw_progress *progress, uint64_t done, double now_s);

/* Takes the line away again, if there is one. */
void tw_progress_end(const struct tw_progress *progress);

#endif
