/* Tests the bytes of PCP messages: a request as in RFC 6887, answers of miniupnpd, and foreign
 * answers. */
#include "tests/test.h"

#include "daemon/router/port_router.h"

static const struct tw_pcp_map asked = {.nonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                                        .host = "192.168.1.2",
                                        .port = 4747,
                                        .outer_port = 4748,
                                        .lease_s = 3600};

/* An answer to `asked`: port 4748 of 11.0.0.3 for 120 s. */
static const uint8_t granted[TW_PCP_MAP_BYTES] = {
    2, 0x81, 0, 0, 0,  0,    0,  120,  0, 0, 0,    99,   0,  0,  0,  0,  0, 0, 0, 0, /* head */
    0, 0,    0, 0, 1,  2,    3,  4,    5, 6, 7,    8,    9,  10, 11, 12,             /* nonce */
    6, 0,    0, 0, 18, 0x8b, 18, 0x8c,                                               /* ports */
    0, 0,    0, 0, 0,  0,    0,  0,    0, 0, 0xff, 0xff, 11, 0,  0,  3};

TEST(request_is_as_in_the_standard) {
    static const uint8_t want[TW_PCP_MAP_BYTES] = {
        2, 1, 0, 0, 0,  0,    0x0e, 0x10, /* MAP, 3600 s */
        0, 0, 0, 0, 0,  0,    0,    0,    0, 0,  0xff, 0xff, 192, 168, 1, 2,
        1, 2, 3, 4, 5,  6,    7,    8,    9, 10, 11,   12, /* nonce */
        6, 0, 0, 0, 18, 0x8b, 18,   0x8c,                  /* TCP, port 4747, external port 4748 */
        0, 0, 0, 0, 0,  0,    0,    0,    0, 0,  0xff, 0xff, 0,   0,   0, 0};
    uint8_t bytes[TW_PCP_MAP_BYTES];
    struct tw_pcp_map bad = asked;
    assert_int_equal(tw_pcp_request(&asked, bytes), TW_OK);
    assert_memory_equal(bytes, want, sizeof(want));
    (void)strcpy(bad.host, "host");
    assert_int_equal(tw_pcp_request(&bad, bytes), TW_CONFIG);
}

TEST(answer_is_read) {
    struct tw_pcp_mapped mapped;
    assert_int_equal(tw_pcp_answer(&asked, granted, sizeof(granted), &mapped), TW_OK);
    assert_int_equal(mapped.result, 0);
    assert_int_equal(mapped.lease_s, 120);
    assert_int_equal(mapped.outer_port, 4748);
    assert_string_equal(mapped.outer_host, "11.0.0.3");
}

TEST(refusal_is_read_also_of_another_version) {
    struct tw_pcp_mapped mapped;
    uint8_t bytes[TW_PCP_MAP_BYTES];
    memcpy(bytes, granted, sizeof(bytes));
    bytes[3] = 2;
    assert_int_equal(tw_pcp_answer(&asked, bytes, sizeof(bytes), &mapped), TW_OK);
    assert_int_equal(mapped.result, 2);
    assert_string_equal(tw_pcp_words(2), "not authorized");
    assert_string_equal(tw_pcp_words(200), "an error without a name");
    bytes[0] = 3, bytes[3] = 1;
    assert_int_equal(tw_pcp_answer(&asked, bytes, 24, &mapped), TW_OK);
    assert_int_equal(mapped.result, 1);
}

TEST(answers_to_others_are_none) {
    struct tw_pcp_mapped mapped;
    /* version, opcode, nonce (first and last byte), TCP, port */
    static const size_t AT[] = {0, 1, 24, 35, 36, 40, 41};
    for (size_t i = 0; i < sizeof(AT) / sizeof(AT[0]); i++) {
        uint8_t bytes[TW_PCP_MAP_BYTES];
        memcpy(bytes, granted, sizeof(bytes));
        bytes[AT[i]] ^= 1;
        assert_int_equal(tw_pcp_answer(&asked, bytes, sizeof(bytes), &mapped), TW_PROTO);
    }
    for (size_t size = 0; size < TW_PCP_MAP_BYTES; size++)
        assert_int_equal(tw_pcp_answer(&asked, granted, size, &mapped), TW_PROTO);
    uint8_t six[TW_PCP_MAP_BYTES]; /* an external address that is not IPv4 */
    memcpy(six, granted, sizeof(six));
    six[44] = 0x20;
    assert_int_equal(tw_pcp_answer(&asked, six, sizeof(six), &mapped), TW_OK);
    assert_string_equal(mapped.outer_host, "");
}
