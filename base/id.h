/* id.h - 32-byte identifiers: node ids, lineage ids, SHA-256 digests of payloads and manifests. */
#ifndef TW_BASE_ID_H
#define TW_BASE_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct tw_id {
    uint8_t bytes[32];
};

enum { TW_ID_HEX_BYTES = 65 }; /* 64 digits and NUL */

/* Compares like memcmp: negative, 0 or positive. Every "sorted by id" in the project means this
 * order. */
int tw_id_compare(const struct tw_id *a, const struct tw_id *b);
static inline bool tw_id_equal(const struct tw_id *a, const struct tw_id *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}
bool tw_id_is_zero(const struct tw_id *id);

/* Writes 64 lower-case hex digits and a NUL; tw_id_short writes only the first 8 digits. */
void tw_id_hex(const struct tw_id *id, char hex[TW_ID_HEX_BYTES]);
void tw_id_short(const struct tw_id *id, char hex[9]);

/* Reads exactly 64 hex digits (either case). Otherwise returns false and leaves *id as it was. */
bool tw_id_parse(const char *hex, struct tw_id *id);

#endif
