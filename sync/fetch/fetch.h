/* fetch.h - which peer is asked for which chunk of the dataset: a pure state machine.
 *
 *      tw_fetch_event(), tw_fetch_chunk()  -->  tw_fetch_next_action()  -->  PULL, CHECK, ...
 *
 * No socket, clock, file, float or heap; memory comes from the caller. Same calls, times and ids
 * give the same actions. Bytes never pass through the fetcher: the runtime stores and hashes them,
 * and reports the result. PROTOCOL.md section 9 describes the wire: PULL, MISSING and CHUNK.
 *
 * Two kinds of files:
 *
 *   plain    the index and tokenizer.json: chunk k is bytes [k, k + 1) * 256 KiB. All chunks come
 *            from one peer, and the file is checked as a whole. Wrong bytes thus have a known
 *            sender.
 *   sharded  head_bytes > 0: chunk 0 is the head, whose SHA-256 is the file's hash. Chunk k is
 *            piece k - 1, whose digest is in the head. Every chunk is checked by itself, so they
 *            come from many peers at once. Pieces are requested once the head is verified.
 *
 * How the runtime drives it:
 *
 *   start     Call tw_fetch_init. If the index is not in the folder, TW_FETCH_START fetches it.
 *   files     Once the index is in the folder, from any source: decode it and list its files. Give
 *             the memory of tw_fetch_plan() to tw_fetch_files. Then report the chunks that the
 *             folder already has, by tw_fetch_have_file and tw_fetch_have. Nothing is requested
 *             before the next event.
 *   links     Send TW_FETCH_PEER_UP and DOWN, with the same peer numbers as for tw_node.
 *   MISSING   Send TW_FETCH_MISSING for every MISSING that a peer sends. Unexpected ones are
 *             ignored.
 *   CHUNK     Call tw_fetch_chunk, which decides what happens to the bytes. TAKE: check them
 *             (sharded files) and store them where tw_fetch_range says, on a thread. Then send
 *             exactly one TW_FETCH_STORED with the chunk's number, even if the peer left or the
 *             file is LOST. For chunk 0 of the index, STORED carries the size of the index
 *             (tw_dataset_size), and is WRONG if that fails. DROP: discard them. UNKNOWN: hand
 *             them to tw_node.
 *   PULL      Send it to `peer`.
 *   CHECK     All chunks of a plain file are stored: hash it, answer with TW_FETCH_CHECKED. For
 *             the index: WRONG, FAILED, or OK; after OK, decode it and call tw_fetch_files.
 *   WHOLE     All chunks of the file are stored and verified: make it durable under its name and
 *             serve it. Not sent for files reported by tw_fetch_have_file.
 *   STRIKE    The peer sent wrong bytes. Nothing is requested from its id for 10 min, on any link;
 *             for twice as long after each further strike. Log it; the link may stay up.
 *   deadline  Send TW_FETCH_TICK when it has passed.
 *
 * After every call except deadline, view and range, take all actions before the next call.
 *
 * Order: the index; the training shard with the most chunks in this folder; tokenizer and held-out
 * shards; the other shards, begun ones first. The order of the other shards follows from this
 * node's id: nodes that join together fetch different shards and then serve each other. A peer that
 * sent MISSING is itself still fetching. It is asked for files in the order in which it fetches
 * them.
 *
 * Bounds: one chunk is under way per peer at first, then as many as arrive in half a second, 2 to
 * 8. All peers together have at most TW_FETCH_ASKED_MAX chunks (256 KiB each) under way or being
 * stored. A file that a peer lacks is requested from it again after 30 s, for at most 32 files in
 * 30 s.
 *
 * Silence: a peer is silent if it sends nothing for 10 s plus 4 times its usual time per chunk. It
 * gets no more requests, and its chunks may be requested from others; late chunks are accepted. It
 * is tried again with one chunk after 60 s, then 120 s, ... 16 min.
 *
 * Copies: a chunk is requested once, with two exceptions: from a silent peer, and from a slow peer
 * that holds up the end or the first shard. In the second case, a faster idle peer is asked for the
 * same chunk. The source of a plain file is replaced, if there is another, when it is silent or
 * takes longer than 30 s plus 1 s per chunk. This time doubles with each change of source.
 *
 * Trust: the runtime is trusted, and so is the list of files, because the index has the right
 * SHA-256. Peers are not. Unrequested chunks and unexpected MISSING change nothing. Wrong sizes and
 * wrong bytes are strikes. No count or table grows with messages from a peer. */
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
    TW_FETCH_FILE_CHUNKS_MAX = 4096, /* highest chunk number in PULL and CHUNK, plus 1 */
    TW_FETCH_WINDOW_MAX = 8,         /* most chunks under way from one peer */
    TW_FETCH_ASKED_MAX = 128,        /* most chunks under way or being stored, from all peers */
    TW_FETCH_MISSES_MAX = 32,        /* most files that are remembered as missing, per peer */
    TW_FETCH_BANS_MAX = 128,         /* most ids with strikes; a new one replaces the ban that ends
                                        first */

    TW_FETCH_AHEAD_US = 500 * 1000,         /* time that a peer's window of requests covers */
    TW_FETCH_MISSING_US = 30 * 1000 * 1000, /* pause before a missing file is requested again */
    /* silence after which a peer gets no requests, in addition to 4 times its time per chunk */
    TW_FETCH_SILENT_US = 10 * 1000 * 1000,
    TW_FETCH_CHUNK_US_MAX = 30 * 1000 * 1000, /* ceiling of a measured time per chunk */
    /* pause before a silent peer is tried again; doubles 4 times */
    TW_FETCH_RETRY_US = 60 * 1000 * 1000,
    /* longest wait for a chunk while other downloads use up the download cap */
    TW_FETCH_STARVED_US = 10 * 1000 * 1000,
    TW_FETCH_AGED_US = 2 * 1000 * 1000,    /* age from which a chunk may be requested twice */
    TW_FETCH_PLAIN_US = 30 * 1000 * 1000,  /* time allowed for a plain file, in addition to the time
                                              of its chunks */
    TW_FETCH_PLAIN_CHUNK_US = 1000 * 1000, /* time allowed per chunk of a plain file */
    TW_FETCH_FAILED_US = 10 * 1000 * 1000, /* pause after the runtime failed to store a chunk */
};

