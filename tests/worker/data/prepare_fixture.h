/* prepare_fixture.h - a folder with inputs (in/) and a dataset (out/) of its own for each test. */
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

/* Options as the command line has them by default, with two threads, of in/ to out/. */
struct prepare_fixture *prepare_fixture_create(void);
int prepare_fixture_destroy(struct prepare_fixture *at);

/* FOLDER/NAME, the caller's to free. */
char *prepare_fixture_path(const struct prepare_fixture *at, const char *name);

/* A file of in/. */
void prepare_fixture_write(const struct prepare_fixture *at, const char *name, const void *bytes,
                           size_t size);

/* Lines of words and blank lines: in/text-0 and in/text-1, so many bytes each. */
void prepare_fixture_fill(const struct prepare_fixture *at, size_t bytes, uint64_t seed);

/* A file of out/, the caller's to free. */
uint8_t *prepare_fixture_read(const struct prepare_fixture *at, const char *name, size_t *size);

#endif
