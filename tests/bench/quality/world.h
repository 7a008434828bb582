/* world.h - nodes in virtual time, and their daemons' work. Rounds are as in sync/ when messages
 * arrive at once and no node breaks the protocol (sync/DESIGN.md).
 *
 * Two things are deliberately left out. First, votes and ballots, unless proposers lie
 * (proposer.h): a round commits latency_ms after the end of its intake, and the bytes of votes are
 * counted as measured elsewhere (measure.h). Second, the seconds until other nodes notice that a
 * node is dead. */
#ifndef TW_TESTS_QUALITY_WORLD_H
#define TW_TESTS_QUALITY_WORLD_H

#include "tests/bench/quality/jury.h"
#include "tests/bench/quality/measure.h"
#include "tests/bench/quality/node.h"

enum { WORLD_ARRIVALS_KEPT = 32 }; /* must equal the value in sync/core/state/round.h */

struct round {
    struct division division;
    bool is_active, is_closed;
    uint64_t first_us, closed_us;
    uint64_t heard_us[TW_MEMBERS_MAX];
    /* Sets of nodes whose contribution is encoded before its time; received; decodable; received
     * and decodable. */
    uint64_t waiting, heard, sound, merged;
    struct contribution from[TW_MEMBERS_MAX];
};

struct world {
    const struct setting *setting;
    const char *dump; /* folder for the first node's arrays (dump.h), or NULL */
    struct tw_layout *layout;
    struct node *nodes;
    uint32_t count;
    /* per node, the set of nodes that it is linked to, including itself */
    uint64_t linked[TW_MEMBERS_MAX];
    uint64_t now_us, last_commit_us;
    uint64_t rounds; /* committed rounds */
    uint64_t clock;  /* tokens listed in the committed rounds */
    bool is_final, is_over, is_apart;
    struct round round;     /* the open round, whose number is `rounds` */
    struct jury *jury;      /* set if proposers may lie (proposer.h), else NULL */
    struct jury_round open; /* the jury's view of the open round: members and proposer */
    /* one commit per round, whose results are freed once all nodes have applied them */
    struct commit *commits;
    uint64_t commits_room;
    uint64_t arrivals_us[WORLD_ARRIVALS_KEPT];
    uint32_t arrivals_count;
    struct traffic traffic;
    struct measure measure;
};

/* After an event: go on, write the state, or write it and stop. */
enum pause { PAUSE_NONE, PAUSE_WRITE, PAUSE_STOP };

/* Stops of a case (state.h). A case with lying proposers runs in one piece. */
struct pauses {
    const char *path;            /* file of the state, which a case goes on from if it is there */
    const struct tw_id *program; /* SHA-256 of the bench */
    /* Called after each event. `steps`: inner steps of all nodes since world_run began. */
    enum pause (*ask)(void *self, uint64_t steps);
    void *self;
    bool is_stopped; /* set by world_run: the case is not at its end */
};

/* Runs a case to its end, or to a pause. `dump` is a folder or NULL. *outcome is complete only on
 * success without a stop. */
enum tw_status world_run(const struct setting *setting, const struct texts *texts, const char *dump,
                         struct pauses *pauses, struct outcome *outcome, struct tw_error *err);

/* round.c: the open round now, except for contributions. */
void round_open(struct world *world);
bool round_is_due(const struct world *world, const struct node *node);
enum tw_status round_contribute(struct world *world, struct node *node, struct tw_error *err);
enum tw_status round_advance(struct world *world, struct tw_error *err);
uint64_t round_deadline_us(const struct world *world); /* UINT64_MAX if there is none */
enum tw_status round_apply(struct world *world, struct node *node, struct tw_error *err);
void round_drop(struct world *world);

#endif
