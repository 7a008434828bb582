/* cmocka.h - the part of cmocka's interface that the device tests use, for machines with only a
 * compiler. Only programs built by tests/gpu/build use it instead of the library's header.
 *
 * A test ends at its first failing assertion. As in cmocka, the program's exit status is the number
 * of failed tests. */
#ifndef TW_TESTS_GPU_CMOCKA_H
#define TW_TESTS_GPU_CMOCKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
    void *initial_state;
};

#define cmocka_unit_test_setup_teardown(test, setup, teardown)                                     \
    { #test, test, setup, teardown, NULL }
#define cmocka_unit_test_setup(test, setup) cmocka_unit_test_setup_teardown(test, setup, NULL)
#define cmocka_unit_test_teardown(test, teardown)                                                  \
    cmocka_unit_test_setup_teardown(test, NULL, teardown)
#define cmocka_unit_test(test) cmocka_unit_test_setup_teardown(test, NULL, NULL)
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    bare_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

int bare_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **state),
             int (*teardown)(void **state));

/* Each of these prints a message; bare_fail and bare_skip also end the test. */
__attribute__((noreturn, format(printf, 3, 4))) void bare_fail(const char *file, int line,
                                                               const char *format, ...);
__attribute__((noreturn)) void bare_skip(const char *file, int line);
void bare_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline void bare_equal(uint64_t a, uint64_t b, bool is_wanted, const char *file, int line) {
    if ((a == b) == is_wanted) return;
    bare_fail(file, line, "%#llx %s %#llx", (unsigned long long)a,
              is_wanted ? "!=" : "==", (unsigned long long)b);
}

static inline void bare_memory(const void *a, const void *b, size_t size, bool is_wanted,
                               const char *file, int line) {
    const unsigned char *const x = (const unsigned char *)a, *const y = (const unsigned char *)b;
    size_t i = 0;
    while (i < size && x[i] == y[i]) i++;
    if ((i == size) == is_wanted) return;
    if (!is_wanted) bare_fail(file, line, "%zu bytes are the same", size);
    bare_fail(file, line, "byte %zu of %zu: %#x != %#x", i, size, x[i], y[i]);
}

#define BARE_HERE __FILE__, __LINE__
#define assert_true(what)                                                                          \
    do {                                                                                           \
        if (!(what)) bare_fail(BARE_HERE, "%s", #what);                                            \
    } while (0)
#define assert_false(what) assert_true(!(what))
#define assert_null(what) assert_true((what) == NULL)
#define assert_non_null(what) assert_true((what) != NULL)
#define assert_int_equal(a, b) bare_equal((uint64_t)(a), (uint64_t)(b), true, BARE_HERE)
#define assert_int_not_equal(a, b) bare_equal((uint64_t)(a), (uint64_t)(b), false, BARE_HERE)
#define assert_ptr_equal(a, b) assert_int_equal((uintptr_t)(a), (uintptr_t)(b))
#define assert_ptr_not_equal(a, b) assert_int_not_equal((uintptr_t)(a), (uintptr_t)(b))
#define assert_memory_equal(a, b, size) bare_memory(a, b, size, true, BARE_HERE)
#define assert_memory_not_equal(a, b, size) bare_memory(a, b, size, false, BARE_HERE)
#define assert_string_equal(a, b)                                                                  \
    do {                                                                                           \
        const char *const bare_a = (a), *const bare_b = (b);                                       \
        if (strcmp(bare_a, bare_b) != 0) bare_fail(BARE_HERE, "\"%s\" != \"%s\"", bare_a, bare_b); \
    } while (0)
#define assert_in_range(value, least, most)                                                        \
    do {                                                                                           \
        const uint64_t bare_value = (uint64_t)(value);                                             \
        if (bare_value < (uint64_t)(least) || bare_value > (uint64_t)(most)) {                     \
            bare_fail(BARE_HERE, "%llu is not in [%s, %s]", (unsigned long long)bare_value,        \
                      #least, #most);                                                              \
        }                                                                                          \
    } while (0)
#define assert_return_code(code, error)                                                            \
    do {                                                                                           \
        if ((code) < 0) bare_fail(BARE_HERE, "%s: %s", #code, strerror(error));                    \
    } while (0)
#define fail_msg(...) bare_fail(BARE_HERE, __VA_ARGS__)
#define fail() bare_fail(BARE_HERE, "fail()")
#define skip() bare_skip(BARE_HERE)
#define print_message(...) bare_print(__VA_ARGS__)
#define print_error(...) bare_print(__VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
