/* test_line_log.c - a log of lines across restarts, with truncated ends and full or failing
 * disks. */
#include "daemon/store/line_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/store/disk.h"
#include "tests/test.h"

static char folder[] = "/tmp/tw_lines_XXXXXX", path[64];
static struct tw_line_log lines;
static struct tw_error err;

static int start(void **state) {
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/log", folder);
    return 0;
}

static int end(void **state) {
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

#define FACT(name) TEST_IN(start, end, name)

static void open_log(uint64_t bytes_max) {
    assert_int_equal(tw_line_log_open(&lines, tw_file_system(), path, bytes_max, &err), TW_OK);
}

static enum tw_status write_line(const char *line) {
    return tw_line_log_write(&lines, line, strlen(line), &err);
}

/* Returns the contents of file `number` of the log, or "-" if it does not exist. */
static const char *read_file(unsigned number) {
    static char text[4096];
    char name[128];
    (void)snprintf(name, sizeof(name), "%s/%08u.jsonl", path, number);
    FILE *const file = fopen(name, "r");
    if (file == NULL) return "-";
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void append_raw(unsigned number, const char *bytes, size_t size) {
    char name[128];
    (void)snprintf(name, sizeof(name), "%s/%08u.jsonl", path, number);
    FILE *const file = fopen(name, "a");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    (void)fclose(file);
}

FACT(a_start_goes_on_in_the_newest_file) {
    open_log(4000);
    assert_int_equal(write_line("{\"a\":1}\n"), TW_OK);
    tw_line_log_close(&lines);
    open_log(4000);
    assert_int_equal(write_line("{\"a\":2}\n"), TW_OK);
    tw_line_log_close(&lines);
    assert_string_equal(read_file(1), "{\"a\":1}\n{\"a\":2}\n");
    assert_string_equal(read_file(2), "-");
}

FACT(the_ring_is_bounded) {
    open_log(4 * 20);
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(write_line("12345678\n"), TW_OK);
        assert_int_equal(write_line("abcdefgh\n"), TW_OK);
    }
    tw_line_log_close(&lines);
    assert_string_equal(read_file(3), "-");
    for (unsigned i = 4; i <= 7; i++) assert_string_equal(read_file(i), "12345678\nabcdefgh\n");
    assert_string_equal(read_file(8), "-");
}

FACT(a_torn_last_line_becomes_an_empty_one) {
    open_log(4000);
    assert_int_equal(write_line("{\"a\":1}\n"), TW_OK);
    tw_line_log_close(&lines);
    append_raw(1, "{\"a\":", 5);
    open_log(4000);
    assert_string_equal(read_file(1), "{\"a\":1}\n    \n");
    assert_int_equal(write_line("{\"a\":2}\n"), TW_OK);
    tw_line_log_close(&lines);
    assert_string_equal(read_file(1), "{\"a\":1}\n    \n{\"a\":2}\n");
    append_raw(1, "{\"a\"\0\0\0\n\0\0", 9); /* such a tail can remain after a power cut */
    open_log(4000);
    tw_line_log_close(&lines);
    assert_string_equal(read_file(1), "{\"a\":1}\n    \n{\"a\":2}\n        \n");
}

FACT(a_file_of_anything_harms_nothing) {
    open_log(4000);
    tw_line_log_close(&lines);
    static char noise[100000];
    memset(noise, 'x', sizeof(noise));
    append_raw(3, noise, sizeof(noise));
    open_log(4000);
    assert_int_equal(write_line("{}\n"), TW_OK);
    tw_line_log_close(&lines);
    assert_string_equal(read_file(4), "{}\n");
    char name[128];
    (void)snprintf(name, sizeof(name), "%s/00000009.jsonl", path);
    assert_int_equal(symlink("/dev/full", name), 0);
    open_log(4000);
    assert_int_equal(write_line("{}\n"), TW_OK);
    tw_line_log_close(&lines);
    assert_string_equal(read_file(10), "{}\n");
}

/* A full disk truncates a line, which is blanked at once. The next line that fits follows it. */
FACT(a_full_disk_costs_lines_alone) {
    struct tw_disk *const disk = tw_disk_create();
    size_t size;
    assert_int_equal(tw_line_log_open(&lines, tw_disk_ops(disk), path, 4000, &err), TW_OK);
    tw_disk_set_transfer_max(disk, 5);
    tw_disk_set_capacity(disk, 20);
    assert_int_equal(write_line("{\"first\":1}\n"), TW_OK);
    assert_int_equal(write_line("{\"second\":2}\n"), TW_IO);
    assert_non_null(strstr(err.message, "No space left"));
    assert_int_equal(write_line("{\"third\":3}\n"), TW_IO);
    tw_disk_set_capacity(disk, 0);
    assert_int_equal(write_line("{\"fourth\":4}\n"), TW_OK);
    const char wanted[] = "{\"first\":1}\n    \n{\"fourth\":4}\n";
    const uint8_t *const bytes = tw_disk_bytes(disk, "00000001.jsonl", &size);
    assert_int_equal(size, sizeof(wanted) - 1);
    assert_memory_equal(bytes, wanted, size);
    assert_null(tw_disk_bytes(disk, "00000002.jsonl", &size));
    tw_line_log_close(&lines);
    tw_disk_destroy(disk);
}

/* After any failed call, the log accepts lines again, and each line is whole. */
FACT(after_any_failed_call_lines_are_whole) {
    for (uint64_t call = 1; call < 24; call++) {
        struct tw_disk *const disk = tw_disk_create();
        assert_int_equal(tw_line_log_open(&lines, tw_disk_ops(disk), path, 100, &err), TW_OK);
        tw_disk_set_transfer_max(disk, 7);
        tw_disk_fail_at(disk, call, EIO);
        unsigned failed = 0;
        for (unsigned i = 0; i < 12; i++) failed += write_line("{\"line\":1}\n") != TW_OK;
        assert_true(failed <= 1);
        for (unsigned number = 1; number < 9; number++) {
            char name[32];
            size_t size;
            (void)snprintf(name, sizeof(name), "%08u.jsonl", number);
            const uint8_t *const bytes = tw_disk_bytes(disk, name, &size);
            for (size_t at = 0; bytes != NULL && at < size;) {
                const uint8_t *const newline = memchr(bytes + at, '\n', size - at);
                assert_non_null(newline);
                if (bytes[at] == '{') assert_memory_equal(bytes + at, "{\"line\":1}\n", 11);
                at = (size_t)(newline - bytes) + 1;
            }
        }
        tw_line_log_close(&lines);
        tw_disk_destroy(disk);
    }
}
