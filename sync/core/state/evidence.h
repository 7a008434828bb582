/* evidence.h - the state of evidence: the statements of each member in the open round. */
#ifndef TW_SYNC_CORE_STATE_EVIDENCE_H
#define TW_SYNC_CORE_STATE_EVIDENCE_H

#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"

enum { STATEMENT_KINDS = TW_VOTE_RESULT + 1, LIARS_MAX = 64 };

struct evidence {
    struct tw_id lineage, parent; /* parent: digest of the newest record, which holds the roster */
    uint64_t round;
    /* Newest checked statement of each member and phase; ballot 0: none. */
    struct {
        uint64_t ballot;
        struct tw_statement statement;
    } heard[STATEMENT_KINDS][TW_MEMBERS_MAX];
    uint64_t convicted_us; /* time of the newest evidence */
    /* Ring buffer of nodes against which this node has passed evidence on. */
    uint32_t liars_count;
    struct tw_id liars[LIARS_MAX];
};

#endif
