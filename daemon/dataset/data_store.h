/* data_store.h - non-blocking use of a dataset's folder from the loop. Arriving chunks are checked
 * and written on libuv's thread pool, one operation at a time, in order of arrival.
 *
 *      take, check, finish --> queue --> a thread: data_folder.h --> the loop: an answer
 *
 * A full or failing disk stops the queue, not the daemon: the first operation is repeated every
 * TW_DATA_RETRY_MS until it succeeds. The queue is bounded, because sync/fetch/fetch.h requests at
 * most TW_FETCH_ASKED_MAX chunks at a time. While the disk is full, it requests no more.
 *
 * Invariants: 1. Only the thread opens .part files or changes the folder, and only while is_busy.
 * The loop may read files, the index and folder.rows (the state of each file) after `opened`
 * returned TW_OK. Only the loop changes folder.rows. 2. Each chunk has the number that
 * tw_fetch_chunk gave it. Exactly one `stored` answers it. */
#ifndef TW_DAEMON_DATASET_DATA_STORE_H
#define TW_DAEMON_DATASET_DATA_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/dataset/data_folder.h"
#include "daemon/net/transport.h"
#include "proto/message.h"
#include "sync/fetch/fetch.h"

enum {
    TW_DATA_OPS_MAX = 2 * TW_FETCH_ASKED_MAX,
    TW_DATA_PARTS_OPEN = 8, /* maximum number of .part files open at a time */
    TW_DATA_PARTS_FOUND_MAX =
        64, /* most .part files resumed at the start; the others are deleted */
    TW_DATA_RETRY_MS = 5000,
};

/* An incomplete file found when the folder was opened, with a bit for every correct chunk. */
struct tw_data_found {
    uint32_t file;
    uint64_t have[TW_FETCH_FILE_CHUNKS_MAX / 64];
};

/* Callbacks on the loop, never from inside a function of the store. */
struct tw_data_store_events {
    /* Answers tw_data_store_create:
     *
     * - TW_OK: the files, and the parts found, are known
     * - TW_AGAIN: there is no index
     * - TW_DATA, TW_VERSION, TW_LIMIT, TW_CORRUPT: the dataset is unusable, now and later */
    void (*opened)(void *user, enum tw_status status, const char *sentence);
    void (*stored)(void *user, uint32_t number, enum tw_fetch_result result, uint32_t index_bytes);
    /* Answers tw_data_store_check. TW_CORRUPT: wrong bytes. For the index, TW_OK, TW_DATA,
     * TW_VERSION and TW_LIMIT mean the same as in `opened`. */
    void (*checked)(void *user, uint32_t file, enum tw_status status, const char *sentence);
    /* Answers tw_data_store_finish: the file is whole, or the disk lost its contents. */
    void (*finished)(void *user, uint32_t file, bool is_whole);
    /* Reports why the disk fails, or NULL once it works again. */
    void (*trouble)(void *user, const char *sentence);
};

struct tw_data_store_config {
    uv_loop_t *loop;
    const struct tw_file_ops *ops; /* borrowed */
    const char *path;
    struct tw_id hash; /* hash of the index */
    bool is_ours;
    uint64_t reserve_bytes;
    uint64_t retry_ms; /* pause before a retry; 0 = TW_DATA_RETRY_MS; shorter in tests */
    struct tw_data_store_events events;
    void *user;
};

enum tw_data_op_kind {
    TW_DATA_OP_OPEN,
    TW_DATA_OP_INDEX, /* store a chunk of the index */
    TW_DATA_OP_WRITE, /* store a chunk of any other file */
    TW_DATA_OP_CHECK,
    TW_DATA_OP_FINISH,
};

struct tw_data_op {
    enum tw_data_op_kind kind;
    uint32_t file, idx, size;
    uint32_t number;
};

struct tw_data_store {
    struct tw_data_store_config config;
    struct tw_data_folder folder;
    bool is_open; /* set when `opened`, or `checked` for the index, returned TW_OK */

    uint32_t ops_first, ops_count;
    struct tw_data_op ops[TW_DATA_OPS_MAX];
    uint8_t *buffers[TW_FETCH_ASKED_MAX]; /* one per number of a requested chunk, allocated at first
                                             use, owned */
    bool is_busy, is_closing, is_troubled;
    uv_work_t work;
    uv_timer_t retry;

    /* The fields from here on are written by the thread. */
    enum tw_status status;
    struct tw_error err;
    uint8_t *index; /* index_bytes of the arriving index; owned */
    uint32_t index_bytes;
    uint64_t opens;
    struct tw_data_open_part {
        struct tw_data_part *part; /* owned */
        uint64_t used;             /* value of `opens` at the last use; 0: free */
    } parts[TW_DATA_PARTS_OPEN];
    uint8_t *scratch; /* TW_CHUNK_BYTES_MAX bytes, owned */
    uint32_t found_count;
    struct tw_data_found *found; /* TW_DATA_PARTS_FOUND_MAX rows, owned */
};

