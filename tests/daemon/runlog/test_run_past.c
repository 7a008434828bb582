/* Tests of daemon/runlog/run_log.c, which restores the history from the files of a run log. */
#include "daemon/runlog/run_log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

static char folder[] = "/tmp/thinwire-test-XXXXXX";
static struct tw_history history;

static FILE *open_file(const char *name, const char *mode) {
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static void write_file(const char *name, const char *text) {
    FILE *const file = open_file(name, "w");
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
    memset(&history, 0, sizeof(history));
    (void)snprintf(folder, sizeof(folder), "/tmp/thinwire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int tear_down(void **state) {
    char path[128];
    for (unsigned i = 1; i <= 3; i++) {
        (void)snprintf(path, sizeof(path), "%s/%08u.jsonl", folder, i);
        (void)unlink(path);
    }
    return rmdir(folder);
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

FACT(files_are_read_in_order) {
    write_file("00000002.jsonl", "{\"kind\":\"step\",\"step\":10,\"loss_nats\":5.5}\n"
                                 "{\"kind\":\"round\",\"round\":3,\"outcome\":\"ours\"}\n"
                                 "{\"kind\":\"round\",\"round\":4,\"outcome\":\"others\"}\n");
    write_file("00000003.jsonl", "{\"kind\":\"evaluation\",\"step\":20,\"loss_nats\":null,"
                                 "\"time\":\"2026-11-28T23:00:01.500Z\","
                                 "\"validation_live_nats\":4.5,\"validation_anchor_nats\":4.25}\n"
                                 "{\"kind\":\"round\",\"round\":6,\"outcome\":\"empty\"}\n");
    tw_run_past_read(folder, 3, &history);
    assert_int_equal(history.losses_count, 2);
    assert_int_equal(history.losses[0].step, 10);
    assert_float_equal(history.losses[0].train, 5.5, 0);
    assert_int_equal(history.losses[1].step, 20);
    assert_float_equal(history.losses[1].anchor, 4.25, 0);
    assert_int_equal(history.rounds_count, 4);
    assert_int_equal(history.rounds_end, 7);
    assert_memory_equal(history.rounds + 3, "mo.e", 4);
    const struct tw_past_evaluation *const past = tw_history_evaluation(&history, 25);
    assert_non_null(past);
    assert_int_equal(past->step, 20);
    assert_int_equal(past->unix_us, UINT64_C(1795906801000000));
    assert_float_equal(past->anchor, 4.25, 0);
    assert_null(tw_history_evaluation(&history, 19)); /* a checkpoint before it */
}

FACT(lines_that_are_none_are_left_out) {
    FILE *const file = open_file("00000001.jsonl", "w");
    (void)fputs("\nnull\n[1]\n{\"kind\":7}\n{\"kind\":\"step\",\"step\":-1,\"loss_nats\":1}\n"
                "{\"kind\":\"step\",\"loss_nats\":1}\n{\"kind\":\"round\",\"round\":1}\n"
                "{\"kind\":\"round\",\"round\":\"2\",\"outcome\":\"ours\"}\n"
                "{\"kind\":\"round\",\"round\":2,\"outcome\":\"won\"}\n",
                file);
    for (unsigned i = 0; i < 100000; i++) (void)fputc('x', file); /* longer than a line */
    (void)fputs("\n{\"kind\":\"step\",\"step\":30,\"loss_nats\":2}\n", file);
    (void)fwrite("{\"kind\":\"step\",\"step\":40}\0\n", 1, 26, file);
    (void)fputs("{\"kind\":\"step\",\"step\":50,\"loss_na", file); /* torn */
    assert_int_equal(fclose(file), 0);
    tw_run_past_read(folder, 1, &history);
    assert_int_equal(history.losses_count, 1);
    assert_int_equal(history.losses[0].step, 30);
    assert_int_equal(history.rounds_count, 0);
}

/* Of a large log only the newest lines are read, starting with a whole line. */
FACT(reading_is_bounded) {
    enum { LINES = 200000, LINE_BYTES = 60 };
    FILE *const file = open_file("00000002.jsonl", "w");
    for (unsigned i = 0; i < LINES; i++)
        (void)fprintf(file, "{\"kind\":\"round\",\"round\":%8u,\"outcome\":\"ours\"}%*s\n", i, 12,
                      "");
    assert_int_equal(fclose(file), 0);
    write_file("00000003.jsonl", "");
    write_file("00000001.jsonl", "{\"kind\":\"step\",\"step\":1,\"loss_nats\":9}\n");
    tw_run_past_read(folder, 3, &history);
    assert_int_equal(history.losses_count, 0); /* older than the bound */
    assert_int_equal(history.rounds_end, LINES);
    assert_int_equal(history.rounds_count, TW_HISTORY_ROUNDS_MAX);
    memset(&history, 0, sizeof(history));
    tw_run_past_read("/nonexistent", 3, &history);
    tw_run_past_read(folder, 0, &history);
    assert_int_equal(history.rounds_count + history.losses_count, 0);
}
