#include "daemon/net/handshake.h"

#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"

enum {
    AT_VERSION_MIN = 0,
    AT_VERSION_MAX = 4,
    AT_ROLE = 8,
    AT_BOOT = 12,
    AT_RUN = 16,
    AT_ID = 48,
    AT_TAG = 80,
    AT_PROOF = 96,
    AT_COUNT = 128,
    AT_ADDRS = 132,
};

_Static_assert(AT_ADDRS + TW_ADDRS_MAX * TW_ADDR_BYTES + TW_EXTENSIONS_HEADER_BYTES +
                       TW_HELLO_EXTENSIONS_BYTES <=
                   TW_HELLO_BYTES_MAX,
               "HELLO fits");
_Static_assert(TW_ADDR_BYTES <= 256, "an address length is one byte");

/* Key that a proof is computed with: the run secret, or the key of a ticket. */
struct proof_key {
    const char *domain;
    const uint8_t *bytes;
    int size;
};

enum { DOMAIN_BYTES_MAX = 15 };

/* ---- HELLO --------------------------------------------------------------------------------- */

uint32_t tw_hello_encode(const struct tw_hello *hello, uint8_t body[TW_HELLO_BYTES_MAX]) {
    TW_ASSERT(hello->addrs_count <= TW_ADDRS_MAX);
    tw_put_u32(body + AT_VERSION_MIN, hello->version_min);
    tw_put_u32(body + AT_VERSION_MAX, hello->version_max);
    tw_put_u32(body + AT_ROLE, hello->role);
    tw_put_u32(body + AT_BOOT, hello->boot);
    memcpy(body + AT_RUN, hello->run.bytes, 32);
    memcpy(body + AT_ID, hello->id.bytes, 32);
    memcpy(body + AT_TAG, hello->link_tag, TW_LINK_TAG_BYTES);
    memcpy(body + AT_PROOF, hello->proof, TW_PROOF_BYTES);
    tw_put_u32(body + AT_COUNT, hello->addrs_count);
    uint32_t at = AT_ADDRS;
    for (uint32_t i = 0; i < hello->addrs_count; i++) {
        const size_t length = strnlen(hello->addrs[i], TW_ADDR_BYTES);
        TW_ASSERT(length > 0 && length < TW_ADDR_BYTES);
        body[at++] = (uint8_t)length;
        memcpy(body + at, hello->addrs[i], length);
        at += (uint32_t)length;
    }
    return at + tw_extensions_encode(&hello->extensions, body + at);
}

/* Decodes the addresses. Sets *end to the offset of the extensions, which follow. */
static enum tw_status addrs_decode(const uint8_t *body, size_t size, struct tw_hello *hello,
                                   size_t *end, struct tw_error *err) {
    size_t at = AT_ADDRS;
    for (uint32_t i = 0; i < hello->addrs_count; i++) {
        const size_t length = at < size ? body[at++] : 0;
        if (length == 0 || length >= TW_ADDR_BYTES || length > size - at)
            return tw_fail(err, TW_PROTO, "HELLO: address %u has a length out of bounds", i);
        memcpy(hello->addrs[i], body + at, length);
        hello->addrs[i][length] = '\0';
        if (strlen(hello->addrs[i]) != length || !tw_address_is_valid(hello->addrs[i]))
            return tw_fail(err, TW_PROTO, "HELLO: address %u is not host:port", i);
        at += length;
    }
    *end = at;
    return TW_OK;
}

