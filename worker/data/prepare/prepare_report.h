/* prepare_report.h - output of `thinwire data prepare`: a progress line and a final table.
 *
 * Progress goes to standard error: a changing line on a terminal, otherwise a line every 30 s. The
 * table goes to standard output; with --json, one event per line. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_REPORT_H
#define TW_WORKER_DATA_PREPARE_PREPARE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/data/prepare/prepare.h"

struct tw_prepare_report {
    bool is_quiet, json, is_terminal;
    uint64_t inputs_bytes;      /* size of all inputs on disk */
    uint64_t taken_bytes;       /* bytes of the inputs read so far */
    uint64_t first_taken_bytes; /* value of taken_bytes when this process began */
    struct tw_prepare_counts first;
    double start_s, shown_s;
};

void tw_prepare_report_start(struct tw_prepare_report *report,
                             const struct tw_prepare_options *options, uint64_t inputs_bytes);

/* Sets the progress at which this process begins: 0, or the progress of the earlier call that it
 * continues. */
void tw_prepare_report_from(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes);

/* Prints progress if it is due. */
void tw_prepare_report_tick(struct tw_prepare_report *report,
                            const struct tw_prepare_counts *counts, uint64_t taken_bytes);

/* Ends the progress line, so that a message can follow. */
void tw_prepare_report_break(struct tw_prepare_report *report);

/* Prints the final table or, with --json, the final event. */
void tw_prepare_report_end(struct tw_prepare_report *report,
                           const struct tw_prepare_options *options,
                           const struct tw_prepare_summary *summary);

#endif
