#include "daemon/auth/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/id.h"

/* ==== private files =========================================================================== */

/* ---- whose file it is ---------------------------------------------------------------------- */

/* Writes the folder of `path`. Returns false if it is too long. */
static bool folder_of(const char *path, char folder[PATH_MAX]) {
    const char *const slash = strrchr(path, '/');
    const size_t length = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    if (length >= PATH_MAX) return false;
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    return true;
}

uint32_t tw_private_owner(const char *folder) {
    struct stat info;
    const uid_t own = geteuid();
    return own == 0 && stat(folder, &info) == 0 ? info.st_uid : own;
}

const char *tw_user_name(uint32_t uid, char name[TW_USER_NAME_BYTES]) {
    const struct passwd *const user = getpwuid(uid);
    if (user != NULL)
        (void)snprintf(name, TW_USER_NAME_BYTES, "%s", user->pw_name);
    else
        (void)snprintf(name, TW_USER_NAME_BYTES, "%u", (unsigned)uid);
    return name;
}

/* Returns TW_CONFIG, with the command that gives the file back to its user. */
static enum tw_status wrong_owner(const char *path, uint32_t found, uint32_t owner,
                                  struct tw_error *err) {
    char has[TW_USER_NAME_BYTES], wants[TW_USER_NAME_BYTES];
    (void)tw_user_name(found, has);
    (void)tw_user_name(owner, wants);
    if (owner == 0) /* nothing is given to root: a service could then not read it */
        return tw_fail(err, TW_CONFIG, "%s belongs to user %s, and this is root; run it as user %s",
                       path, has, has);
    return tw_fail(err, TW_CONFIG,
                   "%s belongs to user %s, and user %s needs it; `sudo chown %s: %s`", path, has,
                   wants, wants, path);
}

