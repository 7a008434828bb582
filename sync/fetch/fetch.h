/* fetch.h - who is asked for which chunk of the dataset: a pure state machine beside tw_node.
 *
 *      tw_fetch_event(), tw_fetch_chunk()  -->  tw_fetch_next_action()  -->  PULL, CHECK, WHOLE,
 * ...
 *
 * No socket, clock, file, float or heap; memory comes from the caller. Same calls, times and ids
 * give the same actions. Bytes never pass through here: the shell stores and hashes them, and says
 * how that went. PROTOCOL.md section 9 has the wire: no messages but PULL, MISSING and CHUNK.
 *
 * Two kinds of files:
 *
 *   plain    the index and tokenizer.json: chunk k is bytes [k, k + 1) x 256 KiB. All chunks come
 *            from one peer and are checked as a whole; if they are wrong, it is known who lied.
 *   sharded  head_bytes > 0: chunk 0 is the head, whose SHA-256 is the file's hash; chunk k is
 *            piece k - 1, whose digest is in the head. Every chunk is checked by itself, so they
 *            come from many peers at once. Pieces are asked for when the head is here and right.
 *
 * How a shell drives it:
 *
 *   start      tw_fetch_init. If the index is not in the folder: TW_FETCH_START, and it comes.
 *   files      When the index is there, whoever brought it: decode it, list its files, give
 *              tw_fetch_plan()'s memory to tw_fetch_files, then tell with tw_fetch_have_file and
 *              tw_fetch_have what the folder has already. Nothing is asked before the next event.
 *   links      TW_FETCH_PEER_UP and DOWN as tw_node gets them. Peer numbers are the shell's.
 *   MISSING    Every MISSING a peer sends: TW_FETCH_MISSING. One out of place is passed over.
 *   CHUNK      tw_fetch_chunk says what to do with the bytes: TAKE them (with a ticket), DROP
 *              them, or UNKNOWN: not this machine's, hand it to tw_node. What is taken is checked
 *              (sharded) and stored where tw_fetch_range says, on a thread, and answered exactly
 *              once by TW_FETCH_STORED with the ticket, also when the peer has gone or the file
 *              was LOST meanwhile. The answer for chunk 0 of the index tells how long the index
 *              is: tw_dataset_size (WRONG if that refuses it).
 *   PULL       Send it to `peer`.
 *   CHECK      A plain file is here whole: hash it, answer with TW_FETCH_CHECKED. The index:
 *              WRONG, FAILED, or OK and then (decoded) tw_fetch_files.
 *   WHOLE      All chunks of the file are here and right: make it durable under its name, serve
 *              it. Not sent for what tw_fetch_have_file told.
 *   STRIKE     The peer sent what is not the file's. It is asked for nothing for 10 min, and twice
 *              as long every further time, known by its id through any number of links. Log it;
 *              the link may live on.
 *   deadline   TW_FETCH_TICK when it has passed.
 *
 * After every call but the questions (deadline, view, range) take all actions before the next call.
 *
 * Order: index; one training shard (the one of which most is here already); tokenizer and held-out
 * shards; the other shards, begun ones first, in an order that follows from this node's id, so that
 * nodes that join together fetch different shards and then serve each other. A peer that lacks
 * files (it said MISSING) is a joiner itself: it is asked in the order in which it fetches.
 *
 * Per peer 1 chunk is under way at first, then what comes in half a second, 2 to 8; in all at most
 * TW_FETCH_ASKED_MAX, those included that the shell is storing: more than this (256 KiB each) a
 * shell never holds. A file that somebody lacks is asked of him again after 30 s, and at most 32
 * files in 30 s. Who sends nothing for 10 s and 4 times its usual time per chunk gets no further
 * question, and others may be asked for its chunks; what it sends late is welcome; after 60 s (then
 * 120 s, ... 16 min) it is tried again with one chunk. Apart from such, no two copies of a chunk
 * are ever on their way, except where a slow peer holds up the end, or the first shard: then a
 * faster one with nothing else to do is asked too, two at most. The source of a plain file is left
 * for another, if there is one, when it is silent, or after 30 s and 1 s per chunk, then twice as
 * long, and so on.
 *
 * What is trusted: the shell, and the list of files, whose index has the right SHA-256. Nothing a
 * peer says: chunks nobody asked of it and MISSING out of place change nothing, wrong sizes and
 * wrong bytes are strikes, and no count or table grows with what a peer does. */
#ifndef TW_SYNC_FETCH_FETCH_H
#define TW_SYNC_FETCH_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"
#include "base/status.h"
#include "proto/dataset.h"

enum {
    TW_FETCH_FILES_MAX = TW_DATASET_SHARDS_MAX + 1,
    TW_FETCH_FILE_CHUNKS_MAX = 4096, /* what PULL and CHUNK can name */
    TW_FETCH_WINDOW_MAX = 8,         /* chunks under way from one peer */
    TW_FETCH_ASKED_MAX = 128,        /* chunks under way or being stored, of all peers */
    TW_FETCH_MISSES_MAX = 32,        /* files remembered per peer as missing there */
    TW_FETCH_BANS_MAX = 128,         /* ids with strikes; the one that ends first gives way */

