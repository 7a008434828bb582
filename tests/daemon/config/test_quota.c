/* Tests of daemon/config/quota.c on the simulated disk: a month's traffic survives restarts. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/config/quota.h"
#include "tests/daemon/store/disk.h"
#include "tests/test.h"

enum { NOVEMBER = 2026 * 12 + 10 };

static struct tw_disk *disk;
static const struct tw_file_ops *ops;
static struct tw_quota quota;
static struct tw_error err;
static int dir;

static int make_disk(void **state) {
    disk = tw_disk_create();
    ops = tw_disk_ops(disk);
    dir = ops->dir_open(ops->ctx, "state");
    memset(&err, 0, sizeof(err));
    assert_int_equal(tw_quota_load(&quota, ops, dir, &err), TW_OK);
    return 0;
}

static int drop_disk(void **state) {
    tw_disk_destroy(disk);
    return 0;
}

#define FACT(name) TEST_IN(make_disk, drop_disk, name)

static void load(void) {
    assert_int_equal(tw_quota_load(&quota, ops, dir, &err), TW_OK);
}

static void save(void) {
    if (tw_quota_save(&quota, ops, dir, &err) != TW_OK) fail_msg("%s", err.message);
}

FACT(months_follow_the_calendar_of_the_machine) {
    char text[16];
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    assert_int_equal(tw_quota_month(1796083199), NOVEMBER); /* its last second */
    assert_int_equal(tw_quota_month(1796083200), NOVEMBER + 1);
    assert_int_equal(tw_quota_month(-1), 0);
    assert_int_equal(setenv("TZ", "EET-2", 1), 0); /* two hours ahead of UTC */
    /* the new time zone counts without a restart */
    assert_int_equal(tw_quota_month(1796083199), NOVEMBER + 1);
    tw_quota_next(NOVEMBER, text);
    assert_string_equal(text, "2026-12-01");
    tw_quota_next(NOVEMBER + 1, text);
    assert_string_equal(text, "2027-01-01");
}

/* The traffic of strangers survives a restart, is not counted twice, and is not part of the
 * month. */
FACT(share_of_strangers_survives_a_restart) {
    enum { DAY_S = 24 * 3600 };
    const int64_t noon = INT64_C(20784) * DAY_S + DAY_S / 2;
    tw_quota_add(&quota, NOVEMBER, 1000);
    tw_quota_strangers(&quota, noon, 700, 0);
    tw_quota_strangers(&quota, noon, 100, 0);
    save();
    load();
    assert_true(quota.is_saved);
    assert_int_equal(quota.strangers.bytes, 800);
    assert_int_equal(quota.now.bytes, 1000);
    tw_quota_strangers(&quota, noon + 60, 0, 0); /* the first sample after the start */
    assert_true(quota.is_saved);
    assert_int_equal(quota.strangers.bytes, 800);
    /* 300 bytes belong to nodes that became members */
    tw_quota_strangers(&quota, noon + 61, 0, 300);
    assert_int_equal(quota.strangers.bytes, 500);
    assert_false(quota.is_saved);
    tw_quota_strangers(&quota, noon - 2 * DAY_S, 50, 0); /* the clock went back */
    save();
    load();
    assert_int_equal(quota.strangers.bytes, 550);
    tw_quota_strangers(&quota, noon - DAY_S, 20, 900); /* a day later by the wrong clock */
    assert_int_equal(quota.strangers.bytes, 20);
    save();
    load();
    assert_int_equal(quota.strangers.bytes, 20);
    assert_int_equal(quota.now.bytes, 1000);
}

/* Bytes that served others belong to their month, and bytes of nodes outside to their day; both
 * survive a restart. */