static enum tw_status private_check(int fd, const char *path, uint32_t owner,
                                    struct tw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return tw_fail(err, TW_IO, "stat %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return tw_fail(err, TW_CONFIG, "%s is not a regular file", path);
    if (st.st_uid != owner) return wrong_owner(path, st.st_uid, owner, err);
    if ((st.st_mode & 077) != 0) {
        return tw_fail(err, TW_CONFIG,
                       "%s can be read by others (mode %03o); `chmod 600 %s`, and if others may "
                       "have read it, make a new one",
                       path, (unsigned)(st.st_mode & 0777), path);
    }
    return TW_OK;
}

/* Returns TW_CONFIG: the file cannot be opened, for the reason in errno. */
static enum tw_status not_opened(const char *path, uint32_t owner, struct tw_error *err) {
    const int why = errno;
    struct stat st;
    char name[TW_USER_NAME_BYTES];
    if (why == ENOENT)
        return tw_fail(err, TW_CONFIG, "%s does not exist; `thinwire init` makes it", path);
    if (why == ELOOP)
        return tw_fail(err, TW_CONFIG, "%s is a symbolic link; name the file itself", path);
    if (why == EACCES && lstat(path, &st) == 0 && st.st_uid != owner)
        return wrong_owner(path, st.st_uid, owner, err);
    if (why == EACCES)
        return tw_fail(err, TW_CONFIG, "user %s may not open %s; use sudo",
                       tw_user_name(owner, name), path);
    return tw_fail(err, TW_CONFIG, "open %s: %s", path, strerror(why));
}

/* ---- files --------------------------------------------------------------------------------- */

enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size_out,
                               struct tw_error *err) {
    char folder[PATH_MAX];
    if (!folder_of(path, folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    const uint32_t owner = tw_private_owner(folder);
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return not_opened(path, owner, err);
    enum tw_status status = private_check(fd, path, owner, err);
    size_t size = 0;
    while (status == TW_OK && size < capacity) {
        const ssize_t got = read(fd, text + size, capacity - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = tw_fail(err, TW_IO, "read %s: %s", path, strerror(errno));
        if (got <= 0) break;
        size += (size_t)got;
    }
    (void)close(fd);
    if (status == TW_OK && size == capacity)
        status = tw_fail(err, TW_CONFIG, "%s is larger than any key: wrong file?", path);
    if (status != TW_OK) {
        OPENSSL_cleanse(text, capacity);
        return status;
    }
    text[size] = '\0';
    *size_out = size;
    return TW_OK;
}

enum tw_status tw_folder_sync(const char *path, struct tw_error *err) {
    char folder[PATH_MAX];
    if (!folder_of(path, folder)) return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tw_fail(err, TW_IO, "open %s: %s", folder, strerror(errno));
    const int failed = fsync(fd);
    const int saved = errno;
    (void)close(fd);
    return failed ? tw_fail(err, TW_IO, "fsync %s: %s", folder, strerror(saved)) : TW_OK;
}

/* Gives a file that root makes to the owner of its folder. */
static bool hand_over(int fd, const char *path) {
    char folder[PATH_MAX];
    struct stat info;
    if (geteuid() != 0) return true;
    if (!folder_of(path, folder) || stat(folder, &info) != 0) return false;
    return info.st_uid == 0 || fchown(fd, info.st_uid, info.st_gid) == 0;
}

enum tw_status tw_private_create(const char *path, const char *text, size_t size,
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
    else if (!hand_over(fd, path))
        status =
            tw_fail(err, TW_IO, "chown %s to the owner of its folder: %s", path, strerror(errno));
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
    if (status == TW_OK) status = tw_folder_sync(path, err);
    if (status != TW_OK) (void)unlink(path);
    return status;
}

enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err) {
    char fresh[PATH_MAX];
    const int length = snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof(fresh))
        return tw_fail(err, TW_CONFIG, "path too long: %.80s...", path);
    (void)unlink(fresh); /* temporary file of an interrupted replacement */
    TW_TRY(tw_private_create(fresh, text, size, err));
    if (rename(fresh, path) != 0) {
        const int why = errno;
        (void)unlink(fresh);
        return tw_fail(err, TW_IO, "rename %s: %s", fresh, strerror(why));
    }
    return tw_folder_sync(path, err);
}

/* ==== signatures ============================================================================== */

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

/* ==== the node's key ========================================================================== */

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

/* ==== the run secret ========================================================================== */

enum { LINE_BYTES = 2 * TW_SECRET_BYTES + 1 };

static const char MARK_DOMAIN[] =
    "thinwire-secret-mark"; /* prefix of the hashed bytes, with its NUL */

enum tw_status tw_secret_draw(struct tw_secret *secret, struct tw_error *err) {
    if (RAND_priv_bytes(secret->bytes, TW_SECRET_BYTES) == 1) return TW_OK;
    return tw_fail(err, TW_IO, "the system has no random bytes for a secret yet");
}

/* A secret is written like an id: 32 bytes as 64 hex digits. */
static bool line_parse(const char *text, size_t size, struct tw_secret *secret) {
    struct tw_id parsed;
    char line[LINE_BYTES];
    _Static_assert(sizeof(parsed.bytes) == TW_SECRET_BYTES, "same size");
    if (size != LINE_BYTES - 1) return false;
    memcpy(line, text, size);
    line[size] = '\0';
    const bool is_good = tw_id_parse(line, &parsed);
    if (is_good) memcpy(secret->bytes, parsed.bytes, TW_SECRET_BYTES);
    OPENSSL_cleanse(line, sizeof(line));
    OPENSSL_cleanse(&parsed, sizeof(parsed));
    return is_good;
}

enum tw_status tw_secret_parse(const char *hex, struct tw_secret *secret, struct tw_error *err) {
    if (line_parse(hex, strlen(hex), secret)) return TW_OK;
    return tw_fail(err, TW_CONFIG, "a run secret is 64 hex digits; got %zu characters",
                   strlen(hex));
}

/* Writes the lines. Returns the bytes written. */
static size_t lines_write(const struct tw_secrets *secrets, char *text) {
    size_t at = 0;
    for (uint32_t i = 0; i < secrets->count; i++) {
        struct tw_id id;
        char hex[TW_ID_HEX_BYTES];
        memcpy(id.bytes, secrets->list[i].bytes, TW_SECRET_BYTES);
        tw_id_hex(&id, hex);
        memcpy(text + at, hex, LINE_BYTES - 1);
        at += LINE_BYTES - 1;
        text[at++] = '\n';
        OPENSSL_cleanse(&id, sizeof(id));
        OPENSSL_cleanse(hex, sizeof(hex));
    }
    return at;
}

enum tw_status tw_secret_create(const char *path, struct tw_error *err) {
    struct tw_secrets secrets = {.count = 1};
    char text[LINE_BYTES];
    TW_TRY(tw_secret_draw(&secrets.list[0], err));
    const size_t size = lines_write(&secrets, text);
    const enum tw_status status = tw_private_create(path, text, size, err);
    OPENSSL_cleanse(text, sizeof(text));
    tw_secrets_wipe(&secrets);
    return status;
}

enum tw_status tw_secrets_save(const char *path, const struct tw_secrets *secrets,
                               struct tw_error *err) {
    char text[TW_SECRETS_MAX * LINE_BYTES];
    const size_t size = lines_write(secrets, text);
    const enum tw_status status = tw_private_replace(path, text, size, err);
    OPENSSL_cleanse(text, sizeof(text));
    return status;
}

static bool lines_parse(const char *text, struct tw_secrets *secrets) {
    while (*text != '\0') {
        const size_t size = strcspn(text, "\n");
        const size_t bare = size > 0 && text[size - 1] == '\r' ? size - 1 : size;
        if (secrets->count == TW_SECRETS_MAX) return false;
        if (!line_parse(text, bare, &secrets->list[secrets->count])) return false;
        if (tw_secrets_find(secrets, &secrets->list[secrets->count]) >= 0) return false;
        secrets->count++;
        text += size + (text[size] == '\n');
    }
    return secrets->count > 0;
}

enum tw_status tw_secrets_open(const char *path, struct tw_secrets *secrets, struct tw_error *err) {
    char text[TW_PRIVATE_BYTES_MAX];
    size_t size = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return tw_fail(err, TW_CONFIG,
                       "%s does not exist; `thinwire join` brings it, or copy run.secret from a "
                       "node of the run (mode 600), or for a new run `thinwire init` makes one",
                       path);
    TW_TRY(tw_private_read(path, text, sizeof(text), &size, err));
    while (size > 0 && strchr("\n\r ", text[size - 1]) != NULL) text[--size] = '\0';
    struct tw_secrets read = {0};
    const bool is_good = strlen(text) == size && lines_parse(text, &read);
    if (is_good) *secrets = read;
    OPENSSL_cleanse(text, sizeof(text));
    tw_secrets_wipe(&read);
    if (is_good) return TW_OK;
    return tw_fail(
        err, TW_CONFIG,
        "%s holds no run secret (64 hex digits, or two such lines while one replaces the "
        "other); copy run.secret from a node of the run",
        path);
}

int tw_secrets_find(const struct tw_secrets *secrets, const struct tw_secret *secret) {
    int found = -1;
    for (uint32_t i = 0; i < secrets->count; i++) {
        if (CRYPTO_memcmp(secrets->list[i].bytes, secret->bytes, TW_SECRET_BYTES) == 0)
            found = (int)i;
    }
    return found;
}

void tw_secret_mark(const struct tw_secret *secret, char mark[TW_SECRET_MARK_BYTES]) {
    uint8_t text[sizeof(MARK_DOMAIN) + TW_SECRET_BYTES];
    memcpy(text, MARK_DOMAIN, sizeof(MARK_DOMAIN));
    memcpy(text + sizeof(MARK_DOMAIN), secret->bytes, TW_SECRET_BYTES);
    const struct tw_id hash = tw_sha256(text, sizeof(text));
    OPENSSL_cleanse(text, sizeof(text));
    tw_id_short(&hash, mark);
}

void tw_secrets_wipe(struct tw_secrets *secrets) {
    OPENSSL_cleanse(secrets, sizeof(*secrets));
}
