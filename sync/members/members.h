/* members.h - the member table: who exists, where they can be dialled, whom to dial next.
 *
 * Pure: time and randomness come in, addresses to dial come out. The daemon dials them (one call
 * of next_dial per dial) and says how it went. There is no giving up: addresses are tried for ever
 * with a growing pause. Everything learnt from peers is untrusted and bounded: TW_KNOWN_MAX
 * members, TW_ADDRS_MAX addresses each; the least useful (never connected, oldest) go first. */
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
    TW_BACKOFF_LOST_US = 4 * 1000 * 1000,   /* of members lost lately, the most while all are */
    TW_RECORD_FRESH_US = 600 * 1000 * 1000, /* told to others this long after it was last linked */
    TW_DIAL_YIELD_STEPS = 2, /* the lower id lets the higher dial first for this many minima */
};

#define TW_LOST_US (UINT64_C(3600) * 1000 * 1000) /* "lately" of TW_BACKOFF_LOST_US */

struct tw_members_config {
    struct tw_id self;
    uint64_t seed;           /* of the jitter */
    uint64_t backoff_min_us; /* 0 = TW_BACKOFF_MIN_US */
    uint64_t backoff_max_us; /* 0 = TW_BACKOFF_MAX_US; lower it where all nodes are near */
};

struct tw_member_addr {
    char text[TW_ADDR_BYTES]; /* "host:port"; empty = free */
    uint64_t retry_us;        /* not before */
    uint64_t backoff_us;      /* pause after the next failure */
    bool is_dialling, is_bootstrap;
    bool is_proven; /* a dial met the member there */
};

struct tw_member_entry {
    bool is_used, has_id, is_connected;
    bool was_connected;  /* ever, as far as this process and the cache file know */
    bool was_linked;     /* by this process: `linked_us` is valid */
    struct tw_id id;     /* zero until known (bootstrap without id) */
    uint64_t linked_us;  /* when it was last known to be linked */
    uint64_t heard_us;   /* when anything was last heard about it */
    uint64_t dialled_us; /* when its newest dial began */
    struct tw_member_addr addrs[TW_ADDRS_MAX];
};

struct tw_members {
    struct tw_members_config config;
    struct tw_member_row self; /* own record: first in every PEERS message */
    struct tw_rng rng;
    uint32_t rotor; /* where the next PEERS message goes on */
    struct tw_member_entry entries[TW_KNOWN_MAX];
};

/* About 100 KB, caller's memory. */
void tw_members_init(struct tw_members *members, const struct tw_members_config *config);

/* The addresses this node can be dialled at (may be none). */
void tw_members_set_self(struct tw_members *members, const struct tw_member_row *self);

/* One bootstrap entry, "host:port" or "host:port=id" (64 hex digits). Never forgotten. TW_CONFIG
 * with a sentence otherwise, TW_LIMIT when the table is full of bootstrap entries. */
enum tw_status tw_members_bootstrap(struct tw_members *members, const char *entry, uint64_t now_us,
                                    struct tw_error *err);

struct tw_dial {
    char address[TW_ADDR_BYTES];
    bool has_id;
    struct tw_id id; /* expected */
};

/* The next address that is due, marked as being dialled; false when none is. Answer each with
 * tw_members_dialled. Members that are connected, and this node itself, are never dialled. Of the
 * addresses of a member IPv6 goes first, and the next one TW_DIAL_STAGGER_US later if need be: the
 * first to connect makes the link, and an address that swallows packets costs no more. Of two
 * nodes that learn of each other, or lose their link, the higher id dials first, the lower one
 * after TW_DIAL_YIELD_STEPS times the minimal pause if need be. */
bool tw_members_next_dial(struct tw_members *members, uint64_t now_us, struct tw_dial *dial);

/* When next_dial may be true again; UINT64_MAX = not before something else happens. */
uint64_t tw_members_deadline(const struct tw_members *members, uint64_t now_us);

/* How a dial ended. `id`: who answered (NULL: nobody, or not proven). `ok` with an id other than
 * the entry's moves the address to that id; an address that leads to ourselves is dropped, or, for
 * a bootstrap entry, remembered and left alone. Where again and again another node answers than the
 * member that is looked for, the address is that node's now: it is dropped, unless it is
 * configured, and with its last address the member, until somebody tells of it anew. */
void tw_members_dialled(struct tw_members *members, const char *address, bool ok,
                        const struct tw_id *id, uint64_t now_us);

/* A peer is up, with the addresses it says; and down: dialled again at once, then with pauses. */
void tw_members_connected(struct tw_members *members, const struct tw_member_row *record,
                          uint64_t now_us);
void tw_members_disconnected(struct tw_members *members, const struct tw_id *id, uint64_t now_us);

/* This machine has another address, or another way out: who could not be reached is tried anew. */
void tw_members_moved(struct tw_members *members, uint64_t now_us);

/* Fills a PEERS message: this node, then members linked now or within TW_RECORD_FRESH_US, going
 * round when there are more than fit. */
void tw_members_records(struct tw_members *members, uint64_t now_us, struct tw_msg_peers *peers);

/* Takes what a peer says about others. Rows that are about us, malformed or without address are
 * passed over. A connected member's own word about itself is never overruled. */
void tw_members_merge(struct tw_members *members, const struct tw_msg_peers *peers,
                      uint64_t now_us);

/* Members with an id, other than this node. */
uint32_t tw_members_known(const struct tw_members *members);

/* The table as text for the cache file: a line `id host:port host:port ...` per member that was
 * connected once, newest first. *size_out <= capacity; lines that do not fit are left out. */
enum { TW_MEMBERS_TEXT_MAX = TW_KNOWN_MAX * (66 + TW_ADDRS_MAX * TW_ADDR_BYTES) };
void tw_members_encode(const struct tw_members *members, char *text, size_t capacity,
                       size_t *size_out);

/* Takes a cache text back; untrusted: bad lines are skipped, their number is returned. */
uint32_t tw_members_decode(struct tw_members *members, const char *text, size_t size,
                           uint64_t now_us);

#endif
