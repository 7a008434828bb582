#include "daemon/auth/identity.h"

#include <string.h>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include "daemon/auth/private_file.h"

/* ---- identity ------------------------------------------------------------------------------ */

static X509 *make_certificate(EVP_PKEY *key) {
    uint8_t serial_bytes[8];
    X509 *cert = X509_new();
    if (cert == NULL || RAND_bytes(serial_bytes, sizeof(serial_bytes)) != 1) goto fail;
    serial_bytes[0] = (uint8_t)((serial_bytes[0] & 0x7f) | 0x40);
    BIGNUM *serial = BN_bin2bn(serial_bytes, sizeof(serial_bytes), NULL);
    if (serial == NULL) goto fail;
    const int has_serial = BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) != NULL;
    BN_free(serial);
    X509_NAME *name = X509_get_subject_name(cert);
    /* Peers check only the key of this certificate, so its dates make it always valid. */
    if (!has_serial || X509_set_version(cert, 2) != 1 ||
        ASN1_TIME_set_string_X509(X509_getm_notBefore(cert), "20000101000000Z") != 1 ||
        ASN1_TIME_set_string_X509(X509_getm_notAfter(cert), "99991231235959Z") != 1 ||
        X509_set_pubkey(cert, key) != 1 ||
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"thinwire-node", -1,
                                   -1, 0) != 1 ||
        X509_set_issuer_name(cert, name) != 1 || X509_sign(cert, key, NULL) == 0)
        goto fail;
    return cert;
fail:
    X509_free(cert);
    return NULL;
}

bool tw_identity_of_key(struct evp_pkey_st *key, struct tw_id *id) {
    size_t size = sizeof(id->bytes);
    if (key == NULL || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) return false;
    return EVP_PKEY_get_raw_public_key(key, id->bytes, &size) == 1 && size == sizeof(id->bytes);
}

/* Takes ownership of `key`, also on failure. */
static enum tw_status identity_init(struct tw_identity *identity, EVP_PKEY *key,
                                    struct tw_error *err) {
    struct tw_id id;
    X509 *cert = tw_identity_of_key(key, &id) ? make_certificate(key) : NULL;
    if (cert == NULL) {
        EVP_PKEY_free(key);
        return tw_fail(err, TW_CONFIG, "the key is not a usable Ed25519 key");
    }
    *identity = (struct tw_identity){.id = id, .key = key, .cert = cert};
    return TW_OK;
}

enum tw_status tw_identity_create(const char *path, struct tw_error *err) {
    ERR_clear_error();
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *pem = BIO_new(BIO_s_mem());
    enum tw_status status;
    if (key == NULL || pem == NULL ||
        PEM_write_bio_PKCS8PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL) != 1) {
        status = tw_fail(err, TW_NOMEM, "OpenSSL could not make an Ed25519 key");
    } else {
        char *text = NULL;
        const long size = BIO_get_mem_data(pem, &text);
        status = tw_private_create(path, text, (size_t)size, err);
        OPENSSL_cleanse(text, (size_t)size);
    }
    BIO_free(pem);
    EVP_PKEY_free(key);
    return status;
}

enum tw_status tw_identity_open(const char *path, struct tw_identity *identity,
                                struct tw_error *err) {
    char text[TW_PRIVATE_BYTES_MAX];
    size_t size = 0;
    TW_TRY(tw_private_read(path, text, sizeof(text), &size, err));
    ERR_clear_error();
    BIO *pem = BIO_new_mem_buf(text, (int)size);
    EVP_PKEY *key = pem == NULL ? NULL : PEM_read_bio_PrivateKey(pem, NULL, NULL, NULL);
    BIO_free(pem);
    OPENSSL_cleanse(text, sizeof(text));
    ERR_clear_error();
    if (key == NULL || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        return tw_fail(err, TW_CONFIG,
                       "%s holds no Ed25519 key in PEM form; restore it from a backup, or move it "
                       "away and run `thinwire init` (the node then gets a new id)",
                       path);
    }
    return identity_init(identity, key, err);
}

enum tw_status tw_identity_ephemeral(struct tw_identity *identity, struct tw_error *err) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (key == NULL) return tw_fail(err, TW_NOMEM, "OpenSSL could not make an Ed25519 key");
    return identity_init(identity, key, err);
}

void tw_identity_close(struct tw_identity *identity) {
    X509_free(identity->cert);
    EVP_PKEY_free(identity->key); /* this also wipes the private key */
    *identity = (struct tw_identity){0};
}
