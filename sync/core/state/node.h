/* node.h - struct tw_node: all state of the core. Private to sync/.
 *
 * The core is level-triggered. An event is only recorded. Then node.c calls the *_advance function
 * of each file in a fixed order (the walk). Each function requests all data that is missing and not
 * yet requested. A lost message, a dead worker or a restart therefore needs no code of its own: the
 * next walk asks again.
 *
 * The state is the lowest layer: every folder of sync/ reads it. Calls between folders go downward
 * only, in the order of README.md. */
#ifndef TW_SYNC_CORE_STATE_NODE_H
#define TW_SYNC_CORE_STATE_NODE_H

#include "base/rng.h"
#include "sync/core/bounds.h"
#include "sync/core/config.h"
#include "sync/core/position.h"
#include "sync/core/state/audit.h"
#include "sync/core/state/evidence.h"
#include "sync/core/state/jury.h"
#include "sync/core/state/lineage.h"
#include "sync/core/state/link.h"
#include "sync/core/state/pair.h"
#include "sync/core/state/payload.h"
#include "sync/core/state/penalty.h"
#include "sync/core/state/queue.h"
#include "sync/core/state/reach.h"
#include "sync/core/state/round.h"
#include "sync/core/state/transfer.h"
#include "sync/core/state/vote.h"
#include "sync/core/state/worker.h"

#ifdef TW_MUTANTS
#include "sync/mutants.h"
#define TW_IS_MUTANT(node, bug) ((node)->cfg.mutant == (bug))
#else
#define TW_IS_MUTANT(node, bug) ((void)(node), false)
#endif

struct tw_node {
    struct tw_node_config cfg;
    struct tw_rng rng;
    uint64_t now_us, deadline_us;
    uint64_t status_us; /* when STATUS is due */
    enum tw_node_state state;
    bool has_left; /* the user asked this node to leave the run */

    struct tw_position at;
    struct tw_id tip_digest; /* digest of at.tip; zero if there is none */
    struct tw_roster roster; /* roster of round at.rounds; count 0: not known (receiver) */
    uint64_t voters;         /* set of its members with a vote */
    struct seat seats[TW_MEMBERS_MAX];

    struct reach reach;
    struct worker worker;
    struct measured measured;
    struct lineage lineage;
    struct elders elders;
    struct log log;
    struct pace pace;
    struct round round;
    struct tw_vote vote;
    struct acceptor acceptor;
    struct lease lease; /* ballot lease of the open round */
    struct audits audits;
    struct tw_jury jury;
    struct evidence evidence;
    struct penalties penalties;
    struct pair pair;

    struct link links[TW_PEERS_MAX];
    uint64_t link_keys[TW_PEERS_MAX]; /* first 8 bytes of the peers' ids: eight per cache line */
    uint16_t links_end;               /* highest number of a link that is up, plus 1 */

    struct payload payloads[TW_PAYLOADS_MAX];
    uint32_t payloads_end; /* all rows from this one on are free */
    struct state_fetch fetch[TW_FRAGMENTS_MAX];
    struct state_export exports[TW_FRAGMENTS_MAX];
    struct state_memory memory[TW_FRAGMENTS_MAX]; /* the newest state of each fragment */
    struct old_states old_states;
    /* Since when this node fetches states with too few voters linked to bear them out; 0: it does
     * not. */
    uint64_t few_witnesses_us;

    struct queue queue;
};

#endif
