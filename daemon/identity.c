#include "daemon/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include "base/hash.h"

enum { FILE_BYTES_MAX = 4096, PUBLIC_KEY_BYTES = 32 };

static const char ID_DOMAIN[] = "thinwire-node-id-v1"; /* hashed with its NUL */

/* ---- private files ------------------------------------------------------------------------- */

static enum tw_status private_check(int fd, const char *path, struct tw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return tw_fail(err, TW_IO, "stat %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return tw_fail(err, TW_CONFIG, "%s is not a regular file", path);
    if (st.st_uid != geteuid()) {
        return tw_fail(
            err, TW_CONFIG,
            "%s belongs to uid %u, but this process runs as uid %u: run it as the owner, "
            "or `chown %u %s`",
            path, (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(), path);
    }
    if ((st.st_mode & 077) != 0) {
        return tw_fail(err, TW_CONFIG,
                       "%s can be read by others (mode %03o): `chmod 600 %s`; if others may have "
                       "read it, make a new one",
                       path, (unsigned)(st.st_mode & 0777), path);
    }
    return TW_OK;
}

/* Reads a whole private file of at most FILE_BYTES_MAX - 1 bytes and ends it with NUL. */
static enum tw_status private_read(const char *path, char text[FILE_BYTES_MAX], size_t *size_out,
                                   struct tw_error *err) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT)
            return tw_fail(err, TW_CONFIG, "%s does not exist: `thinwire init` makes it", path);
        if (errno == ELOOP)
            return tw_fail(err, TW_CONFIG, "%s is a symbolic link: name the file itself", path);
        return tw_fail(err, TW_CONFIG, "open %s: %s", path, strerror(errno));
    }
    enum tw_status status = private_check(fd, path, err);
    size_t size = 0;
    while (status == TW_OK && size < FILE_BYTES_MAX) {
        const ssize_t got = read(fd, text + size, FILE_BYTES_MAX - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = tw_fail(err, TW_IO, "read %s: %s", path, strerror(errno));
        if (got <= 0) break;
        size += (size_t)got;
    }
    (void)close(fd);
    if (status == TW_OK && size == FILE_BYTES_MAX)
        status = tw_fail(err, TW_CONFIG, "%s is larger than any key: wrong file?", path);
    if (status != TW_OK) {
        OPENSSL_cleanse(text, FILE_BYTES_MAX);
        return status;
    }
    text[size] = '\0';
    *size_out = size;
    return TW_OK;
}

static enum tw_status folder_sync(const char *path, struct tw_error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof(folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_IO, "open %s: %s", folder, strerror(errno));
    const int failed = fsync(fd);
    const int saved = errno;
    (void)close(fd);
    return failed ? tw_fail(err, TW_IO, "fsync %s: %s", folder, strerror(saved)) : TW_OK;
}

/* Writes a new file of mode 0600, durably, or leaves nothing behind. */
static enum tw_status private_write(const char *path, const char *text, size_t size,
                                    struct tw_error *err) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno == EEXIST)
            return tw_fail(
                err, TW_CONFIG,
                "%s exists already and is kept: move it away first if you want a new one", path);
        return tw_fail(err, TW_IO, "create %s: %s", path, strerror(errno));
    }
    enum tw_status status = TW_OK;
    if (fchmod(fd, 0600) != 0)
        status = tw_fail(err, TW_IO, "chmod 600 %s: %s", path, strerror(errno));
    for (size_t done = 0; status == TW_OK && done < size;) {
        const ssize_t put = write(fd, text + done, size - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            status = tw_fail(err, TW_IO, "write %s: %s", path, strerror(errno));
            break;
        }
        done += (size_t)put;
    }
    if (status == TW_OK && fsync(fd) != 0)
        status = tw_fail(err, TW_IO, "fsync %s: %s", path, strerror(errno));
    (void)close(fd);
    if (status == TW_OK) status = folder_sync(path, err);
    if (status != TW_OK) (void)unlink(path);
    return status;
}

/* ---- identity ------------------------------------------------------------------------------ */

