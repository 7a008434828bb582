/* Tests of proto/cert.c. */
#include "tests/test.h"

#include "proto/cert.h"

enum { CAPACITY = 100 };

static struct tw_error err;

TEST(every_length_reads_back) {
    uint8_t bytes[CAPACITY], back[CAPACITY];
    for (size_t i = 0; i < CAPACITY; i++) bytes[i] = (uint8_t)(i * 37);
    for (size_t size = 0; size <= CAPACITY; size++) {
        char text[TW_ARMOUR_BYTES(CAPACITY)];
        size_t got = 0;
        const size_t length = tw_armour_encode(TW_ARMOUR_CERTS, bytes, size, text);
        assert_int_equal(length, strlen(text));
        assert_true(length < TW_ARMOUR_BYTES(size));
        assert_int_equal(
            tw_armour_decode(TW_ARMOUR_CERTS, text, length, back, CAPACITY, &got, &err), TW_OK);
        assert_int_equal(got, size);
        assert_memory_equal(back, bytes, size);
    }
}

static enum tw_status decode(const char *text, size_t *size) {
    static uint8_t back[4];
    memset(&err, 0, sizeof(err));
    return tw_armour_decode(TW_ARMOUR_REVOKED, text, strlen(text), back, sizeof(back), size, &err);
}

TEST(changes_by_mail_are_tolerated) {
    size_t size = 0;
    assert_int_equal(decode("\r\n thinwire-revocations 1 \r\n  AB cd\r\n\r\n EF01\r\n", &size),
                     TW_OK);
    assert_int_equal(size, 4);
}

TEST(anything_else_is_refused) {
    static const struct {
        const char *text, *word;
    } CASES[] = {{"", "begin with the line `thinwire-revocations 1`"},
                 {"abcd", "begin with the line"},
                 {"thinwire-certificate 1\nabcd", "begin with the line"},
                 {"thinwire-revocations 12\nabcd", "begin with the line"},
                 {"thinwire-revocations 1\nabxd", "something else"},
                 {"thinwire-revocations 1\nabc", "middle of a byte"},
                 {"thinwire-revocations 1\nabcdef0123", "longer than 4 bytes"}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        size_t size = 77;
        assert_int_equal(decode(CASES[i].text, &size), TW_CONFIG);
        if (strstr(err.message, CASES[i].word) == NULL)
            fail_msg("no '%s' in: %s", CASES[i].word, err.message);
        assert_int_equal(size, 77);
    }
}