enum tw_status tw_hello_decode(const uint8_t *body, size_t size, struct tw_hello *hello,
                               struct tw_error *err) {
    if (size < AT_ADDRS || size > TW_HELLO_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "HELLO of %zu bytes", size);
    struct tw_hello read = {
        .version_min = tw_get_u32(body + AT_VERSION_MIN),
        .version_max = tw_get_u32(body + AT_VERSION_MAX),
        .boot = tw_get_u32(body + AT_BOOT),
        .addrs_count = tw_get_u32(body + AT_COUNT),
    };
    const uint32_t role = tw_get_u32(body + AT_ROLE);
    if (read.version_min == 0 || read.version_min > read.version_max)
        return tw_fail(err, TW_PROTO, "HELLO: versions %u..%u", read.version_min, read.version_max);
    if (role > TW_ROLE_RELAY) return tw_fail(err, TW_PROTO, "HELLO: role %u", role);
    if (read.addrs_count > TW_ADDRS_MAX)
        return tw_fail(err, TW_PROTO, "HELLO: %u addresses, at most %d", read.addrs_count,
                       TW_ADDRS_MAX);
    read.role = (enum tw_role)role;
    memcpy(read.run.bytes, body + AT_RUN, 32);
    memcpy(read.id.bytes, body + AT_ID, 32);
    memcpy(read.link_tag, body + AT_TAG, TW_LINK_TAG_BYTES);
    memcpy(read.proof, body + AT_PROOF, TW_PROOF_BYTES);
    size_t end = 0;
    TW_TRY(addrs_decode(body, size, &read, &end, err));
    TW_TRY(tw_extensions_decode(body + end, size - end, &read.extensions, err));
    *hello = read;
    return TW_OK;
}

/* ---- proof --------------------------------------------------------------------------------- */

static void proof_compute(const struct tw_hello *hello, const struct proof_key *key,
                          const uint8_t ekm[TW_TLS_EXPORT_BYTES], uint8_t proof[TW_PROOF_BYTES]) {
    uint8_t text[DOMAIN_BYTES_MAX + TW_TLS_EXPORT_BYTES + TW_HELLO_BYTES_MAX];
    uint8_t body[TW_HELLO_BYTES_MAX];
    const uint32_t size = tw_hello_encode(hello, body);
    size_t at = strlen(key->domain);
    TW_ASSERT(at <= DOMAIN_BYTES_MAX);
    memcpy(text, key->domain, at);
    memcpy(text + at, ekm, TW_TLS_EXPORT_BYTES);
    at += TW_TLS_EXPORT_BYTES;
    memcpy(text + at, body, AT_PROOF);
    at += AT_PROOF;
    memcpy(text + at, body + AT_COUNT, size - AT_COUNT);
    at += size - AT_COUNT;
    unsigned proof_bytes = 0;
    TW_ASSERT(HMAC(EVP_sha256(), key->bytes, key->size, text, at, proof, &proof_bytes) != NULL);
    TW_ASSERT(proof_bytes == TW_PROOF_BYTES);
}

/* Returns the key of this run secret. NULL means an `open` run, whose key is all zeros. */
static struct proof_key key_of_secret(const struct tw_secret *secret) {
    static const struct tw_secret open_secret;
    return (struct proof_key){.domain = "thinwire-join",
                              .bytes = secret != NULL ? secret->bytes : open_secret.bytes,
                              .size = TW_SECRET_BYTES};
}

static struct proof_key key_of_ticket(const uint8_t *key) {
    return (struct proof_key){
        .domain = "thinwire-ticket", .bytes = key, .size = TW_TICKET_KEY_BYTES};
}

static bool is_proven(const struct tw_hello *theirs, const struct proof_key *key,
                      const uint8_t ekm[TW_TLS_EXPORT_BYTES]) {
    uint8_t proof[TW_PROOF_BYTES];
    proof_compute(theirs, key, ekm, proof);
    const int differs = CRYPTO_memcmp(proof, theirs->proof, TW_PROOF_BYTES);
    OPENSSL_cleanse(proof, sizeof(proof));
    return differs == 0;
}

void tw_hello_prove(struct tw_hello *hello, const struct tw_secret *secret,
                    const uint8_t ekm[TW_TLS_EXPORT_BYTES]) {
    const struct proof_key key = key_of_secret(secret);
    proof_compute(hello, &key, ekm, hello->proof);
}

void tw_hello_prove_ticket(struct tw_hello *hello, const uint8_t *key,
                           const uint8_t ekm[TW_TLS_EXPORT_BYTES]) {
    const struct proof_key of_ticket = key_of_ticket(key);
    proof_compute(hello, &of_ticket, ekm, hello->proof);
}

