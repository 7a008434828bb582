#include "daemon/dataset/data_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"

/* ==== arriving ================================================================================ */

/* ---- on the thread ------------------------------------------------------------------------- */

static struct tw_data_open_part *part_oldest(struct tw_data_store *store) {
    struct tw_data_open_part *oldest = &store->parts[0];
    for (unsigned i = 1; i < TW_DATA_PARTS_OPEN; i++) {
        if (store->parts[i].used < oldest->used) oldest = &store->parts[i];
    }
    return oldest;
}

/* Returns the open part of a file. If too many are open, closes the least recently used one. */
static enum tw_status part_get(struct tw_data_store *store, uint32_t file,
                               struct tw_data_open_part **out, struct tw_error *err) {
    for (unsigned i = 0; i < TW_DATA_PARTS_OPEN; i++) {
        struct tw_data_open_part *open = &store->parts[i];
        if (open->used == 0 || open->part->file != file) continue;
        open->used = ++store->opens;
        *out = open;
        return TW_OK;
    }
    struct tw_data_open_part *open = part_oldest(store);
    if (open->part == NULL) open->part = malloc(sizeof(*open->part));
    if (open->part == NULL) return tw_fail(err, TW_NOMEM, "no memory for a file that arrives");
    if (open->used > 0) tw_data_part_close(open->part);
    open->used = 0;
    TW_TRY(tw_data_part_open(open->part, &store->folder, file, err));
    open->used = ++store->opens;
    *out = open;
    return TW_OK;
}

static void part_drop(struct tw_data_open_part *open) {
    tw_data_part_close(open->part);
    open->used = 0;
}

/* Hashes a part left by an earlier process. Finishes it if no chunk is missing. */
static enum tw_status found_look(struct tw_data_store *store, uint32_t file, struct tw_error *err) {
    struct tw_data_found *found = &store->found[store->found_count];
    struct tw_data_open_part *open;
    if (store->found_count == TW_DATA_PARTS_FOUND_MAX) {
        tw_data_part_remove(&store->folder, file);
        return TW_OK;
    }
    TW_TRY(part_get(store, file, &open, err));
    const uint32_t count = tw_data_part_look(open->part, found->have, store->scratch);
    if (count < tw_fetch_chunks(&store->folder.files[file])) {
        found->file = file;
        store->found_count += count > 0;
        return TW_OK;
    }
    const enum tw_status finished = tw_data_part_finish(open->part, store->scratch, err);
    if (finished == TW_IO || finished == TW_NOMEM) return finished;
    open->used = 0; /* closed */
    if (finished == TW_OK) store->folder.rows[file].state = TW_DATA_WHOLE;
    return TW_OK;
}

/* Disk errors are not reported here: arriving chunks meet the same error and report it. */
static void found_all(struct tw_data_store *store) {
    struct tw_data_folder *folder = &store->folder;
    store->found_count = 0;
    for (uint32_t i = 1; folder->is_ours && i < folder->files_count; i++) {
        if (folder->rows[i].state == TW_DATA_PARTLY) (void)found_look(store, i, NULL);
    }
}

static enum tw_status folder_open(struct tw_data_store *store, struct tw_error *err) {
    const struct tw_data_store_config *config = &store->config;
    struct tw_data_folder *folder = &store->folder;
    if (folder->dir < 0) {
        if (config->is_ours)
            (void)mkdir(config->path, 0700); /* if this fails, opening the folder below fails too */
        TW_TRY(tw_data_folder_open(folder, config->ops, config->path, &config->hash,
                                   config->is_ours, err));
        folder->reserve_bytes = config->reserve_bytes;
    }
    enum tw_status status = tw_data_folder_load(folder, err);
    /* In the daemon's own folder, the wrong index was removed: fetch it again. */
    if (status == TW_CORRUPT && config->is_ours) status = TW_AGAIN;
    if (status == TW_OK) found_all(store);
    return status;
}