FACT(bytes_for_others_survive_a_restart) {
    enum { DAY_S = 24 * 3600 };
    const int64_t noon = INT64_C(20784) * DAY_S + DAY_S / 2;
    tw_quota_add(&quota, NOVEMBER, 1000);
    tw_quota_serve(&quota, 300);
    tw_quota_outside(&quota, noon, 200);
    save();
    load();
    assert_true(quota.is_saved);
    assert_int_equal(quota.now.bytes, 1000);
    assert_int_equal(quota.now.served, 300);
    assert_int_equal(quota.outside.bytes, 200);
    assert_int_equal(quota.strangers.bytes, 0);
    tw_quota_strangers(&quota, noon, 5, 0);
    tw_quota_outside(&quota, noon, 1);
    assert_false(quota.is_saved);
    tw_quota_add(&quota, NOVEMBER + 1, 7); /* a new month has served nobody yet */
    assert_int_equal(quota.now.served, 0);
    save();
    load();
    tw_quota_add(&quota, NOVEMBER, 0);
    assert_int_equal(quota.now.served, 300);
    assert_int_equal(quota.outside.bytes, 201);
    assert_int_equal(quota.strangers.bytes, 5);
    tw_quota_outside(&quota, noon + DAY_S, 3);
    assert_int_equal(quota.outside.bytes, 3);
    tw_quota_outside(&quota, noon, 3); /* the clock went back: no second share */
    assert_int_equal(quota.outside.bytes, 6);
}

FACT(headers_are_counted) {
    assert_int_equal(tw_quota_line_bytes(0), 0);
    assert_int_equal(tw_quota_line_bytes(97), 100);
    assert_int_equal(tw_quota_line_bytes(UINT64_C(485000000000)), UINT64_C(500000000000));
    assert_int_equal(tw_quota_line_bytes(UINT64_C(1) << 60), (UINT64_C(1) << 60) / 97 * 100 + 22);
    for (uint64_t bytes = 1; bytes < 1000; bytes++)
        assert_true(tw_quota_line_bytes(bytes) >= tw_quota_line_bytes(bytes - 1));
}

FACT(traffic_survives_a_restart) {
    assert_int_equal(quota.now.bytes, 0);
    tw_quota_add(&quota, NOVEMBER, 1000);
    save();
    tw_quota_add(&quota, NOVEMBER, 234);
    save();
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    tw_disk_crash_random(disk, &rng); /* acknowledged data must survive */
    dir = ops->dir_open(ops->ctx, "state");
    load();
    assert_int_equal(quota.now.bytes, 1234);
    assert_int_equal(quota.now.month, NOVEMBER);
    const uint64_t calls = tw_disk_calls(disk);
    save(); /* the counts are unchanged: nothing is written */
    assert_int_equal(tw_disk_calls(disk), calls);
}

FACT(month_begins_at_nothing) {
    tw_quota_add(&quota, NOVEMBER, 1000);
    tw_quota_add(&quota, NOVEMBER + 1, 5);
    assert_int_equal(quota.now.bytes, 5);
    assert_int_equal(quota.now.month, NOVEMBER + 1);
    save();
    load();
    assert_int_equal(quota.now.month, NOVEMBER + 1);
    tw_quota_add(&quota, NOVEMBER + 2, 0); /* a new month is written even without traffic */
    save();
    load();
    assert_int_equal(quota.now.month, NOVEMBER + 2);
    assert_int_equal(quota.now.bytes, 0);
}

FACT(clock_that_is_put_right_finds_its_month) {
    tw_quota_add(&quota, NOVEMBER, 1000);
    tw_quota_add(&quota, NOVEMBER + 73 * 12, 5); /* 2099, for an hour */
    assert_int_equal(quota.now.bytes, 5);
    save();
    load();
    tw_quota_add(&quota, NOVEMBER, 7);
    assert_int_equal(quota.now.month, NOVEMBER);
    assert_int_equal(quota.now.bytes, 1007); /* nothing is subtracted */
    tw_quota_add(&quota, NOVEMBER + 1, 20);
    assert_int_equal(quota.now.month, NOVEMBER + 1); /* and the next month begins normally */
    assert_int_equal(quota.now.bytes, 20);
    /* The clock is put back by a day, over midnight: the previous month's sum continues. */
    tw_quota_add(&quota, NOVEMBER, 1);
    assert_int_equal(quota.now.bytes, 1008);
    save();
    load();
    tw_quota_add(&quota, NOVEMBER + 1, 0);
    assert_int_equal(quota.now.bytes, 20);
    for (uint32_t month = 2; month < 40; month++) { /* more months than are kept */
        tw_quota_add(&quota, NOVEMBER + month, month);
        assert_int_equal(quota.now.bytes, month);
        save();
        load();
        assert_int_equal(quota.now.bytes, month);
    }
    tw_quota_add(&quota, NOVEMBER + 38, 0);
    assert_int_equal(quota.now.bytes, 38);
}

