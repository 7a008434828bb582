#include "daemon/node/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/dataset/data_store.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/node/reports.h"
#include "daemon/node/workers.h"
#include "daemon/store/checkpoint.h"
#include "daemon/workerlink/worker_host.h"
#include "proto/dataset.h"
#include "sync/fetch/fetch.h"

enum {
    FETCH_ALIGN = 64,
    LOOK_US = 5 * 1000 * 1000, /* time between two searches for files that the user copied */
};

/* State of this file; all zero if the run trains on a text file instead of a dataset. */
struct tw_daemon_data {
    struct tw_data_store *store; /* owned; NULL without a dataset */
    struct tw_data_serve serve;
    /* Owned; NULL if the folder is the user's, so that nothing is fetched. */
    struct tw_fetch *fetch;
    void *fetch_memory;   /* owned */
    uv_timer_t timer;     /* deadline of the fetcher */
    bool is_unusable;     /* the index has the right hash but is not usable: no peer can help */
    uint32_t train_whole; /* training shards that are complete */
    uint32_t files_whole; /* files that are complete, the index included */
    uint64_t look_due_us; /* time of the next search for files that the user copied */
    uint32_t look_next;
    uint64_t chunks_found, chunks_refused, strikes;
    char trouble[TW_VIEW_TEXT_BYTES]; /* error of the disk or the index, or "" */
};

/* ---- the fetcher --------------------------------------------------------------------------- */

static void on_fetch_timer(uv_timer_t *timer);

static void arm_timer(struct tw_daemon *daemon) {
    struct tw_daemon_data *data = daemon->data;
    const uint64_t deadline = tw_fetch_deadline(data->fetch), now = tw_daemon_now_us();
    if (deadline == UINT64_MAX || daemon->stage == TW_DAEMON_CLOSING) {
        (void)uv_timer_stop(&data->timer);
        return;
    }
    const uint64_t delay_ms = deadline > now ? (deadline - now + 999) / 1000 : 0;
    uv_update_time(&daemon->loop);
    TW_ASSERT(uv_timer_start(&data->timer, on_fetch_timer, delay_ms, 0) == 0);
}

/* Converts a file number of the fetcher to one of the folder, which also counts the index as a
 * file. */
static uint32_t folder_file(uint32_t fetch_file) {
    return fetch_file == TW_FETCH_INDEX ? TW_DATA_INDEX : fetch_file + 1;
}

static uint32_t fetch_file(uint32_t folder_number) {
    return folder_number == TW_DATA_INDEX ? TW_FETCH_INDEX : folder_number - 1;
}

static void note_strike(struct tw_daemon *daemon, const struct tw_fetch_action *action) {
    char peer[9], name[TW_DATASET_FILE_BYTES];
    const uint64_t now = tw_daemon_now_us();
    daemon->data->strikes++;
    tw_id_short(&action->id, peer);
    tw_data_folder_name(&daemon->data->store->folder, folder_file(action->file), name);
    tw_daemon_note(
        daemon, TW_LOG_WARN, "data_refused",
        "peer=%s file=%s strikes=%u text=\"it sent wrong bytes: nothing is fetched from it for "
        "%llu s\"",
        peer, name, action->count,
        (unsigned long long)(action->until_us > now ? (action->until_us - now) / 1000000 : 0));
}

static void send_pull(struct tw_daemon *daemon, const struct tw_fetch_action *action) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PULL;
    message.u.pull =
        (struct tw_msg_pull){.hash = action->hash, .first = action->first, .count = action->count};
    tw_daemon_send(daemon, action->peer, &message);
}

static void do_actions(struct tw_daemon *daemon) {
    struct tw_daemon_data *data = daemon->data;
    struct tw_fetch_action action;
    while (tw_fetch_next_action(data->fetch, &action)) {
        switch (action.kind) {
        case TW_FETCH_PULL: send_pull(daemon, &action); break;
        case TW_FETCH_CHECK: tw_data_store_check(data->store, folder_file(action.file)); break;
        case TW_FETCH_WHOLE: tw_data_store_finish(data->store, folder_file(action.file)); break;
        case TW_FETCH_STRIKE: note_strike(daemon, &action); break;
        }
    }
    arm_timer(daemon);
}

static void give_event(struct tw_daemon *daemon, const struct tw_fetch_event *event) {
    if (daemon->data->fetch == NULL || daemon->stage != TW_DAEMON_RUNNING) return;
    tw_fetch_event(daemon->data->fetch, event, tw_daemon_now_us());
    do_actions(daemon);
}

