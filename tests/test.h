/* test.h - cmocka, with the headers that cmocka itself does not include, for every test. */
#ifndef TW_TESTS_TEST_H
#define TW_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
