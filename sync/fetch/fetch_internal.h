/* fetch_internal.h - the fetcher from inside. Private to fetch*.c.
 *
 * A chunk of a file is in one of these states; only the first two are stored, the rest follows:
 *
 *   here     its bit is set
 *   stored   a `check` names it: the shell has its bytes
 *   asked    an `ask` of a peer names it that is not late
 *   wanted   none of these: somebody is to be asked for it
 *
 * What always holds:
 *   1  under_way = asks that are not late + checks in use <= TW_FETCH_ASKED_MAX
 *   2  state.under_way of a file = asks of it that are not late + its checks that are not stale
 *   3  state.left = clear bits of the file (the index, while its size is not known: of 64)
 *   4  asks of a plain file are of plain.source alone, and only while plain.is_active
 *   5  a peer that is silent, banned or down is asked for nothing; only a silent one has late asks,
 *      or one that was and has sent something since */
#ifndef TW_SYNC_FETCH_FETCH_INTERNAL_H
#define TW_SYNC_FETCH_FETCH_INTERNAL_H

#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "sync/fetch/fetch.h"
#include "sync/trust/penalty.h"

enum {
    WORDS_MAX = TW_FETCH_FILE_CHUNKS_MAX / 64,
    INDEX_CHUNKS_MAX = TW_DATASET_BYTES_MAX / TW_CHUNK_BYTES_MAX,
    /* After one event: a PULL per chunk under way, and what that event itself was about. */
    ACTIONS_MAX = TW_FETCH_ASKED_MAX + 8,
};

_Static_assert(INDEX_CHUNKS_MAX <= 64, "the index has one word of bits");
_Static_assert(TW_DATASET_TOKENIZER_BYTES_MAX / TW_CHUNK_BYTES_MAX <= TW_FETCH_FILE_CHUNKS_MAX,
               "a tokenizer can be asked for");
_Static_assert(TW_FETCH_ASKED_MAX >= 2 * (TW_PEERS_MAX - 1), "slow peers do not use it up");

struct file_state {
    uint32_t word; /* where its bits begin */
    uint16_t chunks, left, under_way;
};

struct ask {
    uint64_t asked_us;
    uint32_t file, idx;
    bool is_late; /* the peer fell silent: others may be asked */
    bool is_twin; /* asked of two peers */
};

struct miss {
    uint64_t until_us;
    uint32_t file;
};

struct fetch_peer {
    bool is_up;
    bool is_silent;
    bool is_partial; /* said MISSING once: a joiner itself */
    bool has_sent;   /* since PEER_UP */
    uint8_t silences;
    struct tw_id id;
    uint64_t seed;            /* of the order in which it fetches */
    uint64_t banned_until_us; /* 0: not banned */
    uint64_t heard_us; /* last chunk, or when it was asked for the first of those under way */
    uint64_t retry_us; /* silent: when it is tried again */
    uint64_t sent_us;  /* last chunk that was asked for */
    uint32_t chunk_us; /* 0: not known */
    uint64_t chunks_taken;
    uint32_t current; /* partial: the file it was asked for last */
    /* Nothing to ask of it until idle_us, unless `changes` has moved on. */
    uint64_t idle_us, idle_changes;
    uint32_t asks_count, misses_count;
    struct ask asks[TW_FETCH_WINDOW_MAX];
    struct miss misses[TW_FETCH_MISSES_MAX];
};

struct check {
    bool is_used;
    bool is_stale; /* of a plain file that was begun anew, or of a lost one: its answer is void */
    uint32_t file, idx, size;
    struct tw_id from;
};

/* The one plain file that is being fetched. */
struct plain {
    bool is_active, is_checking;
    uint16_t source; /* TW_FETCH_NO_PEER: it has gone, while all of it was being checked */
    uint32_t file;
    uint32_t checks; /* of plain files, stale ones too: none may be open when another is begun */
    uint32_t attempts;
    uint64_t until_us; /* then another source is tried */
    struct tw_id from;
};

struct tw_fetch {
    struct tw_id self, index_hash;
    uint64_t seed, now_us, deadline_us, pause_us;
    struct tw_rate *download; /* NULL: no cap */
    uint64_t paid_us;         /* when something was asked for last */
    uint64_t changes;         /* counts what may give an idle peer something to do */
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
    uint32_t order_begin; /* all before it are whole */
    uint32_t first;       /* the training shard that is to be whole first, or TW_FETCH_INDEX */

