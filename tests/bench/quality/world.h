/* world.h - nodes in virtual time, and their daemons' work: rounds as in sync/ if messages arrive
 * at once and no node breaks the protocol (sync/DESIGN.md).
 *
 * Deliberately left out: votes and ballots, unless proposers lie (proposer.h). Otherwise a round
 * commits latency_ms after the end of its intake; the bytes of votes are counted as measured
 * elsewhere (measure.h). Also left out: the seconds until other nodes notice that a node is gone.
 */
#ifndef TW_TESTS_QUALITY_WORLD_H
#define TW_TESTS_QUALITY_WORLD_H

#include "tests/bench/quality/jury.h"
#include "tests/bench/quality/measure.h"
#include "tests/bench/quality/node.h"

enum { WORLD_ARRIVALS_KEPT = 32 }; /* the same as in sync/core/state/round.h */

struct round {
    struct division division;
    bool is_active, is_closed;
    uint64_t first_us, closed_us;
    uint64_t heard_us[TW_MEMBERS_MAX];
    /* Sets of nodes: encoded before it was time; received; decodable; received and decodable. */
    uint64_t waiting, heard, sound, merged;
    struct contribution from[TW_MEMBERS_MAX];
};

struct world {
    const struct setting *setting;
    const char *dump; /* NULL, or a folder for the first node's arrays: dump.h */
    struct tw_layout *layout;
    struct node *nodes;
    uint32_t count;
    uint64_t linked[TW_MEMBERS_MAX]; /* set of nodes that a node is linked to, itself included */
    uint64_t now_us, last_commit_us;
    uint64_t rounds; /* committed rounds */
    uint64_t clock;  /* tokens listed in the committed rounds */
    bool is_final, is_over, is_apart;
    struct round round;     /* the open one: number `rounds` */
    struct jury *jury;      /* if proposers may lie, else NULL: proposer.h */
    struct jury_round open; /* the jury's view of the open round: members and proposer */
    /* one commit per round; results are freed after all nodes have applied them */
    struct commit *commits;
    uint64_t commits_room;
    uint64_t arrivals_us[WORLD_ARRIVALS_KEPT];
    uint32_t arrivals_count;
    struct traffic traffic;
    struct measure measure;
};

/* Runs a case from beginning to end. dump: folder, or NULL. *outcome is complete only on success.
 */
enum tw_status world_run(const struct setting *setting, const char *text_path, const char *dump,
                         struct outcome *outcome, struct tw_error *err);

/* round.c: the open round at this moment, except for contributions. */
void round_open(struct world *world);
bool round_is_due(const struct world *world, const struct node *node);
enum tw_status round_contribute(struct world *world, struct node *node, struct tw_error *err);
enum tw_status round_advance(struct world *world, struct tw_error *err);
uint64_t round_deadline_us(const struct world *world); /* UINT64_MAX: none */
enum tw_status round_apply(struct world *world, struct node *node, struct tw_error *err);
void round_drop(struct world *world);

#endif