enum tw_status tw_hello_check_ticket(const struct tw_hello *theirs, const uint8_t *key,
                                     const uint8_t ekm[TW_TLS_EXPORT_BYTES], struct tw_error *err) {
    const struct proof_key of_ticket = key_of_ticket(key);
    if (is_proven(theirs, &of_ticket, ekm)) return TW_OK;
    return tw_fail(err, TW_TICKET_UNKNOWN, "its key is another");
}

enum tw_status tw_hello_check(const struct tw_hello *theirs, const struct tw_hello *ours,
                              const struct tw_id *authenticated, struct tw_error *err) {
    char we[9], they[9], their_run[9];
    tw_id_short(&ours->id, we);
    tw_id_short(authenticated, they);
    if (!tw_id_equal(&theirs->id, authenticated))
        return tw_fail(err, TW_PROTO, "node %s sent a HELLO with an id its key does not prove",
                       they);
    if (theirs->version_max < ours->version_min || theirs->version_min > ours->version_max)
        return tw_fail(err, TW_VERSION, "node %s speaks wire versions %u to %u, node %s %u to %u",
                       they, theirs->version_min, theirs->version_max, we, ours->version_min,
                       ours->version_max);
    if (!tw_id_equal(&theirs->run, &ours->run)) {
        tw_id_short(&theirs->run, their_run);
        return tw_fail(err, TW_OTHER_RUN, "node %s is in run %s, node %s in another", they,
                       their_run, we);
    }
    return TW_OK;
}

enum tw_status tw_hello_check_proof(const struct tw_hello *theirs, const struct tw_hello *ours,
                                    const struct tw_secrets *secrets,
                                    const uint8_t ekm[TW_TLS_EXPORT_BYTES], uint32_t *which,
                                    struct tw_error *err) {
    char we[9], they[9];
    const struct proof_key none = key_of_secret(NULL);
    *which = 0;
    if (secrets->count == 0 && is_proven(theirs, &none, ekm)) return TW_OK;
    for (uint32_t i = 0; i < secrets->count; i++) {
        const struct proof_key key = key_of_secret(&secrets->list[i]);
        if (!is_proven(theirs, &key, ekm)) continue;
        *which = i;
        return TW_OK;
    }
    tw_id_short(&ours->id, we);
    tw_id_short(&theirs->id, they);
    return tw_fail(err, TW_WRONG_SECRET, "nodes %s and %s hold different ones", they, we);
}

/* ---- GOODBYE ------------------------------------------------------------------------------- */

uint32_t tw_goodbye_encode(enum tw_status status, const char *sentence,
                           uint8_t body[TW_HELLO_BYTES_MAX]) {
    const size_t limit = sizeof(((struct tw_goodbye *)0)->sentence) - 1;
    const size_t length = strnlen(sentence, limit);
    tw_put_u32(body, status);
    memcpy(body + 4, sentence, length);
    return (uint32_t)(4 + length);
}

enum tw_status tw_goodbye_decode(const uint8_t *body, size_t size, struct tw_goodbye *goodbye,
                                 struct tw_error *err) {
    if (size < 4 || size > TW_HELLO_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "GOODBYE of %zu bytes", size);
    const uint32_t code = tw_get_u32(body);
    goodbye->status = TW_PROTO;
    switch (code) {
#define X(name, value, meaning)                                                                    \
    case (value): goodbye->status = TW_##name; break;
        TW_STATUS_LIST(X)
#undef X
    default: break;
    }
    size_t length = size - 4;
    if (length > sizeof(goodbye->sentence) - 1) length = sizeof(goodbye->sentence) - 1;
    for (size_t i = 0; i < length; i++) {
        const uint8_t c = body[4 + i];
        goodbye->sentence[i] = (char)(c >= 0x20 && c < 0x7f ? c : '?');
        if (c == '"') goodbye->sentence[i] = '\''; /* the log puts the sentence in double quotes */
    }
    goodbye->sentence[length] = '\0';
    if (length == 0)
        (void)snprintf(goodbye->sentence, sizeof(goodbye->sentence), "no reason given");
    return TW_OK;
}
