/* fetch_internal.h - the state of the fetcher. Private to fetch*.c.
 *
 * A chunk of a file is in one of four states:
 *
 *   here     verified, and on this node's disk: its bit is set
 *   stored   a `check` names it: the runtime has its bytes and is storing them
 *   asked    an `ask` of a peer names it and is not late
 *   wanted   none of these: it has yet to be requested
 *
 * Invariants:
 *   1  under_way = asks that are not late + checks in use <= TW_FETCH_ASKED_MAX
 *   2  state.under_way of a file = asks of it that are not late + its checks that are not stale
 *   3  state.left = clear bits of the file (of the index, while its size is not known: of 64)
 *   4  only plain.source has asks of a plain file, and only while plain.is_active
 *   5  a peer that is silent, banned or down gets no requests; late asks belong to a silent peer,
 *      or to one that was silent and has sent something since */
#ifndef TW_SYNC_FETCH_FETCH_INTERNAL_H
#define TW_SYNC_FETCH_FETCH_INTERNAL_H

#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "sync/core/penalty.h"
#include "sync/fetch/fetch.h"

enum {
    WORDS_MAX = TW_FETCH_FILE_CHUNKS_MAX / 64,
    INDEX_CHUNKS_MAX = TW_DATASET_BYTES_MAX / TW_CHUNK_BYTES_MAX,
    /* Most actions of one event: a PULL per chunk under way, and those of the event itself. */
    ACTIONS_MAX = TW_FETCH_ASKED_MAX + 8,
    ALL_FILES = TW_FETCH_FILES_MAX, /* in place of a file: every one */
};

_Static_assert(INDEX_CHUNKS_MAX <= 64, "the index has one word of bits");
_Static_assert(TW_DATASET_TOKENIZER_BYTES_MAX / TW_CHUNK_BYTES_MAX <= TW_FETCH_FILE_CHUNKS_MAX,
               "a tokenizer can be asked for");
_Static_assert(TW_FETCH_ASKED_MAX >= 2 * (TW_PEERS_MAX - 1), "slow peers do not use it up");

struct file_state {
    uint32_t word; /* index of the first word of this file's bits */
    uint16_t chunks, left, under_way;
};

struct ask {
    uint64_t asked_us;
    uint32_t file, idx;
    bool is_late; /* the peer fell silent: the chunk may be requested from others */
    bool is_twin; /* the same chunk is requested from another peer too */
};

struct miss {
    uint64_t until_us;
    uint32_t file;
};

struct fetch_peer {
    bool is_up;
    bool is_silent;
    bool is_partial;  /* the peer sent MISSING, so it is still fetching files itself */
    bool has_sent;    /* the peer sent a chunk since PEER_UP */
    uint8_t silences; /* number of silences in a row */
    struct tw_id id;
    uint64_t seed;            /* determines the order in which the peer fetches files */
    uint64_t banned_until_us; /* 0: not banned */
    uint64_t heard_us;        /* arrival of the peer's last chunk, or the time of a request to an
                                 idle peer if later */
    uint64_t retry_us;        /* time at which a silent peer gets its next request */
    uint64_t sent_us;         /* arrival of the last requested chunk */
    uint32_t chunk_us;        /* time per chunk; 0: not known */
    uint64_t chunks_taken;
    uint32_t current; /* file last requested from this peer, if it is partial */
    /* There is nothing to request from this peer until idle_us, unless `changes` differs from
     * idle_changes. */
    uint64_t idle_us, idle_changes;
    uint32_t asks_count, misses_count;
    struct ask asks[TW_FETCH_WINDOW_MAX];
    struct miss misses[TW_FETCH_MISSES_MAX];
};

struct check {
    bool is_used;
    bool is_stale; /* the file was restarted or lost since, so the answer is ignored */
    uint32_t file, idx, size;
    struct tw_id from;
};

/* The one plain file that is being fetched. */
struct plain {
    bool is_active, is_checking;
    uint16_t source; /* peer number; TW_FETCH_NO_PEER: the source left while the whole file was
                        checked */
    uint32_t file;
    uint32_t checks;   /* open checks of plain files, stale ones included; a new file starts only at
                          0 */
    uint32_t attempts; /* number of sources that failed */
    uint64_t until_us; /* time at which another source is tried */
    struct tw_id from; /* id of the source */
};

struct tw_fetch {
    struct tw_id self, index_hash;
    uint64_t seed, now_us, deadline_us, pause_us;
    struct tw_rate *download; /* NULL: no cap */
    uint64_t paid_us;         /* when the download cap last paid for a chunk */
    uint64_t
        changes; /* number of events so far after which an idle peer may have chunks to request */
    bool is_started, has_index, needs_order;
    uint16_t turn;
    uint32_t under_way;
    struct plain plain;
    struct file_state index;
    uint64_t index_bits;
    uint32_t index_bytes;

    /* the caller's memory */
    const struct tw_fetch_file *files;
    struct file_state *states; /* (files_count) */
    uint32_t *order;           /* (files_count) */
    uint64_t *bits;
    uint32_t files_count;
    uint32_t order_begin; /* number of files at the start of the order that are all whole */
    uint32_t first;       /* training shard to complete first, or TW_FETCH_INDEX: none */

    uint32_t files_whole, train_whole;
    uint64_t bytes_whole, bytes_here, bytes_count;
    uint64_t chunks_taken, chunks_dropped;

    struct fetch_peer peers[TW_PEERS_MAX];
    struct check checks[TW_FETCH_ASKED_MAX];
    struct tw_penalty bans[TW_FETCH_BANS_MAX];
    struct tw_fetch_action actions[ACTIONS_MAX];
    uint32_t actions_begin, actions_end;
};

/* fetch.c: requests of peers. */
void tw_fetch_wake(struct tw_fetch *fetch, uint64_t at_us);
uint32_t tw_fetch_room(const struct tw_fetch *fetch, const struct fetch_peer *peer);
bool tw_fetch_lacks(const struct fetch_peer *peer, uint32_t file, uint64_t now_us);
void tw_fetch_ask(struct tw_fetch *fetch, uint16_t at, uint32_t file, uint32_t first,
                  uint32_t count);
void tw_fetch_plain_begin(struct tw_fetch *fetch, uint32_t file, uint16_t source);

/* fetch_choose.c: files, their chunks and their order. */
struct file_state *tw_fetch_state(struct tw_fetch *fetch, uint32_t file);
const struct tw_id *tw_fetch_hash(const struct tw_fetch *fetch, uint32_t file);
bool tw_fetch_is_plain(const struct tw_fetch *fetch, uint32_t file);
bool tw_fetch_is_here(const struct tw_fetch *fetch, uint32_t file, uint32_t idx);
/* True if chunk 0 must arrive before others can be requested: a head, or the first chunk of an
 * index of unknown size. */
bool tw_fetch_needs_first(const struct tw_fetch *fetch, uint32_t file);
/* Returns the size that the chunk must have; 0: any (chunk 0 of an index of unknown size). */
uint32_t tw_fetch_size(const struct tw_fetch *fetch, uint32_t file, uint32_t idx);
void tw_fetch_put(struct tw_fetch *fetch, uint32_t file, uint32_t idx);
void tw_fetch_clear(struct tw_fetch *fetch, uint32_t file);
/* Counts a file that became whole. */
void tw_fetch_is_whole(struct tw_fetch *fetch, uint32_t file);
void tw_fetch_sort(struct tw_fetch *fetch);
/* Requests as many chunks from a peer as its window allows. */
void tw_fetch_fill(struct tw_fetch *fetch, uint16_t at);

#endif
