/* Tests of proto/frame.c: the TWIN frame and the text of its GOODBYE, valid and hostile. */
#include "proto/frame.h"

#include "tests/test.h"

static struct tw_error err;
static uint8_t body[TW_TWIN_BYTES_MAX + 8];

TEST(words_survive_the_wire) {
    const struct tw_twin_word words[] = {
        {.nonce = UINT64_MAX, .address = "127.0.0.1:14949"},
        {.nonce = 3, .is_answer = true},
        {.nonce = 0},
    };
    for (unsigned i = 0; i < 3; i++) {
        struct tw_twin_word back;
        const uint32_t size = tw_twin_encode(&words[i], body);
        assert_int_equal(size, TW_TWIN_HEAD_BYTES + strlen(words[i].address));
        assert_int_equal(tw_twin_decode(body, size, &back, &err), TW_OK);
        assert_true(back.nonce == words[i].nonce);
        assert_int_equal(back.is_answer, words[i].is_answer);
        assert_string_equal(back.address, words[i].address);
    }
}

static void refused(size_t size, const char *word) {
    struct tw_twin_word back = {.nonce = 42};
    assert_int_equal(tw_twin_decode(body, size, &back, &err), TW_PROTO);
    assert_non_null(strstr(err.message, word));
    assert_true(back.nonce == 42); /* untouched */
}

TEST(hostile_words_are_refused) {
    struct tw_twin_word word = {.nonce = 1, .address = "10.0.0.1:4300"};
    const uint32_t size = tw_twin_encode(&word, body);
    refused(TW_TWIN_HEAD_BYTES - 1, "bytes");
    refused(0, "bytes");
    refused(TW_TWIN_BYTES_MAX, "bytes");
    refused(size - 5, "host:port");
    body[TW_TWIN_HEAD_BYTES + 3] = '\0';
    refused(size, "host:port");
    body[TW_TWIN_HEAD_BYTES + 3] = '"';
    refused(size, "host:port");
    body[8] = 1;
    refused(size, "answer");
    body[8] = 2;
    refused(size, "form");
}

TEST(address_of_a_goodbye_is_checked) {
    char address[TW_ADDR_BYTES], text[300];
    tw_twin_address("[2001:db8::1]:4300", address);
    assert_string_equal(address, "[2001:db8::1]:4300");
    tw_twin_address("no reason given", address);
    assert_string_equal(address, "");
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    tw_twin_address(text, address);
    assert_string_equal(address, "");
}
