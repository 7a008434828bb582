#include "daemon/auth/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/assert.h"

struct tw_id tw_public_key(const struct evp_pkey_st *key) {
    struct tw_id public_key;
    size_t size = sizeof(public_key.bytes);
    TW_ASSERT(EVP_PKEY_get_raw_public_key(key, public_key.bytes, &size) == 1);
    TW_ASSERT(size == sizeof(public_key.bytes));
    return public_key;
}

void tw_sign(struct evp_pkey_st *key, const void *text, size_t size,
             uint8_t signature[TW_SIGNATURE_BYTES]) {
    size_t signature_bytes = TW_SIGNATURE_BYTES;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    TW_ASSERT(context != NULL);
    TW_ASSERT(EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1);
    TW_ASSERT(EVP_DigestSign(context, signature, &signature_bytes, text, size) == 1);
    TW_ASSERT(signature_bytes == TW_SIGNATURE_BYTES);
    EVP_MD_CTX_free(context);
}

bool tw_is_signed(const struct tw_id *public_key, const void *text, size_t size,
                  const uint8_t signature[TW_SIGNATURE_BYTES]) {
    ERR_clear_error();
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key->bytes,
                                                sizeof(public_key->bytes));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool is_good = key != NULL && context != NULL &&
                         EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                         EVP_DigestVerify(context, signature, TW_SIGNATURE_BYTES, text, size) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return is_good;
}
