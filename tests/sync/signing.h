/* signing.h - signatures for cores in tests: a hash instead of Ed25519. Honest code signs as itself
 * alone, so nobody forges one by accident. */
#ifndef TW_TESTS_SYNC_SIGNING_H
#define TW_TESTS_SYNC_SIGNING_H

#include <string.h>

#include "base/hash.h"
#include "proto/message.h"
#include "sync/core/config.h"

/* `key` is the id of the signer. */
static inline void signing_sign(void *key, const void *text, size_t size,
                                uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_id name = tw_sha256_pair(key, sizeof(struct tw_id), text, size);
    memcpy(signature, name.bytes, 32);
    memcpy(signature + 32, name.bytes, 32);
}

static inline bool signing_is_signed(const struct tw_id *id, const void *text, size_t size,
                                     const uint8_t signature[TW_SIGNATURE_BYTES]) {
    uint8_t wanted[TW_SIGNATURE_BYTES];
    struct tw_id signer = *id;
    signing_sign(&signer, text, size, wanted);
    return memcmp(wanted, signature, sizeof(wanted)) == 0;
}

/* Makes a proof in which all members of the roster voted for the record at the lowest ballot. */
static inline void signing_prove(const struct tw_id *run, const struct tw_roster *roster,
                                 struct tw_msg_commit *commit) {
    const struct tw_record *record = &commit->record;
    const struct tw_ballot_vote vote = {*run, record->lineage, record->round, 1,
                                        tw_record_digest(record)};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    if (roster->count == 0) return;
    tw_ballot_vote_text(&vote, text);
    commit->proof = (struct tw_proof){.ballot = 1};
    for (uint32_t i = 0; i < roster->count; i++) {
        struct tw_id signer = roster->members[i].id;
        commit->proof.voters |= UINT64_C(1) << i;
        signing_sign(&signer, text, sizeof(text), commit->proof.signatures[i]);
    }
}

/* Signs as `self`, which is borrowed. */
static inline struct tw_signing signing_as(struct tw_id *self) {
    return (struct tw_signing){.key = self, .sign = signing_sign, .is_signed = signing_is_signed};
}

#endif
