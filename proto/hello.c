/* hello.c - the lists of fields in HELLO and WELCOME: bytes and checks. */
#include "proto/hello.h"

#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "proto/frame.h"
#include "proto/message.h"

/* ---- lists of fields ------------------------------------------------------------------------ */

enum { FIELD_HEADER_BYTES = 4 };

/* Writes one field and returns its size in bytes. Asserts bytes_count < 65536; the caller ensures
 * that `to` has enough space. */
static uint32_t field_put(uint8_t *to, uint16_t type, const void *bytes, size_t bytes_count) {
    TW_ASSERT(bytes_count <= UINT16_MAX);
    tw_put_u16(to, type);
    tw_put_u16(to + 2, (uint16_t)bytes_count);
    if (bytes_count > 0) memcpy(to + FIELD_HEADER_BYTES, bytes, bytes_count);
    return FIELD_HEADER_BYTES + (uint32_t)bytes_count;
}

/* Checks that the untrusted list[size] is exactly `count` fields. The message of TW_PROTO names the
 * list by `what`. */
static enum tw_status fields_check(const uint8_t *list, size_t size, uint32_t count,
                                   const char *what, struct tw_error *err) {
    size_t at = 0;
    uint16_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (size - at < FIELD_HEADER_BYTES)
            return tw_fail(err, TW_PROTO, "%s ends within field %u", what, i);
        const uint16_t type = tw_get_u16(list + at);
        const size_t length = tw_get_u16(list + at + 2);
        at += FIELD_HEADER_BYTES;
        if (length > size - at) return tw_fail(err, TW_PROTO, "%s ends within field %u", what, i);
        if (type <= before)
            return tw_fail(err, TW_PROTO, "%s: field %u after %u", what, type, before);
        before = type;
        at += length;
    }
    if (at != size) return tw_fail(err, TW_PROTO, "%s: bytes after the last field", what);
    return TW_OK;
}

/* Returns the bytes of one field of a checked list, or NULL if it is absent. */
static const uint8_t *fields_find(const uint8_t *list, size_t size, uint16_t type,
                                  uint32_t *bytes_count) {
    for (size_t at = 0; at < size;) {
        const uint32_t length = tw_get_u16(list + at + 2);
        const uint8_t *bytes = list + at + FIELD_HEADER_BYTES;
        if (tw_get_u16(list + at) == type) {
            *bytes_count = length;
            return bytes;
        }
        at += FIELD_HEADER_BYTES + length;
    }
    *bytes_count = 0;
    return NULL;
}

/* ---- extensions of HELLO -------------------------------------------------------------------- */

/* Returns the type of the last extension; 0 if the list is empty. */
static uint16_t type_last(const struct tw_extensions *list) {
    uint16_t type = 0;
    for (uint32_t at = 0; at < list->bytes_count;) {
        type = tw_get_u16(list->bytes + at);
        at += FIELD_HEADER_BYTES + tw_get_u16(list->bytes + at + 2);
    }
    return type;
}

void tw_extensions_add(struct tw_extensions *list, uint16_t type, const void *bytes,
                       uint32_t bytes_count) {
    TW_ASSERT(type > type_last(list));
    TW_ASSERT(list->count < TW_HELLO_EXTENSIONS_MAX);
    TW_ASSERT(list->bytes_count + FIELD_HEADER_BYTES + bytes_count <= sizeof(list->bytes));
    list->bytes_count += field_put(list->bytes + list->bytes_count, type, bytes, bytes_count);
    list->count++;
}

const uint8_t *tw_extensions_find(const struct tw_extensions *list, uint16_t type,
                                  uint32_t *bytes_count) {
    return fields_find(list->bytes, list->bytes_count, type, bytes_count);
}

uint32_t tw_extensions_encode(const struct tw_extensions *list, uint8_t *out) {
    tw_put_u32(out, list->count);
    memcpy(out + TW_EXTENSIONS_HEADER_BYTES, list->bytes, list->bytes_count);
    return TW_EXTENSIONS_HEADER_BYTES + list->bytes_count;
}

/* Reads two non-empty, printable texts, each preceded by its length. `out` may be NULL. */
static bool seen_read(const uint8_t *bytes, uint32_t size, char (*out)[TW_ADDR_BYTES]) {
    uint32_t at = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (at >= size) return false;
        const uint32_t length = bytes[at++];
        if (length == 0 || length > TW_SEEN_BYTES_MAX || length > size - at) return false;
        for (uint32_t k = 0; k < length; k++) {
            if (bytes[at + k] <= 0x20 || bytes[at + k] > 0x7e) return false;
        }
        if (out != NULL) {
            memcpy(out[i], bytes + at, length);
            out[i][length] = '\0';
        }
        at += length;
    }
    return at == size;
}

/* True for the bytes that a name of a node may have. Locales play no part. */
static bool is_name_byte(uint8_t byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-';
}

