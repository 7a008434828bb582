#include "daemon/auth/gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/units.h"
#include "daemon/auth/identity.h"
#include "daemon/config/config.h"
#include "daemon/store/file.h"
#include "proto/cert.h"

static uint64_t system_clock_s(void) {
    return (uint64_t)time(NULL);
}

void tw_gate_init(struct tw_gate *gate, const struct tw_id *run, const struct tw_id *owner,
                  const struct tw_identity *identity) {
    memset(gate, 0, sizeof(*gate));
    gate->run = *run;
    gate->owner = *owner;
    gate->identity = identity;
    gate->clock_s = system_clock_s;
}

/* ---- judging ------------------------------------------------------------------------------- */

static enum tw_status check_signatures(const struct tw_certs *certs, struct tw_error *err) {
    char node[9];
    for (uint32_t i = 0; i < certs->count; i++) {
        const struct tw_cert *cert = &certs->certs[i];
        uint8_t text[TW_CERT_SIGNED_BYTES];
        tw_cert_signed(cert, text);
        if (tw_is_signed(&cert->issuer, text, sizeof(text), cert->signature)) continue;
        tw_id_short(&cert->node, node);
        return tw_fail(err, TW_NOT_ADMITTED,
                       "the signature under the certificate of node %s is false", node);
    }
    return TW_OK;
}

static enum tw_status judge_certs(const struct tw_gate *gate, const struct tw_certs *certs,
                                  const struct tw_cert_question *question, struct tw_error *err) {
    TW_TRY(tw_certs_check(certs, question, err));
    TW_TRY(tw_revoked_check(&gate->revoked, certs, err));
    /* signatures come last, because they are the most expensive check */
    return check_signatures(certs, err);
}

enum tw_status tw_gate_judge(const struct tw_gate *gate, const struct tw_certs *certs,
                             const struct tw_id *node, enum tw_cert_may may, uint64_t their_now_s,
                             struct tw_error *err) {
    const struct tw_cert_question question = {.owner = gate->owner,
                                              .run = gate->run,
                                              .node = *node,
                                              .may = may,
                                              .now_s = gate->clock_s(),
                                              .their_now_s = their_now_s};
    return judge_certs(gate, certs, &question, err);
}

enum tw_status tw_gate_adopt(struct tw_gate *gate, const struct tw_certs *certs,
                             struct tw_error *err) {
    const struct tw_cert_question question = {.owner = gate->owner,
                                              .run = gate->run,
                                              .node = gate->identity->id,
                                              .may = TW_CERT_TRAIN,
                                              .now_s = tw_certs_until(certs)};
    TW_TRY(judge_certs(gate, certs, &question, err));
    gate->own = *certs;
    return TW_OK;
}

enum tw_status tw_gate_review(const struct tw_gate *gate, const struct tw_certs *certs,
                              struct tw_error *err) {
    const uint64_t until_s = tw_certs_until(certs), now_s = gate->clock_s();
    char node[9], end[TW_UNITS_BYTES];
    if (now_s > until_s && now_s - until_s > TW_CERT_SLACK_S) {
        tw_id_short(&certs->certs[0].node, node);
        return tw_fail(err, TW_NOT_ADMITTED, "the certificate of node %s ended at %s", node,
                       tw_units_utc(end, until_s));
    }
    return tw_revoked_check(&gate->revoked, certs, err);
}

uint32_t tw_gate_encode(const struct tw_gate *gate, uint8_t bytes[TW_GATE_BYTES_MAX]) {
    tw_put_u64(bytes, gate->clock_s());
    return 8 + (uint32_t)tw_certs_encode(&gate->own, bytes + 8);
}

uint64_t tw_gate_their_clock_s(const uint8_t *bytes, uint32_t size) {
    return bytes != NULL && size >= 8 ? tw_get_u64(bytes) : 0;
}

