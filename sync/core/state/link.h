/* link.h - the state of a link to a peer. */
#ifndef TW_SYNC_CORE_STATE_LINK_H
#define TW_SYNC_CORE_STATE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "proto/message.h"

enum { PULLS_MAX = 64 }; /* chunks under way from one peer */

/* A chunk that was requested from a peer. */
struct pull {
    uint64_t asked_us;
    uint64_t moved_us; /* last arrival of a chunk that was requested before this one */
    uint16_t payload;  /* row of the payload table */
    uint16_t chunk;
};

struct link {
    bool is_up, has_status;
    bool has_left;    /* the peer sent LEAVE: its later STATUS does not count */
    bool was_refused; /* the peer was in a lineage that this node refuses */
    bool is_relayed;  /* the link runs through another member */
    bool lacks_roles; /* the peer is of a version without roles */
    bool lacks_vote;  /* the peer's certificate gives it no vote */
    bool has_links;   /* LINKS was received */
    bool is_relay;    /* the peer relays links between other nodes */
    bool is_silent;   /* the last chunks requested from it did not arrive: chunk_scheduler.c */
    struct tw_id id;
    struct tw_msg_status status; /* newest STATUS received */
    uint64_t up_us, received_us; /* when the link came up; when anything last arrived on it */
    uint64_t log_asked_us;       /* when LOG_GET was last sent */
    uint64_t log_told_us;        /* when this node last answered a message of an old round with
                                    records */
    uint64_t claim_us;    /* when this peer's claim about its lineage was last checked; 0: never */
    uint64_t log_begin;   /* oldest round in the peer's log, as announced by the peer */
    uint8_t pairs_missed; /* exchanges in a row whose payloads did not arrive */
    uint64_t refused_us;  /* when this node last refused it chunks for its budget; 0: never */
    uint64_t ignored_until_us; /* end of the time in which its accusations are ignored */
    /* Messages and ballots sent to the peer since it announced that it is at the open round. */
    bool was_sent_contrib, was_sent_result, was_shown; /* was_shown: RESULT with all signatures */
    uint64_t sent_prepare, sent_propose, sent_lock;
    /* Chunks under way, in the order of requests. */
    uint32_t pulls_count;
    struct pull pulls[PULLS_MAX];
    /* Measured time per chunk, and shortest time from request to arrival; 0: not known. */
    uint64_t chunk_us, near_us;
    /* Nodes that the peer reports links to: first direct_count without a relay, then those through
     * a relay. */
    uint32_t direct_count, linked_count;
    struct tw_id linked[TW_PEERS_MAX];
    uint64_t linked_members; /* set of the members of the roster among `linked` */
    uint64_t measured_us;    /* start of the present measurement; 0: none */
    uint32_t measured_count;
};

#endif