static bool is_name(const uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!is_name_byte(bytes[i])) return false;
    }
    return count > 0 && count < TW_NODE_NAME_BYTES;
}

/* Checks the extension types that this file decodes; tickets and certificates have their own
 * decoders. */
static enum tw_status known_check(const uint8_t *bytes, size_t size, struct tw_error *err) {
    uint32_t count = 0;
    const uint8_t *found = fields_find(bytes, size, TW_EXTENSION_FEATURES, &count);
    if (found != NULL && count != 8)
        return tw_fail(err, TW_PROTO, "HELLO: features of %u bytes", count);
    found = fields_find(bytes, size, TW_EXTENSION_SOFTWARE, &count);
    if (count >= TW_SOFTWARE_BYTES)
        return tw_fail(err, TW_PROTO, "HELLO: a software name of %u bytes", count);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i] < 0x20 || found[i] > 0x7e)
            return tw_fail(err, TW_PROTO, "HELLO: the software name is not printable");
    }
    found = fields_find(bytes, size, TW_EXTENSION_RELAY, &count);
    if (found != NULL && count != TW_RELAY_TOKEN_BYTES && count != TW_RELAY_TOKEN_BYTES + 32)
        return tw_fail(err, TW_PROTO, "HELLO: a call of %u bytes", count);
    found = fields_find(bytes, size, TW_EXTENSION_SEEN, &count);
    if (found != NULL && !seen_read(found, count, NULL))
        return tw_fail(err, TW_PROTO, "HELLO: %u bytes are not two addresses", count);
    found = fields_find(bytes, size, TW_EXTENSION_ASK_SEEN, &count);
    if (found != NULL && count != 8)
        return tw_fail(err, TW_PROTO, "HELLO: a probe's token of %u bytes", count);
    found = fields_find(bytes, size, TW_EXTENSION_PROCESS, &count);
    if (found != NULL && (count != 8 || tw_get_u64(found) == 0))
        return tw_fail(err, TW_PROTO, "HELLO: a process number of %u bytes, or zero", count);
    found = fields_find(bytes, size, TW_EXTENSION_NAME, &count);
    if (found != NULL && !is_name(found, count))
        return tw_fail(err, TW_PROTO, "HELLO: %u bytes are no name of a node", count);
    return TW_OK;
}

enum tw_status tw_extensions_decode(const uint8_t *bytes, size_t size, struct tw_extensions *list,
                                    struct tw_error *err) {
    if (size < TW_EXTENSIONS_HEADER_BYTES)
        return tw_fail(err, TW_PROTO, "HELLO ends before its extensions");
    const uint32_t count = tw_get_u32(bytes);
    if (count > TW_HELLO_EXTENSIONS_MAX)
        return tw_fail(err, TW_PROTO, "HELLO: %u extensions, at most %d", count,
                       TW_HELLO_EXTENSIONS_MAX);
    const uint8_t *fields = bytes + TW_EXTENSIONS_HEADER_BYTES;
    const size_t fields_bytes = size - TW_EXTENSIONS_HEADER_BYTES;
    TW_TRY(fields_check(fields, fields_bytes, count, "HELLO", err));
    TW_TRY(known_check(fields, fields_bytes, err));
    if (fields_bytes > sizeof(list->bytes))
        return tw_fail(err, TW_PROTO, "HELLO: extensions of %zu bytes", fields_bytes);
    *list = (struct tw_extensions){.count = count, .bytes_count = (uint32_t)fields_bytes};
    memcpy(list->bytes, fields, fields_bytes);
    return TW_OK;
}

uint64_t tw_feature_of(uint16_t kind) {
    switch (kind) {
    case TW_FRAME_REVOKE:
    case TW_FRAME_RENEW:
    case TW_FRAME_CERTS: return TW_FEATURE_OWNER;
    case TW_MSG_PROBE:
    case TW_MSG_PROBED: return TW_FEATURE_DIAL_BACK;
    case TW_MSG_LINKS: return TW_FEATURE_LINKS;
    case TW_MSG_RELAY_CALL: return TW_FEATURE_RELAY;
    case TW_MSG_PUNCH: return TW_FEATURE_PUNCH;
    default: return 0;
    }
}

static uint64_t number_find(const struct tw_extensions *list, uint16_t type) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, type, &size);
    return bytes != NULL && size == 8 ? tw_get_u64(bytes) : 0;
}

void tw_extensions_add_seen(struct tw_extensions *list, const char *own, const char *other) {
    const char *const texts[2] = {own, other};
    uint8_t bytes[2 * (1 + TW_SEEN_BYTES_MAX)];
    uint32_t size = 0;
    for (unsigned i = 0; i < 2; i++) {
        const size_t length = strlen(texts[i]);
        TW_ASSERT(length > 0 && length <= TW_SEEN_BYTES_MAX);
        bytes[size++] = (uint8_t)length;
        memcpy(bytes + size, texts[i], length);
        size += (uint32_t)length;
    }
    tw_extensions_add(list, TW_EXTENSION_SEEN, bytes, size);
}