static void on_fetch_timer(uv_timer_t *timer) {
    give_event(timer->data, &(struct tw_fetch_event){.kind = TW_FETCH_TICK});
}

/* Passes the files of the index to the fetcher, and the chunks that are already stored. */
static enum tw_status give_files(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_data *data = daemon->data;
    const struct tw_data_store *store = data->store;
    const struct tw_data_folder *folder = &store->folder;
    const uint32_t count = folder->files_count - 1;
    size_t bytes = 0;
    TW_TRY(tw_fetch_plan(folder->files + 1, count, &bytes, err));
    data->fetch_memory = calloc(1, bytes > 0 ? bytes : 1);
    if (data->fetch_memory == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for the table of the dataset's chunks");
    }
    tw_fetch_files(data->fetch, folder->files + 1, count, data->fetch_memory, tw_daemon_now_us());
    for (uint32_t i = 1; i <= count; i++) {
        if (folder->rows[i].state == TW_DATA_WHOLE) tw_fetch_have_file(data->fetch, i - 1);
    }
    for (uint32_t i = 0; i < store->found_count; i++) {
        const struct tw_data_found *found = &store->found[i];
        const uint32_t chunks = tw_fetch_chunks(&folder->files[found->file]);
        for (uint32_t k = 0; k < chunks; k++) {
            if ((found->have[k / 64] >> (k % 64) & 1) == 0) continue;
            tw_fetch_have(data->fetch, found->file - 1, k);
            data->chunks_found++;
        }
    }
    return TW_OK;
}

/* Tells the other nodes whether the disk keeps the worker from its first shard. */
static void set_wait(struct tw_daemon *daemon) {
    const struct tw_daemon_data *data = daemon->data;
    const bool is_disk = data->trouble[0] != '\0' && !data->is_unusable;
    daemon->waits = daemon->is_data_awaited && is_disk ? TW_WAIT_ROOM : TW_WAIT_NONE;
}

/* ---- the worker waits ---------------------------------------------------------------------- */

static void release_worker(struct tw_daemon *daemon) {
    struct tw_error err = {0};
    if (!daemon->is_data_awaited || daemon->data->train_whole == 0) return;
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    daemon->is_data_awaited = false;
    set_wait(daemon);
    tw_daemon_note(daemon, TW_LOG_INFO, "data_ready", "train_shards=%u folder=%s",
                   daemon->data->train_whole, daemon->setup->data_path);
    tw_worker_host_set_held(daemon->host, false);
    if (tw_daemon_workers_start(daemon, &err) == TW_OK) return;
    tw_daemon_note(daemon, TW_LOG_ERROR, "worker_failed", "text=\"%s\"", err.message);
    (void)fprintf(stderr, "thinwired: %s\n", err.message);
    tw_daemon_leave(daemon, TW_EXIT_USAGE);
}

/* ---- events of the store ------------------------------------------------------------------- */

static void set_trouble(struct tw_daemon *daemon, const char *sentence) {
    char *text = daemon->data->trouble;
    const bool is_new = sentence != NULL && strcmp(text, sentence) != 0;
    (void)snprintf(text, sizeof(daemon->data->trouble), "%s", sentence != NULL ? sentence : "");
    set_wait(daemon);
    if (is_new) tw_daemon_note(daemon, TW_LOG_ERROR, "data_trouble", "text=\"%s\"", sentence);
}

/* Gives up an index whose bytes have the hash in the manifest: no peer can have a better one. */
static void give_up_data(struct tw_daemon *daemon, const char *sentence) {
    daemon->data->is_unusable = true;
    set_trouble(daemon, sentence);
}

static void take_index(struct tw_daemon *daemon) {
    struct tw_daemon_data *data = daemon->data;
    const struct tw_data_folder *folder = &data->store->folder;
    struct tw_error err = {0};
    enum tw_status status = tw_dataset_check_run(&folder->index, &daemon->setup->run, &err);
    if (status == TW_OK && tw_dataset_tokens(&folder->index, false) == 0) {
        status = tw_fail(&err, TW_DATA, "the dataset has no training tokens");
    }
    if (status == TW_OK && data->fetch != NULL) status = give_files(daemon, &err);
    if (status != TW_OK) {
        give_up_data(daemon, err.message);
        return;
    }
    data->train_whole = tw_data_folder_train_whole(folder);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < folder->files_count; i++) {
        bytes += folder->files[i].bytes;
        data->files_whole += folder->rows[i].state == TW_DATA_WHOLE;
    }
    tw_daemon_caps_data_known(daemon, bytes);
    tw_daemon_note(daemon, TW_LOG_INFO, "data_known",
                   "files=%u train_whole=%u chunks_found=%llu folder=%s", folder->files_count,
                   data->train_whole, (unsigned long long)data->chunks_found, folder->path);
    if (data->fetch != NULL) do_actions(daemon);
    release_worker(daemon);
}

