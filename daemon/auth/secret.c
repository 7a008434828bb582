#include "daemon/auth/secret.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/hash.h"
#include "base/id.h"
#include "daemon/auth/private_file.h"

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
