#include "daemon/auth/gate.h"

#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/units.h"
#include "daemon/auth/signature.h"

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
