/* test_units.c - sizes in the forms that people write. */
#include "base/units.h"
#include "tests/test.h"

static void assert_bytes(const char *text, uint64_t wanted) {
    uint64_t bytes = 1;
    if (!tw_units_parse_bytes(text, &bytes)) fail_msg("%s was refused", text);
    if (bytes != wanted) fail_msg("%s is %llu", text, (unsigned long long)bytes);
}

TEST(sizes_are_read_as_people_write_them) {
    assert_bytes("8GB", 8000000000);
    assert_bytes("8 gb", 8000000000);
    assert_bytes("1.5 GiB", 1610612736);
    assert_bytes("0.25kB", 250);
    assert_bytes("512MiB", 536870912);
    assert_bytes("77B", 77);
    assert_bytes("0", 0);
}

TEST(text_that_is_no_size_is_refused) {
    const char *const bad[] = {"",
                               "8",
                               "GB",
                               "-1GB",
                               "8GBs",
                               "1.GB",
                               "1e3MB",
                               "8 GB ",
                               "8 XB",
                               "1,5GB",
                               " 8GB",
                               "8..5GB",
                               "99999999999999999999GB",
                               "9999999999999TB"};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t bytes;
        if (tw_units_parse_bytes(bad[i], &bytes)) fail_msg("`%s` was taken", bad[i]);
    }
}

TEST(caps_are_printed_in_bits_as_they_are_typed) {
    char text[TW_UNITS_BYTES];
    assert_string_equal(tw_units_bit_rate(text, 625000), "5 Mbit/s");
    assert_string_equal(tw_units_bit_rate(text, 62500), "500 kbit/s");
    assert_string_equal(tw_units_bit_rate(text, 312500), "2.5 Mbit/s");
    assert_string_equal(tw_units_bit_rate(text, 0), "0 bit/s");
    assert_string_equal(tw_units_bit_rate(text, 1.25e9), "10 Gbit/s");
}

TEST(exact_sizes_read_back) {
    const uint64_t sizes[] = {0, 1, 999, 1000, 1024, 8000000000, 1610612736, 1500000, 123456789};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char text[TW_UNITS_BYTES];
        assert_bytes(tw_units_exact_bytes(text, sizes[i]), sizes[i]);
    }
    char text[TW_UNITS_BYTES];
    assert_string_equal(tw_units_exact_bytes(text, 8000000000), "8GB");
    assert_string_equal(tw_units_exact_bytes(text, 1610612736), "1536MiB");
}

TEST(moments_are_written_in_utc) {
    static const struct {
        uint64_t unix_s;
        const char *text;
    } MOMENTS[] = {{0, "1970-01-01 00:00 UTC"},
                   {951782399, "2000-02-28 23:59 UTC"},
                   {951782400, "2000-02-29 00:00 UTC"},
                   {951868800, "2000-03-01 00:00 UTC"},
                   {1798761599, "2026-12-31 23:59 UTC"},
                   {UINT64_C(4107542400), "2100-03-01 00:00 UTC"},
                   {UINT64_C(253402300799), "9999-12-31 23:59 UTC"},
                   {UINT64_C(253402300800), "-"},
                   {UINT64_MAX, "-"}};
    for (unsigned i = 0; i < sizeof(MOMENTS) / sizeof(MOMENTS[0]); i++) {
        char text[TW_UNITS_BYTES];
        assert_string_equal(tw_units_utc(text, MOMENTS[i].unix_s), MOMENTS[i].text);
    }
}

TEST(one_has_no_s) {
    assert_string_equal(tw_units_s(0), "s");
    assert_string_equal(tw_units_s(1), "");
    assert_string_equal(tw_units_s(2), "s");
}
