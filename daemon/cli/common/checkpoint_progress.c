#include "daemon/cli/common/checkpoint_progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"

static struct {
    double begin_s; /* 0: no file is being read */
    bool is_shown;
} line;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void show(void *user, uint64_t read_bytes, uint64_t all_bytes) {
    char here[TW_UNITS_BYTES], all[TW_UNITS_BYTES];
    (void)user;
    if (line.begin_s == 0) line.begin_s = now_s();
    if (now_s() - line.begin_s < 1) return;
    (void)fprintf(stderr, "\r\033[Kverifying a checkpoint: %s of %s",
                  tw_units_bytes(here, (double)read_bytes), tw_units_bytes(all, (double)all_bytes));
    (void)fflush(stderr);
    line.is_shown = true;
}

void checkpoint_progress_watch(struct tw_checkpoint *files) {
    line.begin_s = 0;
    if (isatty(STDERR_FILENO) == 1) tw_checkpoint_watch(files, show, NULL);
}

void checkpoint_progress_end(void) {
    if (line.is_shown) (void)fputs("\r\033[K", stderr);
    line.is_shown = false;
    line.begin_s = 0;
}
