/* test.h - cmocka, with the headers that cmocka itself does not include, for every test; and TEST,
 * by which a test is listed where it is defined. */
#ifndef TW_TESTS_TEST_H
#define TW_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Tests and fakes have the parameters of their callers, whether they use them or not. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* TEST(fact) { ... } is a test of this file. TEST_IN is one with functions before and after it.
 * Where most tests of a file have the same: #define FACT(name) TEST_IN(set_up, tear_down, name) */
#define TEST(name) TEST_IN(NULL, NULL, name)
#define TEST_IN(set_up, tear_down, name)                                                           \
    static void name(void **state);                                                                \
    static void run_##name(void **state) {                                                         \
        test_has_passed = false;                                                                   \
        name(state);                                                                               \
        test_has_passed = true;                                                                    \
    }                                                                                              \
    __attribute__((constructor)) static void add_##name(void) {                                    \
        const struct CMUnitTest test = {#name, run_##name, set_up, tear_down, NULL};               \
        test_add(&test, __LINE__);                                                                 \
    }                                                                                              \
    static void name(void **state)

/* True once the body of a test has ended; its tear_down may ask. */
extern bool test_has_passed;

/* Lists a test by its line: tests run in the order of their file. */
void test_add(const struct CMUnitTest *test, int line);

/* Runs the tests of this program; `set_up` before the first and `tear_down` after the last. Returns
 * how many failed. A test program without a main function does only this. */
int test_run(int (*set_up)(void **state), int (*tear_down)(void **state));

#endif