static void on_opened(void *user, enum tw_status status, const char *sentence) {
    struct tw_daemon *daemon = user;
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    if (status == TW_OK) {
        take_index(daemon);
    } else if (status == TW_AGAIN && daemon->data->fetch != NULL) {
        give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_START,
                                                    .id = daemon->setup->run.data.sha256});
    } else {
        give_up_data(daemon, sentence);
    }
}

static void on_stored(void *user, uint32_t number, enum tw_fetch_result result,
                      uint32_t index_bytes) {
    struct tw_daemon *daemon = user;
    if (result == TW_FETCH_WRONG) daemon->data->chunks_refused++;
    give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_STORED,
                                                .number = number,
                                                .result = result,
                                                .index_bytes = index_bytes});
}

static void on_checked(void *user, uint32_t file, enum tw_status status, const char *sentence) {
    struct tw_daemon *daemon = user;
    if (status != TW_OK && status != TW_CORRUPT) {
        give_up_data(daemon, sentence);
        return;
    }
    if (status == TW_CORRUPT) daemon->data->chunks_refused++;
    give_event(daemon,
               &(struct tw_fetch_event){.kind = TW_FETCH_CHECKED,
                                        .file = fetch_file(file),
                                        .result = status == TW_OK ? TW_FETCH_OK : TW_FETCH_WRONG});
    if (status == TW_OK && file == TW_DATA_INDEX && daemon->stage == TW_DAEMON_RUNNING) {
        take_index(daemon);
    }
}

static void on_finished(void *user, uint32_t file, bool is_whole) {
    struct tw_daemon *daemon = user;
    struct tw_daemon_data *data = daemon->data;
    char name[TW_DATASET_FILE_BYTES];
    tw_data_folder_name(&data->store->folder, file, name);
    if (!is_whole) {
        give_event(daemon,
                   &(struct tw_fetch_event){.kind = TW_FETCH_LOST, .file = fetch_file(file)});
        return;
    }
    if (data->store->folder.files[file].kind == TW_FETCH_TRAIN) data->train_whole++;
    tw_log(TW_LOG_INFO, "data_file", "file=%s",
           name); /* logged without an event, as there may be thousands of files */
    release_worker(daemon);
    if (++data->files_whole < data->store->folder.files_count) return;
    tw_data_store_trim(data->store);
    tw_daemon_note(daemon, TW_LOG_INFO, "data_whole", "files=%u", data->files_whole);
}

static void on_trouble(void *user, const char *sentence) {
    set_trouble(user, sentence);
}

/* ---- serving ------------------------------------------------------------------------------- */

static bool on_serve_send(void *user, uint16_t peer, const struct tw_chunk *chunk) {
    struct tw_daemon *daemon = user;
    struct tw_chunk background = *chunk;
    background.is_background = true;
    if (daemon->transport == NULL || !tw_transport_send_chunk(daemon->transport, peer, &background))
        return false;
    tw_daemon_caps_data_queued(daemon, peer, chunk->size);
    return true;
}

static bool on_serve_may_give(void *user, uint16_t peer, uint32_t bytes) {
    return tw_daemon_caps_may_give_data(user, peer, bytes);
}

static void on_serve_missing(void *user, uint16_t peer, const struct tw_id *hash) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_MISSING;
    message.u.missing.hash = *hash;
    message.u.missing.retry_s = tw_daemon_caps_retry_s(user, peer);
    tw_daemon_send(user, peer, &message);
}

static void on_serve_lost(void *user, uint32_t file, const char *sentence) {
    struct tw_daemon *daemon = user;
    struct tw_daemon_data *data = daemon->data;
    tw_daemon_note(daemon, TW_LOG_WARN, "data_lost", "text=\"%s\"", sentence);
    /* The index is still in memory; its file is fetched again at the next start. */
    if (file == TW_DATA_INDEX) return;
    if (data->store->folder.files[file].kind == TW_FETCH_TRAIN) data->train_whole--;
    data->files_whole--;
    give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_LOST, .file = fetch_file(file)});
}