static enum tw_status index_chunk(struct tw_data_store *store, const struct tw_data_op *op,
                                  struct tw_error *err) {
    const uint8_t *bytes = store->buffers[op->number];
    if (op->idx == 0) { /* the first chunk restarts the index, perhaps from another peer */
        uint32_t whole = 0;
        if (tw_dataset_size((const char *)bytes, op->size, &whole, err) != TW_OK ||
            op->size != (whole < TW_CHUNK_BYTES_MAX ? whole : TW_CHUNK_BYTES_MAX)) {
            return tw_fail(err, TW_CORRUPT, "the index of the dataset that arrived is damaged");
        }
        free(store->index);
        store->index_bytes = 0;
        store->index = malloc(whole);
        if (store->index == NULL) return tw_fail(err, TW_NOMEM, "no memory for the index");
        store->index_bytes = whole;
    }
    const uint64_t at = (uint64_t)op->idx * TW_CHUNK_BYTES_MAX;
    if (at >= store->index_bytes || op->size > store->index_bytes - at) {
        return tw_fail(err, TW_CORRUPT, "a chunk beyond the end of the index");
    }
    memcpy(store->index + at, bytes, op->size);
    return TW_OK;
}

static enum tw_status index_check(struct tw_data_store *store, struct tw_error *err) {
    TW_TRY(tw_data_folder_put_index(&store->folder, (const char *)store->index, store->index_bytes,
                                    err));
    found_all(store);
    return TW_OK;
}

static enum tw_status file_finish(struct tw_data_store *store, uint32_t file,
                                  struct tw_error *err) {
    struct tw_data_open_part *open;
    TW_TRY(part_get(store, file, &open, err));
    const enum tw_status status = tw_data_part_finish(open->part, store->scratch, err);
    if (status == TW_OK || status == TW_CORRUPT) open->used = 0; /* closed */
    return status;
}

static enum tw_status op_do(struct tw_data_store *store, const struct tw_data_op *op,
                            struct tw_error *err) {
    struct tw_data_open_part *open;
    switch (op->kind) {
    case TW_DATA_OP_OPEN: return folder_open(store, err);
    case TW_DATA_OP_INDEX: return index_chunk(store, op, err);
    case TW_DATA_OP_WRITE:
        TW_TRY(part_get(store, op->file, &open, err));
        return tw_data_part_write(open->part, op->idx, store->buffers[op->number], err);
    case TW_DATA_OP_CHECK:
        if (op->file == TW_DATA_INDEX) return index_check(store, err);
        TW_TRY(part_get(store, op->file, &open, err));
        return tw_data_part_check(open->part, err);
    case TW_DATA_OP_FINISH: return file_finish(store, op->file, err);
    }
    TW_NEVER("work of no known kind");
}

static void on_work(uv_work_t *work) {
    struct tw_data_store *store = work->data;
    store->err = (struct tw_error){0};
    store->status = op_do(store, &store->ops[store->ops_first], &store->err);
}

/* ---- on the loop --------------------------------------------------------------------------- */

static void work_begin(struct tw_data_store *store);

static enum tw_fetch_result result_of(enum tw_status status) {
    if (status == TW_OK) return TW_FETCH_OK;
    return status == TW_CORRUPT ? TW_FETCH_WRONG : TW_FETCH_FAILED;
}

