/* signature.h - Ed25519 signatures (RFC 8032) of a run's owner and of nodes that admit others. */
#ifndef TW_DAEMON_AUTH_SIGNATURE_H
#define TW_DAEMON_AUTH_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "proto/cert.h"

struct evp_pkey_st;

/* Returns the public half of an Ed25519 key. */
struct tw_id tw_public_key(const struct evp_pkey_st *key);

/* Signs text[size]. The same text gives the same signature. */
void tw_sign(struct evp_pkey_st *key, const void *text, size_t size,
             uint8_t signature[TW_SIGNATURE_BYTES]);

/* Returns true if the holder of `public_key` (any 32 bytes) signed text[size]. Takes about 0.15 ms.
 */
bool tw_is_signed(const struct tw_id *public_key, const void *text, size_t size,
                  const uint8_t signature[TW_SIGNATURE_BYTES]);

#endif
