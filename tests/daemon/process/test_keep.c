/* Tests when a dead daemon is started again by the process that keeps it. */
#include "tests/test.h"

#include <signal.h>

#include "base/exit_codes.h"
#include "daemon/process/service.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

TEST(killed_daemon_is_started_again) {
    struct tw_keep keep = {.deaths = 0};
    uint64_t pause_us = 0;
    assert_true(tw_keep_restarts(&keep, 0, SIGKILL, SECONDS(100), &pause_us));
    assert_int_equal(pause_us, SECONDS(1));
    assert_true(tw_keep_restarts(&keep, TW_EXIT_FAILURE, 0, SECONDS(2), &pause_us));
    assert_int_equal(pause_us, SECONDS(2));
    /* It ran for long: the deaths before do not count. */
    assert_true(tw_keep_restarts(&keep, 0, SIGSEGV, SECONDS(3600), &pause_us));
    assert_int_equal(pause_us, SECONDS(1));
}

TEST(pauses_grow_and_end) {
    struct tw_keep keep = {.deaths = 0};
    uint64_t pause_us = 0, before_us = 0;
    for (uint32_t i = 0; i < TW_KEEP_DEATHS_MAX; i++) {
        assert_true(tw_keep_restarts(&keep, 0, SIGKILL, SECONDS(3), &pause_us));
        assert_true(pause_us >= before_us && pause_us <= SECONDS(60));
        before_us = pause_us;
    }
    assert_int_equal(pause_us, SECONDS(60));
    assert_false(tw_keep_restarts(&keep, 0, SIGKILL, SECONDS(3), &pause_us));
}

TEST(clean_ends_and_bad_configurations_are_final) {
    const int finals[] = {TW_EXIT_OK,        TW_EXIT_USAGE,    TW_EXIT_MANIFEST, TW_EXIT_DATA,
                          TW_EXIT_STATE_DIR, TW_EXIT_IDENTITY, TW_EXIT_CORRUPT};
    uint64_t pause_us = 0;
    for (unsigned i = 0; i < sizeof(finals) / sizeof(finals[0]); i++) {
        struct tw_keep keep = {.deaths = 0, .has_been_up = true};
        assert_false(tw_keep_restarts(&keep, finals[i], 0, SECONDS(100), &pause_us));
    }
    /* `thinwire start` shows why the first start failed. Later the port may be free again. */
    struct tw_keep keep = {.deaths = 0};
    assert_false(tw_keep_restarts(&keep, TW_EXIT_PORT, 0, SECONDS(1), &pause_us));
    keep = (struct tw_keep){.deaths = 1, .has_been_up = true};
    assert_true(tw_keep_restarts(&keep, TW_EXIT_PORT, 0, SECONDS(1), &pause_us));
}