    TW_FETCH_AHEAD_US = 500 * 1000,           /* a window holds what comes in this time */
    TW_FETCH_MISSING_US = 30 * 1000 * 1000,   /* then a file is asked of the same peer again */
    TW_FETCH_SILENT_US = 10 * 1000 * 1000,    /* + 4 times the peer's time per chunk */
    TW_FETCH_CHUNK_US_MAX = 30 * 1000 * 1000, /* the most that counts as time per chunk */
    TW_FETCH_RETRY_US = 60 * 1000 * 1000,     /* a silent peer is tried again; doubles 4 times */
    TW_FETCH_STARVED_US = 10 * 1000 * 1000,   /* under a cap that others use up: one chunk */
    TW_FETCH_AGED_US = 2 * 1000 * 1000,       /* at the end, what is younger is not asked twice */
    TW_FETCH_PLAIN_US = 30 * 1000 * 1000,     /* for a plain file, + TW_FETCH_PLAIN_CHUNK_US each */
    TW_FETCH_PLAIN_CHUNK_US = 1000 * 1000,
    TW_FETCH_FAILED_US = 10 * 1000 * 1000, /* nothing is asked after the shell could not store */
};

#define TW_FETCH_INDEX UINT32_MAX /* the number of the index as a file */
#define TW_FETCH_NO_PEER UINT16_MAX

enum tw_fetch_kind { TW_FETCH_TRAIN, TW_FETCH_HELDOUT, TW_FETCH_TOKENIZER };

/* One file of the dataset, from its index. Its number is its place in the list. */
struct tw_fetch_file {
    struct tw_id hash; /* by which it is asked for */
    uint64_t bytes;
    uint32_t head_bytes; /* 0: plain */
    enum tw_fetch_kind kind;
};

/* Chunks of a file: what the index can say, at least 1. */
uint32_t tw_fetch_chunks(const struct tw_fetch_file *file);

/* Where chunk idx < tw_fetch_chunks lies in the file: who fetches and who serves agree on it. */
void tw_fetch_range(const struct tw_fetch_file *file, uint32_t idx, uint64_t *offset,
                    uint32_t *bytes);

/* ---- events ------------------------------------------------------------------------------- */

enum tw_fetch_event_kind {
    TW_FETCH_TICK,      /* the deadline passed */
    TW_FETCH_START,     /* get the index named `id` */
    TW_FETCH_PEER_UP,   /* `peer`, `id` */
    TW_FETCH_PEER_DOWN, /* `peer` */
    TW_FETCH_MISSING,   /* `peer` does not hold the file named `id` */
    TW_FETCH_STORED,    /* `ticket` of a taken chunk: `result`, `index_bytes` */
    TW_FETCH_CHECKED,   /* answers CHECK of `file`: `result` */
    TW_FETCH_LOST,      /* `file` (whole or not) is damaged or gone: all of it is wanted again */
};

enum tw_fetch_result {
    TW_FETCH_OK,
    TW_FETCH_WRONG,  /* not the bytes that the hash names: a strike */
    TW_FETCH_FAILED, /* could not be stored or read here: nobody's fault, asked again after 10 s */
};

struct tw_fetch_event {
    enum tw_fetch_event_kind kind;
    uint16_t peer; /* < TW_PEERS_MAX */
    uint32_t ticket;
    uint32_t file; /* CHECKED, LOST */
    enum tw_fetch_result result;
    uint32_t index_bytes; /* STORED and OK, chunk 0 of the index: 1 to TW_DATASET_BYTES_MAX */
    struct tw_id id;
};

/* ---- actions ------------------------------------------------------------------------------ */

enum tw_fetch_action_kind {
    TW_FETCH_PULL,   /* send PULL{hash, first, count} to `peer` */
    TW_FETCH_CHECK,  /* all chunks of plain `file` are here: is its SHA-256 `hash`? */
    TW_FETCH_WHOLE,  /* `file` is here and right */
    TW_FETCH_STRIKE, /* the node `id` sent a wrong chunk of `file`; `peer`, or TW_FETCH_NO_PEER when
                        it has gone; `until_us`: when it is asked again, `count`: strikes so far */
};

struct tw_fetch_action {
    enum tw_fetch_action_kind kind;
    uint16_t peer;
    uint32_t file;
    uint32_t first, count; /* PULL: chunks */
    struct tw_id hash;     /* PULL, CHECK: of the file */
    struct tw_id id;       /* STRIKE */
    uint64_t until_us;     /* STRIKE */
};

/* ---- the machine -------------------------------------------------------------------------- */

