#include "proto/extension.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

/* Type of the last one; 0: the list is empty. */
static uint16_t type_last(const struct tw_extensions *list) {
    uint16_t type = 0;
    for (uint32_t at = 0; at < list->bytes_count;) {
        type = tw_get_u16(list->bytes + at);
        at += TW_EXTENSION_HEADER_BYTES + tw_get_u16(list->bytes + at + 2);
    }
    return type;
}

void tw_extensions_add(struct tw_extensions *list, uint16_t type, const void *bytes,
                       uint32_t bytes_count) {
    TW_ASSERT(type > type_last(list));
    TW_ASSERT(list->count < TW_HELLO_EXTENSIONS_MAX);
    TW_ASSERT(list->bytes_count + TW_EXTENSION_HEADER_BYTES + bytes_count <= sizeof(list->bytes));
    uint8_t *at = list->bytes + list->bytes_count;
    tw_put_u16(at, type);
    tw_put_u16(at + 2, (uint16_t)bytes_count);
    if (bytes_count > 0) memcpy(at + TW_EXTENSION_HEADER_BYTES, bytes, bytes_count);
    list->bytes_count += TW_EXTENSION_HEADER_BYTES + bytes_count;
    list->count++;
}

const uint8_t *tw_extensions_find(const struct tw_extensions *list, uint16_t type,
                                  uint32_t *bytes_count) {
    for (uint32_t at = 0; at < list->bytes_count;) {
        const uint32_t size = tw_get_u16(list->bytes + at + 2);
        if (tw_get_u16(list->bytes + at) == type) {
            *bytes_count = size;
            return list->bytes + at + TW_EXTENSION_HEADER_BYTES;
        }
        at += TW_EXTENSION_HEADER_BYTES + size;
    }
    *bytes_count = 0;
    return NULL;
}

uint32_t tw_extensions_encode(const struct tw_extensions *list, uint8_t *out) {
    tw_put_u32(out, list->count);
    memcpy(out + TW_EXTENSIONS_HEADER_BYTES, list->bytes, list->bytes_count);
    return TW_EXTENSIONS_HEADER_BYTES + list->bytes_count;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Only what this file itself gives out; tickets and certificates have their own readers. */
static enum tw_status known_check(uint16_t type, const uint8_t *bytes, uint32_t size,
                                  struct tw_error *err) {
    if (type == TW_EXTENSION_FEATURES && size != 8)
        return tw_fail(err, TW_PROTO, "HELLO: features of %u bytes", size);
    if (type != TW_EXTENSION_SOFTWARE) return TW_OK;
    if (size >= TW_SOFTWARE_BYTES)
        return tw_fail(err, TW_PROTO, "HELLO: a software name of %u bytes", size);
    for (uint32_t i = 0; i < size; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7e)
            return tw_fail(err, TW_PROTO, "HELLO: the software name is not printable");
    }
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
    size_t at = TW_EXTENSIONS_HEADER_BYTES;
    uint16_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (size - at < TW_EXTENSION_HEADER_BYTES)
            return tw_fail(err, TW_PROTO, "HELLO ends within extension %u", i);
        const uint16_t type = tw_get_u16(bytes + at);
        const uint32_t length = tw_get_u16(bytes + at + 2);
        at += TW_EXTENSION_HEADER_BYTES;
        if (length > size - at) return tw_fail(err, TW_PROTO, "HELLO ends within extension %u", i);
        if (type <= before)
            return tw_fail(err, TW_PROTO, "HELLO: extension %u after %u", type, before);
        TW_TRY(known_check(type, bytes + at, length, err));
        before = type;
        at += length;
    }
    if (at != size) return tw_fail(err, TW_PROTO, "HELLO: bytes after the last extension");
    if (size - TW_EXTENSIONS_HEADER_BYTES > sizeof(list->bytes))
        return tw_fail(err, TW_PROTO, "HELLO: extensions of %zu bytes", size);
    *list = (struct tw_extensions){.count = count,
                                   .bytes_count = (uint32_t)(size - TW_EXTENSIONS_HEADER_BYTES)};
    memcpy(list->bytes, bytes + TW_EXTENSIONS_HEADER_BYTES, list->bytes_count);
    return TW_OK;
}

uint64_t tw_extensions_features(const struct tw_extensions *list) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, TW_EXTENSION_FEATURES, &size);
    return bytes != NULL && size == 8 ? tw_get_u64(bytes) : 0;
}

void tw_extensions_software(const struct tw_extensions *list, char out[TW_SOFTWARE_BYTES]) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(list, TW_EXTENSION_SOFTWARE, &size);
    if (bytes == NULL || size >= TW_SOFTWARE_BYTES) size = 0;
    if (size > 0) memcpy(out, bytes, size);
    out[size] = '\0';
}
