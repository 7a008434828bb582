/* link_quality.h - measured quality of each peer's link, and which links are far worse than the
 * others.
 *
 * An absolute number says little about a link: 200 kB/s is fast in one group and a fault in
 * another. A peer is therefore compared with the median of the other peers, as this node measures
 * them. This needs at least TW_LINK_QUALITY_MIN other measured peers.
 *
 *   slow sender     its payloads reach us at less than a quarter of the median rate, while its
 *                   heartbeats arrive, and take long enough to be the line's fault
 *   slow receiver   the path to it carries less than a quarter of the median rate
 *   flapping        its link broke at least three times lately, and far more often than the others.
 *                   Restarts, sleep and a suspended process are no faults of a link, so they do not
 *                   count: the peer's boot number grew, it was away for TW_LINK_QUALITY_AWAY_US, or
 *                   it fell silent while its machine acknowledged every segment
 *   lossy           far more of our segments to it are lost
 *
 * The anomaly is shown to people with its evidence. All but *lossy*, which TCP copes with, also go
 * to the core, which then gives the peer no part to merge (sync/round/proposal.c). A slow peer
 * is slow until it again reaches two fifths of the median.
 *
 * Pure: the caller passes measurements and time. Integers only. */
#ifndef TW_DAEMON_NET_LINK_QUALITY_H
#define TW_DAEMON_NET_LINK_QUALITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum {
    TW_LINK_QUALITY_ROWS = 2 * TW_PEERS_MAX, /* linked peers, and peers that left lately */
    TW_LINK_QUALITY_MIN = 3,                 /* minimum number of other measured peers */
    TW_LINK_QUALITY_AWAY_US = 30 * 1000 * 1000,
    TW_LINK_QUALITY_TEXT_BYTES = 200,
    TW_LINK_QUALITY_LINE_BYTES = 192,
    TW_LINK_QUALITY_FILE_MAX = (TW_LINK_QUALITY_ROWS + 1) * TW_LINK_QUALITY_LINE_BYTES,
    TW_LINK_QUALITY_OLD_S = 7 * 86400, /* age after which stored measurements are ignored */
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
    uint64_t changed_us;          /* time up to which linked_us and known_us are counted */
    uint64_t linked_us, known_us; /* time linked, and time since the peer is known; both decay */
    uint32_t breaks_milli;        /* breaks of the link, in thousandths; halved each hour */
    bool is_counted;              /* the newest end of the link counted as a break */
    uint32_t boot;                /* boot number of the peer at its newest link; 0: not known */
    uint64_t lost_us;             /* time when a segment was last lost; 0: never */
    uint64_t lost_count;          /* TCP's counter of retransmitted segments then */
    uint64_t faded_us;            /* time of the last decay */
    uint32_t rtt_us;              /* 0 = unknown */
    uint64_t in_bytes_s, out_bytes_s; /* 0 = unknown */
    uint64_t in_took_us;              /* usual time of a measured transfer; 0 = unknown */
    uint32_t in_count;                /* number of measured transfers from this peer */
    bool has_loss;
    uint32_t loss_ppm;              /* share of our segments that were lost */
    uint64_t retransmits, segments; /* values of TCP's counters up to which loss_ppm is computed */
    uint64_t control_bytes, heard_us; /* control bytes that have arrived; time of the newest */
    bool is_pulling;                  /* payloads from the peer are on their way, since pull_us */
    uint64_t pull_us, pull_bytes;
    enum tw_link_quality_anomaly anomaly;
    uint64_t middle; /* if there is an anomaly: the other peers' median of that measure */
};

struct tw_link_quality {
    struct tw_link_quality_peer peers[TW_LINK_QUALITY_ROWS];
    uint64_t upload_bytes_s; /* this node's own upload rate, to all peers together; 0: unknown */
    bool was_busy;           /* is_busy of the last tw_link_quality_sent */
    uint64_t sent_bytes, sent_us;
};

/* How a link ended. */
enum tw_link_quality_end {
    TW_LINK_QUALITY_GOODBYE,
    TW_LINK_QUALITY_SILENCE, /* this node closed it, for example because the peer was silent */
    TW_LINK_QUALITY_BREAK,
};

/* Records that the link to `id` came up, with the peer's boot number (0: not known). A zeroed table
 * is empty. */
void tw_link_quality_up(struct tw_link_quality *quality, const struct tw_id *id, uint32_t boot,
                        uint64_t now_us);
/* Records that the link went down. */
void tw_link_quality_down(struct tw_link_quality *quality, const struct tw_id *id,
                          enum tw_link_quality_end end, uint64_t now_us);

/* Counts payload bytes that arrived from the peer. `is_last` is true if no other request to it is
 * pending. */
void tw_link_quality_arrived(struct tw_link_quality *quality, const struct tw_id *id,
                             uint32_t bytes, bool is_last, uint64_t now_us);

/* Measurements of a link, passed several times a second. The counters start when the link comes up.
 */
struct tw_link_quality_look {
    bool is_pulling; /* payloads requested from the peer have not all arrived */
    uint32_t rtt_us;
    uint64_t path_bytes_s;
    uint64_t retransmits, segments;
    uint64_t control_bytes; /* bytes that arrived on the control connection; 0: not known */
};

void tw_link_quality_look(struct tw_link_quality *quality, const struct tw_id *id,
                          const struct tw_link_quality_look *look, uint64_t now_us);

/* Updates the node's upload rate from the bytes sent to all peers so far. `is_busy` is true if more
 * bytes waited to be sent. `cap` is the upload cap in bytes/s, 0 = none. */
void tw_link_quality_sent(struct tw_link_quality *quality, uint64_t sent_bytes, bool is_busy,
                          uint64_t cap, uint64_t now_us);

/* Finds the anomalies of all peers. */
void tw_link_quality_judge(struct tw_link_quality *quality, uint64_t now_us);

/* Returns NULL if the peer is unknown. */
const struct tw_link_quality_peer *tw_link_quality_find(const struct tw_link_quality *quality,
                                                        const struct tw_id *id);

/* Returns true if the core should not let the peer merge parts. */
bool tw_link_quality_is_odd(const struct tw_link_quality_peer *peer);

/* Returns the share of the recorded time in which the peer was linked, in thousandths. */
uint32_t tw_link_quality_reliability(const struct tw_link_quality_peer *peer, uint64_t now_us);

/* ---- over a restart (link_quality.c)
 * ----------------------------------------------------------- */

/* Writes the table as text: a line with the time (`wall_s`, unix seconds) and this node's upload
 * rate, then one line per peer. Returns the number of bytes written. */
size_t tw_link_quality_encode(const struct tw_link_quality *quality,
                              char text[TW_LINK_QUALITY_FILE_MAX], uint64_t now_us,
                              uint64_t wall_s);

/* Reads the text of tw_link_quality_encode into an empty table. No peer is linked, and the time
 * between the two counts for no peer. The text is untrusted: bad lines are skipped, and their
 * number is returned. A text older than TW_LINK_QUALITY_OLD_S is ignored. */
uint32_t tw_link_quality_decode(struct tw_link_quality *quality, const char *text, size_t size,
                                uint64_t now_us, uint64_t wall_s);

/* Writes the evidence, such as "slow sender: 41 kB/s to us in 12 transfers; median of the others:
 * 1.9 MB/s", or "" if there is no anomaly. */
void tw_link_quality_evidence(const struct tw_link_quality_peer *peer,
                              char text[TW_LINK_QUALITY_TEXT_BYTES]);

#endif
