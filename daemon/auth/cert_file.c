#include "daemon/auth/cert_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/store/durable.h"
#include "daemon/store/file.h"
#include "proto/armour.h"

enum {
    CERTS_BYTES = TW_CERTS_MAX * TW_CERT_BYTES,
    /* twice the size as written, because a person may add empty lines, spaces and carriage returns
     */
    CERTS_TEXT_MAX = 2 * TW_ARMOUR_BYTES(CERTS_BYTES),
    REVOKED_TEXT_MAX = 2 * TW_ARMOUR_BYTES(TW_REVOKED_BYTES_MAX),
};

/* Reads a whole file of at most `capacity` bytes. */
static enum tw_status text_read(const char *path, char *text, size_t capacity, size_t *size,
                                struct tw_error *err) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return tw_fail(err, TW_IO, "%.200s: %s", path, strerror(errno));
    *size = fread(text, 1, capacity, file);
    const bool has_failed = ferror(file) != 0, is_whole = fgetc(file) == EOF;
    (void)fclose(file);
    if (has_failed) return tw_fail(err, TW_IO, "%.200s cannot be read", path);
    if (!is_whole)
        return tw_fail(err, TW_CONFIG, "%.200s is too large for what it should be", path);
    return TW_OK;
}

static enum tw_status fail_named(enum tw_status status, const char *path,
                                 const struct tw_error *reason, struct tw_error *err) {
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%.110s: %.140s", path, reason->message);
}

enum tw_status tw_certs_load(const char *path, struct tw_certs *certs, struct tw_error *err) {
    char text[CERTS_TEXT_MAX];
    uint8_t bytes[CERTS_BYTES];
    struct tw_error reason = {0};
    size_t text_size = 0, size = 0;
    TW_TRY(text_read(path, text, sizeof(text), &text_size, err));
    enum tw_status status =
        tw_armour_decode(TW_ARMOUR_CERTS, text, text_size, bytes, sizeof(bytes), &size, &reason);
    if (status == TW_OK) status = tw_certs_decode(bytes, size, certs, &reason);
    return fail_named(status, path, &reason, err);
}

enum tw_status tw_revoked_load(const char *path, struct tw_revoked *list, struct tw_error *err) {
    struct tw_error reason = {0};
    size_t text_size = 0, size = 0;
    char *text = malloc(REVOKED_TEXT_MAX);
    uint8_t *bytes = malloc(TW_REVOKED_BYTES_MAX);
    enum tw_status status = TW_NOMEM;
    if (text != NULL && bytes != NULL)
        status = text_read(path, text, REVOKED_TEXT_MAX, &text_size, err);
    if (status == TW_OK) {
        status = tw_armour_decode(TW_ARMOUR_REVOKED, text, text_size, bytes, TW_REVOKED_BYTES_MAX,
                                  &size, &reason);
        if (status == TW_OK) status = tw_revoked_decode(bytes, size, list, &reason);
        status = fail_named(status, path, &reason, err);
    }
    free(bytes);
    free(text);
    return status;
}

enum tw_status tw_recall_load(const char *path, struct tw_recall *recall, struct tw_error *err) {
    char text[2 * TW_ARMOUR_BYTES(TW_RECALL_BYTES)];
    uint8_t bytes[TW_RECALL_BYTES];
    struct tw_error reason = {0};
    size_t text_size = 0, size = 0;
    TW_TRY(text_read(path, text, sizeof(text), &text_size, err));
    enum tw_status status =
        tw_armour_decode(TW_ARMOUR_RECALL, text, text_size, bytes, sizeof(bytes), &size, &reason);
    if (status == TW_OK) status = tw_recall_decode(bytes, size, recall, &reason);
    return fail_named(status, path, &reason, err);
}

/* Opens the folder and locks it against other processes that check before they write (the daemon,
 * `owner import`). Closing the descriptor unlocks it. Returns a negative number on failure. */
static int folder_lock(const char *folder, struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    const int dir = ops->dir_open(ops->ctx, folder);
    if (dir < 0)
        (void)tw_fail(err, TW_IO, "%.200s: %s", folder, strerror(-dir));
    else
        (void)flock(dir, LOCK_EX); /* if the file system has no locks, continue without one */
    return dir;
}

