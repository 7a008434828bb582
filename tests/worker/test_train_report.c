/* test_train_report.c - MFU is a share: no step, however fast, makes it more than all of it. */
#include "worker/train_report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

enum { SEED = 7, STEPS = 2000 };

/* A step is of 67 GFLOP. */
static struct tw_train_report report_with(double peak_flops_s) {
    return (struct tw_train_report){.is_terminal = true,
                                    .shown_s = 1e18, /* never: the screen is not what is tested */
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

static void peak_measured_too_low_is_raised_by_a_step(void **state) {
    (void)state;
    struct tw_train_report report = report_with(100e9); /* others had the processor meanwhile */
    step(&report, 0.5);                                 /* 134 GFLOP/s */
    assert_true(fabs(report.peak_flops_s - 134e9) < 1);
    assert_true(fabs(tw_train_report_mfu(&report) - 1) < 1e-9);
    for (unsigned i = 0; i < 200; i++) step(&report, 1.0);
    assert_true(fabs(report.peak_flops_s - 134e9) < 1); /* slower ones leave it */
    assert_true(fabs(tw_train_report_mfu(&report) - 0.5) < 1e-6);
}

static void mfu_is_never_above_one(void **state) {
    (void)state;
    struct tw_train_report report = report_with(1e9);
    struct tw_rng rng;
    print_message("seed %d\n", SEED);
    tw_rng_seed(&rng, SEED);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&report, 1e-3 * (1 + (double)tw_rng_below(&rng, 1000)));
        const double mfu = tw_train_report_mfu(&report);
        if (!(mfu > 0 && mfu <= 1)) fail_msg("step %u: MFU %g", i, mfu);
    }
    step(&report, 0); /* a clock that stood still is no speed */
    assert_true(isfinite(report.peak_flops_s));
    assert_true(tw_train_report_mfu(&report) <= 1);
}

static void without_a_peak_there_is_no_mfu(void **state) {
    (void)state;
    struct tw_train_report report = report_with(0);
    assert_true(isnan(tw_train_report_mfu(&report)));
    step(&report, 0.5);
    assert_true(isnan(tw_train_report_mfu(&report)));
    report = report_with(1e9);
    assert_true(isnan(tw_train_report_mfu(&report))); /* before the first step */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peak_measured_too_low_is_raised_by_a_step),
        cmocka_unit_test(mfu_is_never_above_one),
        cmocka_unit_test(without_a_peak_there_is_no_mfu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
