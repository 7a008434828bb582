/* world.h - nodes under virtual time, and what their daemons do: rounds as sync/ makes them when
 * messages arrive at once and nobody lies about the protocol. ARCHITECTURE.md, section 4.
 *
 * Deliberately left out: votes and ballots but where proposers lie (proposer.h; else a round
 * commits latency_ms after its intake closed; their bytes are counted as measured elsewhere,
 * measure.h), and the seconds in which the others notice that a node is gone. */
#ifndef TW_TESTS_QUALITY_WORLD_H
#define TW_TESTS_QUALITY_WORLD_H

#include "tests/bench/quality/jury.h"
#include "tests/bench/quality/measure.h"
#include "tests/bench/quality/node.h"

enum { WORLD_ARRIVALS_KEPT = 32 }; /* as sync/node_internal.h */

struct round {
    struct division division;
    bool is_active, is_closed;
    uint64_t first_us, closed_us;
    uint64_t heard_us[TW_MEMBERS_MAX];
    /* Sets of nodes: encoded before it was time, heard, decodable, both of the latter. */
    uint64_t waiting, heard, sound, merged;
    struct contribution from[TW_MEMBERS_MAX];
};

struct world {
    const struct setting *setting;
    const char *dump; /* folder, or NULL: dump.h, of the first node */
    struct tw_layout *layout;
    struct node *nodes;
    uint32_t count;
    uint64_t now_us, last_commit_us;
    uint64_t rounds; /* committed */
    uint64_t clock;  /* tokens listed in them */
    bool is_final, is_over, is_apart;
    struct round round;     /* the open one: number `rounds` */
    struct jury *jury;      /* where proposers may lie, else NULL: proposer.h */
    struct jury_round open; /* of the jury: who is a member of the open round, who closes it */
    struct commit *commits; /* of every round; results are freed once everybody applied them */
    uint64_t commits_room;
    uint64_t arrivals_us[WORLD_ARRIVALS_KEPT];
    uint32_t arrivals_count;
    struct traffic traffic;
    struct measure measure;
};

/* Runs a case from beginning to end. dump: folder, or NULL. *outcome is whole on success only. */
enum tw_status world_run(const struct setting *setting, const char *text_path, const char *dump,
                         struct outcome *outcome, struct tw_error *err);

/* round.c: the open round at this moment, contributions aside. */
void round_open(struct world *world);
bool round_is_due(const struct world *world, const struct node *node);
enum tw_status round_contribute(struct world *world, struct node *node, struct tw_error *err);
enum tw_status round_advance(struct world *world, struct tw_error *err);
uint64_t round_deadline_us(const struct world *world); /* UINT64_MAX: none */
enum tw_status round_apply(struct world *world, struct node *node, struct tw_error *err);
void round_drop(struct world *world);

#endif