static enum tw_status text_save(int dir, const char *name, const char *text, size_t size,
                                struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_durable file;
    TW_TRY(tw_durable_begin(&file, ops, dir, name, size, err));
    const enum tw_status status = tw_durable_write(&file, text, size, 0, err);
    if (status == TW_OK) return tw_durable_commit(&file, err);
    tw_durable_abort(&file);
    return status;
}

static enum tw_status certs_put(int dir, const char *name, const struct tw_certs *certs,
                                struct tw_error *err) {
    uint8_t bytes[CERTS_BYTES];
    char text[TW_ARMOUR_BYTES(CERTS_BYTES)];
    const size_t size = tw_certs_encode(certs, bytes);
    return text_save(dir, name, text, tw_armour_encode(TW_ARMOUR_CERTS, bytes, size, text), err);
}

static enum tw_status revoked_put(int dir, const char *name, const struct tw_revoked *list,
                                  struct tw_error *err) {
    uint8_t *bytes = malloc(TW_REVOKED_BYTES_MAX);
    char *text = malloc(TW_ARMOUR_BYTES(TW_REVOKED_BYTES_MAX));
    enum tw_status status = tw_fail(err, TW_NOMEM, "no memory for %.100s", name);
    if (bytes != NULL && text != NULL) {
        const size_t size = tw_revoked_encode(list, bytes);
        status =
            text_save(dir, name, text, tw_armour_encode(TW_ARMOUR_REVOKED, bytes, size, text), err);
    }
    free(text);
    free(bytes);
    return status;
}

static enum tw_status recall_put(int dir, const char *name, const struct tw_recall *recall,
                                 struct tw_error *err) {
    uint8_t bytes[TW_RECALL_BYTES];
    char text[TW_ARMOUR_BYTES(TW_RECALL_BYTES)];
    tw_recall_encode(recall, bytes);
    return text_save(dir, name, text,
                     tw_armour_encode(TW_ARMOUR_RECALL, bytes, sizeof(bytes), text), err);
}

enum tw_status tw_certs_save(const char *folder, const char *name, const struct tw_certs *certs,
                             struct tw_error *err) {
    const int dir = folder_lock(folder, err);
    if (dir < 0) return TW_IO;
    const enum tw_status status = certs_put(dir, name, certs, err);
    (void)close(dir);
    return status;
}

enum tw_status tw_revoked_save(const char *folder, const char *name, const struct tw_revoked *list,
                               struct tw_error *err) {
    const int dir = folder_lock(folder, err);
    if (dir < 0) return TW_IO;
    const enum tw_status status = revoked_put(dir, name, list, err);
    (void)close(dir);
    return status;
}

enum tw_status tw_recall_save(const char *folder, const char *name, const struct tw_recall *recall,
                              struct tw_error *err) {
    const int dir = folder_lock(folder, err);
    if (dir < 0) return TW_IO;
    const enum tw_status status = recall_put(dir, name, recall, err);
    (void)close(dir);
    return status;
}

static bool is_same(const struct tw_certs *a, const struct tw_certs *b) {
    uint8_t bytes_a[CERTS_BYTES], bytes_b[CERTS_BYTES];
    const size_t size = tw_certs_encode(a, bytes_a);
    return size == tw_certs_encode(b, bytes_b) && memcmp(bytes_a, bytes_b, size) == 0;
}

enum tw_status tw_certs_save_renewed(const char *folder, const struct tw_certs *old,
                                     const struct tw_certs *fresh, struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    struct tw_certs there;
    struct tw_error ignored;
    enum tw_status status;
    const int dir = folder_lock(folder, err);
    if (dir < 0) return TW_IO;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_CERT_FILE);
    if (tw_certs_load(path, &there, &ignored) == TW_OK && !is_same(&there, old))
        status = tw_fail(err, TW_AGAIN, "%.200s was replaced meanwhile, and stays", path);
    else
        status = certs_put(dir, TW_CERT_FILE, fresh, err);
    (void)close(dir);
    return status;
}