/* Looks for missing files that the user has copied into their own folder, which is allowed at any
 * time. */
void tw_daemon_data_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_data *data = daemon->data;
    if (data->store == NULL || !data->store->is_open || data->store->folder.is_ours) return;
    if (now_us < data->look_due_us || daemon->stage != TW_DAEMON_RUNNING) return;
    data->look_due_us = now_us + LOOK_US;
    struct tw_data_folder *folder = &data->store->folder;
    while (data->files_whole < folder->files_count) {
        const uint32_t file = tw_data_folder_look(folder, &data->look_next);
        if (file == 0) return;
        char name[TW_DATASET_FILE_BYTES];
        tw_data_folder_name(folder, file, name);
        data->files_whole++;
        if (folder->files[file].kind == TW_FETCH_TRAIN) data->train_whole++;
        tw_daemon_note(daemon, TW_LOG_INFO, "data_found", "file=%s", name);
        release_worker(daemon);
    }
}

bool tw_daemon_data_released(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                             bool was_sent) {
    if (!chunk->is_background) return false;
    if (!was_sent) tw_daemon_caps_unsent(daemon, peer, chunk, -1);
    const bool is_ours = tw_data_serve_released(&daemon->data->serve, peer, chunk, was_sent);
    TW_ASSERT(is_ours);
    return true;
}

/* ---- links --------------------------------------------------------------------------------- */

void tw_daemon_data_peer_up(struct tw_daemon *daemon, uint16_t peer, const struct tw_id *id) {
    if (daemon->data->store == NULL) return;
    tw_data_serve_peer_up(&daemon->data->serve, peer);
    give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_PEER_UP, .peer = peer, .id = *id});
}

void tw_daemon_data_peer_down(struct tw_daemon *daemon, uint16_t peer) {
    if (daemon->data->store == NULL) return;
    tw_data_serve_peer_down(&daemon->data->serve, peer);
    give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_PEER_DOWN, .peer = peer});
}

bool tw_daemon_data_message(struct tw_daemon *daemon, uint16_t peer,
                            const struct tw_message *message) {
    if (daemon->data->store == NULL) return false;
    if (message->kind == TW_MSG_MISSING) {
        give_event(daemon, &(struct tw_fetch_event){.kind = TW_FETCH_MISSING,
                                                    .peer = peer,
                                                    .id = message->u.missing.hash});
        return false; /* also for the core, which ignores an unexpected MISSING */
    }
    if (message->kind != TW_MSG_PULL) return false;
    const enum tw_status status = tw_data_serve_pull(&daemon->data->serve, peer, &message->u.pull);
    if (status == TW_AGAIN) return false;
    if (status != TW_OK) {
        tw_transport_blame(daemon->transport, peer, status,
                           "it requests chunks beyond the end of a dataset file");
    }
    return true;
}

