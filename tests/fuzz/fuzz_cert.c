/* fuzz_cert.c - certificates, revocation lists, recalls and their text form, from untrusted
 * sources.
 *
 * The first byte selects the decoder. Decoded bytes must be canonical, because signatures cover the
 * encoded form. Checking a certificate has no effect besides its result. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/cert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_certs(const uint8_t *data, size_t size) {
    struct tw_certs certs;
    struct tw_error err;
    uint8_t again[TW_CERTS_MAX * TW_CERT_BYTES], text[TW_CERT_SIGNED_BYTES];
    if (tw_certs_decode(data, size, &certs, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    TW_ASSERT(tw_certs_encode(&certs, again) == size);
    TW_ASSERT(memcmp(again, data, size) == 0);
    tw_cert_signed(&certs.certs[0], text);
    /* Checks the node that the certificates name, at times near their bounds. */
    const struct tw_cert *own = &certs.certs[0];
    struct tw_cert_question asked = {.owner = certs.certs[certs.count - 1].issuer,
                                     .run = own->run,
                                     .node = own->node,
                                     .may = TW_CERT_TRAIN};
    const uint64_t moments[] = {0, own->from_s, own->until_s, own->until_s + 301, UINT64_MAX};
    for (unsigned i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        asked.now_s = moments[i];
        asked.their_now_s = moments[(i + 1) % 5];
        const enum tw_status status = tw_certs_check(&certs, &asked, &err);
        TW_ASSERT(status == TW_OK || status == TW_NOT_ADMITTED || status == TW_BAD_CLOCK);
    }
    asked.owner.bytes[0] ^= 1; /* any other owner's key is refused */
    TW_ASSERT(tw_certs_check(&certs, &asked, &err) == TW_NOT_ADMITTED);
}

static void fuzz_revoked(const uint8_t *data, size_t size) {
    static struct tw_revoked list;
    static uint8_t again[TW_REVOKED_BYTES_MAX];
    if (tw_revoked_decode(data, size, &list, NULL) != TW_OK) return;
    TW_ASSERT(tw_revoked_encode(&list, again) == size);
    TW_ASSERT(memcmp(again, data, size) == 0);
    for (uint32_t i = 0; i < list.count; i++) TW_ASSERT(tw_revoked_has(&list, &list.nodes[i]));
    if (list.count == 0) return;
    const struct tw_id node = list.nodes[list.count / 2];
    TW_ASSERT(tw_revoked_remove(&list, &node) && !tw_revoked_has(&list, &node));
    TW_ASSERT(tw_revoked_add(&list, &node) && tw_revoked_has(&list, &node));
}

static void fuzz_recall(const uint8_t *data, size_t size) {
    struct tw_recall recall;
    struct tw_error err;
    uint8_t again[TW_RECALL_BYTES];
    if (tw_recall_decode(data, size, &recall, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    tw_recall_encode(&recall, again);
    TW_ASSERT(size == sizeof(again) && memcmp(again, data, size) == 0);
}

static void fuzz_armour(const uint8_t *data, size_t size) {
    enum { CAPACITY = TW_CERTS_MAX * TW_CERT_BYTES };
    static char text[TW_ARMOUR_BYTES(CAPACITY)];
    uint8_t bytes[CAPACITY], again[CAPACITY];
    size_t got = 0, back = 0;
    if (tw_armour_decode(TW_ARMOUR_CERTS, (const char *)data, size, bytes, CAPACITY, &got, NULL) !=
        TW_OK)
        return;
    TW_ASSERT(got <= CAPACITY);
    const size_t length = tw_armour_encode(TW_ARMOUR_CERTS, bytes, got, text);
    TW_ASSERT(tw_armour_decode(TW_ARMOUR_CERTS, text, length, again, CAPACITY, &back, NULL) ==
              TW_OK);
    TW_ASSERT(back == got && memcmp(bytes, again, got) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    switch (data[0] % 4) {
    case 0: fuzz_certs(data + 1, size - 1); break;
    case 1: fuzz_revoked(data + 1, size - 1); break;
    case 3: fuzz_recall(data + 1, size - 1); break;
    default: fuzz_armour(data + 1, size - 1); break;
    }
    return 0;
}