enum tw_status tw_revoked_save_newer(const char *folder, const struct tw_revoked *list,
                                     struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    struct tw_error ignored;
    enum tw_status status;
    struct tw_revoked *there = malloc(sizeof(*there));
    if (there == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", TW_REVOKED_FILE);
    const int dir = folder_lock(folder, err);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_REVOKED_FILE);
    if (dir < 0)
        status = TW_IO;
    else if (tw_revoked_load(path, there, &ignored) == TW_OK &&
             tw_id_equal(&there->run, &list->run) && there->version >= list->version)
        status = tw_fail(err, TW_AGAIN, "list %llu is here already, this is list %llu",
                         (unsigned long long)there->version, (unsigned long long)list->version);
    else
        status = revoked_put(dir, TW_REVOKED_FILE, list, err);
    if (dir >= 0) (void)close(dir);
    free(there);
    return status;
}

enum tw_status tw_recall_save_newer(const char *folder, const struct tw_recall *recall,
                                    struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    struct tw_recall there;
    struct tw_error ignored;
    enum tw_status status;
    const int dir = folder_lock(folder, err);
    if (dir < 0) return TW_IO;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_RECALL_FILE);
    if (tw_recall_load(path, &there, &ignored) == TW_OK && tw_id_equal(&there.run, &recall->run) &&
        there.version >= recall->version)
        status = tw_fail(err, TW_AGAIN, "recall %llu is here already, this is recall %llu",
                         (unsigned long long)there.version, (unsigned long long)recall->version);
    else
        status = recall_put(dir, TW_RECALL_FILE, recall, err);
    (void)close(dir);
    return status;
}

/* ---- the node's own files ------------------------------------------------------------------ */

/* Reports that this node has no certificate, and how to get one. */
static enum tw_status cert_lacks(const struct tw_gate *gate, struct tw_error *err) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&gate->identity->id, hex);
    return tw_fail(err, TW_NOT_ADMITTED,
                   TW_CERT_FILE " does not exist: `thinwire init` makes it beside the owner's key; "
                                "elsewhere have the run's owner sign one (`thinwire owner sign "
                                "%s`), then `thinwire owner import FILE`",
                   hex);
}

static enum tw_status list_load(struct tw_gate *gate, const char *path, struct tw_error *err) {
    struct tw_error reason = {0};
    struct tw_revoked *list = malloc(sizeof(*list));
    uint8_t *bytes = malloc(TW_REVOKED_BYTES_MAX);
    enum tw_status status = TW_NOMEM;
    if (list != NULL && bytes != NULL) status = tw_revoked_load(path, list, &reason);
    if (status == TW_OK)
        status = tw_gate_revoke(gate, bytes, tw_revoked_encode(list, bytes), &reason);
    free(bytes);
    free(list);
    if (status == TW_OK || status == TW_AGAIN) return TW_OK;
    return tw_fail(err, status, "%.180s: move %.40s away, and the other nodes send theirs",
                   reason.message, TW_REVOKED_FILE);
}

static enum tw_status take_recall(struct tw_gate *gate, const char *path, struct tw_error *err) {
    struct tw_error reason = {0};
    struct tw_recall recall;
    uint8_t bytes[TW_RECALL_BYTES];
    enum tw_status status = tw_recall_load(path, &recall, &reason);
    if (status == TW_OK) {
        tw_recall_encode(&recall, bytes);
        status = tw_gate_recall(gate, bytes, sizeof(bytes), &reason);
    }
    if (status == TW_OK || status == TW_AGAIN) return TW_OK;
    return tw_fail(err, status, "%.180s: move %s away, and the other nodes send theirs",
                   reason.message, TW_RECALL_FILE);
}

enum tw_status tw_gate_load(struct tw_gate *gate, const char *folder, struct tw_error *err) {
    struct tw_certs certs;
    struct tw_error reason = {0};
    char path[TW_PATH_BYTES + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_REVOKED_FILE);
    if (access(path, F_OK) == 0) TW_TRY(list_load(gate, path, err));
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_RECALL_FILE);
    if (access(path, F_OK) == 0) TW_TRY(take_recall(gate, path, err));
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_CERT_FILE);
    if (access(path, F_OK) != 0) return cert_lacks(gate, err);
    TW_TRY(tw_certs_load(path, &certs, err));
    const enum tw_status status = tw_gate_adopt(gate, &certs, &reason);
    if (status == TW_OK) return TW_OK;
    return tw_fail(err, status, "%.90s: %s; %s", path, reason.message,
                   status == TW_REVOKED
                       ? "only the run's owner can change that"
                       : "have the run's owner sign a new one (`thinwire owner sign`)");
}
