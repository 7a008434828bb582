/* fuzz_run.c - arbitrary text as a manifest and as a run file: an accepted run can be written and
 * read back, and has a layout or a reason why not. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Compares by canonical text, which ignores padding. */
static void expect_equal(const struct tw_run *a, const struct tw_run *b) {
    static char first[TW_MANIFEST_BYTES_MAX], second[TW_MANIFEST_BYTES_MAX];
    size_t first_size, second_size;
    tw_run_encode(a, first, &first_size);
    tw_run_encode(b, second, &second_size);
    TW_ASSERT(first_size == second_size);
    TW_ASSERT(memcmp(first, second, first_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[TW_MANIFEST_BYTES_MAX];
    static struct tw_layout layout;
    struct tw_run run, back;
    struct tw_error err;
    size_t text_size;
    const char *from = (const char *)data;
    if (tw_run_decode(from, size, &run, &err) == TW_OK) {
        tw_run_encode(&run, text, &text_size);
        TW_ASSERT(text_size == size);
        TW_ASSERT(memcmp(text, from, size) == 0);
    }
    if (tw_run_read(from, size, &run, &err) != TW_OK) {
        TW_ASSERT(err.status == TW_CONFIG);
        return 0;
    }
    tw_run_write(&run, text, &text_size);
    TW_ASSERT(tw_run_read(text, text_size, &back, &err) == TW_OK);
    expect_equal(&run, &back);
    if (tw_layout_init(&layout, &run, &err) == TW_OK)
        TW_ASSERT(layout.fragment_begin[layout.fragments_count] == layout.elements);
    return 0;
}
