/* twin.h - finds nodes whose key is on two machines (twins), by questions to the linked one. Pure.
 *
 * A restarted node has a new process number, and so has another machine with a copy of its key.
 * After a restart the process that was linked before is dead; if there is a copy, it is alive.
 *
 *   HELLO of a linked node, from        verdict    the transport
 *   the same process, or without number NONE       lets the rules of admit.c decide
 *   another process                     ASK        asks the linked one (proto/twin.h); the newcomer
 *                                                  waits for TW_TWIN_ANSWER_US at most
 *   another one, while a question waits WAIT       the same, without a second question
 *   a process that another one replaced PROVEN     refuses it: no process comes back from the dead
 *
 * An answer proves a twin: the newcomer is refused. Silence proves a restart: the newcomer replaces
 * the old link. A node that restarted thus waits for TW_TWIN_ANSWER_US at most. */
#ifndef TW_DAEMON_NET_TWIN_H
#define TW_DAEMON_NET_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum {
    TW_TWIN_ANSWER_US = 2 * 1000 * 1000,
    TW_TWIN_KEPT_US = 180 * 1000 * 1000, /* time for which a finding is kept after its last sign;
                                            nodes dial again within 60 s */
};

struct tw_twin_row {
    struct tw_id id;  /* node whose key it is; zero: the row is free */
    uint64_t used_us; /* the row was used last */
    uint64_t process; /* process that is linked, or was linked last */
    uint64_t before;  /* process that `process` replaced; 0: none */
    uint64_t nonce;   /* nonce of the open question to `process`; 0: none */
    uint64_t asked_us;
    uint64_t seen_us;            /* when two machines were last seen with this key; 0: never */
    char address[TW_ADDR_BYTES]; /* address of the machine that has no link to this node; or "" */
};

struct tw_twins {
    uint64_t answer_us;                    /* time allowed for an answer */
    struct tw_twin_row rows[TW_KNOWN_MAX]; /* rows of nodes that were linked, and of this node */
};

enum tw_twin_verdict { TW_TWIN_NONE, TW_TWIN_ASK, TW_TWIN_WAIT, TW_TWIN_PROVEN };

/* answer_us 0: TW_TWIN_ANSWER_US; shorter in tests. */
void tw_twins_init(struct tw_twins *twins, uint64_t answer_us);

/* A link to that process of the node is up. 0: its HELLO has no process number. */
void tw_twins_linked(struct tw_twins *twins, const struct tw_id *id, uint64_t process,
                     uint64_t now_us);

/* Judges a HELLO of a node that has a link. */
enum tw_twin_verdict tw_twins_judge(const struct tw_twins *twins, const struct tw_id *id,
                                    uint64_t process);

/* The linked process is asked, because another one came from that address. nonce > 0. */
void tw_twins_asked(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce,
                    const char *address, uint64_t now_us);

/* Takes an answer. True: it is the right one, and the question is closed. */
bool tw_twins_answered(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce);

/* Closes the question about node `id`: the time for the answer is over, or the link is gone. */
void tw_twins_close(struct tw_twins *twins, const struct tw_id *id);

/* End of the waiting for an answer; UINT64_MAX: no question is open. */
uint64_t tw_twins_deadline_us(const struct tw_twins *twins, const struct tw_id *id);

/* Notes that two machines have this key; the unlinked one is at that address. NULL: the address
 * stays. True: the finding is new. */
bool tw_twins_found(struct tw_twins *twins, const struct tw_id *id, const char *address,
                    uint64_t now_us);

/* The row of a node while its finding holds; NULL: none. */
const struct tw_twin_row *tw_twins_find(const struct tw_twins *twins, const struct tw_id *id,
                                        uint64_t now_us);

#endif
