/* record.h - rosters and round records: the state that members of a lineage agree on.
 *
 * A lineage is a chain of rounds 0, 1, 2, ...; each committed round has one round record. Round r
 * merges fragment r mod P, where P is the number of fragments. The roster of round r is `next` of
 * round r - 1. */
#ifndef TW_PROTO_RECORD_H
#define TW_PROTO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

struct tw_member {
    struct tw_id id;
    uint64_t nonce;  /* random, drawn at each join: a node that lost its state rejoins as a new
                        member */
    uint32_t weight; /* relative size of the part that the member owns in the next round; 0: it owns
                        none; at most TW_WEIGHT_MAX */
    bool lacks_vote; /* the member has no part in decisions: it does not count in tw_votes_needed */
    uint8_t merges;  /* rounds that merged its work since it got its seat; at most TW_MERGES_MAX. 0
                        in runs with certificates, where votes are not earned */
};

enum { TW_WEIGHT_MAX = (1 << 24) - 1, TW_MERGES_MAX = 127 };

struct tw_roster {
    uint32_t number; /* counts changes of the roster along the lineage */
    uint32_t count;
    struct tw_member members[TW_MEMBERS_MAX]; /* sorted by id, no duplicates */
};

struct tw_contributor {
    uint32_t member_idx; /* index of the contributor in the roster of the round */
    /* inner steps since this member's work was last merged into the fragment */
    uint32_t fragment_steps;
    /* tokens since its newest listed contribution to any fragment; the run clock adds these */
    uint64_t tokens;
    uint64_t fragment_tokens; /* tokens of `fragment_steps`, for the weight in the merge */
    struct tw_id root;        /* SHA-256 over its part hashes: tw_contribution_root */
    /* The member's signature of tw_contributor_text. Zero if this node does not know it, or if the
     * roster has one member. */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

struct tw_part {
    uint32_t owner_idx;    /* index of the owner in the roster of the round */
    uint32_t bytes;        /* bytes of the encoded result; 0 = ABSENT */
    uint64_t contributors; /* bit i is set if member i of the roster is in the merge */
    struct tw_id result;   /* SHA-256 of the encoded result; zero = ABSENT */
};

struct tw_record {
    struct tw_id lineage;
    struct tw_id parent; /* digest of the record of the previous round; zero for round 0 */
    /* Digest of (phi, u) of the fragment before this round, which the voters held; zero: not told.
     */
    struct tw_id base;
    uint64_t round;
    uint64_t clock_tokens; /* run clock after this round */
    uint32_t fragment;
    uint32_t roster_number; /* number of the roster that decides this round */
    /* number of final rounds so far, once the run clock has reached the token budget; before, 0 */
    uint32_t finals;
    uint32_t contributors_count, parts_count;
    struct tw_contributor contributors[TW_MEMBERS_MAX]; /* ascending by member_idx */
    struct tw_part parts[TW_PARTS_MAX];                 /* parts[k] belongs to the k-th owner in
                                                           roster order */
    struct tw_roster next;
};

enum {
    TW_CONTRIBUTOR_TEXT_BYTES = 20 + 3 * 32 + 3 * 8 + 4,
    TW_RECORD_BYTES_MAX = 140 + TW_MEMBERS_MAX * 120 + TW_PARTS_MAX * 48 + 8 + TW_MEMBERS_MAX * 44,
};

/* Checks the rules that do not depend on the roster. The TW_PROTO error names the broken rule.
 *   - lineage is not zero; fragment < TW_FRAGMENTS_MAX
 *   - contributors: ascending by member_idx, each < TW_MEMBERS_MAX
 *   - parts: ascending by owner_idx, each < TW_MEMBERS_MAX; ABSENT (bytes 0) has a zero result and
 *     no contributors; any other has at most TW_PAYLOAD_BYTES_MAX bytes, a result, and at least one
 *     contributor, all of them listed
 *   - next: 1 to TW_MEMBERS_MAX members, sorted by id, no duplicates, at least one with a vote; its
 *     number is roster_number or the one after it */
enum tw_status tw_record_check(const struct tw_record *record, struct tw_error *err);

/* Writes the canonical bytes (PROTOCOL.md section 6): little-endian, fixed order, no padding.
 * Returns their number. Asserts that the record passes tw_record_check. */
size_t tw_record_encode(const struct tw_record *record, uint8_t bytes[TW_RECORD_BYTES_MAX]);

/* Decodes untrusted bytes. Accepts exactly the bytes that tw_record_encode produces for a valid
 * record; unused array elements become zero. On TW_PROTO *record is undefined. */
enum tw_status tw_record_decode(const uint8_t *bytes, size_t size, struct tw_record *record,
                                struct tw_error *err);

/* Returns the digest of a record: the SHA-256 of its canonical bytes. */
struct tw_id tw_record_digest(const struct tw_record *record);

/* SHA-256("thinwire-contribution-v1\0" || hash_0 || ... || hash_{n-1}), n <= TW_PARTS_MAX. */
struct tw_id tw_contribution_root(const struct tw_id *part_hashes, uint32_t parts_count);

enum { TW_CREW_MAX = 64 }; /* nodes whose work one member contributes, itself included */

/* One node's work in the contribution of its head. */
struct tw_crew_row {
    uint64_t key;      /* first 8 bytes of the node's id, little-endian */
    struct tw_id leaf; /* tw_crew_leaf of its signed contribution */
};

/* SHA-256("thinwire-hand-v1\0" || id || root || u64 tokens || u64 fragment tokens ||
 * u32 fragment steps || signature), of the row that the node signed for its own work. */
struct tw_id tw_crew_leaf(const struct tw_id *id, const struct tw_contributor *row);

/* SHA-256("thinwire-crew-v1\0" || u64 key || leaf || ...), count <= TW_CREW_MAX. */
struct tw_id tw_crew_root(const struct tw_crew_row *rows, uint32_t count);

/* The root of a contribution made of several nodes' work: SHA-256("thinwire-head-v1\0" ||
 * parts_root || u32 count || crew_root). */
struct tw_id tw_crew_bind(const struct tw_id *parts_root, uint32_t count,
                          const struct tw_id *crew_root);

/* Writes the bytes that a member signs for its contribution, all little-endian:
 *
 *    "thinwire-contrib-v1\0" || run id || lineage || u64 round || u64 tokens ||
 *    u64 fragment tokens || u32 fragment steps || root */
void tw_contributor_text(const struct tw_id *run, const struct tw_id *lineage, uint64_t round,
                         const struct tw_contributor *contributor,
                         uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES]);

