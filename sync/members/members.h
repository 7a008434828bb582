/* members.h - the table of known nodes: their addresses, and the one to dial next.
 *
 * Pure: time and a seed are inputs, addresses to dial are outputs. The daemon dials them, one call
 * of next_dial per dial, and reports the outcome. The pause between dials grows to a ceiling, and
 * further for members that the daemon finds long absent (tw_members_rest). Everything learnt from
 * peers is untrusted and bounded: TW_KNOWN_MAX members with TW_ADDRS_MAX addresses each, and
 * TW_TOLD_MAX nodes that one peer tells of and that were never connected. A full table first drops
 * nodes that were never connected, the oldest first. */
#ifndef TW_SYNC_MEMBERS_MEMBERS_H
#define TW_SYNC_MEMBERS_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/status.h"
#include "proto/message.h"

enum {
    TW_BACKOFF_MIN_US = 1000 * 1000,
    TW_BACKOFF_MAX_US = 60 * 1000 * 1000,
    TW_BACKOFF_LOST_US = 4 * 1000 * 1000, /* ceiling of pauses while all links are lost */
    /* time for which a member is still announced after its last link */
    TW_RECORD_FRESH_US = 600 * 1000 * 1000,
    /* wait of the node with the lower id, as a multiple of the minimal pause */
    TW_DIAL_YIELD_STEPS = 2,
    /* Least duration of a link that does not count as short. A path with short links may let dials
     * pass, but nothing larger. */
    TW_LINK_STEADY_US = 30 * 1000 * 1000,
    /* Nodes that one peer tells of and that were never connected. Once a dial of one has failed,
     * another one may take its place. */
    TW_TOLD_MAX = 8,
};

/* Time after which a member that was never linked is dropped, unless others still tell of it. */
#define TW_HEARSAY_KEPT_US (UINT64_C(3600) * 1000 * 1000)

/* Time after the last link for which TW_BACKOFF_LOST_US applies. */
#define TW_LOST_US (UINT64_C(3600) * 1000 * 1000)

/* Longest pause of a relayed node whose direct links break again and again. */
#define TW_BACKOFF_RELAYED_US (UINT64_C(3600) * 1000 * 1000)

struct tw_members_config {
    struct tw_id self;
    uint64_t seed;           /* seed of the jitter */
    uint64_t backoff_min_us; /* 0 = TW_BACKOFF_MIN_US */
    uint64_t backoff_max_us; /* 0 = TW_BACKOFF_MAX_US; lower values suit nodes that are near each
                                other */
};

struct tw_member_addr {
    char text[TW_ADDR_BYTES]; /* "host:port"; empty = free */
    uint64_t retry_us;        /* earliest time of the next dial */
    uint64_t backoff_us;      /* pause after the next failure */
    bool is_dialling, is_bootstrap;
    bool is_proven; /* true once a dial reached the member at this address */
    bool is_any; /* configured without an id: any node may answer there, also another one later */
};

struct tw_member_entry {
    bool is_used, has_id, is_connected;
    bool was_connected; /* connected at some time, in this process or according to the cache file */
    bool was_linked;    /* connected in this process: `linked_us` is valid */
    uint32_t shorts;    /* number of short links in a row */
    uint64_t rest_us;   /* least pause between two dials of one address */
    struct tw_id id;    /* zero until known (bootstrap without id) */
    struct tw_id teller; /* peer that told of it first; zero: none */
    uint64_t up_us;      /* start of the present link, if is_connected */
    uint64_t linked_us;  /* last time with a link */
    uint64_t heard_us;   /* arrival of the last news from this member, or about it from others */
    uint64_t dialled_us; /* start of the newest dial to the member */
    struct tw_member_addr addrs[TW_ADDRS_MAX];
};

struct tw_members {
    struct tw_members_config config;
    struct tw_member_row self; /* this node's row, first in every PEERS message */
    struct tw_rng rng;
    uint32_t rotor; /* index of the entry at which the next PEERS message begins */
    struct tw_member_entry entries[TW_KNOWN_MAX];
};

/* Initialises an empty table in the caller's memory (about 100 KB). */
void tw_members_init(struct tw_members *members, const struct tw_members_config *config);

/* Sets the addresses at which this node can be dialled, if any. */
void tw_members_set_self(struct tw_members *members, const struct tw_member_row *self);

/* Adds a bootstrap entry, "host:port" or "host:port=id" (64 hex digits). It is never dropped.
 * Returns TW_CONFIG if the text is no such entry, TW_LIMIT if the table is full of bootstrap
 * entries. */
enum tw_status tw_members_bootstrap(struct tw_members *members, const char *entry, uint64_t now_us,
                                    struct tw_error *err);

struct tw_dial {
    char address[TW_ADDR_BYTES];
    bool has_id;
    bool is_hearsay;  /* address known only from other nodes, not from this node's configuration */
    bool is_unproven; /* hearsay, and no dial has found the node at this address */
    struct tw_id id;  /* node id expected at this address */
};

