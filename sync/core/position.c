/* position.c - canonical bytes of positions and votes. The decoder checks every field. */
#include "sync/core/position.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

/* Magic bytes of an encoded position. Version 4 added `tip_proof`. */
static const uint8_t magic[4] = {'T', 'W', 'P', '4'};

struct writer {
    uint8_t *bytes;
    size_t size;
};

static void put_u32(struct writer *out, uint32_t value) {
    tw_put_u32(out->bytes + out->size, value);
    out->size += 4;
}

static void put_u64(struct writer *out, uint64_t value) {
    tw_put_u64(out->bytes + out->size, value);
    out->size += 8;
}

static void put_id(struct writer *out, const struct tw_id *id) {
    memcpy(out->bytes + out->size, id->bytes, sizeof(id->bytes));
    out->size += sizeof(id->bytes);
}

/* Appends u32 size (0: no record), then the record. */
static void put_record(struct writer *out, bool has_close, const struct tw_record *record) {
    const size_t size = has_close ? tw_record_encode(record, out->bytes + out->size + 4) : 0;
    put_u32(out, (uint32_t)size);
    out->size += size;
}

/* Appends u32 size (0: no proof), then the proof. */
static void put_proof(struct writer *out, const struct tw_proof *proof) {
    const size_t size = tw_proof_encode(proof, out->bytes + out->size + 4);
    put_u32(out, (uint32_t)size);
    out->size += size;
}

/* True if the two records written last are the same, or both are absent. */
static bool is_twice(const uint8_t *first, const uint8_t *second, const uint8_t *end) {
    return second - first == end - second && memcmp(first, second, (size_t)(end - second)) == 0;
}

struct reader {
    const uint8_t *bytes;
    size_t size;
    bool is_short; /* the input ended too early; missing fields read as zero */
};

static bool take_bytes(struct reader *in, size_t size, const uint8_t **bytes) {
    if (in->is_short || size > in->size) {
        in->is_short = true;
        return false;
    }
    *bytes = in->bytes;
    in->bytes += size;
    in->size -= size;
    return true;
}

static uint32_t get_u32(struct reader *in) {
    const uint8_t *bytes;
    return take_bytes(in, 4, &bytes) ? tw_get_u32(bytes) : 0;
}

static uint64_t get_u64(struct reader *in) {
    const uint8_t *bytes;
    return take_bytes(in, 8, &bytes) ? tw_get_u64(bytes) : 0;
}

static void get_id(struct reader *in, struct tw_id *id) {
    const uint8_t *bytes;
    if (take_bytes(in, sizeof(id->bytes), &bytes)) memcpy(id->bytes, bytes, sizeof(id->bytes));
}

static enum tw_status get_record(struct reader *in, uint32_t *has_close, struct tw_record *record,
                                 struct tw_error *err) {
    const uint8_t *bytes;
    struct tw_error inner;
    const uint32_t size = get_u32(in);
    *has_close = size > 0;
    if (size == 0) return TW_OK;
    if (!take_bytes(in, size, &bytes)) return TW_OK; /* is_short says it */
    if (tw_record_decode(bytes, size, record, &inner) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "its record: %s", inner.message);
    }
    return TW_OK;
}

static enum tw_status get_proof(struct reader *in, struct tw_proof *proof, struct tw_error *err) {
    const uint8_t *bytes;
    struct tw_error inner;
    const uint32_t size = get_u32(in);
    if (size == 0 || !take_bytes(in, size, &bytes)) return TW_OK; /* is_short says it */
    if (tw_proof_decode(bytes, size, proof, &inner) != TW_OK)
        return tw_fail(err, TW_CORRUPT, "its proof: %s", inner.message);
    return TW_OK;
}

static enum tw_status check_end(const struct reader *in, struct tw_error *err) {
    if (in->is_short) return tw_fail(err, TW_CORRUPT, "it ends too early");
    if (in->size > 0) return tw_fail(err, TW_CORRUPT, "%zu bytes follow its end", in->size);
    return TW_OK;
}

/* ---- position -------------------------------------------------------------------------------- */

size_t tw_position_encode(const struct tw_position *position, uint32_t fragments_count,
                          uint8_t bytes[TW_POSITION_BYTES_MAX]) {
    struct writer out = {.bytes = bytes, .size = sizeof(magic)};
    TW_ASSERT(fragments_count > 0 && fragments_count <= TW_FRAGMENTS_MAX);
    memcpy(bytes, magic, sizeof(magic));
    put_id(&out, &position->lineage);
    put_id(&out, &position->lineage_parent);
    put_u64(&out, position->nonce);
    put_u64(&out, position->first_round);
    put_u64(&out, position->rounds);
    put_u32(&out, position->is_moving);
    put_u64(&out, position->tokens_listed);
    put_u32(&out, fragments_count);
    for (uint32_t i = 0; i < fragments_count; i++) {
        put_u64(&out, position->fragment_rounds[i]);
        put_id(&out, &position->fragment_digests[i]);
        put_u64(&out, position->delta_tokens[i]);
        put_u64(&out, position->delta_steps[i]);
    }
    put_proof(&out, &position->tip_proof);
    const size_t tip = out.size;
    put_record(&out, position->has_tip != 0, &position->tip);
    const size_t held = out.size;
    put_record(&out, position->has_held != 0, &position->held);
    if (is_twice(bytes + tip, bytes + held, bytes + out.size)) out.size = held;
    TW_ASSERT(out.size <= TW_POSITION_BYTES_MAX);
    return out.size;
}

