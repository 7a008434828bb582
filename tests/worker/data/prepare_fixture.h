/* prepare_fixture.h - a separate folder for each test, with inputs (in/) and a dataset (out/). */
#ifndef TW_TESTS_PREPARE_FIXTURE_H
#define TW_TESTS_PREPARE_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "worker/data/prepare/prepare.h"

struct prepare_fixture {
    char folder[64];
    char in[80], out[80], in_a[84]; /* in_a: in/a */
    const char *inputs[1];          /* in/ */
    struct tw_prepare_options options;
    struct tw_prepare_summary summary;
};

/* Default options of the command line, with two threads, from in/ to out/. */
struct prepare_fixture *prepare_fixture_create(void);
int prepare_fixture_destroy(struct prepare_fixture *at);

/* Returns the path FOLDER/NAME. The caller frees it. */
char *prepare_fixture_path(const struct prepare_fixture *at, const char *name);

/* Writes a file in in/. */
void prepare_fixture_write(const struct prepare_fixture *at, const char *name, const void *bytes,
                           size_t size);

/* Writes in/text-0 and in/text-1, of `bytes` bytes each: lines of words, and blank lines. */
void prepare_fixture_fill(const struct prepare_fixture *at, size_t bytes, uint64_t seed);

/* Reads a file of out/; the caller frees it. */
uint8_t *prepare_fixture_read(const struct prepare_fixture *at, const char *name, size_t *size);

#endif
