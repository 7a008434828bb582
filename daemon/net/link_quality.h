/* link_quality.h - what each peer's link is like, and which one is out of line with all the others.
 *
 * One number says little about a link: 200 kB/s is fast in one group and a fault in another. So a
 * peer is held against the middle of the other peers, as this node measures all of them, and only
 * where at least TW_LINK_QUALITY_MIN others were measured:
 *
 *   slow sender     its payloads come to us at less than a quarter of the middle
 *   slow receiver   the path to it carries less than a quarter of the middle
 *   flapping        its link broke at least three times lately, and far oftener than theirs
 *   lossy           far more of what we send it is lost (this one is only named: TCP copes)
 *
 * What is found is named to people with its evidence, and to the core, which routes around it
 * (sync/part_weights.c). It ends when the peer is back within two fifths of the middle.
 *
 * Pure: measurements and time come in. Whole numbers. */
#ifndef TW_DAEMON_NET_LINK_QUALITY_H
#define TW_DAEMON_NET_LINK_QUALITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum {
    TW_LINK_QUALITY_ROWS = 2 * TW_PEERS_MAX, /* linked, and lately gone */
    TW_LINK_QUALITY_MIN = 3,                 /* others that were measured */
    TW_LINK_QUALITY_TEXT_BYTES = 200,
    TW_LINK_QUALITY_LINE_BYTES = 192,
    TW_LINK_QUALITY_FILE_MAX = (TW_LINK_QUALITY_ROWS + 1) * TW_LINK_QUALITY_LINE_BYTES,
    TW_LINK_QUALITY_OLD_S =
        7 * 86400, /* what links were like so long ago says nothing of them now */
};

enum tw_link_quality_anomaly {
    TW_LINK_QUALITY_FINE,
    TW_LINK_QUALITY_SLOW_SENDER,
    TW_LINK_QUALITY_SLOW_RECEIVER,
    TW_LINK_QUALITY_FLAPPING,
    TW_LINK_QUALITY_LOSSY,
};

struct tw_link_quality_peer {
    bool is_used, is_linked;
    struct tw_id id;
    uint64_t changed_us;              /* linked or not since */
    uint64_t linked_us, known_us;     /* time it was linked, of the time it was known; fading */
    uint32_t breaks_milli;            /* links that broke, in thousandths; fading by the hour */
    uint64_t faded_us;                /* when that faded last */
    uint32_t rtt_us;                  /* 0: not known */
    uint64_t in_bytes_s, out_bytes_s; /* 0: not known */
    uint32_t in_count;                /* transfers behind the first */
    bool has_loss;
    uint32_t loss_ppm;              /* of the segments we sent */
    uint64_t retransmits, segments; /* as last counted in */
    bool is_pulling;                /* a transfer from it is under way since: */
    uint64_t pull_us, pull_bytes;
    enum tw_link_quality_anomaly anomaly;
    uint64_t middle; /* of the others, in the measure it is out of line by */
};

struct tw_link_quality {
    struct tw_link_quality_peer peers[TW_LINK_QUALITY_ROWS];
    uint64_t upload_bytes_s; /* this node can, to all together; 0: not known */
    bool was_busy;           /* at the last look */
    uint64_t sent_bytes, sent_us;
};

/* Zero-initialised knows nobody. */
void tw_link_quality_up(struct tw_link_quality *quality, const struct tw_id *id, uint64_t now_us);
/* `broke`: without a goodbye. */
void tw_link_quality_down(struct tw_link_quality *quality, const struct tw_id *id, bool broke,
                          uint64_t now_us);

/* Bytes of a payload came from it. `is_last`: nothing more is asked of it now. */
void tw_link_quality_arrived(struct tw_link_quality *quality, const struct tw_id *id,
                             uint32_t bytes, bool is_last, uint64_t now_us);

/* What the link says, several times a second. Counters since the link was up. */
struct tw_link_quality_look {
    bool is_pulling; /* payloads were asked of it and have not come */
    uint32_t rtt_us;
    uint64_t path_bytes_s;
    uint64_t retransmits, segments;
};

void tw_link_quality_look(struct tw_link_quality *quality, const struct tw_id *id,
                          const struct tw_link_quality_look *look, uint64_t now_us);

/* How much has been sent to all peers, and whether more waited to be sent. `cap`: 0 = none. */
void tw_link_quality_sent(struct tw_link_quality *quality, uint64_t sent_bytes, bool is_busy,
                          uint64_t cap, uint64_t now_us);

/* Looks who is out of line. */
void tw_link_quality_judge(struct tw_link_quality *quality, uint64_t now_us);

/* NULL: nothing is known of it. */
const struct tw_link_quality_peer *tw_link_quality_find(const struct tw_link_quality *quality,
                                                        const struct tw_id *id);

/* Is it to be routed around? */
bool tw_link_quality_is_odd(const struct tw_link_quality_peer *peer);

/* Of the time it is known, the part it was linked, in thousandths. */
uint32_t tw_link_quality_reliability(const struct tw_link_quality_peer *peer, uint64_t now_us);

/* ---- over a restart (link_quality_text.c)
 * ----------------------------------------------------------- */

/* All of it as text: a line with the time (`wall_s`, unix) and the own upload, then one per peer.
 * Returns its bytes. */
size_t tw_link_quality_encode(const struct tw_link_quality *quality,
                              char text[TW_LINK_QUALITY_FILE_MAX], uint64_t now_us,
                              uint64_t wall_s);

/* Takes such a text back into an empty table: nobody is linked, and the time between counts for
 * nobody. Untrusted: bad lines are skipped, their number is returned; of a text older than
 * TW_LINK_QUALITY_OLD_S nothing is taken. */
uint32_t tw_link_quality_decode(struct tw_link_quality *quality, const char *text, size_t size,
                                uint64_t now_us, uint64_t wall_s);

/* "slow sender: 41 kB/s to us in 12 transfers, the others 1.9 MB/s in the middle"; "" when fine. */
void tw_link_quality_evidence(const struct tw_link_quality_peer *peer,
                              char text[TW_LINK_QUALITY_TEXT_BYTES]);

#endif