#define TW_FETCH_INDEX UINT32_MAX /* file number of the index */
#define TW_FETCH_NO_PEER UINT16_MAX

enum tw_fetch_kind { TW_FETCH_TRAIN, TW_FETCH_HELDOUT, TW_FETCH_TOKENIZER };

/* One file of the dataset, from its index. Its position in the list is its number. */
struct tw_fetch_file {
    struct tw_id hash; /* hash for PULL: of the whole file, or of a shard's head */
    uint64_t bytes;
    uint32_t head_bytes; /* 0: plain */
    enum tw_fetch_kind kind;
};

/* Returns the number of chunks of the file, at least 1. */
uint32_t tw_fetch_chunks(const struct tw_fetch_file *file);

/* Computes offset and size in the file of chunk idx < tw_fetch_chunks, for the fetching and the
 * serving side. */
void tw_fetch_range(const struct tw_fetch_file *file, uint32_t idx, uint64_t *offset,
                    uint32_t *bytes);

/* ---- events ------------------------------------------------------------------------------- */

enum tw_fetch_event_kind {
    TW_FETCH_TICK,      /* the deadline passed */
    TW_FETCH_START,     /* fetch the index named `id` */
    TW_FETCH_PEER_UP,   /* `peer`, `id` */
    TW_FETCH_PEER_DOWN, /* `peer` */
    TW_FETCH_MISSING,   /* `peer` does not hold the file named `id` */
    TW_FETCH_STORED,    /* answers TAKE of chunk `number`: `result`, `index_bytes` */
    TW_FETCH_CHECKED,   /* answers CHECK of `file`: `result` */
    TW_FETCH_LOST,      /* `file` (whole or not) is damaged or gone: fetch all of it again */
};

enum tw_fetch_result {
    TW_FETCH_OK,
    TW_FETCH_WRONG,  /* the bytes do not match the hash: a strike */
    TW_FETCH_FAILED, /* a local fault prevented storing or reading: requested again after 10 s */
};

struct tw_fetch_event {
    enum tw_fetch_event_kind kind;
    uint16_t peer; /* < TW_PEERS_MAX */
    uint32_t number;
    uint32_t file; /* CHECKED, LOST */
    enum tw_fetch_result result;
    uint32_t
        index_bytes; /* size of the index, with OK for its chunk 0: 1 to TW_DATASET_BYTES_MAX */
    struct tw_id id;
};

/* ---- actions ------------------------------------------------------------------------------ */

enum tw_fetch_action_kind {
    TW_FETCH_PULL,   /* send PULL{hash, first, count} to `peer` */
    TW_FETCH_CHECK,  /* all chunks of plain `file` are stored: check its SHA-256 against `hash` */
    TW_FETCH_WHOLE,  /* `file` is whole and verified */
    TW_FETCH_STRIKE, /* node `id` sent a wrong chunk of `file`. `peer`: its link, or
                        TW_FETCH_NO_PEER if it is down; `count`: its strikes so far */
};

struct tw_fetch_action {
    enum tw_fetch_action_kind kind;
    uint16_t peer;
    uint32_t file;
    uint32_t first, count; /* PULL: chunks */
    struct tw_id hash;     /* PULL, CHECK: hash of the file */
    struct tw_id id;       /* STRIKE */
    uint64_t until_us;     /* STRIKE: when the node may be asked again */
};

/* ---- the machine -------------------------------------------------------------------------- */

/* Opaque: allocate tw_fetch_bytes() (some 40 KB) aligned to 64 and pass it in. */
struct tw_fetch;

size_t tw_fetch_bytes(void);

/* Starts without peers and files, idle. `self`: this node's id. */
void tw_fetch_init(struct tw_fetch *fetch, const struct tw_id *self, uint64_t now_us);

