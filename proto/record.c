/* record.c - rosters, round records, signed votes and their proofs: bytes, checks, digests. */
#include "proto/record.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/median.h"
#include "proto/run/run.h"

enum {
    HEAD_BYTES = 140,
    CONTRIBUTOR_BYTES = 56 + TW_SIGNATURE_BYTES,
    PART_BYTES = 48,
    ROSTER_HEAD_BYTES = 8,
    MEMBER_BYTES = 44,
};

/* Bit of a member's weight. */
#define LACKS_VOTE (UINT32_C(1) << 31)
enum { MERGES_AT = 24 }; /* first bit of the merges in the word with a member's weight */
_Static_assert(TW_WEIGHT_MAX >> MERGES_AT == 0, "the weight is below the merges");
_Static_assert(TW_MERGES_MAX >> (31 - MERGES_AT) == 0, "the merges are below LACKS_VOTE");

_Static_assert(TW_RECORD_BYTES_MAX == HEAD_BYTES + TW_MEMBERS_MAX * CONTRIBUTOR_BYTES +
                                          TW_PARTS_MAX * PART_BYTES + ROSTER_HEAD_BYTES +
                                          TW_MEMBERS_MAX * MEMBER_BYTES,
               "the largest record");

static const uint8_t magic[4] = {'T', 'W', 'C', '3'};

/* ---- rules --------------------------------------------------------------------------------- */

static enum tw_status check_contributors(const struct tw_record *record, struct tw_error *err) {
    if (record->contributors_count > TW_MEMBERS_MAX)
        return tw_fail(err, TW_PROTO, "record: %u contributors, at most %d",
                       record->contributors_count, TW_MEMBERS_MAX);
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint32_t idx = record->contributors[i].member_idx;
        if (idx >= TW_MEMBERS_MAX || (i > 0 && idx <= record->contributors[i - 1].member_idx))
            return tw_fail(err, TW_PROTO, "record: contributor %u has member %u, out of order", i,
                           idx);
    }
    return TW_OK;
}

static enum tw_status check_part(const struct tw_record *record, uint32_t k, uint64_t listed,
                                 struct tw_error *err) {
    const struct tw_part *part = &record->parts[k];
    const bool is_absent = part->bytes == 0;
    if (part->owner_idx >= TW_MEMBERS_MAX || (k > 0 && part->owner_idx <= part[-1].owner_idx))
        return tw_fail(err, TW_PROTO, "record: part %u has owner %u, out of order", k,
                       part->owner_idx);
    if (part->bytes > TW_PAYLOAD_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "record: part %u has %u bytes", k, part->bytes);
    if (tw_id_is_zero(&part->result) != is_absent || (part->contributors == 0) != is_absent)
        return tw_fail(err, TW_PROTO, "record: part %u is neither absent nor whole", k);
    if ((part->contributors & ~listed) != 0)
        return tw_fail(err, TW_PROTO, "record: part %u merges a member that is not listed", k);
    return TW_OK;
}

static enum tw_status check_parts(const struct tw_record *record, struct tw_error *err) {
    uint64_t listed = 0;
    if (record->parts_count > TW_PARTS_MAX)
        return tw_fail(err, TW_PROTO, "record: %u parts, at most %d", record->parts_count,
                       TW_PARTS_MAX);
    for (uint32_t i = 0; i < record->contributors_count; i++)
        listed |= (uint64_t)1 << record->contributors[i].member_idx;
    for (uint32_t k = 0; k < record->parts_count; k++) TW_TRY(check_part(record, k, listed, err));
    return TW_OK;
}

