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

#endif