enum tw_status tw_gate_check(const struct tw_gate *gate, const struct tw_id *node,
                             const uint8_t *bytes, uint32_t size, struct tw_certs *certs,
                             struct tw_error *err) {
    struct tw_certs read = {.count = 0};
    uint64_t their_now_s = 0;
    if (bytes != NULL) {
        if (size < 8) return tw_fail(err, TW_PROTO, "HELLO: certificates of %u bytes", size);
        their_now_s = tw_get_u64(bytes);
        if (size > 8) TW_TRY(tw_certs_decode(bytes + 8, size - 8, &read, err));
    }
    TW_TRY(tw_gate_judge(gate, &read, node, TW_CERT_TRAIN, their_now_s, err));
    *certs = read;
    return TW_OK;
}

/* ---- revocations --------------------------------------------------------------------------- */

enum tw_status tw_gate_revoke(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err) {
    struct tw_revoked list;
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    TW_TRY(tw_revoked_decode(bytes, size, &list, err));
    if (!tw_id_equal(&list.run, &gate->run)) {
        char theirs[9], ours[9];
        tw_id_short(&list.run, theirs);
        tw_id_short(&gate->run, ours);
        return tw_fail(err, TW_NOT_ADMITTED, "revocations of run %s, and this is run %s", theirs,
                       ours);
    }
    if (list.version <= gate->revoked.version)
        return tw_fail(err, TW_AGAIN, "list %llu of revocations is here already, this is list %llu",
                       (unsigned long long)gate->revoked.version, (unsigned long long)list.version);
    tw_revoked_signed(&list, text);
    if (!tw_is_signed(&gate->owner, text, sizeof(text), list.signature))
        return tw_fail(err, TW_NOT_ADMITTED, "revocations that the run's owner did not sign");
    gate->revoked = list;
    return TW_OK;
}

/* ---- recalls ------------------------------------------------------------------------------- */

enum tw_status tw_gate_recall(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                              struct tw_error *err) {
    struct tw_recall recall;
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    TW_TRY(tw_recall_decode(bytes, size, &recall, err));
    if (!tw_id_equal(&recall.run, &gate->run)) {
        char theirs[9], ours[9];
        tw_id_short(&recall.run, theirs);
        tw_id_short(&gate->run, ours);
        return tw_fail(err, TW_NOT_ADMITTED, "a recall of run %s, and this is run %s", theirs,
                       ours);
    }
    if (recall.version <= gate->recall.version)
        return tw_fail(err, TW_AGAIN, "recall %llu is here already, this is recall %llu",
                       (unsigned long long)gate->recall.version,
                       (unsigned long long)recall.version);
    tw_recall_signed(&recall, text);
    if (!tw_is_signed(&gate->owner, text, sizeof(text), recall.signature))
        return tw_fail(err, TW_NOT_ADMITTED, "a recall that the run's owner did not sign");
    gate->recall = recall;
    return TW_OK;
}

/* ---- admitting ----------------------------------------------------------------------------- */

enum tw_status tw_gate_can_admit(const struct tw_gate *gate, struct tw_error *err) {
    if (gate->own.count > 1) {
        char hex[TW_ID_HEX_BYTES], by[9];
        tw_id_hex(&gate->identity->id, hex);
        tw_id_short(&gate->own.certs[1].node, by);
        return tw_fail(err, TW_NOT_ADMITTED,
                       "this node was admitted by another node, and only the owner lets nodes "
                       "admit: invite on node %s, or have the owner sign this one (`thinwire owner "
                       "sign %s --may train,admit`)",
                       by, hex);
    }
    return tw_gate_judge(gate, &gate->own, &gate->identity->id, TW_CERT_ADMIT, 0, err);
}

