/* Tests of base/log.c: the prefix of a line. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

/* Reads one line that tw_log writes to stderr, which is a pipe here. JOURNAL_STREAM is `stream`, or
 * names this pipe if `stream` is NULL. */
static void log_line(const char *stream, char line[256]) {
    int ends[2];
    struct stat file;
    char own[64];
    assert_int_equal(pipe(ends), 0);
    const int kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(fstat(STDERR_FILENO, &file), 0);
    (void)snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)file.st_dev,
                   (unsigned long long)file.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream != NULL ? stream : own, 1), 0);
    tw_log(TW_LOG_WARN, "tested", "n=%d", 7);
    const ssize_t size = read(ends[0], line, 255);
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)unsetenv("JOURNAL_STREAM");
    assert_true(size > 0);
    line[size] = '\0';
}

TEST(the_journal_gets_a_level_and_no_time) {
    char line[256];
    log_line(NULL, line);
    assert_string_equal(line, "<4>level=warn ev=tested n=7\n");
}

/* With `thinwire start` in a session of a service, or 2>file in a unit, the variable names a stream
 * other than stderr. */
TEST(a_file_gets_the_time_though_a_journal_is_near) {
    static const char *const others[] = {"1:1", "", ":", "8", "x:y", "99999999999999999999:1"};
    char line[256];
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        log_line(others[i], line);
        assert_int_equal(strncmp(line, "ts=20", 5), 0);
        assert_non_null(strstr(line, "Z level=warn ev=tested n=7\n"));
    }
}
