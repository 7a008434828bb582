/* test.c - lists and runs the tests of a program; its main function, unless it has its own. */
#include "tests/test.h"

enum { TESTS_MAX = 128 };

bool test_has_passed;

static struct CMUnitTest tests[TESTS_MAX]; /* cmocka passes over the rows without a name */
static int lines[TESTS_MAX];
static size_t count;

void test_add(const struct CMUnitTest *test, int line) {
    if (count == TESTS_MAX) abort();
    size_t at = count++;
    for (; at > 0 && lines[at - 1] > line; at--) {
        tests[at] = tests[at - 1];
        lines[at] = lines[at - 1];
    }
    tests[at] = *test;
    lines[at] = line;
}

int test_run(int (*set_up)(void **state), int (*tear_down)(void **state)) {
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

__attribute__((weak)) int main(void) {
    return test_run(NULL, NULL);
}