/* Returns the tokens that the record adds to the run clock. Nobody can prove its tokens, so they
 * count up to TW_CLAIM_MEDIANS times the (lower) median of the record's contributors; of two, up to
 * TW_CLAIM_FEW times the smaller. A lone contributor in a roster of several, or one among
 * contributors that mostly have no tokens, counts up to TW_CLAIM_LONE times the mean of all rounds
 * up to `tip`, the record before in this lineage (NULL: none); while that is 0, up to TW_CLAIM_FEW
 * times the median of `tip`. If all these are 0, the tokens count in full. A member that lies about
 * its tokens thus cannot end the run early by much, and a machine far faster than most others moves
 * the clock by less than it trains. The mean is one of counted tokens: were it one of claims, each
 * of several lone rounds could count a multiple of the one before. */
uint64_t tw_record_tokens(const struct tw_record *record, const struct tw_record *tip);

/* Returns the most that tw_record_tokens counts for one contributor; UINT64_MAX: no bound. */
uint64_t tw_record_tokens_max(const struct tw_record *record, const struct tw_record *tip);

/* SHA-256("thinwire-result-v1\0" || u32 bytes || result || u64 contributors): the digest that an
 * owner signs for its part. The part must not be ABSENT. */
struct tw_id tw_part_digest(const struct tw_part *part);

/* Returns SHA-256("thinwire-state-v1\0" || digest of (phi, u) of fragment 0 || ...): the whole
 * model, as the closing record of a run names it. */
struct tw_id tw_record_root(const struct tw_id *digests, uint32_t fragments_count);

/* Returns the index of `id` in the roster, or -1. Binary search. */
int tw_roster_find(const struct tw_roster *roster, const struct tw_id *id);

/* Writes the indices of the members that own parts (weight > 0), at most TW_PARTS_MAX, in roster
 * order. Returns their number. */
uint32_t tw_roster_owners(const struct tw_roster *roster, uint32_t owners[TW_PARTS_MAX]);

/* Returns the set of members with a vote: bit i stands for member i. */
uint64_t tw_roster_voters(const struct tw_roster *roster);

/* ---- votes and proofs ----------------------------------------------------------------------- */

