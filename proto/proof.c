#include "proto/proof.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum { HEAD_BYTES = 16 };

static const char domain[] = "thinwire-vote-v1";

_Static_assert(sizeof(domain) + 1 + 3 * 32 + 4 * 8 == TW_VOTE_TEXT_BYTES, "with its NUL");
_Static_assert(TW_MEMBERS_MAX <= 64, "voters are a set of 64");

uint32_t tw_liars_max(uint32_t count) {
    TW_ASSERT(count > 0);
    return (count - 1) / 3;
}

uint32_t tw_votes_needed(uint32_t count) {
    return (count + tw_liars_max(count)) / 2 + 1;
}

void tw_ballot_vote_text(const struct tw_ballot_vote *vote, uint8_t text[TW_VOTE_TEXT_BYTES]) {
    memcpy(text, domain, sizeof(domain));
    text += sizeof(domain);
    *text++ = (uint8_t)vote->phase;
    memcpy(text, vote->run.bytes, 32);
    memcpy(text + 32, vote->lineage.bytes, 32);
    tw_put_u64(text + 64, vote->nonce);
    tw_put_u64(text + 72, vote->round);
    tw_put_u64(text + 80, vote->ballot);
    tw_put_u64(text + 88, vote->lock_ballot);
    memcpy(text + 96, vote->digest.bytes, 32);
}

size_t tw_proof_encode(const struct tw_proof *proof, uint8_t bytes[TW_PROOF_BYTES_MAX]) {
    size_t size = HEAD_BYTES;
    if (proof->ballot == 0) return 0;
    tw_put_u64(bytes, proof->ballot);
    tw_put_u64(bytes + 8, proof->voters);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((proof->voters >> i & 1) == 0) continue;
        memcpy(bytes + size, proof->signatures[i], TW_SIGNATURE_BYTES);
        size += TW_SIGNATURE_BYTES;
    }
    return size;
}

enum tw_status tw_proof_decode(const uint8_t *bytes, size_t size, struct tw_proof *proof,
                               struct tw_error *err) {
    memset(proof, 0, sizeof(*proof));
    if (size < HEAD_BYTES)
        return tw_fail(err, TW_PROTO, "a proof of %zu bytes, at least %d belong", size, HEAD_BYTES);
    proof->ballot = tw_get_u64(bytes);
    proof->voters = tw_get_u64(bytes + 8);
    const size_t voters = (size_t)__builtin_popcountll(proof->voters);
    if (proof->ballot == 0 || voters == 0)
        return tw_fail(err, TW_PROTO, "a proof without a ballot or without voters");
    if (size != HEAD_BYTES + voters * TW_SIGNATURE_BYTES)
        return tw_fail(err, TW_PROTO, "a proof of %zu voters in %zu bytes", voters, size);
    bytes += HEAD_BYTES;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((proof->voters >> i & 1) == 0) continue;
        memcpy(proof->signatures[i], bytes, TW_SIGNATURE_BYTES);
        bytes += TW_SIGNATURE_BYTES;
    }
    return TW_OK;
}

enum { VOTERS_BYTES = 8, PROMISE_BYTES = 8 + TW_SIGNATURE_BYTES };

size_t tw_promises_encode(const struct tw_promises *promises,
                          uint8_t bytes[TW_PROMISES_BYTES_MAX]) {
    size_t size = VOTERS_BYTES;
    if (promises->voters == 0) return 0;
    tw_put_u64(bytes, promises->voters);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((promises->voters >> i & 1) == 0) continue;
        tw_put_u64(bytes + size, promises->lock_ballots[i]);
        memcpy(bytes + size + 8, promises->signatures[i], TW_SIGNATURE_BYTES);
        size += PROMISE_BYTES;
    }
    return size;
}

enum tw_status tw_promises_decode(const uint8_t *bytes, size_t size, struct tw_promises *promises,
                                  struct tw_error *err) {
    memset(promises, 0, sizeof(*promises));
    if (size < VOTERS_BYTES)
        return tw_fail(err, TW_PROTO, "promises of %zu bytes, at least %d belong", size,
                       VOTERS_BYTES);
    promises->voters = tw_get_u64(bytes);
    const size_t voters = (size_t)__builtin_popcountll(promises->voters);
    if (voters == 0) return tw_fail(err, TW_PROTO, "promises without voters");
    if (size != VOTERS_BYTES + voters * PROMISE_BYTES)
        return tw_fail(err, TW_PROTO, "promises of %zu voters in %zu bytes", voters, size);
    bytes += VOTERS_BYTES;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((promises->voters >> i & 1) == 0) continue;
        promises->lock_ballots[i] = tw_get_u64(bytes);
        memcpy(promises->signatures[i], bytes + 8, TW_SIGNATURE_BYTES);
        bytes += PROMISE_BYTES;
    }
    return TW_OK;
}