static void op_answer(struct tw_data_store *store, const struct tw_data_op *op) {
    const struct tw_data_store_events *events = &store->config.events;
    const enum tw_status status = store->status;
    /* A copy: the callback may begin the next operation, which overwrites store->err. */
    const struct tw_error err = store->err;
    const char *sentence = err.message;
    void *user = store->config.user;
    switch (op->kind) {
    case TW_DATA_OP_OPEN:
        store->is_open = status == TW_OK;
        events->opened(user, status, sentence);
        return;
    case TW_DATA_OP_INDEX:
        events->stored(user, op->number, result_of(status), store->index_bytes);
        return;
    case TW_DATA_OP_WRITE:
        /* No peer is to blame and no peer has a better copy, so a person must be told. */
        if (status == TW_DATA) events->trouble(user, sentence);
        if (status == TW_OK) store->folder.rows[op->file].state = TW_DATA_PARTLY;
        events->stored(user, op->number, result_of(status), 0);
        return;
    case TW_DATA_OP_CHECK:
        if (op->file == TW_DATA_INDEX) {
            store->is_open = status == TW_OK;
            free(store->index);
            store->index = NULL;
            store->index_bytes = 0;
        }
        events->checked(user, op->file, status, sentence);
        return;
    case TW_DATA_OP_FINISH:
        store->folder.rows[op->file].state = status == TW_OK ? TW_DATA_WHOLE : TW_DATA_ABSENT;
        events->finished(user, op->file, status == TW_OK);
        return;
    }
}

static void op_end(struct tw_data_store *store) {
    const struct tw_data_op op = store->ops[store->ops_first];
    store->ops_first = (store->ops_first + 1) % TW_DATA_OPS_MAX;
    store->ops_count--;
    store->is_busy = false;
    if (store->is_troubled && store->status != TW_CORRUPT) {
        store->is_troubled = false;
        store->config.events.trouble(store->config.user, NULL);
    }
    op_answer(store, &op);
    work_begin(store);
}

/* Returns true if the disk lost the contents of a finished file. The file is fetched again, but
 * only after a pause and a limited number of times. */
static bool is_forgotten(const struct tw_data_store *store) {
    return store->status == TW_CORRUPT && store->ops[store->ops_first].kind == TW_DATA_OP_FINISH;
}

static void on_pause_over(uv_timer_t *timer) {
    struct tw_data_store *store = timer->data;
    if (is_forgotten(store)) {
        op_end(store);
        return;
    }
    store->is_busy = false;
    work_begin(store);
}

static void on_done(uv_work_t *work, int cancelled) {
    struct tw_data_store *store = work->data;
    if (store->is_closing || cancelled != 0) {
        store->is_busy = false;
        return;
    }
    if (store->status != TW_IO && store->status != TW_NOMEM && !is_forgotten(store)) {
        op_end(store);
        return;
    }
    store->is_troubled = true;
    store->config.events.trouble(store->config.user, store->err.message);
    TW_ASSERT(uv_timer_start(&store->retry, on_pause_over, store->config.retry_ms, 0) == 0);
}

static void work_begin(struct tw_data_store *store) {
    if (store->is_busy || store->ops_count == 0 || store->is_closing) return;
    store->is_busy = true;
    store->work.data = store;
    TW_ASSERT(uv_queue_work(store->config.loop, &store->work, on_work, on_done) == 0);
}

/* Queues an operation. There is room: at most TW_FETCH_ASKED_MAX chunks wait, and each file is
 * checked and finished once, after its last chunk. */
static void op_add(struct tw_data_store *store, const struct tw_data_op *op) {
    TW_ASSERT(store->ops_count < TW_DATA_OPS_MAX);
    store->ops[(store->ops_first + store->ops_count) % TW_DATA_OPS_MAX] = *op;
    store->ops_count++;
    work_begin(store);
}

/* ---- calls --------------------------------------------------------------------------------- */

enum tw_status tw_data_store_take(struct tw_data_store *store, const struct tw_data_op *chunk,
                                  const uint8_t *bytes) {
    struct tw_data_op op = *chunk;
    TW_ASSERT(op.number < TW_FETCH_ASKED_MAX && op.size <= TW_CHUNK_BYTES_MAX);
    uint8_t **buffer = &store->buffers[op.number];
    if (*buffer == NULL) *buffer = malloc(TW_CHUNK_BYTES_MAX);
    if (*buffer == NULL) return TW_NOMEM;
    memcpy(*buffer, bytes, op.size);
    op.kind = op.file == TW_DATA_INDEX ? TW_DATA_OP_INDEX : TW_DATA_OP_WRITE;
    op_add(store, &op);
    return TW_OK;
}