/* Signed votes of members, and the proofs made of them.
 *
 * A round is decided in two phases (sync/vote/). A proof of phase 1 is a lock: no other record can
 * be decided at that ballot. A proof of phase 2 shows that the round is decided. A set of promises
 * tells a proposer which record it may propose: the record of the newest lock that they report, or
 * any record if they report none.
 *
 * Any node that knows the roster can check a proof from any sender. Of its n voters
 * (tw_roster_voters) up to f = (n - 1) / 3 may lie and sign anything. Two sets of
 * tw_votes_needed(n) voters have f + 1 voters in common, so at least one honest voter. Signatures
 * of other members count for nothing.
 *
 * A member signs these bytes with the Ed25519 key whose public half is its id. Integers are
 * little-endian:
 *
 *    "thinwire-vote-v1\0" || u8 phase || run id || lineage || u64 nonce || u64 round ||
 *    u64 ballot || u64 ballot of its lock (phase 0, else 0) || digest of the record (zero in
 *    phase 0)
 *
 * An owner signs its result in the same form, as phase 3: the ballot is the index of its part plus
 * one, and the digest is tw_part_digest. A node signs JOIN as phase 4: ballot and digest are zero,
 * and the nonce is the one under which it asks for a seat.
 *
 * In all other phases the nonce is the member's in the roster. A member keeps one vote for each
 * lineage, nonce and round, whatever the parent record, so it never makes two different votes at
 * one ballot. The digest fixes the parent record, and with it the roster. A promise names no
 * parent: it holds in every history of the lineage. Bytes of a proof, and of a set of promises:
 *
 *    u64 ballot || u64 voters (bit i: member i of the roster) || 64 bytes for each voter
 *    u64 voters || (u64 ballot of its lock || 64 bytes) for each voter
 *
 * Pure: the caller signs and verifies. */

enum {
    TW_VOTE_TEXT_BYTES = 17 + 1 + 3 * 32 + 4 * 8,
    TW_PROOF_BYTES_MAX = 16 + TW_MEMBERS_MAX * TW_SIGNATURE_BYTES,
    TW_PROMISES_BYTES_MAX = 8 + TW_MEMBERS_MAX * (8 + TW_SIGNATURE_BYTES),
};

enum tw_vote_phase {
    TW_VOTE_PROMISE, /* promise: the member will not vote at a lower ballot any more */
    TW_VOTE_ACCEPT,  /* vote of phase 1: the member holds every result of the record and finds it
                        sound */
    TW_VOTE_COMMIT,  /* vote of phase 2: the member has the lock, and will report it in every later
                        promise */
    TW_VOTE_RESULT,  /* not a vote: the owner of part `ballot` - 1 announces its result */
    TW_VOTE_JOIN,    /* not a vote: the node asks for a seat under this nonce, in this round */
};

struct tw_proof {
    uint64_t ballot; /* ballot of the votes; 0: there is no proof */
    uint64_t voters;
    uint8_t signatures[TW_MEMBERS_MAX][TW_SIGNATURE_BYTES]; /* signatures in roster order; zero for
                                                               members that are not voters */
};

/* Signed promises for one ballot. */
struct tw_promises {
    uint64_t voters;                       /* bit i: member i of the roster promised; 0: none */
    uint64_t lock_ballots[TW_MEMBERS_MAX]; /* ballot of the lock that each voter reported; 0: it has
                                              none */
    uint8_t signatures[TW_MEMBERS_MAX][TW_SIGNATURE_BYTES];
};

/* Returns how many of `count` > 0 voters may lie: f = (count - 1) / 3. */
uint32_t tw_liars_max(uint32_t count);

/* Returns the number of votes that decide among `count` > 0 voters: the smallest majority such that
 * any two majorities share more voters than may lie. Groups of up to three tolerate no liar. */
uint32_t tw_votes_needed(uint32_t count);

/* The vote of one member. */
struct tw_ballot_vote {
    struct tw_id run, lineage;
    uint64_t nonce; /* nonce of the member in the roster of the round */
    uint64_t round, ballot, lock_ballot;
    enum tw_vote_phase phase;
    struct tw_id digest; /* digest of the record */
};

/* Writes the bytes that the member signs. */
void tw_ballot_vote_text(const struct tw_ballot_vote *vote, uint8_t text[TW_VOTE_TEXT_BYTES]);

/* Writes the canonical bytes and returns their number, or 0 if there is no proof. */
size_t tw_proof_encode(const struct tw_proof *proof, uint8_t bytes[TW_PROOF_BYTES_MAX]);

/* Decodes untrusted bytes. Requires the exact size, a ballot and at least one voter, but verifies
 * no signature. On TW_PROTO *proof is undefined. */
enum tw_status tw_proof_decode(const uint8_t *bytes, size_t size, struct tw_proof *proof,
                               struct tw_error *err);

/* Like the two functions above, for promises. */
size_t tw_promises_encode(const struct tw_promises *promises, uint8_t bytes[TW_PROMISES_BYTES_MAX]);
enum tw_status tw_promises_decode(const uint8_t *bytes, size_t size, struct tw_promises *promises,
                                  struct tw_error *err);

#endif
