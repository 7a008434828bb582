#include "daemon/cli/node/owner_key.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"

enum {
    DAY_S = 24 * 3600,
    /* A node beside the owner's key: its holder shuts it out, not the calendar. Certificates for
     * others cannot last longer, so a short life would end the whole run's admission. */
    DAYS_BESIDE = 3650,
};

bool owner_key_beside(const char *manifest, char path[TW_PATH_BYTES]) {
    const char *const slash = strrchr(manifest, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - manifest) + 1;
    return snprintf(path, TW_PATH_BYTES, "%.*s%s", folder, manifest, OWNER_KEY_FILE) <
           TW_PATH_BYTES;
}

enum tw_status owner_key_have(const char *path, struct tw_id *owner, bool *is_new,
                              struct tw_error *err) {
    struct tw_identity key;
    *is_new = access(path, F_OK) != 0;
    if (*is_new) TW_TRY(tw_identity_create(path, err));
    TW_TRY(tw_identity_open(path, &key, err));
    *owner = tw_public_key(key.key);
    tw_identity_close(&key);
    return TW_OK;
}

enum owner_key_state owner_key_look(const struct tw_run *run, const char *manifest,
                                    char path[TW_PATH_BYTES], struct tw_identity *key) {
    struct tw_error err;
    if (!owner_key_beside(manifest, path) || access(path, F_OK) != 0) return OWNER_KEY_NONE;
    if (access(path, R_OK) != 0 || tw_identity_open(path, key, &err) != TW_OK)
        return OWNER_KEY_HIDDEN;
    const struct tw_id owner = tw_public_key(key->key);
    if (tw_id_equal(&owner, &run->security.owner)) return OWNER_KEY_HERE;
    tw_identity_close(key);
    return OWNER_KEY_NONE;
}

void owner_key_sign(const struct tw_identity *key, uint64_t days, struct tw_cert *cert) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    const uint64_t now_s = cert->from_s;
    cert->from_s = now_s > TW_CERT_SLACK_S ? now_s - TW_CERT_SLACK_S : 0;
    cert->until_s = now_s + days * DAY_S;
    cert->serial = now_s;
    cert->issuer = tw_public_key(key->key);
    tw_cert_signed(cert, text);
    tw_sign(key->key, text, sizeof(text), cert->signature);
}

/* With sudo, the certificate belongs to the user of the state folder, as the other files there. */
static enum tw_status give_to_user(const char *folder, struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_CERT_FILE);
    if (geteuid() != 0 || (stat(folder, &info) == 0 && chown(path, info.st_uid, info.st_gid) == 0))
        return TW_OK;
    return tw_fail(err, TW_IO, "%.200s: %s", path, strerror(errno));
}

enum tw_status owner_key_admit(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_id *node, char key_path[TW_PATH_BYTES],
                               struct tw_error *err) {
    struct tw_identity key;
    struct tw_certs certs = {.count = 1};
    if (owner_key_look(run, config->node.run, key_path, &key) != OWNER_KEY_HERE)
        return tw_fail(err, TW_AGAIN, "the owner's key is not beside %.150s", config->node.run);
    certs.certs[0] = (struct tw_cert){.may = TW_CERT_TRAIN | TW_CERT_ADMIT,
                                      .from_s = (uint64_t)time(NULL),
                                      .run = tw_run_id(run),
                                      .node = *node};
    owner_key_sign(&key, DAYS_BESIDE, &certs.certs[0]);
    tw_identity_close(&key);
    TW_TRY(tw_certs_save(config->node.state_dir, TW_CERT_FILE, &certs, err));
    return give_to_user(config->node.state_dir, err);
}
