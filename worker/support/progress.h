/* progress.h - a progress line on a terminal for a long task. */
#ifndef TW_WORKER_SUPPORT_PROGRESS_H
#define TW_WORKER_SUPPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Set `is_shown` if standard error is a terminal. `all`, the total work, must be more than 0. */
struct tw_progress {
    bool is_shown;
    const char *unit, *what; /* borrowed: the unit, such as "windows", and the task's name, which is
                                shown up to 30 characters */
    uint64_t done, all;
    double begin_s, shown_s; /* times in seconds; shown_s 0: nothing printed yet */
};

/* Updates the line. It appears after the first second and is redrawn at most five times a second.
 */
void tw_progress_show(struct tw_progress *progress, uint64_t done, double now_s);

/* Erases the line, if there is one. */
void tw_progress_end(const struct tw_progress *progress);

#endif