bool tw_daemon_data_chunk(struct tw_daemon *daemon, const struct tw_fetch_arrival *chunk,
                          const uint8_t *bytes) {
    struct tw_daemon_data *data = daemon->data;
    struct tw_fetch_taken taken;
    if (data->fetch == NULL || daemon->stage != TW_DAEMON_RUNNING) return false;
    const enum tw_fetch_verdict verdict =
        tw_fetch_chunk(data->fetch, chunk, &taken, tw_daemon_now_us());
    if (verdict != TW_FETCH_UNKNOWN) daemon->counts.data_in_bytes += chunk->size;
    if (verdict == TW_FETCH_TAKE) {
        const struct tw_data_op op = {.file = folder_file(taken.file),
                                      .idx = chunk->idx,
                                      .size = chunk->size,
                                      .number = taken.number};
        daemon->counts.data_taken_bytes += chunk->size;
        if (tw_data_store_take(data->store, &op, bytes) != TW_OK) {
            do_actions(daemon);
            on_stored(daemon, taken.number, TW_FETCH_FAILED, 0);
        }
    }
    do_actions(daemon);
    return verdict != TW_FETCH_UNKNOWN;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_data_open(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_data *data = tw_daemon_alloc(sizeof(*data), err);
    const struct tw_setup *setup = daemon->setup;
    if (data == NULL) return TW_NOMEM;
    daemon->data = data;
    if (setup->run.data.form != TW_FORM_DATASET) return TW_OK;
    if (setup->is_data_fetched) {
        const size_t bytes = (tw_fetch_bytes() + FETCH_ALIGN - 1) / FETCH_ALIGN * FETCH_ALIGN;
        data->fetch = aligned_alloc(FETCH_ALIGN, bytes);
        if (data->fetch == NULL) return tw_fail(err, TW_NOMEM, "no memory to fetch the dataset");
        tw_fetch_init(data->fetch, &setup->identity.id, tw_daemon_now_us());
        tw_fetch_set_download(data->fetch, tw_daemon_caps_download(daemon));
    }
    const struct tw_data_store_config config = {
        .loop = &daemon->loop,
        .ops = setup->worker_uid != 0 ? tw_file_system_shared() : tw_file_system(),
        .path = setup->data_path,
        .hash = setup->run.data.sha256,
        .is_ours = setup->is_data_fetched,
        /* Disk space that is kept free for the checkpoints: shards must not use it. */
        .reserve_bytes = tw_memory_plan_disk(&setup->memory, &setup->layout, true),
        .events = {.opened = on_opened,
                   .stored = on_stored,
                   .checked = on_checked,
                   .finished = on_finished,
                   .trouble = on_trouble},
        .user = daemon,
    };
    TW_ASSERT(uv_timer_init(&daemon->loop, &data->timer) == 0);
    data->timer.data = daemon;
    TW_TRY(tw_data_store_create(&data->store, &config, err));
    static const struct tw_data_serve_events serve = {.send = on_serve_send,
                                                      .missing = on_serve_missing,
                                                      .lost = on_serve_lost,
                                                      .may_give = on_serve_may_give};
    tw_data_serve_init(&data->serve, &daemon->loop, data->store, &serve, daemon);
    /* A node that reduces fetches the dataset for joiners alone. */
    daemon->is_data_awaited = setup->config.node.role != TW_NODE_ROLE_REDUCE;
    tw_worker_host_set_held(daemon->host, daemon->is_data_awaited);
    return TW_OK;
}

void tw_daemon_data_close(struct tw_daemon *daemon) {
    if (daemon->data->store == NULL) return;
    tw_data_store_close(daemon->data->store);
    tw_data_serve_close(&daemon->data->serve);
    uv_close((uv_handle_t *)&daemon->data->timer, NULL);
}

void tw_daemon_data_free(struct tw_daemon *daemon) {
    if (daemon->data->store != NULL) {
        tw_data_serve_deinit(&daemon->data->serve);
        tw_data_store_destroy(daemon->data->store);
    }
    free(daemon->data->fetch);
    free(daemon->data->fetch_memory);
    free(daemon->data);
}

/* ---- status -------------------------------------------------------------------------------- */

/* Counts linked peers that may have the next file: not known to lack it, not silent, not banned. */
static uint32_t count_givers(const struct tw_fetch_view *fetch) {
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        count += fetch->peers[i].is_up && !fetch->peers[i].is_lacking &&
                 !fetch->peers[i].is_silent && fetch->peers[i].banned_until_us == 0;
    }
    return count;
}

static void describe_waiting(const struct tw_fetch_view *fetch, char *text, size_t room) {
    const uint32_t givers = count_givers(fetch);
    char peers[48], chunks[64];
    if (fetch->stage != TW_FETCH_STARTS && fetch->stage != TW_FETCH_FIRST) {
        (void)snprintf(text, room, "the local files are being checked");
        return;
    }
    const char *const what =
        fetch->stage == TW_FETCH_FIRST ? "of the first shard" : "of the dataset's index";
    if (givers == 0)
        (void)snprintf(peers, sizeof(peers), "no linked peer has it");
    else
        (void)snprintf(peers, sizeof(peers),
                       givers == 1 ? "%u peer may have it" : "%u peers may have it", givers);
    if (fetch->chunks_count > 0)
        (void)snprintf(chunks, sizeof(chunks), "%u of %u chunks %s", fetch->chunks_here,
                       fetch->chunks_count, what);
    else
        (void)snprintf(chunks, sizeof(chunks), "nothing %s yet", what);
    (void)snprintf(text, room, "%s, %s", chunks, peers);
}