static X509 *certificate(EVP_PKEY *key) {
    uint8_t serial_bytes[8];
    X509 *cert = X509_new();
    if (cert == NULL || RAND_bytes(serial_bytes, sizeof(serial_bytes)) != 1) goto fail;
    serial_bytes[0] = (uint8_t)((serial_bytes[0] & 0x7f) | 0x40);
    BIGNUM *serial = BN_bin2bn(serial_bytes, sizeof(serial_bytes), NULL);
    if (serial == NULL) goto fail;
    const int has_serial = BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) != NULL;
    BN_free(serial);
    X509_NAME *name = X509_get_subject_name(cert);
    /* Names and dates mean nothing here: the key is the identity. So: always valid. */
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
    uint8_t named[sizeof(ID_DOMAIN) + PUBLIC_KEY_BYTES];
    size_t size = PUBLIC_KEY_BYTES;
    if (key == NULL || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) return false;
    memcpy(named, ID_DOMAIN, sizeof(ID_DOMAIN));
    if (EVP_PKEY_get_raw_public_key(key, named + sizeof(ID_DOMAIN), &size) != 1) return false;
    if (size != PUBLIC_KEY_BYTES) return false;
    *id = tw_sha256(named, sizeof(named));
    return true;
}

/* Takes over `key`, also on failure. */
static enum tw_status identity_init(struct tw_identity *identity, EVP_PKEY *key,
                                    struct tw_error *err) {
    struct tw_id id;
    X509 *cert = tw_identity_of_key(key, &id) ? certificate(key) : NULL;
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
        status = private_write(path, text, (size_t)size, err);
        OPENSSL_cleanse(text, (size_t)size);
    }
    BIO_free(pem);
    EVP_PKEY_free(key);
    return status;
}

enum tw_status tw_identity_open(const char *path, struct tw_identity *identity,
                                struct tw_error *err) {
    char text[FILE_BYTES_MAX];
    size_t size = 0;
    TW_TRY(private_read(path, text, &size, err));
    ERR_clear_error();
    BIO *pem = BIO_new_mem_buf(text, (int)size);
    EVP_PKEY *key = pem == NULL ? NULL : PEM_read_bio_PrivateKey(pem, NULL, NULL, NULL);
    BIO_free(pem);
    OPENSSL_cleanse(text, sizeof(text));
    ERR_clear_error();
    if (key == NULL || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        return tw_fail(err, TW_CONFIG,
                       "%s holds no Ed25519 key in PEM form: restore it from a backup, or move it "
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
    EVP_PKEY_free(identity->key); /* cleanses the private half */
    *identity = (struct tw_identity){0};
}

/* ---- run secret ---------------------------------------------------------------------------- */

static enum tw_status secret_write(const char *path, const struct tw_id *secret,
                                   struct tw_error *err) {
    char text[TW_ID_HEX_BYTES];
    tw_id_hex(secret, text);
    text[TW_ID_HEX_BYTES - 1] = '\n';
    const enum tw_status status = private_write(path, text, sizeof(text), err);
    OPENSSL_cleanse(text, sizeof(text));
    return status;
}

enum tw_status tw_secret_create(const char *path, struct tw_error *err) {
    struct tw_id secret; /* an id is 32 bytes with a hex form: what a secret file holds */
    _Static_assert(sizeof(secret.bytes) == TW_SECRET_BYTES, "same size");
    if (RAND_priv_bytes(secret.bytes, TW_SECRET_BYTES) != 1)
        return tw_fail(err, TW_IO, "the system has no random bytes for a secret yet");
    const enum tw_status status = secret_write(path, &secret, err);
    OPENSSL_cleanse(&secret, sizeof(secret));
    return status;
}

enum tw_status tw_secret_import(const char *path, const char *hex, struct tw_error *err) {
    struct tw_id secret;
    if (!tw_id_parse(hex, &secret))
        return tw_fail(err, TW_CONFIG, "a run secret is 64 hex digits; got %zu characters",
                       strlen(hex));
    const enum tw_status status = secret_write(path, &secret, err);
    OPENSSL_cleanse(&secret, sizeof(secret));
    return status;
}

enum tw_status tw_secret_open(const char *path, struct tw_secret *secret, struct tw_error *err) {
    char text[FILE_BYTES_MAX];
    size_t size = 0;
    struct tw_id parsed;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return tw_fail(
            err, TW_CONFIG,
            "%s does not exist: copy run.secret from a node of the run (mode 600); for a "
            "new run `thinwire init` makes one",
            path);
    TW_TRY(private_read(path, text, &size, err));
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r' || text[size - 1] == ' '))
        text[--size] = '\0';
    const bool is_good = size == (size_t)2 * TW_SECRET_BYTES && tw_id_parse(text, &parsed);
    if (is_good) memcpy(secret->bytes, parsed.bytes, TW_SECRET_BYTES);
    OPENSSL_cleanse(text, sizeof(text));
    OPENSSL_cleanse(&parsed, sizeof(parsed));
    if (is_good) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%s is not a run secret (64 hex digits): copy run.secret from a node of the run",
                   path);
}

void tw_secret_wipe(struct tw_secret *secret) {
    OPENSSL_cleanse(secret, sizeof(*secret));
}
