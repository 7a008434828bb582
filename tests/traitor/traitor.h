/* traitor.h - lies of members that hold valid keys, but do not run an honest core alone.
 *
 * A traitor has an honest core, but any message that the core sends may be dropped, delayed or
 * changed, and the traitor may send any other message at any time. All traitors of a world share
 * one coven: the votes, promises and records that any of them heard, and all their keys. They
 * cannot sign as any other node. The seed of a traitor determines its lies.
 *
 * This file does not depend on the simulator: the daemon of live.c, which has real links, uses it
 * too. */
#ifndef TW_TESTS_TRAITOR_TRAITOR_H
#define TW_TESTS_TRAITOR_TRAITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "proto/message.h"
#include "sync/core/interface.h"

/* X(NAME, name on the command line, the lie) */
#define TW_LIE_LIST(X)                                                                             \
    X(MUTE, "mute", "some kinds of messages never reach some members")                             \
    X(LATE, "late", "messages are seconds late")                                                   \
    X(SPLIT, "split", "different members hear different statements")                               \
    X(REPLAY, "replay", "messages of others and old ones are sent again")                          \
    X(HUGE, "huge", "numbers are as large as they can be")                                         \
    X(STATUS, "status", "false positions, nonces and rates")                                       \
    X(LINKS, "links", "false links, farewells and requests to join")                               \
    X(LOG, "log", "false logs and proofs")                                                         \
    X(STATE, "state", "states and payloads that do not exist")                                     \
    X(VOTES, "votes", "votes for everything, concealed locks, refusals")                           \
    X(PROPOSE, "propose", "proposals of its own, at any time")                                     \
    X(ROSTER, "roster", "proposals with a wrong next roster")                                      \
    X(ACCUSE, "accuse", "false accusations")                                                       \
    X(CRUDE, "crude", "signatures that do not hold")                                               \
    X(LINEAGE, "lineage", "a history of its own, with a clock far ahead")                          \
    X(END, "end", "the budget of the run is spent")                                                \
    X(DONOR, "donor", "false states, which load (the simulator alone)")                            \
    X(BASE, "base", "proposals that name a false state")

enum tw_lie {
#define X(name, text, lie) TW_LIE_##name,
    TW_LIE_LIST(X)
#undef X
        TW_LIES_COUNT,
    TW_LIES_DRAWN = TW_LIE_END /* a seed draws only the lies above */
};

enum { TW_COVEN_MAX = 24, TW_COVEN_BALLOTS = 24, TW_COVEN_HEARD = 24, TW_COVEN_PEERS_MAX = 64 };

/* The open round as known to a traitor: the position of its own core. Borrowed for one call. */
struct tw_traitor_view {
    uint64_t now_us;
    struct tw_id lineage, tip; /* tip: digest of the newest record, the parent of the next one */
    uint64_t rounds, clock_tokens;
    uint32_t fragment, finals;
    const struct tw_roster *roster; /* roster of the open round */
    int idx, rank; /* the traitor's index and rank in the roster; -1: not a member */
    const struct tw_record *tip_record; /* NULL: none */
    const struct tw_proof *tip_proof;
    uint32_t peers_count;
    struct tw_id peers[TW_COVEN_PEERS_MAX]; /* linked */
};

/* The votes for one record in one ballot that any traitor has heard. */
struct tw_coven_ballot {
    uint64_t ballot;
    struct tw_id digest;
    struct tw_record record;
    /* Signatures of owners and new members that proposals have carried. */
    uint8_t results[TW_PARTS_MAX][TW_SIGNATURE_BYTES], joins[TW_JOINS_MAX][TW_SIGNATURE_BYTES];
    uint32_t joins_count;
    struct tw_proof votes[2]; /* phases 1 and 2 */
};

struct tw_traitor;

struct tw_coven {
    struct tw_id run;
    uint32_t count;
    struct tw_traitor *traitors[TW_COVEN_MAX];
    struct tw_id group; /* lineage of all nodes when the traitors began */
    /* the open round: its lineage, its number, and its ballots seen so far */
    struct tw_id lineage;
    uint64_t round;
    uint32_t ballots_count; /* ballots of the round so far; a new one replaces the oldest */
    struct tw_coven_ballot ballots[TW_COVEN_BALLOTS];
    uint64_t promised; /* ballot of `promises` */
    struct tw_promises promises;
    struct tw_proof lock; /* the newest lock in `promises` */
    struct tw_record locked;
    uint32_t heard_count; /* so far */
    struct tw_message heard[TW_COVEN_HEARD];
};

struct tw_traitor {
    struct tw_coven *coven;
    struct tw_id id;
    struct tw_signing signing;
    struct tw_rng rng;
    uint32_t lies;     /* the traitor's lies, a bit set of enum tw_lie */
    uint64_t salt;     /* seed that selects which members hear which statement */
    uint64_t attempts; /* ballots that the traitor began in the open round */
    uint64_t round;
};

enum tw_traitor_verdict { TW_TRAITOR_SENDS, TW_TRAITOR_DROPS, TW_TRAITOR_DELAYS };

/* Sends a message of a traitor to a linked node. */
typedef void tw_traitor_say(void *context, const struct tw_id *to,
                            const struct tw_message *message);

void tw_coven_init(struct tw_coven *coven, const struct tw_id *run);

/* `signing` signs as this node. All arguments are borrowed. If `lies` is 0, the lies are drawn from
 * the seed. */
void tw_traitor_init(struct tw_traitor *traitor, struct tw_coven *coven, const struct tw_id *id,
                     const struct tw_signing *signing, uint64_t seed, uint32_t lies);

/* Called when a message of `from` arrives, which the honest core receives too. */
void tw_traitor_hear(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                     const struct tw_id *from, const struct tw_message *message);

/* Called when the honest core sends this message to `to`. May change the message. */
enum tw_traitor_verdict tw_traitor_pass(struct tw_traitor *traitor,
                                        const struct tw_traitor_view *view, const struct tw_id *to,
                                        struct tw_message *message);

/* Sends one or more lies now. Every message passes tw_message_check. */
void tw_traitor_speak(struct tw_traitor *traitor, const struct tw_traitor_view *view,
                      tw_traitor_say *say, void *context);

/* Returns the lie of that name, or TW_LIES_COUNT. */
enum tw_lie tw_lie_find(const char *name);
const char *tw_lie_name(enum tw_lie lie);

#endif
