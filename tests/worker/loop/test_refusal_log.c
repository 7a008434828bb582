/* Tests of worker/loop/juror.c: repeated refusals do not fill the log. */
#include "worker/loop/juror.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/test.h"

static struct tw_refusal_log refused;
static int file, kept;

static int open_log(void **state) {
    memset(&refused, 0, sizeof(refused));
    file = memfd_create("log", MFD_CLOEXEC);
    kept = dup(STDERR_FILENO);
    return file < 0 || kept < 0 || dup2(file, STDERR_FILENO) < 0;
}

static int close_log(void **state) {
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    (void)close(file);
    return 0;
}

#define FACT(name) TEST_IN(open_log, close_log, name)

/* Returns the number of log lines that contain `word`. */
static unsigned lines_with(const char *word) {
    static char log[64 * 1024];
    unsigned count = 0;
    const ssize_t size = pread(file, log, sizeof(log) - 1, 0);
    assert_true(size >= 0);
    log[size] = '\0';
    for (const char *line = strtok(log, "\n"); line != NULL; line = strtok(NULL, "\n"))
        count += strstr(line, word) != NULL;
    return count;
}

static void refuse(uint32_t kind, enum tw_status status, uint64_t second) {
    struct tw_error reason = {.status = status, .message = "int8 could not encode part 0"};
    tw_refusal_log_note(&refused, kind, &reason, (100 + second) * 1000000);
}

FACT(the_first_is_reported_and_then_a_count) {
    for (uint64_t second = 0; second < 599; second++) refuse(33, TW_LIMIT, second);
    assert_int_equal(lines_with("ev=request_refused"), 1);
    assert_int_equal(lines_with("kind=33 status=LIMIT text=\"int8 could not encode part 0\""), 1);
    refuse(33, TW_LIMIT, 600);
    assert_int_equal(lines_with("ev=request_refused"), 2);
    assert_int_equal(lines_with("status=LIMIT more=598 text="), 1);
    refuse(33, TW_LIMIT, 601);
    refuse(33, TW_LIMIT, 2000); /* much later */
    assert_int_equal(lines_with("more=1 "), 1);
    refuse(33, TW_LIMIT, 9000);
    assert_int_equal(lines_with("ev=request_refused"), 4);
}

FACT(another_kind_or_reason_is_reported_at_once) {
    for (unsigned i = 0; i < 5; i++) {
        refuse(33, TW_LIMIT, i);
        refuse(33, TW_CORRUPT, i);
        refuse(46, TW_LIMIT, i);
    }
    assert_int_equal(lines_with("ev=request_refused"), 3);
    assert_int_equal(lines_with("kind=33 status=CORRUPT"), 1);
}

FACT(of_too_many_sorts_the_last_share_a_line) {
    for (uint32_t kind = 0; kind < 100; kind++) refuse(kind, TW_PROTO, kind);
    assert_int_equal(lines_with("ev=request_refused"), TW_REFUSAL_LOG_SORTS);
    refuse(200, TW_PROTO, 700);
    assert_int_equal(lines_with("kind=200 status=PROTO more=84 "), 1);
}