static enum tw_status check_next(const struct tw_record *record, struct tw_error *err) {
    const struct tw_roster *next = &record->next;
    if (next->count == 0 || next->count > TW_MEMBERS_MAX)
        return tw_fail(err, TW_PROTO, "record: next roster has %u members", next->count);
    if (next->number - record->roster_number > 1)
        return tw_fail(err, TW_PROTO, "record: roster %u cannot follow roster %u", next->number,
                       record->roster_number);
    for (uint32_t i = 1; i < next->count; i++) {
        if (tw_id_compare(&next->members[i - 1].id, &next->members[i].id) >= 0)
            return tw_fail(err, TW_PROTO, "record: next roster is not sorted at %u", i);
    }
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight > TW_WEIGHT_MAX)
            return tw_fail(err, TW_PROTO, "record: next roster has weight %u at %u",
                           next->members[i].weight, i);
        if (next->members[i].merges > TW_MERGES_MAX)
            return tw_fail(err, TW_PROTO, "record: next roster has %u merges at %u",
                           next->members[i].merges, i);
    }
    if (tw_roster_voters(next) == 0)
        return tw_fail(err, TW_PROTO, "record: no member of the next roster has a vote");
    return TW_OK;
}

enum tw_status tw_record_check(const struct tw_record *record, struct tw_error *err) {
    if (tw_id_is_zero(&record->lineage)) return tw_fail(err, TW_PROTO, "record: no lineage");
    if (record->fragment >= TW_FRAGMENTS_MAX)
        return tw_fail(err, TW_PROTO, "record: fragment %u, at most %d", record->fragment,
                       TW_FRAGMENTS_MAX - 1);
    TW_TRY(check_contributors(record, err));
    TW_TRY(check_parts(record, err));
    return check_next(record, err);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static uint8_t *put_u32(uint8_t *to, uint32_t value) {
    tw_put_u32(to, value);
    return to + 4;
}

static uint8_t *put_u64(uint8_t *to, uint64_t value) {
    tw_put_u64(to, value);
    return to + 8;
}

static uint8_t *put_id(uint8_t *to, const struct tw_id *id) {
    memcpy(to, id->bytes, sizeof(id->bytes));
    return to + sizeof(id->bytes);
}

size_t tw_record_encode(const struct tw_record *record, uint8_t bytes[TW_RECORD_BYTES_MAX]) {
    TW_ASSERT(tw_record_check(record, NULL) == TW_OK);
    uint8_t *to = bytes;
    memcpy(to, magic, sizeof(magic));
    to = put_id(to + sizeof(magic), &record->lineage);
    to = put_id(to, &record->parent);
    to = put_id(to, &record->base);
    to = put_u64(to, record->round);
    to = put_u64(to, record->clock_tokens);
    to = put_u32(to, record->fragment);
    to = put_u32(to, record->roster_number);
    to = put_u32(to, record->finals);
    to = put_u32(to, record->contributors_count);
    to = put_u32(to, record->parts_count);
    to = put_u32(to, record->next.count);
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *contributor = &record->contributors[i];
        to = put_u32(to, contributor->member_idx);
        to = put_u32(to, contributor->fragment_steps);
        to = put_u64(to, contributor->tokens);
        to = put_u64(to, contributor->fragment_tokens);
        to = put_id(to, &contributor->root);
        memcpy(to, contributor->signature, TW_SIGNATURE_BYTES);
        to += TW_SIGNATURE_BYTES;
    }
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        to = put_u32(to, part->owner_idx);
        to = put_u32(to, part->bytes);
        to = put_u64(to, part->contributors);
        to = put_id(to, &part->result);
    }
    to = put_u32(to, record->next.number);
    to = put_u32(to, 0);
    for (uint32_t i = 0; i < record->next.count; i++) {
        const struct tw_member *member = &record->next.members[i];
        to = put_id(to, &member->id);
        to = put_u64(to, member->nonce);
        to = put_u32(to, member->weight | (uint32_t)member->merges << MERGES_AT |
                             (member->lacks_vote ? LACKS_VOTE : 0));
    }
    TW_ASSERT(to - bytes <= TW_RECORD_BYTES_MAX);
    return (size_t)(to - bytes);
}

/* The take functions read from a cursor over bytes whose size has been checked. */
static uint32_t take_u32(const uint8_t **from) {
    *from += 4;
    return tw_get_u32(*from - 4);
}

static uint64_t take_u64(const uint8_t **from) {
    *from += 8;
    return tw_get_u64(*from - 8);
}

