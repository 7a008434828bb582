#include "proto/fields.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

uint32_t tw_field_put(uint8_t *to, uint16_t type, const void *bytes, size_t bytes_count) {
    TW_ASSERT(bytes_count <= UINT16_MAX);
    tw_put_u16(to, type);
    tw_put_u16(to + 2, (uint16_t)bytes_count);
    if (bytes_count > 0) memcpy(to + TW_FIELD_HEADER_BYTES, bytes, bytes_count);
    return TW_FIELD_HEADER_BYTES + (uint32_t)bytes_count;
}

enum tw_status tw_fields_check(const uint8_t *list, size_t size, uint32_t count, const char *what,
                               struct tw_error *err) {
    size_t at = 0;
    uint16_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (size - at < TW_FIELD_HEADER_BYTES)
            return tw_fail(err, TW_PROTO, "%s ends within field %u", what, i);
        const uint16_t type = tw_get_u16(list + at);
        const size_t length = tw_get_u16(list + at + 2);
        at += TW_FIELD_HEADER_BYTES;
        if (length > size - at) return tw_fail(err, TW_PROTO, "%s ends within field %u", what, i);
        if (type <= before)
            return tw_fail(err, TW_PROTO, "%s: field %u after %u", what, type, before);
        before = type;
        at += length;
    }
    if (at != size) return tw_fail(err, TW_PROTO, "%s: bytes after the last field", what);
    return TW_OK;
}

const uint8_t *tw_fields_find(const uint8_t *list, size_t size, uint16_t type,
                              uint32_t *bytes_count) {
    for (size_t at = 0; at < size;) {
        const uint32_t length = tw_get_u16(list + at + 2);
        const uint8_t *bytes = list + at + TW_FIELD_HEADER_BYTES;
        if (tw_get_u16(list + at) == type) {
            *bytes_count = length;
            return bytes;
        }
        at += TW_FIELD_HEADER_BYTES + length;
    }
    *bytes_count = 0;
    return NULL;
}
