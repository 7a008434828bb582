/* make_text.h - makes any amount of text that is realistically hard to tokenise: prose and code of
 * made-up words with the frequencies of real words (Zipf 1949). */
#ifndef TW_TESTS_BENCH_MAKE_TEXT_H
#define TW_TESTS_BENCH_MAKE_TEXT_H

#include <stdint.h>

/* Writes `bytes` of text to a new file. The same bytes and seed give the same text. Returns 0 on
 * failure, with errno set. */
int make_text(const char *path, uint64_t bytes, uint64_t seed);

#endif
