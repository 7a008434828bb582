/* Tests of proto/hello.c. */
#include "base/bytes.h"
#include "proto/hello.h"
#include "tests/test.h"

static struct tw_welcome welcome, back;
static struct tw_error err;
static uint8_t body[TW_WELCOME_BYTES_MAX + 8];
static uint32_t size;

static int setup(void **state) {
    memset(&welcome, 0, sizeof(welcome));
    welcome.manifest_bytes = 17;
    memcpy(welcome.manifest, "thinwire-run 1\na\n", 17);
    welcome.secrets_count = 2;
    memset(welcome.secrets, 0x5e, sizeof(welcome.secrets));
    welcome.certs.count = 1;
    welcome.certs.certs[0] = (struct tw_cert){.may = TW_CERT_TRAIN, .from_s = 1, .until_s = 2};
    welcome.peers_count = 2;
    memset(welcome.peers[0].id.bytes, 1, 32);
    memset(welcome.peers[1].id.bytes, 2, 32);
    (void)snprintf(welcome.peers[0].addr, TW_ADDR_BYTES, "one:4747");
    (void)snprintf(welcome.peers[1].addr, TW_ADDR_BYTES, "[::1]:4747");
    size = tw_welcome_encode(&welcome, body);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void refused(const char *word) {
    assert_int_equal(tw_welcome_decode(body, size, &back, &err), TW_PROTO);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' lacks '%s'", err.message, word);
}

FACT(a_welcome_survives_the_wire) {
    assert_int_equal(tw_welcome_decode(body, size, &back, &err), TW_OK);
    assert_memory_equal(&back, &welcome, sizeof(back));
}

FACT(the_largest_fits_and_the_smallest_is_enough) {
    welcome.manifest_bytes = TW_MANIFEST_BYTES_MAX;
    memset(welcome.manifest, 'm', TW_MANIFEST_BYTES_MAX);
    welcome.certs.count = TW_CERTS_MAX;
    welcome.certs.certs[1] = welcome.certs.certs[0];
    welcome.peers_count = TW_WELCOME_PEERS_MAX;
    for (unsigned i = 0; i < TW_WELCOME_PEERS_MAX; i++) {
        memset(welcome.peers[i].addr, 'a', TW_ADDR_BYTES - 1);
        memcpy(welcome.peers[i].addr + TW_ADDR_BYTES - 6, ":4300", 5);
    }
    size = tw_welcome_encode(&welcome, body);
    assert_true(size <= TW_WELCOME_BYTES_MAX);
    assert_int_equal(tw_welcome_decode(body, size, &back, &err), TW_OK);
    assert_memory_equal(&back, &welcome, sizeof(back));
    memset(&welcome, 0, sizeof(welcome));
    welcome.manifest_bytes = 1;
    welcome.manifest[0] = 'm';
    size = tw_welcome_encode(&welcome, body);
    assert_int_equal(tw_welcome_decode(body, size, &back, &err), TW_OK);
    assert_memory_equal(&back, &welcome, sizeof(back));
}

FACT(every_cut_is_refused) {
    const uint32_t whole = size;
    for (size = 0; size < whole; size++) refused("WELCOME");
    size = whole + 1;
    refused("after the last field");
    size = TW_WELCOME_BYTES_MAX + 1;
    refused("of 28673 bytes");
}

FACT(fields_have_their_bounds) {
    tw_put_u32(body, 9);
    refused("9 fields, at most 8");
    setup(NULL);
    tw_put_u16(body + 4, 9); /* no manifest */
    size = 4 + 4 + 17;
    tw_put_u32(body, 1);
    refused("manifest of 0 bytes");
    welcome.secrets_count = 1;
    welcome.certs.count = welcome.peers_count = 0;
    size = tw_welcome_encode(&welcome, body) - 1;
    tw_put_u16(body + 4 + 4 + 17 + 2, 31);
    refused("secrets of 31 bytes");
}

FACT(peers_have_their_bounds) {
    welcome.secrets_count = welcome.certs.count = 0;
    welcome.peers_count = 1;
    size = tw_welcome_encode(&welcome, body);
    const uint32_t at = 4 + 4 + 17 + 4;
    body[at + 32] = 200;
    refused("peer 0 has a bad length");
    body[at + 32] = 8;
    body[at + 33 + 3] = ' ';
    refused("peer 0 is not host:port");
    tw_put_u16(body + at - 2, 5);
    size = at + 5;
    refused("peer 0 has a bad length");
    /* one more than fits */
    welcome.peers_count = TW_WELCOME_PEERS_MAX;
    for (unsigned i = 0; i < TW_WELCOME_PEERS_MAX; i++) memcpy(welcome.peers[i].addr, "a:1", 4);
    size = tw_welcome_encode(&welcome, body);
    memcpy(body + size, body + size - 36, 36);
    size += 36;
    tw_put_u16(body + at - 2, (uint16_t)(17 * 36));
    refused("more than 16 peers");
}
