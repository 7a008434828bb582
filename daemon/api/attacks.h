/* attacks.h - attacks on the run that this node noticed, for the warnings in its status. Pure. */
#ifndef TW_DAEMON_API_ATTACKS_H
#define TW_DAEMON_API_ATTACKS_H

#include <stdint.h>

#include "base/id.h"

enum {
    TW_ATTACKS_PER_KIND = 4,
    TW_ATTACK_TEXT_BYTES = 256,
    TW_ATTACK_LABEL_BYTES = 64,
};

#define TW_ATTACK_SHOWN_US (UINT64_C(3600) * 1000 * 1000)

enum tw_attack_kind {
    TW_ATTACK_FORGED,    /* a record that no majority signed */
    TW_ATTACK_TWO_FACED, /* two signed votes or results that exclude each other */
    TW_ATTACK_LEFT,      /* no attack for sure, so its warning is called group_left: this node left
                            its lineage although most of its group was linked */
    TW_ATTACK_MERGE,     /* a result that is not the merge of its contributions */
    TW_ATTACK_OVERSIZED, /* a contribution far too large to be merged */
    TW_ATTACK_STATE,     /* a state that is not the members', given to this node as theirs */
    TW_ATTACK_UNTRAINED, /* work that was not trained on the data of its sender */
    TW_ATTACK_PROTOCOL,  /* any other breach of the protocol */
    TW_ATTACKS,
};

enum { TW_ATTACKS_MAX = TW_ATTACKS * TW_ATTACKS_PER_KIND };

/* Attacks of one kind by one node. */
struct tw_attack {
    enum tw_attack_kind kind;
    struct tw_id id;
    uint32_t count;  /* 0: an unused row */
    uint32_t others; /* attacks of this kind by nodes that have no row of their own */
    uint64_t at_us;  /* time of the newest attack */
};

/* Each kind has rows of its own, so that attacks of one kind push no other kind out. Nor does a
 * crowd of nodes push out the nodes that were there first: if a kind has no row left, the newest
 * node takes the row of the one before it, whose attacks are then counted among `others`. All zero
 * is empty. */
struct tw_attacks {
    struct tw_attack rows[TW_ATTACKS][TW_ATTACKS_PER_KIND];
    struct {
        uint32_t count;
        uint64_t at_us;
    } others[TW_ATTACKS];
};

/* Counts one attack. */
void tw_attacks_note(struct tw_attacks *attacks, enum tw_attack_kind kind, const struct tw_id *id,
                     uint64_t now_us);

/* Writes the attacks of the last TW_ATTACK_SHOWN_US to rows[TW_ATTACKS_MAX]: first the newest of
 * each kind, which alone has `others`, then the rest, either part newest first. Returns the number
 * of rows. */
uint32_t tw_attacks_recent(const struct tw_attacks *attacks, uint64_t now_us,
                           struct tw_attack *rows);

/* Writes a sentence: "Node ab12cd34 sent a round that its group did not decide (3 times); other
 * nodes did so 36 times". `label`
 * is the word for the node, at most TW_ATTACK_LABEL_BYTES with its NUL. */
void tw_attack_text(const struct tw_attack *attack, const char *label,
                    char text[TW_ATTACK_TEXT_BYTES]);

/* Returns advice to a person about an attack of this kind. Static storage. */
const char *tw_attack_way_out(enum tw_attack_kind kind);

#endif
