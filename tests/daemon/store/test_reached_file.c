/* Tests of the note of the farthest round: whole or absent after a power cut, never half. */
#include "tests/test.h"

#include <string.h>

#include "daemon/store/notes.h"
#include "tests/daemon/store/disk.h"

static const struct tw_reached SAMPLE = {.lineage = {{1, 2, 3}},
                                         .rounds = 130,
                                         .clock_tokens = UINT64_C(1) << 60,
                                         .step = 1378,
                                         .tokens = 900000,
                                         .origin = UINT64_C(0x00c0ffee00000001),
                                         .unix_s = 1732837000};

static enum tw_status read_note(struct tw_disk *disk, struct tw_reached *reached) {
    struct tw_error err = {0};
    const struct tw_file_ops *const ops = tw_disk_ops(disk);
    const int dir = ops->dir_open(ops->ctx, "folder");
    const enum tw_status status = tw_reached_read(ops, dir, reached, &err);
    assert_int_equal(ops->close(ops->ctx, dir), 0);
    assert_true(status == TW_OK || err.message[0] != '\0');
    return status;
}

static void write_note(struct tw_disk *disk, const struct tw_reached *reached) {
    const struct tw_file_ops *const ops = tw_disk_ops(disk);
    const int dir = ops->dir_open(ops->ctx, "folder");
    assert_int_equal(tw_reached_write(ops, dir, reached, NULL), TW_OK);
    assert_int_equal(ops->close(ops->ctx, dir), 0);
}

TEST(note_survives_a_power_cut) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct tw_disk *const disk = tw_disk_create();
        struct tw_reached read, next = SAMPLE;
        struct tw_rng rng;
        tw_rng_seed(&rng, seed);
        assert_int_equal(read_note(disk, &read), TW_OK);
        assert_int_equal(read.unix_s, 0);
        write_note(disk, &SAMPLE);
        tw_disk_crash_random(disk, &rng);
        assert_int_equal(read_note(disk, &read), TW_OK);
        assert_memory_equal(&read, &SAMPLE, sizeof(read));
        next.rounds++;
        write_note(disk, &next);
        tw_disk_crash_random(disk, &rng);
        assert_int_equal(read_note(disk, &read), TW_OK);
        assert_int_equal(read.rounds, 131);
        tw_disk_destroy(disk);
    }
}

TEST(changed_note_is_refused_or_another_number) {
    struct tw_disk *disk = tw_disk_create();
    size_t size;
    write_note(disk, &SAMPLE);
    assert_non_null(tw_disk_bytes(disk, "reached", &size));
    for (size_t at = 0; at < size; at++) {
        struct tw_reached read;
        tw_disk_flip(disk, "reached", at, 0x40);
        if (read_note(disk, &read) != TW_OK) assert_int_equal(read.unix_s, 0);
        tw_disk_flip(disk, "reached", at, 0x40);
    }
    tw_disk_set_bad(disk, "reached");
    struct tw_reached read;
    assert_int_equal(read_note(disk, &read), TW_IO);
    tw_disk_destroy(disk);
}
