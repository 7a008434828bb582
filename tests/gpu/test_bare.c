/* test_bare.c - the substitute for cmocka detects the failures that cmocka would. */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int teardowns;

static void good(void **state) {
    assert_int_equal(*(int *)*state, 5);
    assert_int_not_equal(-1, 1);
    assert_int_equal((int8_t)-1, -1);
    assert_true(1 == 1);
    assert_false(1 == 2);
    assert_null(NULL);
    assert_non_null("x");
    assert_ptr_equal(state, state);
    assert_ptr_not_equal(state, NULL);
    assert_memory_equal("abc", "abd", 2);
    assert_memory_not_equal("abc", "abd", 3);
    assert_string_equal("a", "a");
    assert_in_range(3, 3, 4);
    assert_return_code(0, 0);
}

#define BAD(name, assertion)                                                                       \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        assertion;                                                                                 \
        printf("%s did not end the test\n", #assertion);                                           \
        exit(1);                                                                                   \
    }
BAD(int_equal, assert_int_equal(1, 2))
BAD(int_not_equal, assert_int_not_equal(2, 2))
BAD(is_true, assert_true(1 == 2))
BAD(is_false, assert_false(1 == 1))
BAD(null, assert_null("x"))
BAD(non_null, assert_non_null(NULL))
BAD(ptr_equal, assert_ptr_equal(state, NULL))
BAD(ptr_not_equal, assert_ptr_not_equal(state, state))
BAD(memory_equal, assert_memory_equal("abc", "abd", 3))
BAD(memory_not_equal, assert_memory_not_equal("abc", "abd", 2))
BAD(string_equal, assert_string_equal("a", "b"))
BAD(in_range, assert_in_range(5, 3, 4))
BAD(return_code, assert_return_code(-1, ENOENT))
BAD(failed, fail())
BAD(failed_with_words, fail_msg("%d", 7))
BAD(skipped, skip())

static int five(void **state) {
    static int number = 5;
    *state = &number;
    return 0;
}

static int no_setup(void **state) {
    (void)state;
    return -1;
}

static int count_teardown(void **state) {
    (void)state;
    teardowns++;
    return 0;
}

static int bad_teardown(void **state) {
    (void)state;
    return 1;
}

static int failures_of(const struct CMUnitTest *tests, size_t count) {
    return bare_run(tests, count, NULL, NULL);
}
#define FAILURES(...)                                                                              \
    failures_of((const struct CMUnitTest[]){__VA_ARGS__},                                          \
                sizeof((const struct CMUnitTest[]){__VA_ARGS__}) / sizeof(struct CMUnitTest))
#define WANT(failures, want)                                                                       \
    do {                                                                                           \
        const int found = (failures);                                                              \
        if (found != (want)) {                                                                     \
            printf("line %d: %d failures instead of %d\n", __LINE__, found, want);                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    WANT(FAILURES(cmocka_unit_test_setup(good, five)), 0);
    WANT(FAILURES(cmocka_unit_test(int_equal), cmocka_unit_test(int_not_equal),
                  cmocka_unit_test(is_true), cmocka_unit_test(is_false), cmocka_unit_test(null),
                  cmocka_unit_test(non_null), cmocka_unit_test(ptr_equal),
                  cmocka_unit_test(ptr_not_equal), cmocka_unit_test(memory_equal),
                  cmocka_unit_test(memory_not_equal), cmocka_unit_test(string_equal),
                  cmocka_unit_test(in_range), cmocka_unit_test(return_code),
                  cmocka_unit_test(failed), cmocka_unit_test(failed_with_words)),
         15);
    WANT(FAILURES(cmocka_unit_test(skipped)), 0);
    WANT(FAILURES(cmocka_unit_test_setup(good, no_setup)), 1);
    WANT(FAILURES(cmocka_unit_test_setup_teardown(good, five, bad_teardown)), 1);
    WANT(FAILURES(cmocka_unit_test_teardown(is_true, count_teardown)), 1);
    WANT(teardowns, 1); /* the teardown runs even after a failure */
    const struct CMUnitTest group[] = {cmocka_unit_test(good)};
    WANT(cmocka_run_group_tests(group, five, count_teardown), 0);
    WANT(teardowns, 2);
    WANT(cmocka_run_group_tests(group, no_setup, NULL), -1);
    return 0;
}