void tw_data_store_check(struct tw_data_store *store, uint32_t file) {
    op_add(store, &(struct tw_data_op){.kind = TW_DATA_OP_CHECK, .file = file});
}

void tw_data_store_finish(struct tw_data_store *store, uint32_t file) {
    op_add(store, &(struct tw_data_op){.kind = TW_DATA_OP_FINISH, .file = file});
}

void tw_data_store_trim(struct tw_data_store *store) {
    if (store->ops_count > 0) return;
    for (unsigned i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        free(store->buffers[i]);
        store->buffers[i] = NULL;
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_data_store_create(struct tw_data_store **out,
                                    const struct tw_data_store_config *config,
                                    struct tw_error *err) {
    struct tw_data_store *store = calloc(1, sizeof(*store));
    if (store != NULL) {
        store->scratch = malloc(TW_CHUNK_BYTES_MAX);
        store->found = calloc(TW_DATA_PARTS_FOUND_MAX, sizeof(*store->found));
    }
    if (store == NULL || store->scratch == NULL || store->found == NULL) {
        if (store != NULL) free(store->scratch);
        free(store);
        return tw_fail(err, TW_NOMEM, "no memory for the store of training data");
    }
    store->config = *config;
    if (store->config.retry_ms == 0) store->config.retry_ms = TW_DATA_RETRY_MS;
    store->folder.dir = -1;
    TW_ASSERT(uv_timer_init(config->loop, &store->retry) == 0);
    store->retry.data = store;
    op_add(store, &(struct tw_data_op){.kind = TW_DATA_OP_OPEN});
    *out = store;
    return TW_OK;
}

void tw_data_store_close(struct tw_data_store *store) {
    store->is_closing = true;
    (void)uv_timer_stop(&store->retry);
    uv_close((uv_handle_t *)&store->retry, NULL);
}

void tw_data_store_destroy(struct tw_data_store *store) {
    if (store == NULL) return;
    for (unsigned i = 0; i < TW_DATA_PARTS_OPEN; i++) {
        if (store->parts[i].used > 0) part_drop(&store->parts[i]);
        free(store->parts[i].part);
    }
    if (store->folder.dir >= 0) tw_data_folder_close(&store->folder);
    for (unsigned i = 0; i < TW_FETCH_ASKED_MAX; i++) free(store->buffers[i]);
    free(store->index);
    free(store->scratch);
    free(store->found);
    free(store);
}

/* ==== serving ================================================================================= */

/* ---- reading ------------------------------------------------------------------------------- */

static void on_read(uv_work_t *work) {
    struct tw_data_serve *serve = work->data;
    const struct tw_data_folder *folder = &serve->store->folder;
    uint8_t *bytes = serve->peers[serve->read.peer].slots[serve->read.slot].bytes;
    serve->read.err = (struct tw_error){0};
    serve->read.is_changed = false;
    serve->read.status = tw_data_folder_read(folder, serve->read.file, serve->read.idx, bytes,
                                             &serve->read.size, &serve->read.err);
    if (serve->read.status == TW_OK) {
        serve->read.status = tw_data_folder_check(folder, serve->read.file, serve->read.idx, bytes,
                                                  &serve->read.head, &serve->read.err);
        serve->read.is_changed = serve->read.status == TW_CORRUPT;
    }
    if (serve->read.status != TW_OK) serve->read.head.file = 0;
}

static void read_begin(struct tw_data_serve *serve);

static void ranges_forget(struct tw_data_reader *peer, uint32_t file) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < peer->ranges_count; i++) {
        if (peer->ranges[i].file != file) peer->ranges[kept++] = peer->ranges[i];
    }
    peer->ranges_count = kept;
}