/* Opaque: allocate tw_fetch_bytes() (some 40 KB) aligned to 64 and pass it in. */
struct tw_fetch;

size_t tw_fetch_bytes(void);

/* Without peers, files or anything to do. `self`: this node's id. */
void tw_fetch_init(struct tw_fetch *fetch, const struct tw_id *self, uint64_t now_us);

/* What is asked for is paid from `download`, in bytes: borrowed as long as `fetch` is used. Others
 * who pay from it go first: there is a chunk for this one when it is full, and one in ten seconds
 * where it never is. NULL: no cap. */
void tw_fetch_set_download(struct tw_fetch *fetch, struct tw_rate *download);

/* Memory that the files need: a bit per chunk (rounded up to 64 per file) and 16 bytes per file. At
 * most 35 MB, for 64 TB of data. TW_LIMIT: too many files, or a file of no or too many chunks, with
 * its number. */
enum tw_status tw_fetch_plan(const struct tw_fetch_file *files, uint32_t count, size_t *bytes,
                             struct tw_error *err);

/* The index is known. files (count), as planned, and memory (tw_fetch_plan's bytes, aligned to 8)
 * are borrowed as long as `fetch` is used. Nothing counts as here. Once, without an index on its
 * way: before START, or after CHECKED OK. */
void tw_fetch_files(struct tw_fetch *fetch, const struct tw_fetch_file *files, uint32_t count,
                    void *memory, uint64_t now_us);

/* The folder has this file, or this chunk of a sharded file, checked: at the start, or at any time
 * (somebody copied it in). The last chunk of a file makes it WHOLE. */
void tw_fetch_have_file(struct tw_fetch *fetch, uint32_t file);
void tw_fetch_have(struct tw_fetch *fetch, uint32_t file, uint32_t idx);

/* Advances the machine. `now_us` is any monotonic clock and never goes back. Cannot fail. */
void tw_fetch_event(struct tw_fetch *fetch, const struct tw_fetch_event *event, uint64_t now_us);

enum tw_fetch_verdict {
    TW_FETCH_UNKNOWN, /* not asked of this peer, or not any more */
    TW_FETCH_DROP,    /* asked, but not needed any more, or of the wrong size (STRIKE follows) */
    TW_FETCH_TAKE,    /* check and store it; answer STORED with the ticket */
};

/* What a chunk from a peer is to be done with. */
struct tw_fetch_arrival {
    uint16_t peer;
    struct tw_id hash;
    uint32_t idx, size;
};

struct tw_fetch_taken {
    uint32_t ticket; /* < TW_FETCH_ASKED_MAX; free again after STORED */
    uint32_t file;   /* its number, or TW_FETCH_INDEX */
};

/* A chunk has come; `taken` is filled in for TAKE. */
enum tw_fetch_verdict tw_fetch_chunk(struct tw_fetch *fetch, const struct tw_fetch_arrival *arrival,
                                     struct tw_fetch_taken *taken, uint64_t now_us);

/* Pops the oldest action. False when there is none. */
bool tw_fetch_next_action(struct tw_fetch *fetch, struct tw_fetch_action *action);

/* When TW_FETCH_TICK is due, in us; UINT64_MAX for never. */
uint64_t tw_fetch_deadline(const struct tw_fetch *fetch);

/* ---- view --------------------------------------------------------------------------------- */

enum tw_fetch_stage {
    TW_FETCH_IDLE,   /* nothing was asked of it */
    TW_FETCH_STARTS, /* gets the index */
    TW_FETCH_FIRST,  /* gets the first training shard */
    TW_FETCH_REST,   /* gets the others */
    TW_FETCH_DONE,   /* all files are whole */
};

struct tw_fetch_view {
    enum tw_fetch_stage stage;
    uint32_t files_whole, files_count; /* without the index */
    uint32_t train_whole;              /* training shards: training can start from 1 on */
    uint64_t bytes_whole, bytes_here, bytes_count; /* of whole files; of chunks; of all files */
    /* The file that is nearest: in STARTS the index, in FIRST the training shard of which most is
     * here, else the first in the order that is not whole. */
    uint32_t file, chunks_here, chunks_count; /* chunks_count 0: not known yet */
    uint32_t asked;                           /* chunks under way */
    uint64_t chunks_taken, chunks_dropped; /* ever; dropped: asked for, but not needed any more */
    struct {
        bool is_up;
        bool is_giving;           /* sent a chunk within the last 30 s */
        bool is_lacking;          /* said MISSING for `file` within the last 30 s */
        bool is_silent;           /* asked, and does not answer */
        uint64_t banned_until_us; /* 0: not banned */
        uint32_t asked;
        uint32_t chunk_us;     /* usual time per chunk; 0: none came yet */
        uint64_t chunks_taken; /* since PEER_UP */
    } peers[TW_PEERS_MAX];
};

void tw_fetch_view(const struct tw_fetch *fetch, uint64_t now_us, struct tw_fetch_view *view);

#endif