/* Returns the next address that is due, and marks it as being dialled. Returns false if none is
 * due. Answer each dial with tw_members_dialled. Connected members and this node itself are never
 * dialled.
 *
 * Of a member's addresses, IPv6 is dialled first, and the next one TW_DIAL_STAGGER_US later. The
 * first to connect makes the link, so an address that swallows packets costs only this delay. Of
 * two nodes without a link, the higher id dials first. The lower id waits TW_DIAL_YIELD_STEPS times
 * the minimal pause. */
bool tw_members_next_dial(struct tw_members *members, uint64_t now_us, struct tw_dial *dial);

/* Returns the time at which next_dial may return true again; UINT64_MAX: not before another call
 * changes the table. */
uint64_t tw_members_deadline(const struct tw_members *members, uint64_t now_us);

/* Reports the end of a dial. `id` is the node that answered, or NULL if none did or its id is not
 * proven.
 *
 * `ok` with another id than the entry's moves the address to that id. An address of this node
 * itself is dropped; a bootstrap one without an id is kept and never dialled again. If another node
 * answers at the address, and that node is linked or answers until the pause is at the ceiling, the
 * address is dropped, unless it is a bootstrap one. A member without addresses is dropped until a
 * peer announces it again. Returns true if it dropped the address because another node has it. */
bool tw_members_dialled(struct tw_members *members, const char *address, bool ok,
                        const struct tw_id *id, uint64_t now_us);

/* Takes a dial of tw_members_next_dial back, which was not begun: the address is due again at
 * `retry_us`. */
void tw_members_put_off(struct tw_members *members, const char *address, uint64_t retry_us);

/* Report that the link to a peer came up, with the addresses that the peer announces, or went down.
 * After a loss the peer is dialled again at once, then with growing pauses. From the second short
 * link in a row on, the first dial waits too, twice as long after each, up to the longest pause:
 * meanwhile a relay carries the link. */
void tw_members_connected(struct tw_members *members, const struct tw_member_row *record,
                          uint64_t now_us);
void tw_members_disconnected(struct tw_members *members, const struct tw_id *id, uint64_t now_us);

/* Reports a link to a peer that runs through another member. The peer's addresses are still
 * dialled, with the longest pause, which doubles with each short link after the second up to
 * TW_BACKOFF_RELAYED_US. */
void tw_members_relayed(struct tw_members *members, const struct tw_member_row *record,
                        uint64_t now_us);

/* Sets the least pause between two dials of an address of this member, 0 for none. A lost link, and
 * tw_members_moved, still cause one dial at once. */
void tw_members_rest(struct tw_members *members, const struct tw_id *id, uint64_t pause_us);

/* Drops a member, unless it is linked, being dialled or a bootstrap one. */
void tw_members_forget(struct tw_members *members, const struct tw_id *id);

/* Drops members that were never linked and of which nobody told for TW_HEARSAY_KEPT_US. */
void tw_members_sweep(struct tw_members *members, uint64_t now_us);

/* True if this member has a configured address. */
bool tw_members_is_bootstrap(const struct tw_members *members, const struct tw_id *id);

/* True if an address of this member has not failed since it was learnt or last worked. */
bool tw_members_may_reach(const struct tw_members *members, const struct tw_id *id);

/* Returns the number of links to this member in a row that ended within TW_LINK_STEADY_US; 0 for an
 * unknown member. */
uint32_t tw_members_shorts(const struct tw_members *members, const struct tw_id *id);

/* Dials all addresses again at once, because this machine has another address or route. */
void tw_members_moved(struct tw_members *members, uint64_t now_us);

/* Fills a PEERS message: this node, then members linked now or within TW_RECORD_FRESH_US. If not
 * all fit, the next message continues with the others. */
void tw_members_records(struct tw_members *members, uint64_t now_us, struct tw_msg_peers *peers);

/* Merges rows that the peer `teller` sent about other nodes. Rows about this node, malformed rows
 * and rows without an address are ignored. Rows about a connected member are ignored too, because
 * its own announcement counts. */
void tw_members_merge(struct tw_members *members, const struct tw_id *teller,
                      const struct tw_msg_peers *peers, uint64_t now_us);

/* Returns the number of members with an id, without this node. */
uint32_t tw_members_known(const struct tw_members *members);

/* Writes the text of the cache file: a line `id host:port host:port ...` per member that was ever
 * connected, newest first. *size_out <= capacity; lines that do not fit are left out. */
enum { TW_MEMBERS_TEXT_MAX = TW_KNOWN_MAX * (66 + TW_ADDRS_MAX * TW_ADDR_BYTES) };
void tw_members_encode(const struct tw_members *members, char *text, size_t capacity,
                       size_t *size_out);

/* Reads the text of a cache file, which is untrusted. Returns the number of bad lines, which are
 * skipped. */
uint32_t tw_members_decode(struct tw_members *members, const char *text, size_t size,
                           uint64_t now_us);

#endif
