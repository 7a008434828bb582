/* test_peak.c - the peak rate of every matrix library can be measured. */
#include "tests/test.h"
#include "worker/engine/peak.h"

#include <math.h>

TEST(every_library_has_a_rate) {
    const enum tw_matmul_backend all[] = {TW_MATMUL_AUTO, TW_MATMUL_ONEDNN, TW_MATMUL_OPENBLAS,
                                          TW_MATMUL_REF};
    for (unsigned i = 0; i < 4; i++) {
        const struct tw_matmul_library *const library = tw_matmul_library_get(all[i]);
        for (unsigned type = TW_F32; type <= TW_BF16 && library != NULL; type++) {
            double flops_s = 0;
            struct tw_error err;
            if (!tw_matmul_library_has(library, (enum tw_type)type)) continue;
            if (tw_peak_measure(library, (enum tw_type)type, 1 + i, &flops_s, &err) != TW_OK) {
                fail_msg("%s", err.message);
            }
            print_message("%s, %s, %u threads: %.3g FLOP/s\n", tw_matmul_library_name(library),
                          type == TW_F32 ? "fp32" : "bf16", 1 + i, flops_s);
            assert_true(isfinite(flops_s) && flops_s > 1e6);
        }
    }
}

TEST(peak_only_rises_and_stays_a_number) {
    double flops_s = 5e9;
    tw_peak_raise(&flops_s, 4e9);
    assert_true(flops_s == 5e9);
    tw_peak_raise(&flops_s, 6e9);
    assert_true(flops_s == 6e9);
    tw_peak_raise(&flops_s, (double)INFINITY);
    tw_peak_raise(&flops_s, (double)NAN);
    assert_true(flops_s == 6e9);
}