static struct tw_id take_id(const uint8_t **from) {
    struct tw_id id;
    memcpy(id.bytes, *from, sizeof(id.bytes));
    *from += sizeof(id.bytes);
    return id;
}

static void take_lists(const uint8_t *from, struct tw_record *record) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        struct tw_contributor *contributor = &record->contributors[i];
        contributor->member_idx = take_u32(&from);
        contributor->fragment_steps = take_u32(&from);
        contributor->tokens = take_u64(&from);
        contributor->fragment_tokens = take_u64(&from);
        contributor->root = take_id(&from);
        memcpy(contributor->signature, from, TW_SIGNATURE_BYTES);
        from += TW_SIGNATURE_BYTES;
    }
    for (uint32_t k = 0; k < record->parts_count; k++) {
        struct tw_part *part = &record->parts[k];
        part->owner_idx = take_u32(&from);
        part->bytes = take_u32(&from);
        part->contributors = take_u64(&from);
        part->result = take_id(&from);
    }
    record->next.number = take_u32(&from);
    from += 4;
    for (uint32_t i = 0; i < record->next.count; i++) {
        struct tw_member *member = &record->next.members[i];
        member->id = take_id(&from);
        member->nonce = take_u64(&from);
        const uint32_t word = take_u32(&from);
        member->weight = word & TW_WEIGHT_MAX;
        member->merges = word >> MERGES_AT & TW_MERGES_MAX;
        member->lacks_vote = (word & LACKS_VOTE) != 0;
    }
}

enum tw_status tw_record_decode(const uint8_t *bytes, size_t size, struct tw_record *record,
                                struct tw_error *err) {
    memset(record, 0, sizeof(*record));
    if (size < HEAD_BYTES || size > TW_RECORD_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "record: %zu bytes", size);
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return tw_fail(err, TW_PROTO, "record: does not start with TWC3");
    const uint8_t *from = bytes + sizeof(magic);
    record->lineage = take_id(&from);
    record->parent = take_id(&from);
    record->base = take_id(&from);
    record->round = take_u64(&from);
    record->clock_tokens = take_u64(&from);
    record->fragment = take_u32(&from);
    record->roster_number = take_u32(&from);
    record->finals = take_u32(&from);
    record->contributors_count = take_u32(&from);
    record->parts_count = take_u32(&from);
    record->next.count = take_u32(&from);
    if (record->contributors_count > TW_MEMBERS_MAX || record->parts_count > TW_PARTS_MAX ||
        record->next.count > TW_MEMBERS_MAX)
        return tw_fail(err, TW_PROTO, "record: %u contributors, %u parts, %u next members",
                       record->contributors_count, record->parts_count, record->next.count);
    const size_t expected = HEAD_BYTES + (size_t)record->contributors_count * CONTRIBUTOR_BYTES +
                            (size_t)record->parts_count * PART_BYTES + ROSTER_HEAD_BYTES +
                            (size_t)record->next.count * MEMBER_BYTES;
    if (size != expected)
        return tw_fail(err, TW_PROTO, "record: %zu bytes where %zu belong", size, expected);
    const size_t lists = (size_t)record->contributors_count * CONTRIBUTOR_BYTES +
                         (size_t)record->parts_count * PART_BYTES;
    if (tw_get_u32(from + lists + 4) != 0)
        return tw_fail(err, TW_PROTO, "record: reserved bytes are not zero");
    take_lists(from, record);
    return tw_record_check(record, err);
}

/* ---- names --------------------------------------------------------------------------------- */

struct tw_id tw_record_digest(const struct tw_record *record) {
    uint8_t bytes[TW_RECORD_BYTES_MAX];
    return tw_sha256(bytes, tw_record_encode(record, bytes));
}

struct tw_id tw_contribution_root(const struct tw_id *part_hashes, uint32_t parts_count) {
    static const char domain[] = "thinwire-contribution-v1"; /* the final NUL is hashed, too */
    TW_ASSERT(parts_count <= TW_PARTS_MAX);
    return tw_sha256_pair(domain, sizeof(domain), part_hashes, parts_count * sizeof(struct tw_id));
}

