#include "base/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>

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
