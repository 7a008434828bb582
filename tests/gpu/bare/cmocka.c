/* cmocka.c - the part of cmocka that the device tests use. */
#include <cmocka.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

enum outcome { PASSED, FAILED, SKIPPED };

static jmp_buf back; /* point to which a failing assertion in the running test returns */
static bool is_inside;

void bare_print(const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)fflush(stdout);
}

/* Ends the running test. Outside of a test, as in a group's teardown, there is no point to return
 * to. */
__attribute__((noreturn)) static void leave(enum outcome outcome) {
    (void)fflush(stdout);
    if (!is_inside) __builtin_trap();
    longjmp(back, (int)outcome);
}

void bare_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    (void)printf("%s:%d: ", file, line);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    leave(FAILED);
}

void bare_skip(const char *file, int line) {
    (void)printf("%s:%d: skipped\n", file, line);
    leave(SKIPPED);
}

/* Runs a test or a fixture; the other pointer is NULL. */
static enum outcome attempt(void (*test)(void **state), int (*fixture)(void **state),
                            void **state) {
    enum outcome outcome = PASSED;
    is_inside = true;
    switch (setjmp(back)) {
    case PASSED:
        if (test != NULL) test(state);
        if (fixture != NULL && fixture(state) != 0) outcome = FAILED;
        break;
    case FAILED: outcome = FAILED; break;
    default: outcome = SKIPPED; break;
    }
    is_inside = false;
    return outcome;
}

static enum outcome run_one(const struct CMUnitTest *test, void *group) {
    void *state = test->initial_state != NULL ? test->initial_state : group;
    enum outcome outcome = attempt(NULL, test->setup, &state);
    if (outcome == PASSED) outcome = attempt(test->test, NULL, &state);
    return attempt(NULL, test->teardown, &state) == FAILED ? FAILED : outcome;
}

int bare_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **state),
             int (*teardown)(void **state)) {
    static const char *const WORDS[] = {"ok", "FAILED", "skipped"};
    unsigned outcomes[3] = {0, 0, 0};
    void *group = NULL;
    if (setup != NULL && setup(&group) != 0) {
        (void)printf("setup of the group failed\n");
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        const enum outcome outcome = run_one(&tests[i], group);
        outcomes[outcome]++;
        (void)printf("%-7s %s\n", WORDS[outcome], tests[i].name);
        (void)fflush(stdout);
    }
    if (teardown != NULL && teardown(&group) != 0) outcomes[FAILED]++;
    (void)printf("%u passed, %u failed, %u skipped\n", outcomes[PASSED], outcomes[FAILED],
                 outcomes[SKIPPED]);
    return (int)outcomes[FAILED];
}