struct tw_id tw_crew_leaf(const struct tw_id *id, const struct tw_contributor *row) {
    static const char domain[] = "thinwire-hand-v1";
    uint8_t bytes[2 * 32 + 2 * 8 + 4 + TW_SIGNATURE_BYTES];
    uint8_t *to = bytes;
    memcpy(to, id->bytes, 32);
    memcpy(to + 32, row->root.bytes, 32);
    to = put_u64(to + 64, row->tokens);
    to = put_u64(to, row->fragment_tokens);
    to = put_u32(to, row->fragment_steps);
    memcpy(to, row->signature, TW_SIGNATURE_BYTES);
    return tw_sha256_pair(domain, sizeof(domain), bytes, sizeof(bytes));
}

struct tw_id tw_crew_root(const struct tw_crew_row *rows, uint32_t count) {
    static const char domain[] = "thinwire-crew-v1";
    uint8_t bytes[TW_CREW_MAX * 40];
    uint8_t *to = bytes;
    TW_ASSERT(count <= TW_CREW_MAX);
    for (uint32_t i = 0; i < count; i++) {
        to = put_u64(to, rows[i].key);
        memcpy(to, rows[i].leaf.bytes, 32);
        to += 32;
    }
    return tw_sha256_pair(domain, sizeof(domain), bytes, (size_t)(to - bytes));
}

struct tw_id tw_crew_bind(const struct tw_id *parts_root, uint32_t count,
                          const struct tw_id *crew_root) {
    static const char domain[] = "thinwire-head-v1";
    uint8_t bytes[2 * 32 + 4];
    memcpy(bytes, parts_root->bytes, 32);
    memcpy(put_u32(bytes + 32, count), crew_root->bytes, 32);
    return tw_sha256_pair(domain, sizeof(domain), bytes, sizeof(bytes));
}

/* Returns the lower median of the contributors' tokens, or 0 without contributors. */
static uint64_t usual_tokens(const struct tw_record *record) {
    const uint32_t count = record->contributors_count;
    uint64_t tokens[TW_MEMBERS_MAX];
    TW_ASSERT(count <= TW_MEMBERS_MAX);
    for (uint32_t i = 0; i < count; i++) tokens[i] = record->contributors[i].tokens;
    tw_sort_u64(tokens, count);
    return count > 0 ? tokens[(count - 1) / 2] : 0;
}

uint64_t tw_record_tokens_max(const struct tw_record *record, const struct tw_record *tip) {
    const uint32_t count = record->contributors_count;
    uint64_t usual = count >= 2 ? usual_tokens(record) : 0;
    uint64_t times = count >= 3 ? TW_CLAIM_MEDIANS : TW_CLAIM_FEW;
    if (usual == 0 && tip != NULL && tip->next.count > 1 &&
        tw_id_equal(&tip->lineage, &record->lineage)) {
        usual = tip->clock_tokens / (tip->round + 1);
        times = TW_CLAIM_LONE;
        if (usual == 0) {
            usual = usual_tokens(tip);
            times = TW_CLAIM_FEW;
        }
    }
    return usual > 0 && usual <= UINT64_MAX / times ? times * usual : UINT64_MAX;
}

uint64_t tw_record_tokens(const struct tw_record *record, const struct tw_record *tip) {
    const uint64_t most = tw_record_tokens_max(record, tip);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const uint64_t tokens = record->contributors[i].tokens;
        sum += tokens < most ? tokens : most;
    }
    return sum;
}

struct tw_id tw_part_digest(const struct tw_part *part) {
    static const char domain[] = "thinwire-result-v1"; /* the final NUL is hashed, too */
    uint8_t bytes[4 + 32 + 8], *to = put_u32(bytes, part->bytes);
    to = put_id(to, &part->result);
    (void)put_u64(to, part->contributors);
    return tw_sha256_pair(domain, sizeof(domain), bytes, sizeof(bytes));
}