enum tw_status tw_gate_admit(const struct tw_gate *gate, const struct tw_gate_admission *admission,
                             struct tw_certs *certs, struct tw_error *err) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    TW_TRY(tw_gate_can_admit(gate, err));
    const uint64_t now_s = gate->clock_s(), end_s = gate->own.certs[0].until_s;
    const bool lacks_vote = admission->lacks_vote || !tw_certs_has_vote(&gate->own);
    uint64_t life_s = admission->life_s;
    if (life_s > TW_GATE_LIFE_S) life_s = TW_GATE_LIFE_S;
    if (life_s == 0) life_s = 1;
    struct tw_certs made = {.count = 2};
    made.certs[1] = gate->own.certs[0];
    made.certs[0] = (struct tw_cert){
        .may = TW_CERT_TRAIN | (lacks_vote ? TW_CERT_VOTELESS : 0),
        .from_s = now_s > TW_CERT_SLACK_S ? now_s - TW_CERT_SLACK_S : 0,
        .until_s = end_s > now_s && end_s - now_s < life_s ? end_s : now_s + life_s,
        .serial = now_s,
        .run = gate->run,
        .node = admission->node,
        .issuer = tw_public_key(gate->identity->key),
    };
    TW_TRY(tw_revoked_check(&gate->revoked, &made, err));
    tw_cert_signed(&made.certs[0], text);
    tw_sign(gate->identity->key, text, sizeof(text), made.certs[0].signature);
    *certs = made;
    return TW_OK;
}

/* ---- renewing ------------------------------------------------------------------------------ */

/* Lifetime of the node's own certificate; below, the part of it that is left. */
static uint64_t life_s(const struct tw_certs *certs) {
    return certs->certs[0].until_s - certs->certs[0].from_s;
}

static uint64_t left_s(const struct tw_certs *certs, uint64_t now_s) {
    return certs->certs[0].until_s > now_s ? certs->certs[0].until_s - now_s : 0;
}

bool tw_gate_is_due(const struct tw_gate *gate) {
    return gate->own.count > 1 && left_s(&gate->own, gate->clock_s()) < life_s(&gate->own) / 3;
}

bool tw_gate_is_late(const struct tw_gate *gate) {
    enum { OWNER_S = 14 * 24 * 3600 };
    if (gate->own.count == 0) return false;
    const uint64_t left = left_s(&gate->own, gate->clock_s()), life = life_s(&gate->own);
    return gate->own.count > 1 ? left < life / 6 : left < OWNER_S && left < life / 3;
}

bool tw_gate_is_admitter(const struct tw_certs *certs) {
    return certs->count == 1 && (certs->certs[0].may & TW_CERT_ADMIT) != 0;
}

bool tw_gate_is_renewer(const struct tw_gate *gate, const struct tw_certs *certs) {
    return tw_gate_is_admitter(certs) &&
           (tw_certs_has_vote(certs) || !tw_certs_has_vote(&gate->own));
}

enum tw_status tw_gate_renew(const struct tw_gate *gate, const struct tw_certs *old,
                             struct tw_certs *fresh, struct tw_error *err) {
    if (old->count < 2)
        return tw_fail(err, TW_NOT_ADMITTED, "the owner signed that certificate, and renews it");
    if (left_s(old, gate->clock_s()) > life_s(old) / 2)
        return tw_fail(err, TW_AGAIN, "more than half of its life is left");
    const struct tw_gate_admission admission = {
        .node = old->certs[0].node, .life_s = life_s(old), .lacks_vote = !tw_certs_has_vote(old)};
    if (!admission.lacks_vote && !tw_certs_has_vote(&gate->own))
        return tw_fail(err, TW_NOT_ADMITTED, "this node has no vote, and renews nobody's");
    return tw_gate_admit(gate, &admission, fresh, err);
}

enum tw_status tw_gate_take(struct tw_gate *gate, const uint8_t *bytes, size_t size,
                            struct tw_error *err) {
    struct tw_certs certs;
    TW_TRY(tw_certs_decode(bytes, size, &certs, err));
    if (gate->own.count > 0 && tw_certs_until(&certs) <= tw_certs_until(&gate->own))
        return tw_fail(err, TW_AGAIN, "the certificate here lasts as long");
    TW_TRY(tw_gate_judge(gate, &certs, &gate->identity->id, TW_CERT_TRAIN, 0, err));
    if (gate->own.count > 0 && tw_certs_has_vote(&certs) != tw_certs_has_vote(&gate->own))
        return tw_fail(err, TW_NOT_ADMITTED, "a renewal that would change the right to vote");
    gate->own = certs;
    return TW_OK;
}

/* ==== files =================================================================================== */

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
