/* Tests of proto/ticket.c: the line as printed, and as people paste it. */
#include "base/bytes.h"
#include "base/hash.h"
#include "proto/ticket.h"
#include "tests/test.h"

static struct tw_ticket ticket, back;
static struct tw_error err;
static char text[2 * TW_TICKET_TEXT_BYTES];

static int setup(void **state) {
    ticket = (struct tw_ticket){.expires_s = 1790000000, .uses = 2, .addrs_count = 2};
    for (unsigned i = 0; i < 32; i++) {
        ticket.run.bytes[i] = (uint8_t)(i + 1);
        ticket.inviter.bytes[i] = (uint8_t)(0xf0 - i);
    }
    memset(ticket.id, 0xab, sizeof(ticket.id));
    memset(ticket.key, 0x5e, sizeof(ticket.key));
    (void)snprintf(ticket.addrs[0], TW_ADDR_BYTES, "one.example:4747");
    (void)snprintf(ticket.addrs[1], TW_ADDR_BYTES, "[2001:db8::1]:4747");
    tw_ticket_encode(&ticket, text);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void refused(const char *word) {
    back.uses = 99;
    assert_int_equal(tw_ticket_decode(text, &back, &err), TW_CONFIG);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' lacks '%s'", err.message, word);
    assert_int_equal(back.uses, 99);
}

FACT(a_ticket_survives_its_line) {
    assert_int_equal(tw_ticket_decode(text, &back, &err), TW_OK);
    assert_memory_equal(&back, &ticket, sizeof(back));
    assert_int_equal(strspn(text, "0123456789abcdefghjkmnpqrstvwxyz"), strlen(text));
}

FACT(the_longest_ticket_fits) {
    ticket.addrs_count = TW_ADDRS_MAX;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        memset(ticket.addrs[i], 'a', TW_ADDR_BYTES - 1);
        memcpy(ticket.addrs[i] + TW_ADDR_BYTES - 6, ":4300", 5);
    }
    ticket.expires_s = UINT32_MAX;
    ticket.uses = TW_TICKET_USES_MAX;
    tw_ticket_encode(&ticket, text);
    assert_true(strlen(text) < TW_TICKET_TEXT_BYTES);
    assert_int_equal(tw_ticket_decode(text, &back, &err), TW_OK);
    assert_memory_equal(&back, &ticket, sizeof(back));
}

FACT(people_paste_it_as_they_do) {
    char pasted[2 * TW_TICKET_TEXT_BYTES] = " \n";
    size_t at = 2;
    for (const char *c = text; *c != '\0'; c++) {
        pasted[at++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
        if (*c == '1' && c > text + 3) pasted[at - 1] = 'I';
        if (*c == '0') pasted[at - 1] = 'O';
        if (*c == 'v') pasted[at - 1] = 'u';
        if ((c - text) % 60 == 59) pasted[at++] = '\n';
    }
    pasted[at] = '\0';
    assert_int_equal(tw_ticket_decode(pasted, &back, &err), TW_OK);
    assert_memory_equal(&back, &ticket, sizeof(back));
}

FACT(every_wrong_digit_is_noticed) {
    for (size_t i = 3; text[i] != '\0'; i++) {
        const char was = text[i];
        text[i] = was == '7' ? '8' : '7';
        assert_int_equal(tw_ticket_decode(text, &back, &err), TW_CONFIG);
        text[i] = was;
    }
}

FACT(every_cut_and_every_tail_is_noticed) {
    const size_t whole = strlen(text);
    char kept[2 * TW_TICKET_TEXT_BYTES];
    memcpy(kept, text, whole + 1);
    for (size_t cut = 0; cut < whole; cut++) {
        memcpy(text, kept, cut);
        text[cut] = '\0';
        assert_int_equal(tw_ticket_decode(text, &back, &err), TW_CONFIG);
    }
    memcpy(text, kept, whole + 1);
    memcpy(text + whole, "0", 2);
    assert_int_equal(tw_ticket_decode(text, &back, &err), TW_CONFIG);
    memset(text + 3, '0', sizeof(text) - 4);
    text[sizeof(text) - 1] = '\0';
    refused("longer than any ticket");
}

FACT(text_that_is_no_ticket_is_named_as_such) {
    (void)snprintf(text, sizeof(text), "one.example:4747");
    refused("no ticket, which begins with tw1");
    (void)snprintf(text, sizeof(text), "%s", "");
    refused("no ticket");
    (void)snprintf(text, sizeof(text), "tw2abc");
    refused("another version (tw2)");
    (void)snprintf(text, sizeof(text), "tw1ab!c");
    refused("no part of a ticket");
    (void)snprintf(text, sizeof(text), "tw10000");
    refused("shorter");
}

/* Writes the Base32 line of these bytes to text[], with valid check digits, as an attacker would.
 */
static void line_of(uint8_t *bytes, size_t size) {
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    const struct tw_id hash = tw_sha256(bytes, size);
    memcpy(bytes + size, hash.bytes, 4);
    size_t at = 3;
    const size_t bits = 8 * (size + 4);
    for (size_t bit = 0; bit < bits; bit += 5) {
        unsigned value = 0;
        for (size_t i = bit; i < bit + 5; i++)
            value = value << 1 | (i < bits ? (unsigned)bytes[i / 8] >> (7 - i % 8) & 1u : 0);
        text[at++] = digits[value];
    }
    text[at] = '\0';
}

FACT(fields_have_their_bounds) {
    uint8_t bytes[512] = {0};
    enum { USES = 92, COUNT = 94, ADDRS = 95 };
    tw_put_u16(bytes + USES, 1);
    bytes[COUNT] = 1;
    bytes[ADDRS] = 3;
    memcpy(bytes + ADDRS + 1, "a:1", 3);
    line_of(bytes, ADDRS + 4);
    assert_int_equal(tw_ticket_decode(text, &back, &err), TW_OK);
    assert_string_equal(back.addrs[0], "a:1");
    tw_put_u16(bytes + USES, 0);
    line_of(bytes, ADDRS + 4);
    refused("0 uses");
    tw_put_u16(bytes + USES, TW_TICKET_USES_MAX + 1);
    line_of(bytes, ADDRS + 4);
    refused("65 uses");
    tw_put_u16(bytes + USES, 1);
    bytes[COUNT] = 5;
    line_of(bytes, ADDRS + 4);
    refused("5 addresses");
    bytes[COUNT] = 0;
    line_of(bytes, ADDRS + 4);
    refused("0 addresses");
    bytes[COUNT] = 2;
    line_of(bytes, ADDRS + 4);
    refused("address 2 has a length");
    bytes[COUNT] = 1;
    bytes[ADDRS] = 200;
    line_of(bytes, ADDRS + 4);
    refused("address 1 has a length");
    bytes[ADDRS] = 3;
    bytes[ADDRS + 2] = '\0';
    line_of(bytes, ADDRS + 4);
    refused("not host:port");
    bytes[ADDRS + 2] = ':';
    line_of(bytes, ADDRS + 5);
    refused("after the last address");
}