void tw_contributor_text(const struct tw_id *run, const struct tw_id *lineage, uint64_t round,
                         const struct tw_contributor *contributor,
                         uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES]) {
    static const char domain[] = "thinwire-contrib-v1";
    uint8_t *to = text;
    memcpy(to, domain, sizeof(domain)); /* including its NUL */
    to = put_id(to + sizeof(domain), run);
    to = put_id(to, lineage);
    to = put_u64(to, round);
    to = put_u64(to, contributor->tokens);
    to = put_u64(to, contributor->fragment_tokens);
    to = put_u32(to, contributor->fragment_steps);
    to = put_id(to, &contributor->root);
    TW_ASSERT(to == text + TW_CONTRIBUTOR_TEXT_BYTES);
}

/* ---- rosters -------------------------------------------------------------------------------- */

struct tw_id tw_record_root(const struct tw_id *digests, uint32_t fragments_count) {
    static const char domain[] = "thinwire-state-v1"; /* the final NUL is hashed, too */
    TW_ASSERT(fragments_count <= TW_FRAGMENTS_MAX);
    return tw_sha256_pair(domain, sizeof(domain), digests, fragments_count * sizeof(*digests));
}

int tw_roster_find(const struct tw_roster *roster, const struct tw_id *id) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint32_t low = 0, high = roster->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        const int order = tw_id_compare(&roster->members[middle].id, id);
        if (order == 0) return (int)middle;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

uint32_t tw_roster_owners(const struct tw_roster *roster, uint32_t owners[TW_PARTS_MAX]) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < roster->count && count < TW_PARTS_MAX; i++) {
        if (roster->members[i].weight > 0) owners[count++] = i;
    }
    return count;
}

uint64_t tw_roster_voters(const struct tw_roster *roster) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint64_t voters = 0;
    for (uint32_t i = 0; i < roster->count; i++)
        voters |= (uint64_t)!roster->members[i].lacks_vote << i;
    return voters;
}

/* ---- votes and proofs ----------------------------------------------------------------------- */

enum { PROOF_HEAD_BYTES = 16 };

static const char vote_domain[] = "thinwire-vote-v1";

_Static_assert(sizeof(vote_domain) + 1 + 3 * 32 + 4 * 8 == TW_VOTE_TEXT_BYTES, "with its NUL");
_Static_assert(TW_MEMBERS_MAX <= 64, "voters are a set of 64");

uint32_t tw_liars_max(uint32_t count) {
    TW_ASSERT(count > 0);
    return (count - 1) / 3;
}

uint32_t tw_votes_needed(uint32_t count) {
    return (count + tw_liars_max(count)) / 2 + 1;
}

void tw_ballot_vote_text(const struct tw_ballot_vote *vote, uint8_t text[TW_VOTE_TEXT_BYTES]) {
    memcpy(text, vote_domain, sizeof(vote_domain));
    text += sizeof(vote_domain);
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
    size_t size = PROOF_HEAD_BYTES;
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
    if (size < PROOF_HEAD_BYTES)
        return tw_fail(err, TW_PROTO, "a proof of %zu bytes, at least %d belong", size,
                       PROOF_HEAD_BYTES);
    proof->ballot = tw_get_u64(bytes);
    proof->voters = tw_get_u64(bytes + 8);
    const size_t voters = (size_t)__builtin_popcountll(proof->voters);
    if (proof->ballot == 0 || voters == 0)
        return tw_fail(err, TW_PROTO, "a proof without a ballot or without voters");
    if (size != PROOF_HEAD_BYTES + voters * TW_SIGNATURE_BYTES)
        return tw_fail(err, TW_PROTO, "a proof of %zu voters in %zu bytes", voters, size);
    bytes += PROOF_HEAD_BYTES;
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

/* ---- the id of a run ------------------------------------------------------------------------ */

/* It is here because builds of the engine alone have no SHA-256. */
struct tw_id tw_run_id(const struct tw_run *run) {
    char text[TW_MANIFEST_BYTES_MAX];
    size_t size;
    tw_run_encode(run, text, &size);
    return tw_sha256(text, size);
}
