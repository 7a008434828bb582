#include "proto/recall.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { AT_ZERO = 4, AT_VERSION = 8, AT_MADE = 16, AT_RUN = 24, AT_LINEAGE = 56, AT_ROUNDS = 88 };

_Static_assert(AT_ROUNDS + 8 == TW_RECALL_TEXT_BYTES, "the layout of recall.h");

static const uint8_t magic[4] = {'T', 'W', 'B', '1'};
static const char signed_domain[] = "thinwire-recall-v1";

_Static_assert(sizeof(signed_domain) == TW_RECALL_DOMAIN_BYTES, "with its NUL");

void tw_recall_encode(const struct tw_recall *recall, uint8_t bytes[TW_RECALL_BYTES]) {
    memcpy(bytes, magic, sizeof(magic));
    tw_put_u32(bytes + AT_ZERO, 0);
    tw_put_u64(bytes + AT_VERSION, recall->version);
    tw_put_u64(bytes + AT_MADE, recall->made_s);
    memcpy(bytes + AT_RUN, recall->run.bytes, 32);
    memcpy(bytes + AT_LINEAGE, recall->lineage.bytes, 32);
    tw_put_u64(bytes + AT_ROUNDS, recall->rounds);
    memcpy(bytes + TW_RECALL_TEXT_BYTES, recall->signature, TW_SIGNATURE_BYTES);
}

enum tw_status tw_recall_decode(const uint8_t *bytes, size_t size, struct tw_recall *recall,
                                struct tw_error *err) {
    if (size != TW_RECALL_BYTES) return tw_fail(err, TW_PROTO, "recall: %zu bytes", size);
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return tw_fail(err, TW_PROTO, "recall: it does not start with TWB1");
    if (tw_get_u32(bytes + AT_ZERO) != 0)
        return tw_fail(err, TW_PROTO, "recall: bytes 4 to 7 are not zero");
    if (tw_get_u64(bytes + AT_VERSION) == 0)
        return tw_fail(err, TW_PROTO, "recall: version 0; they begin with 1");
    if (tw_get_u64(bytes + AT_ROUNDS) == 0)
        return tw_fail(err, TW_PROTO, "recall: to round 0, which no checkpoint holds");
    memset(recall, 0, sizeof(*recall));
    recall->version = tw_get_u64(bytes + AT_VERSION);
    recall->made_s = tw_get_u64(bytes + AT_MADE);
    recall->rounds = tw_get_u64(bytes + AT_ROUNDS);
    memcpy(recall->run.bytes, bytes + AT_RUN, 32);
    memcpy(recall->lineage.bytes, bytes + AT_LINEAGE, 32);
    memcpy(recall->signature, bytes + TW_RECALL_TEXT_BYTES, TW_SIGNATURE_BYTES);
    return TW_OK;
}

void tw_recall_signed(const struct tw_recall *recall, uint8_t text[TW_RECALL_SIGNED_BYTES]) {
    uint8_t bytes[TW_RECALL_BYTES];
    tw_recall_encode(recall, bytes);
    memcpy(text, signed_domain, TW_RECALL_DOMAIN_BYTES);
    memcpy(text + TW_RECALL_DOMAIN_BYTES, bytes, TW_RECALL_TEXT_BYTES);
}

struct tw_id tw_recall_awaited(const struct tw_recall *recall) {
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    tw_recall_signed(recall, text);
    return tw_sha256(text, sizeof(text));
}