bool tw_extensions_seen(const struct tw_extensions *list, char own[TW_ADDR_BYTES],
                        char other[TW_ADDR_BYTES]) {
    char found[2][TW_ADDR_BYTES];
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, TW_EXTENSION_SEEN, &size);
    if (bytes == NULL || !seen_read(bytes, size, found)) return false;
    memcpy(own, found[0], sizeof(found[0]));
    memcpy(other, found[1], sizeof(found[1]));
    return true;
}

uint64_t tw_extensions_features(const struct tw_extensions *list) {
    return number_find(list, TW_EXTENSION_FEATURES);
}

uint64_t tw_extensions_process(const struct tw_extensions *list) {
    return number_find(list, TW_EXTENSION_PROCESS);
}

void tw_extensions_software(const struct tw_extensions *list, char out[TW_SOFTWARE_BYTES]) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, TW_EXTENSION_SOFTWARE, &size);
    if (bytes == NULL || size >= TW_SOFTWARE_BYTES) size = 0;
    if (size > 0) memcpy(out, bytes, size);
    out[size] = '\0';
}

void tw_node_name_clean(const char *name, char out[TW_NODE_NAME_BYTES]) {
    uint32_t size = 0;
    for (const char *at = name; *at != '\0' && size < TW_NODE_NAME_BYTES - 1; at++) {
        const bool is_plain = is_name_byte((uint8_t)*at);
        if (!is_plain && size > 0 && out[size - 1] == '-') continue;
        out[size++] = is_plain ? *at : '-';
    }
    out[size] = '\0';
    /* Dashes alone, of a name in another script, tell nothing. */
    if (strspn(out, "-") == size) out[0] = '\0';
}

void tw_extensions_add_name(struct tw_extensions *list, const char *name) {
    char clean[TW_NODE_NAME_BYTES];
    tw_node_name_clean(name, clean);
    if (clean[0] != '\0')
        tw_extensions_add(list, TW_EXTENSION_NAME, clean, (uint32_t)strlen(clean));
}

void tw_extensions_name(const struct tw_extensions *list, char out[TW_NODE_NAME_BYTES]) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, TW_EXTENSION_NAME, &size);
    if (bytes == NULL || size >= TW_NODE_NAME_BYTES) size = 0;
    if (size > 0) memcpy(out, bytes, size);
    out[size] = '\0';
}

/* ---- WELCOME -------------------------------------------------------------------------------- */

enum field { MANIFEST = 1, SECRETS, CERTIFICATES, PEERS };

enum {
    COUNT_BYTES = 4,
    FIELDS_MAX = 8,
    PEER_HEAD_BYTES = 33, /* id, length */
    PEERS_BYTES_MAX = TW_WELCOME_PEERS_MAX * (PEER_HEAD_BYTES + TW_ADDR_BYTES),
};

_Static_assert(COUNT_BYTES + 4 * FIELD_HEADER_BYTES + TW_MANIFEST_BYTES_MAX +
                       TW_WELCOME_SECRETS_MAX * TW_WELCOME_SECRET_BYTES +
                       TW_CERTS_MAX * TW_CERT_BYTES + PEERS_BYTES_MAX <=
                   TW_WELCOME_BYTES_MAX,
               "the largest WELCOME fits");

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
        at += field_put(body + at, (uint16_t)fields[i].type, fields[i].bytes, fields[i].size);
        count++;
    }
    tw_put_u32(body, count);
    return at;
}

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

static enum tw_status welcome_read(const uint8_t *fields, size_t size, struct tw_welcome *welcome,
                                   struct tw_error *err) {
    uint32_t count = 0;
    const uint8_t *bytes = fields_find(fields, size, MANIFEST, &count);
    if (count == 0 || count > TW_MANIFEST_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "WELCOME: a manifest of %u bytes", count);
    memcpy(welcome->manifest, bytes, count);
    welcome->manifest_bytes = count;
    bytes = fields_find(fields, size, SECRETS, &count);
    if (count % TW_WELCOME_SECRET_BYTES != 0 || count > sizeof(welcome->secrets))
        return tw_fail(err, TW_PROTO, "WELCOME: secrets of %u bytes", count);
    if (count > 0) memcpy(welcome->secrets, bytes, count);
    welcome->secrets_count = count / TW_WELCOME_SECRET_BYTES;
    bytes = fields_find(fields, size, CERTIFICATES, &count);
    if (bytes != NULL) TW_TRY(tw_certs_decode(bytes, count, &welcome->certs, err));
    bytes = fields_find(fields, size, PEERS, &count);
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
    TW_TRY(fields_check(fields, size - COUNT_BYTES, count, "WELCOME", err));
    memset(welcome, 0, sizeof(*welcome));
    return welcome_read(fields, size - COUNT_BYTES, welcome, err);
}