/* A machine without a clock battery starts like this. */
FACT(clock_that_was_never_set_counts_for_the_newest_month) {
    assert_int_equal(tw_quota_month(86400), 0);
    assert_int_equal(tw_quota_month(1735689600), 0); /* 2025: before this program existed */
    tw_quota_add(&quota, 0, 3);
    save(); /* no month is known: nothing is written */
    assert_null(tw_disk_bytes(disk, "traffic", NULL));
    tw_quota_add(&quota, NOVEMBER, 1000);
    assert_int_equal(quota.now.bytes, 1003);
    save();
    load();
    tw_quota_add(&quota, 0, 10);
    assert_int_equal(quota.now.month, NOVEMBER);
    assert_int_equal(quota.now.bytes, 1013);
    save();
    load();
    assert_int_equal(quota.now.bytes, 1013);
    char text[16];
    tw_quota_next(0, text);
    assert_string_equal(text, "the next month");
}

FACT(damaged_file_is_reported_and_begins_anew) {
    tw_quota_add(&quota, NOVEMBER, 1000);
    tw_quota_serve(&quota, 10);
    tw_quota_strangers(&quota, 1796083199, 20, 0);
    tw_quota_outside(&quota, 1796083199, 30);
    save();
    size_t size = 0;
    assert_non_null(tw_disk_bytes(disk, "traffic", &size));
    for (size_t at = 0; at < size; at++) {
        const uint8_t before = tw_disk_bytes(disk, "traffic", &size)[at];
        if (before >= '0' && before <= '9') continue; /* another digit is still a number */
        tw_disk_flip(disk, "traffic", at, 0x40);
        const enum tw_status status = tw_quota_load(&quota, ops, dir, &err);
        tw_disk_flip(disk, "traffic", at, 0x40);
        if (status == TW_OK) fail_msg("byte %zu may be anything", at);
        assert_int_equal(status, TW_CORRUPT);
        assert_non_null(strstr(err.message, "traffic in the state folder is damaged"));
        assert_int_equal(quota.now.bytes, 0);
    }
}

FACT(disk_that_fails_leaves_the_old_number) {
    tw_quota_add(&quota, NOVEMBER, 1000);
    save();
    const struct tw_quota before = quota;
    unsigned failed = 0;
    tw_quota_add(&quota, NOVEMBER, 1);
    const uint64_t first = tw_disk_calls(disk);
    save();
    const uint64_t calls = tw_disk_calls(disk) - first;
    for (uint64_t call = 0; call < calls; call++) {
        struct tw_disk *copy = tw_disk_copy(disk);
        const struct tw_file_ops *on = tw_disk_ops(copy);
        const int folder = on->dir_open(on->ctx, "state");
        quota = before;
        tw_quota_add(&quota, NOVEMBER, 1);
        tw_disk_fail_at(copy, tw_disk_calls(copy) + call, EIO);
        failed += tw_quota_save(&quota, on, folder, &err) != TW_OK;
        assert_int_equal(tw_quota_load(&quota, on, folder, &err), TW_OK);
        assert_in_range(quota.now.bytes, 1000, 1002);
        tw_disk_destroy(copy);
    }
    assert_true(failed >= 3);
}