/* The file is gone, truncated or changed: stops serving it. */
static void file_lost(struct tw_data_serve *serve) {
    const uint32_t file = serve->read.file;
    const struct tw_id *hash = &serve->store->folder.files[file].hash;
    serve->store->folder.rows[file].state = TW_DATA_ABSENT;
    serve->store->folder.rows[file].is_bad = serve->read.is_changed;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const uint32_t before = serve->peers[i].ranges_count;
        ranges_forget(&serve->peers[i], file);
        const bool was_reading = i == serve->read.peer && serve->read.life == serve->peers[i].life;
        if (serve->peers[i].life != 0 && (was_reading || serve->peers[i].ranges_count < before)) {
            serve->events.missing(serve->user, i, hash);
        }
    }
    serve->events.lost(serve->user, file, serve->read.err.message);
}

static void on_read_done(uv_work_t *work, int cancelled) {
    struct tw_data_serve *serve = work->data;
    struct tw_data_reader *peer = &serve->peers[serve->read.peer];
    serve->is_reading = false;
    if (serve->is_closing || cancelled != 0) return;
    peer->slots[serve->read.slot].state = TW_DATA_SLOT_FREE;
    if (serve->read.status != TW_OK) {
        file_lost(serve);
    } else if (peer->life == serve->read.life) {
        const struct tw_chunk chunk = {
            .payload = serve->store->folder.files[serve->read.file].hash,
            .idx = serve->read.idx,
            .size = serve->read.size,
            .bytes = peer->slots[serve->read.slot].bytes,
        };
        if (serve->events.send(serve->user, serve->read.peer, &chunk)) {
            peer->slots[serve->read.slot].state = TW_DATA_SLOT_SENDING;
        }
    }
    read_begin(serve);
}

/* Returns the index of a free chunk buffer (slot) of this peer, or -1 if both are in use. */
static int slot_free(struct tw_data_reader *peer) {
    for (int i = 0; i < TW_DATA_SLOTS; i++) {
        if (peer->slots[i].state != TW_DATA_SLOT_FREE) continue;
        if (peer->slots[i].bytes == NULL) peer->slots[i].bytes = malloc(TW_CHUNK_BYTES_MAX);
        return peer->slots[i].bytes != NULL ? i
                                            : -1; /* without memory, the next turn tries again */
    }
    return -1;
}

/* Returns the size of the next chunk that the peer requested. */
static uint32_t next_bytes(const struct tw_data_serve *serve, const struct tw_data_reader *peer) {
    uint64_t at;
    uint32_t size;
    tw_fetch_range(&serve->store->folder.files[peer->ranges[0].file], peer->ranges[0].first, &at,
                   &size);
    return size;
}

/* Answers all requests of a peer by `missing`, if it may get no more. */
static bool is_refused(struct tw_data_serve *serve, uint16_t number) {
    struct tw_data_reader *peer = &serve->peers[number];
    if (serve->events.may_give == NULL ||
        serve->events.may_give(serve->user, number, next_bytes(serve, peer)))
        return false;
    while (peer->ranges_count > 0) {
        const uint32_t file = peer->ranges[0].file;
        ranges_forget(peer, file);
        serve->events.missing(serve->user, number, &serve->store->folder.files[file].hash);
    }
    return true;
}