enum tw_status tw_position_decode(const uint8_t *bytes, size_t size, struct tw_position *position,
                                  uint32_t *fragments_count, struct tw_error *err) {
    struct reader in = {.bytes = bytes, .size = size};
    const uint8_t *begin;
    memset(position, 0, sizeof(*position));
    if (!take_bytes(&in, sizeof(magic), &begin) || memcmp(begin, magic, sizeof(magic)) != 0) {
        return tw_fail(err, TW_CORRUPT,
                       "it does not begin with TWP4: another version of this program wrote it");
    }
    get_id(&in, &position->lineage);
    get_id(&in, &position->lineage_parent);
    position->nonce = get_u64(&in);
    position->first_round = get_u64(&in);
    position->rounds = get_u64(&in);
    position->is_moving = get_u32(&in);
    if (position->is_moving > 1)
        return tw_fail(err, TW_CORRUPT, "is_moving is %u, of 0 or 1", position->is_moving);
    position->tokens_listed = get_u64(&in);
    const uint32_t count = get_u32(&in);
    if (!in.is_short && (count == 0 || count > TW_FRAGMENTS_MAX)) {
        return tw_fail(err, TW_CORRUPT, "%u fragments, of 1 to %d", count, TW_FRAGMENTS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        position->fragment_rounds[i] = get_u64(&in);
        get_id(&in, &position->fragment_digests[i]);
        position->delta_tokens[i] = get_u64(&in);
        position->delta_steps[i] = get_u64(&in);
    }
    TW_TRY(get_proof(&in, &position->tip_proof, err));
    const uint8_t *tip = in.bytes;
    TW_TRY(get_record(&in, &position->has_tip, &position->tip, err));
    const uint8_t *held = in.bytes;
    if (in.is_short || in.size == 0) {
        position->has_held = position->has_tip;
        position->held = position->tip;
    } else {
        TW_TRY(get_record(&in, &position->has_held, &position->held, err));
        if (!in.is_short && is_twice(tip, held, in.bytes))
            return tw_fail(err, TW_CORRUPT, "it has the record of its last round twice");
    }
    TW_TRY(check_end(&in, err));
    const uint64_t rounds = position->rounds;
    if (position->has_tip == 0 && rounds != 0) {
        return tw_fail(err, TW_CORRUPT, "it is at round %llu, and the record before it is missing",
                       (unsigned long long)rounds);
    }
    if (position->has_tip != 0 && (rounds == 0 || position->tip.round != rounds - 1)) {
        return tw_fail(err, TW_CORRUPT, "its record is of round %llu, not of the last of %llu",
                       (unsigned long long)position->tip.round, (unsigned long long)rounds);
    }
    *fragments_count = count;
    return TW_OK;
}

/* ---- vote ------------------------------------------------------------------------------------ */

size_t tw_vote_encode(const struct tw_vote *vote, uint8_t bytes[TW_VOTE_BYTES_MAX]) {
    struct writer out = {.bytes = bytes};
    put_id(&out, &vote->lineage);
    put_u64(&out, vote->nonce);
    put_u64(&out, vote->round);
    put_u64(&out, vote->promised);
    put_u64(&out, vote->accepted_ballot);
    put_u32(&out, vote->has_announced);
    put_record(&out, vote->has_accepted != 0, &vote->accepted);
    put_proof(&out, &vote->lock);
    TW_ASSERT(out.size <= TW_VOTE_BYTES_MAX);
    return out.size;
}

enum tw_status tw_vote_decode(const uint8_t *bytes, size_t size, struct tw_vote *vote,
                              struct tw_error *err) {
    struct reader in = {.bytes = bytes, .size = size};
    memset(vote, 0, sizeof(*vote));
    get_id(&in, &vote->lineage);
    vote->nonce = get_u64(&in);
    vote->round = get_u64(&in);
    vote->promised = get_u64(&in);
    vote->accepted_ballot = get_u64(&in);
    vote->has_announced = get_u32(&in);
    if (vote->has_announced > 1)
        return tw_fail(err, TW_CORRUPT, "has_announced is %u, of 0 or 1", vote->has_announced);
    TW_TRY(get_record(&in, &vote->has_accepted, &vote->accepted, err));
    TW_TRY(get_proof(&in, &vote->lock, err));
    TW_TRY(check_end(&in, err));
    if (vote->has_accepted != 0 && (vote->accepted.round != vote->round ||
                                    !tw_id_equal(&vote->accepted.lineage, &vote->lineage))) {
        return tw_fail(err, TW_CORRUPT, "its accepted record is of another round");
    }
    if (vote->lock.ballot != 0 && vote->has_accepted == 0)
        return tw_fail(err, TW_CORRUPT, "its lock has no record");
    return TW_OK;
}
