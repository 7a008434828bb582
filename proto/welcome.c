#include "proto/welcome.h"

#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "proto/fields.h"

enum field { MANIFEST = 1, SECRETS, CERTIFICATES, PEERS };

enum {
    COUNT_BYTES = 4,
    FIELDS_MAX = 8,
    PEER_HEAD_BYTES = 33, /* id, length */
    PEERS_BYTES_MAX = TW_WELCOME_PEERS_MAX * (PEER_HEAD_BYTES + TW_ADDR_BYTES),
};

_Static_assert(COUNT_BYTES + 4 * TW_FIELD_HEADER_BYTES + TW_MANIFEST_BYTES_MAX +
                       TW_WELCOME_SECRETS_MAX * TW_WELCOME_SECRET_BYTES +
                       TW_CERTS_MAX * TW_CERT_BYTES + PEERS_BYTES_MAX <=
                   TW_WELCOME_BYTES_MAX,
               "the largest WELCOME fits");

/* ---- writing ------------------------------------------------------------------------------- */

static size_t peers_write(const struct tw_welcome *welcome, uint8_t *bytes) {
    size_t at = 0;
    for (uint32_t i = 0; i < welcome->peers_count; i++) {
        const struct tw_welcome_peer *peer = &welcome->peers[i];
        const size_t length = strnlen(peer->addr, TW_ADDR_BYTES);
        TW_ASSERT(length > 0 && length < TW_ADDR_BYTES);
        memcpy(bytes + at, peer->id.bytes, 32);
        bytes[at + 32] = (uint8_t)length;
        memcpy(bytes + at + PEER_HEAD_BYTES, peer->addr, length);
        at += PEER_HEAD_BYTES + length;
    }
    return at;
}

uint32_t tw_welcome_encode(const struct tw_welcome *welcome, uint8_t body[TW_WELCOME_BYTES_MAX]) {
    uint8_t certs[TW_CERTS_MAX * TW_CERT_BYTES], peers[PEERS_BYTES_MAX];
    TW_ASSERT(welcome->manifest_bytes <= TW_MANIFEST_BYTES_MAX);
    TW_ASSERT(welcome->secrets_count <= TW_WELCOME_SECRETS_MAX);
    TW_ASSERT(welcome->peers_count <= TW_WELCOME_PEERS_MAX);
    const size_t certs_bytes =
        welcome->certs.count > 0 ? tw_certs_encode(&welcome->certs, certs) : 0;
    const struct {
        enum field type;
        const void *bytes;
        size_t size;
    } fields[] = {
        {MANIFEST, welcome->manifest, welcome->manifest_bytes},
        {SECRETS, welcome->secrets, (size_t)welcome->secrets_count * TW_WELCOME_SECRET_BYTES},
        {CERTIFICATES, certs, certs_bytes},
        {PEERS, peers, peers_write(welcome, peers)},
    };
    uint32_t at = COUNT_BYTES, count = 0;
    for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].size == 0) continue;
        at += tw_field_put(body + at, (uint16_t)fields[i].type, fields[i].bytes, fields[i].size);
        count++;
    }
    tw_put_u32(body, count);
    return at;
}

/* ---- reading ------------------------------------------------------------------------------- */

static enum tw_status peers_read(const uint8_t *bytes, size_t size, struct tw_welcome *welcome,
                                 struct tw_error *err) {
    for (size_t at = 0; at < size;) {
        if (welcome->peers_count == TW_WELCOME_PEERS_MAX)
            return tw_fail(err, TW_PROTO, "WELCOME: more than %d peers", TW_WELCOME_PEERS_MAX);
        struct tw_welcome_peer *peer = &welcome->peers[welcome->peers_count];
        const size_t length = size - at > PEER_HEAD_BYTES ? bytes[at + 32] : 0;
        if (length == 0 || length >= TW_ADDR_BYTES || length > size - at - PEER_HEAD_BYTES)
            return tw_fail(err, TW_PROTO, "WELCOME: the address of peer %u has a bad length",
                           welcome->peers_count);
        memcpy(peer->id.bytes, bytes + at, 32);
        memcpy(peer->addr, bytes + at + PEER_HEAD_BYTES, length);
        peer->addr[length] = '\0';
        if (strlen(peer->addr) != length || !tw_address_is_valid(peer->addr))
            return tw_fail(err, TW_PROTO, "WELCOME: the address of peer %u is not host:port",
                           welcome->peers_count);
        welcome->peers_count++;
        at += PEER_HEAD_BYTES + length;
    }
    return TW_OK;
}

static enum tw_status fields_read(const uint8_t *fields, size_t size, struct tw_welcome *welcome,
                                  struct tw_error *err) {
    uint32_t count = 0;
    const uint8_t *bytes = tw_fields_find(fields, size, MANIFEST, &count);
    if (count == 0 || count > TW_MANIFEST_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "WELCOME: a manifest of %u bytes", count);
    memcpy(welcome->manifest, bytes, count);
    welcome->manifest_bytes = count;
    bytes = tw_fields_find(fields, size, SECRETS, &count);
    if (count % TW_WELCOME_SECRET_BYTES != 0 || count > sizeof(welcome->secrets))
        return tw_fail(err, TW_PROTO, "WELCOME: secrets of %u bytes", count);
    if (count > 0) memcpy(welcome->secrets, bytes, count);
    welcome->secrets_count = count / TW_WELCOME_SECRET_BYTES;
    bytes = tw_fields_find(fields, size, CERTIFICATES, &count);
    if (bytes != NULL) TW_TRY(tw_certs_decode(bytes, count, &welcome->certs, err));
    bytes = tw_fields_find(fields, size, PEERS, &count);
    return peers_read(bytes, count, welcome, err);
}

enum tw_status tw_welcome_decode(const uint8_t *body, size_t size, struct tw_welcome *welcome,
                                 struct tw_error *err) {
    if (size < COUNT_BYTES || size > TW_WELCOME_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "WELCOME of %zu bytes", size);
    const uint32_t count = tw_get_u32(body);
    if (count > FIELDS_MAX)
        return tw_fail(err, TW_PROTO, "WELCOME: %u fields, at most %d", count, FIELDS_MAX);
    const uint8_t *fields = body + COUNT_BYTES;
    TW_TRY(tw_fields_check(fields, size - COUNT_BYTES, count, "WELCOME", err));
    memset(welcome, 0, sizeof(*welcome));
    return fields_read(fields, size - COUNT_BYTES, welcome, err);
}
