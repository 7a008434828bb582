/* make_text.h - any amount of text that is realistically hard to tokenise: prose and code of
 * made-up words whose frequencies fall like those of real words (Zipf 1949). */
#ifndef TW_TESTS_BENCH_MAKE_TEXT_H
#define TW_TESTS_BENCH_MAKE_TEXT_H

#include <stdint.h>

/* Writes `bytes` of text to a new file. Same bytes and seed, same text. False: see errno. */
int make_text(const char *path, uint64_t bytes, uint64_t seed);

#endif
