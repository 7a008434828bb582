/* known_peers.h - the nodes that this one knows, as a person would tell of them: the name of each,
 * and whether it is linked, has left, pauses, or is away, and since when. Kept across restarts.
 *
 *   known   ──link──> LINKED ──LEAVE, GOODBYE OK──> LEFT ─────────────┐
 *  (by a ticket)        ^    ──LEAVE, other GOODBYE──> PAUSED ──a day─┤
 *                       │    ──without goodbye──> AWAY ──a day──> GONE┤
 *                       └────────────── link ─────────────────────────┘  forgotten after a week
 *
 * The member table (sync/members/members.h) dials addresses; this table says how often that is
 * worth while: the longer a node has been away, the rarer (tw_known_peer_pause_us).
 *
 * Pure: the caller passes the time. Two clocks are used: a monotonic one, and the wall clock for
 * the text that outlives the process. */
#ifndef TW_DAEMON_API_KNOWN_PEERS_H
#define TW_DAEMON_API_KNOWN_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/hello.h"

enum tw_known_state {
    TW_KNOWN_NEVER, /* never linked: it used a ticket of this node */
    TW_KNOWN_LINKED,
    TW_KNOWN_LEFT,   /* it said goodbye */
    TW_KNOWN_PAUSED, /* it said that its links rest: by a pause, by its hours or by its quota */
    TW_KNOWN_AWAY,   /* it fell silent: asleep, dead, or its line is broken */
    TW_KNOWN_GONE,   /* paused or away for longer than TW_KNOWN_GONE_US */
};

enum {
    TW_KNOWN_SAID_BYTES = 96,
    TW_KNOWN_LINE_BYTES = 160,
    TW_KNOWN_TEXT_MAX = TW_KNOWN_MAX * TW_KNOWN_LINE_BYTES,
    TW_KNOWN_LABEL_BYTES = TW_NODE_NAME_BYTES + 9, /* a name, "-" and a short id */
};

#define TW_KNOWN_GONE_US (UINT64_C(86400) * 1000 * 1000)
#define TW_KNOWN_FORGET_US (UINT64_C(7 * 86400) * 1000 * 1000)
#define TW_KNOWN_PAUSE_MAX_US (UINT64_C(3600) * 1000 * 1000)

struct tw_known_peer {
    bool is_used;
    bool has_merged; /* work of the node was merged here */
    struct tw_id id;
    char name[TW_NODE_NAME_BYTES]; /* name that it announced; "": none */
    enum tw_known_state state;     /* NEVER, LINKED, LEFT, PAUSED or AWAY: GONE follows from time */
    char said[TW_KNOWN_SAID_BYTES]; /* reason that it gave for the end of the link; or "" */
    uint64_t since_us;              /* start of the state, or of this process if that is later */
    uint64_t before_us;             /* time in the state before this process */
};

struct tw_known_peers {
    char own_name[TW_NODE_NAME_BYTES]; /* name of this node */
    bool has_merged;   /* this node merged with others, in this process or soon before */
    uint64_t alone_us; /* time of the end of the last link, or of the start */
    uint64_t open_us;  /* time since which links are allowed */
    struct tw_known_peer rows[TW_KNOWN_MAX];
};

/* Makes an empty table of the node with this name. */
void tw_known_peers_init(struct tw_known_peers *known, const char *own_name, uint64_t now_us);

/* Records a link, with the name that the node announces ("" if none). A full table drops the row
 * that was without a link for longest. */
void tw_known_peers_linked(struct tw_known_peers *known, const struct tw_id *id, const char *name,
                           uint64_t now_us);

/* Records that a node used a ticket of this node. */
void tw_known_peers_invited(struct tw_known_peers *known, const struct tw_id *id, const char *name,
                            uint64_t now_us);

/* Records that work of the node was merged. */
void tw_known_peers_merged(struct tw_known_peers *known, const struct tw_id *id);

/* Records the end of the link. GOODBYE with TW_OK means that the node left. `has_left`: it sent
 * LEAVE before; with TW_AGAIN its links rest, for the reason behind the first ":" of `sentence`
 * (NULL or "": none). Anything else counts as silence. Bytes that are not printable become spaces.
 */
void tw_known_peers_parted(struct tw_known_peers *known, const struct tw_id *id,
                           enum tw_status reason, bool has_left, const char *sentence,
                           uint64_t now_us);

/* Records that this node itself lets its links rest. */
void tw_known_peers_rest(struct tw_known_peers *known, uint64_t now_us);

/* Returns the time for which no node has been linked, once this node has merged with others;
 * UINT64_MAX before, and while a node is linked. */
uint64_t tw_known_peers_alone_us(const struct tw_known_peers *known, uint64_t now_us);

/* Returns true if the node said goodbye, or is gone: that it cannot be dialled is no news. */
bool tw_known_peers_is_absent(const struct tw_known_peers *known, const struct tw_id *id,
                              uint64_t now_us);

/* Drops nodes that were without a link for TW_KNOWN_FORGET_US. Calls `forget` for each. */
void tw_known_peers_sweep(struct tw_known_peers *known, uint64_t now_us, void *user,
                          void (*forget)(void *user, const struct tw_id *id));

/* Returns NULL if the node is not known. */
const struct tw_known_peer *tw_known_peers_find(const struct tw_known_peers *known,
                                                const struct tw_id *id);

enum tw_known_state tw_known_peer_state(const struct tw_known_peer *row, uint64_t now_us);

/* Returns the time without a link; 0 while linked. */
uint64_t tw_known_peer_absence_us(const struct tw_known_peer *row, uint64_t now_us);

/* Returns the least pause between two dials of the node, TW_KNOWN_PAUSE_MAX_US at most. It is a
 * tenth of its absence within this process; 0 for the first hour of a node that fell silent. A node
 * that comes back dials others itself, so that a long pause here costs little. */
uint64_t tw_known_peer_pause_us(const struct tw_known_peer *row, uint64_t now_us);

/* Writes the node's name; with "-" and four digits of its id if another row, or this node, has the
 * same name, with eight if these are equal too. Writes the short id of a node without a name.
 * Returns `label`. */
const char *tw_known_peers_label(const struct tw_known_peers *known, const struct tw_id *id,
                                 char label[TW_KNOWN_LABEL_BYTES]);

/* Writes the table as text, a line per node:
 *
 *   ID SEEN_UNIX_S never|left|paused|away merged|- NAME|-
 *
 * Linked nodes count as seen now, and as away for the next process. Returns the number of bytes. */
size_t tw_known_peers_encode(const struct tw_known_peers *known, char text[TW_KNOWN_TEXT_MAX],
                             uint64_t now_us, uint64_t wall_s);

/* Reads untrusted text into an empty table. A member that was missed before a restart is missed
 * still (alone_us). Returns the number of bad lines, which are skipped. */
uint32_t tw_known_peers_decode(struct tw_known_peers *known, const char *text, size_t size,
                               uint64_t now_us, uint64_t wall_s);

#endif