/* Charges the bytes of requested chunks to `download`, which is borrowed as long as `fetch` is
 * used. Other downloads go first: the fetcher requests a chunk only when `download` is full, or has
 * paid for none of its chunks for 10 s. NULL: no cap. */
void tw_fetch_set_download(struct tw_fetch *fetch, struct tw_rate *download);

/* Computes the memory that the files need: a bit per chunk (rounded up to 64 per file) and 16 bytes
 * per file. At most 35 MB, for 64 TB of data. Returns TW_LIMIT for too many files, or a file
 * without chunks or with too many; the error names its number. */
enum tw_status tw_fetch_plan(const struct tw_fetch_file *files, uint32_t count, size_t *bytes,
                             struct tw_error *err);

/* Sets the files of the index, all of which count as missing. `files` and `count` are the arguments
 * of tw_fetch_plan. `memory` has the size that it computed, aligned to 8. Both are borrowed as long
 * as `fetch` is used. Called once, while no index is being fetched: before START, or after CHECKED
 * with OK. */
void tw_fetch_files(struct tw_fetch *fetch, const struct tw_fetch_file *files, uint32_t count,
                    void *memory, uint64_t now_us);

/* Report that the folder has this verified file, or this verified chunk of a sharded file. Called
 * at the start, or whenever a file was copied in. The last chunk of a file makes it WHOLE. */
void tw_fetch_have_file(struct tw_fetch *fetch, uint32_t file);
void tw_fetch_have(struct tw_fetch *fetch, uint32_t file, uint32_t idx);

/* Advances the machine. `now_us` is any monotonic clock and never goes back. Cannot fail. */
void tw_fetch_event(struct tw_fetch *fetch, const struct tw_fetch_event *event, uint64_t now_us);

enum tw_fetch_verdict {
    TW_FETCH_UNKNOWN, /* the chunk was not requested from this peer, or no longer counts as
                         requested */
    TW_FETCH_DROP, /* the chunk is no longer needed, or has the wrong size (then STRIKE follows) */
    TW_FETCH_TAKE, /* check and store the chunk; answer STORED with its number */
};

/* A chunk that a peer sent. */
struct tw_fetch_arrival {
    uint16_t peer;
    struct tw_id hash;
    uint32_t idx, size;
};

struct tw_fetch_taken {
    uint32_t number; /* number of the chunk, < TW_FETCH_ASKED_MAX; free again after STORED */
    uint32_t file;   /* number of the file, or TW_FETCH_INDEX */
};

/* Judges a chunk that a peer sent: take, drop or unknown. Fills *taken for TAKE. */
enum tw_fetch_verdict tw_fetch_chunk(struct tw_fetch *fetch, const struct tw_fetch_arrival *arrival,
                                     struct tw_fetch_taken *taken, uint64_t now_us);

/* Pops the oldest action. Returns false if there is none. */
bool tw_fetch_next_action(struct tw_fetch *fetch, struct tw_fetch_action *action);

/* Returns the time at which TW_FETCH_TICK is due, in us; UINT64_MAX for never. */
uint64_t tw_fetch_deadline(const struct tw_fetch *fetch);

/* ---- view --------------------------------------------------------------------------------- */

enum tw_fetch_stage {
    TW_FETCH_IDLE,   /* not started */
    TW_FETCH_STARTS, /* fetches the index */
    TW_FETCH_FIRST,  /* fetches the first training shard */
    TW_FETCH_REST,   /* fetches the other files */
    TW_FETCH_DONE,   /* all files are whole */
};

struct tw_fetch_view {
    enum tw_fetch_stage stage;
    uint32_t files_whole, files_count; /* complete files, and all files, without the index */
    uint32_t train_whole;              /* whole training shards; training needs one */
    uint64_t bytes_whole, bytes_here,
        bytes_count; /* bytes of whole files; of chunks in the folder; of all files */
    /* The file that is fetched now. STARTS: the index. FIRST: the training shard with the most
     * chunks in the folder. Otherwise: the first file in the order that is not whole. */
    uint32_t file, chunks_here, chunks_count; /* chunks_count: 0 if not known yet */
    uint32_t asked;                           /* chunks under way */
    uint64_t chunks_taken,
        chunks_dropped; /* chunks received since the start; dropped: no longer needed on arrival */
    struct {
        bool is_up;
        bool is_giving;           /* the peer sent a chunk within the last 30 s */
        bool is_lacking;          /* the peer sent MISSING for `file` within the last 30 s */
        bool is_silent;           /* the peer does not answer requests */
        uint64_t banned_until_us; /* 0: not banned */
        uint32_t asked;           /* chunks requested from the peer and under way */
        uint32_t chunk_us;        /* usual time per chunk; 0: not measured yet */
        uint64_t chunks_taken;    /* since PEER_UP */
    } peers[TW_PEERS_MAX];
};

void tw_fetch_view(const struct tw_fetch *fetch, uint64_t now_us, struct tw_fetch_view *view);

#endif
