/* signature.h - checks Ed25519 signatures (RFC 8032). */
#ifndef TW_BASE_SIGNATURE_H
#define TW_BASE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

/* Returns true if the holder of `public_key` (any 32 bytes) signed text[size]. Takes about 0.15 ms.
 */
bool tw_is_signed(const struct tw_id *public_key, const void *text, size_t size,
                  const uint8_t signature[TW_SIGNATURE_BYTES]);

#endif
