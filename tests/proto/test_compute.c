/* test_compute.c - every device can be written as text and read back; the error for any other text
 * names it. */
#include "proto/compute.h"
#include "tests/test.h"

static struct tw_device_choice read_device(const char *text) {
    struct tw_device_choice device;
    struct tw_error err;
    if (tw_device_parse(text, &device, &err) != TW_OK) fail_msg("%s", err.message);
    return device;
}

TEST(every_device_comes_back) {
    static const char *const TEXTS[] = {"auto", "cpu", "cuda:0", "cuda:9", "cuda:10", "cuda:63"};
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        char text[TW_DEVICE_TEXT_BYTES];
        const struct tw_device_choice device = read_device(TEXTS[i]);
        assert_string_equal(tw_device_print(&device, text), TEXTS[i]);
    }
    assert_int_equal(read_device("auto").kind, TW_DEVICE_AUTO);
    assert_int_equal(read_device("cpu").kind, TW_DEVICE_CPU);
    assert_int_equal(read_device("cuda").kind, TW_DEVICE_CUDA);
    assert_int_equal(read_device("cuda").ordinal, 0);
    assert_int_equal(read_device("cuda:12").ordinal, 12);
}

TEST(anything_else_is_refused_by_name) {
    static const char *const TEXTS[] = {
        "",        "gpu",   "CUDA",    "cuda:", "cuda:x", "cuda:1x", "cuda:-1",
        "cuda:64", "cuda0", "cuda: 1", "cpu:0", "auto ",  "cuda:+1", "cuda:4294967296"};
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        struct tw_device_choice device = {.kind = TW_DEVICE_CPU};
        struct tw_error err;
        assert_int_equal(tw_device_parse(TEXTS[i], &device, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, TEXTS[i]));
        assert_non_null(strstr(err.message, "is none of auto, cpu, cuda and cuda:N"));
        assert_int_equal(device.kind, TW_DEVICE_CPU); /* untouched */
    }
}

TEST(a_choice_of_another_process_is_checked) {
    const struct tw_device_choice good[] = {
        {TW_DEVICE_AUTO, 0}, {TW_DEVICE_CPU, 0}, {TW_DEVICE_CUDA, TW_DEVICE_ORDINAL_MAX}};
    const struct tw_device_choice bad[] = {{(enum tw_device_kind)3, 0},
                                           {TW_DEVICE_AUTO, 1},
                                           {TW_DEVICE_CPU, 1},
                                           {TW_DEVICE_CUDA, TW_DEVICE_ORDINAL_MAX + 1}};
    for (unsigned i = 0; i < 3; i++) assert_true(tw_device_is_valid(&good[i]));
    for (unsigned i = 0; i < 4; i++) assert_false(tw_device_is_valid(&bad[i]));
}
