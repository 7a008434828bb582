/* Tests of worker/cli/train_report.c and worker/support/progress.c: the text shown, and that MFU
 * never exceeds 1, however fast a step is. */
#include "worker/cli/train_report.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/test.h"
#include "worker/support/progress.h"

enum { SEED = 7, STEPS = 2000 };

/* A step costs 67 GFLOP. */
static struct tw_train_report report_with(double peak_flops_s) {
    return (struct tw_train_report){.is_terminal = true,
                                    .shown_s = 1e18, /* no report is due, so none is printed */
                                    .steps = STEPS,
                                    .step_tokens = 1000,
                                    .flops_token = 67000000,
                                    .peak_flops_s = peak_flops_s,
                                    .loss = (double)NAN,
                                    .validation = (double)NAN};
}

static void step(struct tw_train_report *report, double took_s) {
    const struct tw_step_result result = {.loss = 3, .grad_norm = 1};
    tw_train_report_step(report, &result, 1e-3f, took_s);
}

TEST(peak_measured_too_low_is_raised_by_a_step) {
    struct tw_train_report report = report_with(100e9); /* measured too low, as on a busy machine */
    step(&report, 0.5);                                 /* 134 GFLOP/s */
    assert_true(fabs(report.peak_flops_s - 134e9) < 1);
    assert_true(fabs(tw_train_report_mfu(&report) - 1) < 1e-9);
    for (unsigned i = 0; i < 200; i++) step(&report, 1.0);
    assert_true(fabs(report.peak_flops_s - 134e9) < 1); /* slower steps do not change the peak */
    assert_true(fabs(tw_train_report_mfu(&report) - 0.5) < 1e-6);
}

TEST(mfu_is_never_above_one) {
    struct tw_train_report report = report_with(1e9);
    struct tw_rng rng;
    print_message("seed %d\n", SEED);
    tw_rng_seed(&rng, SEED);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&report, 1e-3 * (1 + (double)tw_rng_below(&rng, 1000)));
        const double mfu = tw_train_report_mfu(&report);
        if (!(mfu > 0 && mfu <= 1)) fail_msg("step %u: MFU %g", i, mfu);
    }
    step(&report, 0); /* a duration of 0 gives no rate */
    assert_true(isfinite(report.peak_flops_s));
    assert_true(tw_train_report_mfu(&report) <= 1);
}

TEST(without_a_peak_there_is_no_mfu) {
    struct tw_train_report report = report_with(0);
    assert_true(isnan(tw_train_report_mfu(&report)));
    step(&report, 0.5);
    assert_true(isnan(tw_train_report_mfu(&report)));
    report = report_with(1e9);
    assert_true(isnan(tw_train_report_mfu(&report))); /* before the first step */
}

/* Restores standard error from the descriptor `kept` and reads the text captured in `file` into
 * `said`. */
static void take_said(int file, int kept, char said[2048]) {
    (void)fflush(stderr);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    const ssize_t size = pread(file, said, 2047, 0);
    assert_true(size >= 0);
    said[size] = '\0';
    (void)close(file);
}

static unsigned count_of(const char *said, const char *word) {
    unsigned count = 0;
    for (; (said = strstr(said, word)) != NULL; said++) count++;
    return count;
}

/* If standard error is a file, each evaluation has its own line, except the last: the final line
 * includes it. */
TEST(the_last_step_is_reported_once) {
    char said[2048];
    struct tw_train_report report = report_with(0);
    report.is_terminal = false;
    report.steps = 2;
    const int file = memfd_create("said", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    step(&report, 0.5);
    tw_train_report_validation(&report, 4.5);
    step(&report, 0.5);
    tw_train_report_validation(&report, 3.25);
    tw_train_report_end(&report, "done", NULL, 0, "text");
    take_said(file, kept, said);
    assert_int_equal(count_of(said, "step 1/2"), 1);
    assert_int_equal(count_of(said, "step 2/2  loss 3.000 (held out 3.250)"), 1);
    assert_int_equal(count_of(said, "step 2/2"), 1);
    assert_non_null(strstr(said, ": 3.2500 nats per token on held-out text\n"));
}

/* On a terminal the line appears after the first second and is erased at the end. */
TEST(progress_is_one_line_that_goes_away) {
    char said[2048];
    struct tw_progress progress = {
        .is_shown = true, .unit = "parameters", .what = "m.gguf", .all = 4000000, .begin_s = 10};
    const int file = memfd_create("said", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    tw_progress_show(&progress, 500000, 10.5);
    tw_progress_end(&progress); /* nothing shown, nothing to erase */
    tw_progress_show(&progress, 1000000, 12);
    tw_progress_show(&progress, 1000001, 12.1); /* too soon */
    tw_progress_show(&progress, 4000000, 18);   /* done: not shown */
    tw_progress_end(&progress);
    progress.is_shown = false;
    tw_progress_show(&progress, 2000000, 30);
    take_said(file, kept, said);
    assert_string_equal(said, "\r\033[K1.00M of 4.00M parameters, 6.0 s left, m.gguf\r\033[K");
}