/* Starts to open the folder. Creates it if it is the daemon's own and missing. */
enum tw_status tw_data_store_create(struct tw_data_store **store,
                                    const struct tw_data_store_config *config,
                                    struct tw_error *err);

/* Queues a chunk from a peer for writing. Copies bytes[size]. File 0 is the index. Returns TW_NOMEM
 * if the chunk was not accepted. */
enum tw_status tw_data_store_take(struct tw_data_store *store, const struct tw_data_op *chunk,
                                  const uint8_t *bytes);
void tw_data_store_check(struct tw_data_store *store, uint32_t file);
void tw_data_store_finish(struct tw_data_store *store, uint32_t file);

/* Frees the chunk buffers until the next chunk arrives. */
void tw_data_store_trim(struct tw_data_store *store);

/* Begins to close; no further callback follows. The caller then runs the loop until handles and
 * threads are done, and destroys the store. */
void tw_data_store_close(struct tw_data_store *store);
void tw_data_store_destroy(struct tw_data_store *store);

/* ==== serving ================================================================================= */

/* Serves chunks of the dataset's whole files to peers: PULLs in, CHUNKs out.
 *
 *      PULL --> ranges of the peer --> a thread reads one chunk --> the transport --> released
 *
 * Chunks are checked before they are sent: if bytes had changed on the disk, the receiver would
 * give this node a strike. One read is in progress at a time, peers take turns, and a peer has at
 * most two chunks between disk and socket. The cost of serving is thus bounded by the number of
 * links. Ranges beyond TW_DATA_RANGES_MAX are dropped; the peer asks again. A PULL for chunks that
 * cannot exist breaks the protocol. */

enum {
    TW_DATA_RANGES_MAX = 16,
    TW_DATA_PULL_MAX = 2 * TW_FETCH_WINDOW_MAX, /* most chunks in one PULL */
    TW_DATA_SLOTS = 2,
};

struct tw_data_serve_events {
    /* Queues a chunk. Returns false if the peer's link is closing: `released` will then not be
     * called. */
    bool (*send)(void *user, uint16_t peer, const struct tw_chunk *chunk);
    void (*missing)(void *user, uint16_t peer, const struct tw_id *hash);
    /* A whole file has become unreadable, or its contents changed. */
    void (*lost)(void *user, uint32_t file, const char *sentence);
    /* Returns true if so many bytes may be sent to the peer now. Otherwise its requests are
     * answered by `missing`. NULL: always. */
    bool (*may_give)(void *user, uint16_t peer, uint32_t bytes);
};

enum tw_data_slot_state { TW_DATA_SLOT_FREE, TW_DATA_SLOT_READING, TW_DATA_SLOT_SENDING };

struct tw_data_reader {
    uint64_t life; /* serial number of the link; 0: the link is down */
    uint32_t ranges_count;
    struct {
        uint32_t file, first, count;
    } ranges[TW_DATA_RANGES_MAX];
    struct {
        enum tw_data_slot_state state;
        uint8_t *bytes; /* TW_CHUNK_BYTES_MAX bytes, allocated at first use, owned */
    } slots[TW_DATA_SLOTS];
};

struct tw_data_serve {
    uv_loop_t *loop;
    struct tw_data_store *store; /* borrowed */
    struct tw_data_serve_events events;
    void *user;
    struct tw_data_reader peers[TW_PEERS_MAX];
    uint64_t lives;
    uint16_t last_peer; /* peer served in the last turn */
    bool is_reading, is_closing;
    uv_work_t work;
    struct { /* the read in progress */
        uint16_t peer;
        uint64_t life;
        uint32_t slot, file, idx, size;
        enum tw_status status;
        struct tw_error err;
        bool is_changed; /* the bytes read differ from the index */
        /* used by the thread; its bytes are allocated at first use, owned */
        struct tw_data_head head;
    } read;
    uint64_t bytes_served, chunks_served;
};

void tw_data_serve_init(struct tw_data_serve *serve, uv_loop_t *loop, struct tw_data_store *store,
                        const struct tw_data_serve_events *events, void *user);
/* May be called only when no work is in progress on the loop. */
void tw_data_serve_deinit(struct tw_data_serve *serve);
void tw_data_serve_close(struct tw_data_serve *serve);

void tw_data_serve_peer_up(struct tw_data_serve *serve, uint16_t peer);
void tw_data_serve_peer_down(struct tw_data_serve *serve, uint16_t peer);

/* Queues the requested chunks. Returns TW_AGAIN if the hash is of no file of the dataset (another
 * module may know it), or TW_PROTO if such chunks cannot exist: close the peer. */
enum tw_status tw_data_serve_pull(struct tw_data_serve *serve, uint16_t peer,
                                  const struct tw_msg_pull *pull);

/* Takes back a chunk that the transport has finished with. Returns false if another module sent it.
 */
bool tw_data_serve_released(struct tw_data_serve *serve, uint16_t peer,
                            const struct tw_chunk *chunk, bool was_sent);

/* Returns the number of peers with a chunk in progress. */
uint32_t tw_data_serve_takers(const struct tw_data_serve *serve);

#endif
