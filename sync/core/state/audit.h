/* audit.h - the state of audits, in which this node repeats the merges of other owners. */
#ifndef TW_SYNC_CORE_STATE_AUDIT_H
#define TW_SYNC_CORE_STATE_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "proto/record.h"
#include "sync/core/state/round.h"

enum { AUDIT_ROUNDS = 4 }; /* rounds for which contributions are kept after their merge */

/* A committed round with all that is needed to repeat its merges. */
struct past_round {
    uint64_t round; /* number of the round + 1; 0: free */
    struct tw_roster roster;
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
    uint32_t announced; /* set of parts for which the record agrees with the owner's announcement to
                           this node */
    struct contribution contributions[TW_MEMBERS_MAX];
};

struct audit_input {
    struct tw_id from, hash;
    uint64_t tokens;
    uint32_t steps, bytes;
};

enum audit_phase { AUDIT_IDLE, AUDIT_FETCHING, AUDIT_MERGING };

/* The audit of one part of a committed round. */
struct audit {
    enum audit_phase phase;
    uint64_t round, begin, count, began_us;
    uint32_t fragment, part, inputs_count;
    struct tw_id owner, result;
    bool is_hinted;   /* started by an accusation, not because the record's hash chose this node */
    bool is_unlisted; /* the record does not list the result, so no other member can audit it */
    struct tw_id accuser;
    struct audit_input inputs[TW_MEMBERS_MAX];
};

struct audits {
    struct past_round past[AUDIT_ROUNDS]; /* round r in row r % AUDIT_ROUNDS */
    struct audit running;
    uint64_t done_count;  /* finished audits since the start */
    uint64_t doubt_round; /* first round in which this node may audit a refused result again */
    struct {
        bool is_there;
        struct tw_id accuser;
        uint64_t round;
        uint32_t part;
    } hint; /* accusation that is audited next */
};

#endif
