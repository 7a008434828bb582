/* Tests of proto/cert.c. */
#include "tests/test.h"

#include "base/bytes.h"
#include "proto/cert.h"

static struct tw_error err;
static struct tw_recall recall, back;
static uint8_t bytes[TW_RECALL_BYTES + 8];

static int setup(void **state) {
    memset(&recall, 0, sizeof(recall));
    recall.version = 3;
    recall.made_s = 1800000000;
    recall.rounds = 812;
    memset(recall.run.bytes, 2, 32);
    memset(recall.lineage.bytes, 9, 32);
    memset(recall.signature, 0x5A, sizeof(recall.signature));
    tw_recall_encode(&recall, bytes);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

FACT(recall_reads_back) {
    memset(&back, 0xEE, sizeof(back));
    assert_int_equal(tw_recall_decode(bytes, TW_RECALL_BYTES, &back, &err), TW_OK);
    assert_memory_equal(&recall, &back, sizeof(recall));
}

static void refuses(size_t size, const char *word) {
    memset(&err, 0, sizeof(err));
    assert_int_equal(tw_recall_decode(bytes, size, &back, &err), TW_PROTO);
    if (strstr(err.message, word) == NULL) fail_msg("no '%s' in: %s", word, err.message);
    tw_recall_encode(&recall, bytes);
}

FACT(malformed_bytes_are_refused) {
    refuses(0, "0 bytes");
    refuses(TW_RECALL_BYTES - 1, "159 bytes");
    refuses(TW_RECALL_BYTES + 1, "161 bytes");
    bytes[3] = '2';
    refuses(TW_RECALL_BYTES, "TWB1");
    bytes[7] = 1;
    refuses(TW_RECALL_BYTES, "not zero");
    tw_put_u64(bytes + 8, 0);
    refuses(TW_RECALL_BYTES, "version 0");
    tw_put_u64(bytes + 88, 0);
    refuses(TW_RECALL_BYTES, "round 0");
}

/* The signature covers each field, and a change of any field gives another awaited lineage. */
FACT(every_field_is_signed) {
    uint8_t text[TW_RECALL_SIGNED_BYTES], other[TW_RECALL_SIGNED_BYTES];
    const struct tw_id awaited = tw_recall_awaited(&recall);
    tw_recall_signed(&recall, text);
    assert_string_equal((const char *)text, "thinwire-recall-v1");
    struct tw_recall changed[5];
    for (unsigned i = 0; i < 5; i++) changed[i] = recall;
    changed[0].version++;
    changed[1].made_s++;
    changed[2].run.bytes[31] ^= 1;
    changed[3].lineage.bytes[0] ^= 1;
    changed[4].rounds++;
    for (unsigned i = 0; i < 5; i++) {
        tw_recall_signed(&changed[i], other);
        assert_memory_not_equal(text, other, sizeof(text));
        const struct tw_id name = tw_recall_awaited(&changed[i]);
        assert_memory_not_equal(&name, &awaited, sizeof(name));
    }
    recall.signature[0] ^= 1;
    tw_recall_signed(&recall, other);
    assert_memory_equal(text, other, sizeof(text));
}
