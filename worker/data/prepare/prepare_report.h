/* prepare_report.h - what `thinwire data prepare` shows: one live line, a table at the end.
 *
 * People read standard error: on a terminal a line that changes, elsewhere one every 30 s. Programs
 * read standard output, where --json prints one event a line. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_REPORT_H
#define TW_WORKER_DATA_PREPARE_PREPARE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/data/prepare/prepare.h"

struct tw_prepare_report {
    bool is_quiet, json, is_terminal;
    uint64_t inputs_bytes;      /* on the disk, in all */
    uint64_t taken_bytes;       /* of these, so far, */
    uint64_t first_taken_bytes; /* and where this process began */
    struct tw_prepare_counts first;
    double start_s, shown_s;
};

void tw_prepare_report_start(struct tw_prepare_report *report,
                             const struct tw_prepare_options *options, uint64_t inputs_bytes);

/* This process begins here, and does not begin at the beginning if it goes on. */
void tw_prepare_report_from(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes);

/* Shows something if it is time to. */
void tw_prepare_report_tick(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes);

/* Before a message: the line of a terminal ends. */
void tw_prepare_report_break(struct tw_prepare_report *report);

/* The table, or the event. */
void tw_prepare_report_end(struct tw_prepare_report *report,
                           const struct tw_prepare_options *options,
                           const struct tw_prepare_summary *summary);

#endif
