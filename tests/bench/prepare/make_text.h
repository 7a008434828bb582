/* make_text.h - any amount of text that is hard enough to tokenise: prose and code of made-up words
 * whose frequencies fall as those of real ones do (Zipf 1949). */
#ifndef TW_TESTS_BENCH_MAKE_TEXT_H
#define TW_TESTS_BENCH_MAKE_TEXT_H

#include <stdint.h>

/* Writes `bytes` of it to a new file. Same bytes and seed, same text. False: see errno. */
int make_text(const char *path, uint64_t bytes, uint64_t seed);

#endif
