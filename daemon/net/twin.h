/* twin.h - finds nodes whose key is on two machines (twins), by asking the linked one. Pure.
 *
 * A restarted node has a new process number, and so has another machine with a copy of its key. The
 * difference: after a restart the process that was linked before is dead, while beside a copy it is
 * alive.
 *
 *   HELLO with the id of a linked node  verdict    the transport
 *   from the linked process, or without
 *   a process number                    NONE       applies the rules of admit.c
 *   from another process                ASK        asks the linked process (proto/frame.h); the
 *                                                  newcomer waits for TW_TWIN_ANSWER_US at most
 *   from another process, while a
 *   question is open                    WAIT       lets it wait too, without a second question
 *   from a process that the linked one
 *   had replaced                        PROVEN     refuses it: a dead process cannot return, so
 *                                                  both are alive
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
    TW_TWIN_KEPT_US = 180 * 1000 * 1000, /* time for which a finding is kept after it was last
                                            confirmed; nodes dial again within 60 s */
};

struct tw_twin_row {
    struct tw_id id;  /* node with that key; zero if the row is free */
    uint64_t used_us; /* time of the last use of this row */
    uint64_t process; /* process that is linked, or was linked last */
    uint64_t before;  /* process that `process` replaced; 0 = none */
    uint64_t nonce;   /* nonce of the question that `process` has not answered yet; 0 = none */
    uint64_t asked_us;
    uint64_t seen_us; /* time when two machines with this key were last seen; 0 = never */
    char address[TW_ADDR_BYTES]; /* address of the machine that has no link to this node; or "" */
};

struct tw_twins {
    uint64_t answer_us;                    /* time allowed for an answer */
    struct tw_twin_row rows[TW_KNOWN_MAX]; /* rows of nodes that were linked, and of this node */
};

enum tw_twin_verdict { TW_TWIN_NONE, TW_TWIN_ASK, TW_TWIN_WAIT, TW_TWIN_PROVEN };

/* `answer_us` 0 means TW_TWIN_ANSWER_US; tests pass less. */
void tw_twins_init(struct tw_twins *twins, uint64_t answer_us);

/* Records that a link to the node's process number `process` is up. `process` is 0 if its HELLO has
 * no process number. */
void tw_twins_linked(struct tw_twins *twins, const struct tw_id *id, uint64_t process,
                     uint64_t now_us);

/* Returns true if node `id` was linked to this process, and therefore proved its right to be in the
 * run. */
bool tw_twins_was_linked(const struct tw_twins *twins, const struct tw_id *id);

/* Judges a HELLO with the id of a linked node. */
enum tw_twin_verdict tw_twins_judge(const struct tw_twins *twins, const struct tw_id *id,
                                    uint64_t process);

/* Records that the linked process is asked with `nonce` (not 0), because another process dialled
 * from `address`. */
void tw_twins_asked(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce,
                    const char *address, uint64_t now_us);

/* Checks the nonce of an answer. Returns true and closes the question if it matches. */
bool tw_twins_answered(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce);

/* Closes the question about node `id`, because the time for the answer is over or the link is gone.
 */
void tw_twins_close(struct tw_twins *twins, const struct tw_id *id);

/* Returns the time when waiting for an answer ends, or UINT64_MAX if no question is open. */
uint64_t tw_twins_deadline_us(const struct tw_twins *twins, const struct tw_id *id);

/* Records that two machines have this key. `address` is the address of the machine that is not
 * linked, or NULL to keep the known one. Returns true if the finding is new. */
bool tw_twins_found(struct tw_twins *twins, const struct tw_id *id, const char *address,
                    uint64_t now_us);

/* Returns the row of a node while its finding is kept, or NULL. */
const struct tw_twin_row *tw_twins_find(const struct tw_twins *twins, const struct tw_id *id,
                                        uint64_t now_us);

#endif