/* Writes why no further chunks arrive while training runs. */
static void describe_stall(const struct tw_fetch_view *fetch, char *text, size_t room) {
    const uint32_t givers = count_givers(fetch);
    uint32_t linked = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) linked += fetch->peers[i].is_up;
    if (linked == 0) {
        (void)snprintf(text, room, "no chunks arrive: no peer is linked");
    } else if (givers == 0) {
        (void)snprintf(text, room, "no chunks arrive: no linked peer has the next file");
    } else {
        (void)snprintf(text, room, "no chunks arrived for 10 s; %u peer%s may have the next file",
                       givers, givers == 1 ? "" : "s");
    }
}

static void fill_fetch(const struct tw_daemon *daemon, uint64_t now_us,
                       struct tw_status_view *view) {
    struct tw_fetch_view fetch;
    tw_fetch_view(daemon->data->fetch, now_us, &fetch);
    view->data.bytes = fetch.bytes_count;
    view->data.bytes_here = fetch.bytes_here;
    view->data.chunks_here = fetch.chunks_here;
    view->data.chunks_count = fetch.chunks_count;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        view->data.donors += fetch.peers[i].is_up && fetch.peers[i].is_giving;
    }
    const double rate = view->data.in_bytes_per_s;
    if (rate > 0 && fetch.bytes_count > fetch.bytes_here) {
        const double rest = (double)(fetch.bytes_count - fetch.bytes_here);
        view->data.eta_us = (uint64_t)(rest / rate * 1e6);
    }
    if (daemon->is_data_awaited) {
        describe_waiting(&fetch, view->data.text, sizeof(view->data.text));
    } else if (fetch.stage == TW_FETCH_REST && rate == 0) {
        describe_stall(&fetch, view->data.text, sizeof(view->data.text));
    }
}

static enum tw_view_data judge_state(const struct tw_daemon *daemon,
                                     const struct tw_status_view *view) {
    const struct tw_daemon_data *data = daemon->data;
    if (data->store == NULL) return TW_VIEW_DATA_TEXT;
    if (data->is_unusable) return TW_VIEW_DATA_UNUSABLE;
    if (daemon->is_data_awaited) return TW_VIEW_DATA_WAITING;
    if (view->data.files_whole == view->data.files) return TW_VIEW_DATA_WHOLE;
    return data->fetch != NULL ? TW_VIEW_DATA_FETCHING : TW_VIEW_DATA_PARTIAL;
}

void tw_daemon_data_fill(const struct tw_daemon *daemon, uint64_t now_us,
                         struct tw_status_view *view) {
    const struct tw_daemon_data *data = daemon->data;
    (void)snprintf(view->data.path, sizeof(view->data.path), "%.250s", daemon->setup->data_path);
    view->data.is_any = tw_id_is_zero(&daemon->setup->run.data.sha256);
    if (data->store == NULL) {
        const bool is_own = tw_run_has_own_data(&daemon->setup->run);
        view->data.state = is_own ? TW_VIEW_DATA_TRAINER : TW_VIEW_DATA_TEXT;
        return;
    }
    const struct tw_data_folder *folder = &data->store->folder;
    view->data.in_bytes_per_s =
        data->fetch != NULL ? tw_daemon_samples_rate(daemon, TW_SAMPLE_DATA_IN) : (double)NAN;
    view->data.is_fetched = data->fetch != NULL;
    view->data.in_bytes = daemon->counts.data_taken_bytes;
    view->data.out_bytes = data->serve.bytes_served;
    view->data.takers = tw_data_serve_takers(&data->serve);
    view->data.chunks_refused = data->chunks_refused;
    view->data.train_whole = data->train_whole;
    (void)snprintf(view->data.error, sizeof(view->data.error), "%s", data->trouble);
    if (data->store->is_open) {
        view->data.files = folder->files_count;
        view->data.files_whole = data->files_whole;
        for (uint32_t i = 0; i < folder->files_count; i++) {
            const bool is_whole = folder->rows[i].state == TW_DATA_WHOLE;
            view->data.bytes += folder->files[i].bytes;
            if (is_whole) view->data.bytes_here += folder->files[i].bytes;
        }
    }
    if (data->fetch != NULL) fill_fetch(daemon, now_us, view);
    if (view->data.error[0] != '\0') { /* nothing that counts arrives */
        view->data.in_bytes_per_s = (double)NAN;
        view->data.eta_us = TW_VIEW_NEVER;
    }
    view->data.state = judge_state(daemon, view);
}