static void read_begin(struct tw_data_serve *serve) {
    if (serve->is_reading || serve->is_closing) return;
    if (serve->read.head.bytes == NULL) serve->read.head.bytes = malloc(TW_CHUNK_BYTES_MAX);
    if (serve->read.head.bytes == NULL) return; /* without memory, the next request tries again */
    for (uint16_t turn = 1; turn <= TW_PEERS_MAX; turn++) {
        const uint16_t number = (uint16_t)((serve->last_peer + turn) % TW_PEERS_MAX);
        struct tw_data_reader *peer = &serve->peers[number];
        if (peer->ranges_count == 0 || is_refused(serve, number)) continue;
        const int slot = slot_free(peer);
        if (slot < 0) continue;
        serve->read.peer = serve->last_peer = number;
        serve->read.life = peer->life;
        serve->read.slot = (uint32_t)slot;
        serve->read.file = peer->ranges[0].file;
        serve->read.idx = peer->ranges[0].first++;
        if (--peer->ranges[0].count == 0) {
            peer->ranges_count--;
            memmove(&peer->ranges[0], &peer->ranges[1],
                    peer->ranges_count * sizeof(peer->ranges[0]));
        }
        peer->slots[slot].state = TW_DATA_SLOT_READING;
        serve->is_reading = true;
        serve->work.data = serve;
        TW_ASSERT(uv_queue_work(serve->loop, &serve->work, on_read, on_read_done) == 0);
        return;
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

enum tw_status tw_data_serve_pull(struct tw_data_serve *serve, uint16_t number,
                                  const struct tw_msg_pull *pull) {
    const struct tw_data_store *store = serve->store;
    struct tw_data_reader *peer = &serve->peers[number];
    const int found = store->is_open ? tw_data_folder_find(&store->folder, &pull->hash) : -1;
    if (found < 0) return TW_AGAIN;
    const uint32_t file = (uint32_t)found;
    const uint32_t chunks = tw_fetch_chunks(&store->folder.files[file]);
    if (pull->count == 0 || pull->count > TW_DATA_PULL_MAX || pull->first >= chunks ||
        pull->count > chunks - pull->first) {
        return TW_PROTO;
    }
    if (store->folder.rows[file].state != TW_DATA_WHOLE) {
        serve->events.missing(serve->user, number, &pull->hash);
        return TW_OK;
    }
    if (peer->life == 0 || peer->ranges_count == TW_DATA_RANGES_MAX) return TW_OK;
    const uint32_t last = peer->ranges_count++;
    peer->ranges[last].file = file;
    peer->ranges[last].first = pull->first;
    peer->ranges[last].count = pull->count;
    read_begin(serve);
    return TW_OK;
}

bool tw_data_serve_released(struct tw_data_serve *serve, uint16_t number,
                            const struct tw_chunk *chunk, bool was_sent) {
    struct tw_data_reader *peer = &serve->peers[number];
    for (unsigned i = 0; i < TW_DATA_SLOTS; i++) {
        if (peer->slots[i].state != TW_DATA_SLOT_SENDING || peer->slots[i].bytes != chunk->bytes) {
            continue;
        }
        peer->slots[i].state = TW_DATA_SLOT_FREE;
        if (was_sent) {
            serve->bytes_served += chunk->size;
            serve->chunks_served++;
        }
        read_begin(serve);
        return true;
    }
    return false;
}

void tw_data_serve_peer_up(struct tw_data_serve *serve, uint16_t peer) {
    serve->peers[peer].life = ++serve->lives;
    serve->peers[peer].ranges_count = 0;
}

void tw_data_serve_peer_down(struct tw_data_serve *serve, uint16_t peer) {
    serve->peers[peer].life = 0;
    serve->peers[peer].ranges_count = 0;
}

uint32_t tw_data_serve_takers(const struct tw_data_serve *serve) {
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_data_reader *peer = &serve->peers[i];
        count += peer->life != 0 && (peer->slots[0].state != TW_DATA_SLOT_FREE ||
                                     peer->slots[1].state != TW_DATA_SLOT_FREE);
    }
    return count;
}

/* ---- life ---------------------------------------------------------------------------------- */

void tw_data_serve_init(struct tw_data_serve *serve, uv_loop_t *loop, struct tw_data_store *store,
                        const struct tw_data_serve_events *events, void *user) {
    memset(serve, 0, sizeof(*serve));
    serve->loop = loop;
    serve->store = store;
    serve->events = *events;
    serve->user = user;
}

void tw_data_serve_close(struct tw_data_serve *serve) {
    serve->is_closing = true;
}

void tw_data_serve_deinit(struct tw_data_serve *serve) {
    TW_ASSERT(!serve->is_reading);
    free(serve->read.head.bytes);
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        for (unsigned k = 0; k < TW_DATA_SLOTS; k++) free(serve->peers[i].slots[k].bytes);
    }
}