    uint32_t files_whole, train_whole;
    uint64_t bytes_whole, bytes_here, bytes_count;
    uint64_t chunks_taken, chunks_dropped;

    struct fetch_peer peers[TW_PEERS_MAX];
    struct check checks[TW_FETCH_ASKED_MAX];
    struct tw_penalty bans[TW_FETCH_BANS_MAX];
    struct tw_fetch_action actions[ACTIONS_MAX];
    uint32_t actions_begin, actions_end;
};

/* fetch.c */
struct tw_fetch_action *tw_fetch_act(struct tw_fetch *fetch, enum tw_fetch_action_kind kind,
                                     uint32_t file);
void tw_fetch_wake(struct tw_fetch *fetch, uint64_t at_us);
/* Until a chunk may be asked for under the download cap. */
uint64_t tw_fetch_credit_us(const struct tw_fetch *fetch);

/* fetch_file.c */
struct file_state *tw_fetch_state(struct tw_fetch *fetch, uint32_t file);
const struct tw_id *tw_fetch_hash(const struct tw_fetch *fetch, uint32_t file);
bool tw_fetch_is_plain(const struct tw_fetch *fetch, uint32_t file);
const uint64_t *tw_fetch_bits(const struct tw_fetch *fetch, uint32_t file);
bool tw_fetch_is_here(const struct tw_fetch *fetch, uint32_t file, uint32_t idx);
/* Chunk 0 must be here before others can be asked for: a head, or an index of unknown size. */
bool tw_fetch_needs_first(const struct tw_fetch *fetch, uint32_t file);
/* What the chunk must have; 0: any size (the beginning of the index). */
uint32_t tw_fetch_size(const struct tw_fetch *fetch, uint32_t file, uint32_t idx);
void tw_fetch_put(struct tw_fetch *fetch, uint32_t file, uint32_t idx);
void tw_fetch_clear(struct tw_fetch *fetch, uint32_t file);
void tw_fetch_is_whole(struct tw_fetch *fetch, uint32_t file); /* counts it */
void tw_fetch_sort(struct tw_fetch *fetch);
uint64_t tw_fetch_rank(uint64_t seed, uint32_t file);

/* fetch_peer.c */
bool tw_fetch_can_ask(const struct fetch_peer *peer);
uint32_t tw_fetch_room(const struct tw_fetch *fetch, const struct fetch_peer *peer);
bool tw_fetch_lacks(const struct fetch_peer *peer, uint32_t file, uint64_t now_us);
void tw_fetch_miss(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file);
void tw_fetch_ask(struct tw_fetch *fetch, uint16_t at, uint32_t file, uint32_t first,
                  uint32_t count);
void tw_fetch_unask(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t i);
/* Forgets all asks of a file, or of every file: TW_FETCH_ALL. */
enum { TW_FETCH_ALL = TW_FETCH_FILES_MAX };
void tw_fetch_forget(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file);
void tw_fetch_peer_up(struct tw_fetch *fetch, uint16_t at, const struct tw_id *id);
void tw_fetch_peer_down(struct tw_fetch *fetch, uint16_t at);
void tw_fetch_peer_sent(struct tw_fetch *fetch, struct fetch_peer *peer, const struct ask *ask,
                        uint32_t size);
void tw_fetch_peer_walk(struct tw_fetch *fetch, uint16_t at);
void tw_fetch_peer_wake(struct tw_fetch *fetch, const struct fetch_peer *peer);
void tw_fetch_strike(struct tw_fetch *fetch, const struct tw_id *id, uint32_t file);

/* fetch_plain.c */
void tw_fetch_plain_begin(struct tw_fetch *fetch, uint32_t file, uint16_t source);
void tw_fetch_plain_reset(struct tw_fetch *fetch);
void tw_fetch_plain_walk(struct tw_fetch *fetch);
/* The first chunk of the index came and told how long it is. False: that cannot be. */
bool tw_fetch_plain_sized(struct tw_fetch *fetch, uint32_t index_bytes, uint32_t chunk_bytes);
/* A chunk of it was stored. */
void tw_fetch_plain_stored(struct tw_fetch *fetch);
/* The file is here, or lost: whoever was its source is not any more. */
void tw_fetch_plain_left(struct tw_fetch *fetch, uint32_t file);
void tw_fetch_plain_checked(struct tw_fetch *fetch, uint32_t file, enum tw_fetch_result result);

/* fetch_choose.c: asks a peer for all that it has room for. */
void tw_fetch_fill(struct tw_fetch *fetch, uint16_t at);

#endif
