/* checkpoints.c - checkpoints: memory to disk now and then, disk to memory at the start.
 *
 *   IDLE --due, verb, finish, end--> SNAPSHOT --done, late or no worker--> FREEZE --no change of
 *   (phi, u) under way--> COPY (thread) --thaw--> WRITE (thread) --> IDLE, or once more
 *
 * The core's position is taken when frozen: it is the one that belongs to (phi, u). The copy keeps
 * merges waiting for as long as memory takes, not for as long as the disk takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "daemon/node/notify.h"
#include "daemon/node/runtime.h"

/* ---- the disk ------------------------------------------------------------------------------ */

enum { TELL_US = 5 * 1000 * 1000 };

/* A generation of any size takes as long as its disk does: whoever waits sees what moves. */
static void moved(struct tw_daemon *daemon, int64_t bytes) {
    if (bytes > 0) atomic_fetch_add(&daemon->save.moved, (uint64_t)bytes);
}

/* While it loads, on the loop: the service manager would otherwise give up after a while. */
static void loading_tell(struct tw_daemon *daemon) {
    const uint64_t now_us = tw_daemon_now_us();
    if (now_us - daemon->save.told_us < TELL_US) return;
    daemon->save.told_us = now_us;
    tw_notify("EXTEND_TIMEOUT_USEC=%u\nSTATUS=loading the checkpoint: %llu MiB",
              (unsigned)TW_EXTEND_US, (unsigned long long)(atomic_load(&daemon->save.moved) >> 20));
}

/* Memory may be slow, too: what was moved out to the disk comes back from there. */
static void moving_copy(struct tw_daemon *daemon, void *to, const void *from, uint64_t bytes) {
    enum { PIECE_BYTES = 1 << 20 };
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        memcpy((uint8_t *)to + done, (const uint8_t *)from + done, piece);
        done += piece;
        moved(daemon, (int64_t)piece);
    }
}

static int64_t watched_read(void *ctx, int file, void *bytes, size_t size, uint64_t offset) {
    const int64_t done = tw_file_system()->read(NULL, file, bytes, size, offset);
    moved(ctx, done);
    loading_tell(ctx);
    return done;
}

static int64_t watched_write(void *ctx, int file, const void *bytes, size_t size, uint64_t offset) {
    const int64_t done = tw_file_system()->write(NULL, file, bytes, size, offset);
    moved(ctx, done);
    return done;
}

static int watched_sync(void *ctx, int file) {
    const int result = tw_file_system()->sync(NULL, file);
    moved(ctx, 1);
    return result;
}

static const struct tw_file_ops *watched_disk(struct tw_daemon *daemon) {
    daemon->save.disk = *tw_file_system(); /* whose functions need no context */
    daemon->save.disk.ctx = daemon;
    daemon->save.disk.read = watched_read;
    daemon->save.disk.write = watched_write;
    daemon->save.disk.sync = watched_sync;
    daemon->save.told_us = tw_daemon_now_us();
    return &daemon->save.disk;
}

/* ---- arrays -------------------------------------------------------------------------------- */

static bool is_bf16(const struct tw_daemon *daemon) {
    return daemon->setup->config.node.snapshot == TW_SNAPSHOT_BF16_MOMENTS;
}

/* theta, m, v as a snapshot slot holds them. */
static void live_arrays(const struct tw_daemon *daemon, uint8_t *slot,
                        struct tw_checkpoint_arrays *arrays) {
    const struct tw_layout *layout = &daemon->setup->layout;
    const uint64_t moment_bytes = layout->elements * (is_bf16(daemon) ? 2 : 4);
    uint8_t *m = slot + layout->elements * 4;
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_LIVE, layout, slot, false);
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_ADAM_M, layout, m, is_bf16(daemon));
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_ADAM_V, layout, m + moment_bytes,
                             is_bf16(daemon));
}

static uint64_t anchor_bytes(const struct tw_daemon *daemon) {
    return daemon->setup->layout.elements * 8;
}

static uint64_t save_bytes(const struct tw_daemon *daemon, bool has_live) {
    return anchor_bytes(daemon) + (has_live ? daemon->host->memory.shm.geometry.snapshot_bytes : 0);
}

/* ---- loading ------------------------------------------------------------------------------- */

/* Rounds applied to fragment `p` as the position says, if what was loaded is what it speaks of;
 * else the fragment is marked to be fetched from a peer. */
static uint64_t position_check(struct tw_daemon *daemon, uint32_t p, const struct tw_id *digest) {
    struct tw_position *position = &daemon->position;
    const bool is_held = position->fragment_rounds[p] != UINT64_MAX;
    if (is_held && !tw_id_equal(&position->fragment_digests[p], digest)) {
        char saved[9], loaded[9];
        tw_id_short(&position->fragment_digests[p], saved);
        tw_id_short(digest, loaded);
        tw_daemon_note(
            daemon, TW_LOG_ERROR, "anchor_differs",
            "fragment=%u rounds=%llu saved=%s loaded=%s text=\"fetching it from a peer\"", p,
            (unsigned long long)position->fragment_rounds[p], saved, loaded);
        position->fragment_rounds[p] = UINT64_MAX;
    }
    return position->fragment_rounds[p];
}

/* After the arrays were filled: says in the control page what they are. */
static void memory_describe(struct tw_daemon *daemon, const struct tw_checkpoint_state *state,
                            bool has_live) {
    const struct tw_shm *shm = &daemon->host->memory.shm;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        float *phi, *u;
        tw_shm_home(shm, p, &phi, &u);
        struct tw_shm_state home = {.rounds = 0};
        loading_tell(daemon); /* hashing takes its time, too */
        home.digest = tw_shm_digest(phi, u, tw_shm_fragment_elements(shm, p));
        if (daemon->has_position) home.rounds = position_check(daemon, p, &home.digest);
        tw_shm_home_set(shm, p, &home);
    }
    if (!has_live || shm->geometry.snapshot_bytes == 0) {
        atomic_store(&tw_shm_control(shm)->step,
                     state->step); /* counting goes on from the anchor */
        return;
    }
    struct tw_snapshot_slot slot;
    memset(&slot, 0, sizeof(slot));
    slot.step = state->step;
    slot.tokens = state->tokens;
    slot.updates = state->updates;
    memcpy(slot.rng, state->rng, sizeof(slot.rng));
    slot.cursor = state->cursor;
    memcpy(slot.fragment_rounds, state->live_rounds, sizeof(slot.fragment_rounds));
    if (!daemon->has_position) memset(slot.fragment_rounds, 0, sizeof(slot.fragment_rounds));
    tw_shm_snapshot_end(shm, 0, &slot);
}

/* How old the loaded generation is, by the clock on the wall: for people. */
static void loaded_date(struct tw_daemon *daemon, uint32_t slot, bool has_live) {
    char path[TW_PATH_BYTES + 32];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/ckpt.%c.safetensors", daemon->setup->run_state_dir,
                   slot == 0 ? 'a' : 'b');
    if (stat(path, &info) != 0) return;
    const time_t now = time(NULL);
    const uint64_t age_us = now > info.st_mtime ? (uint64_t)(now - info.st_mtime) * 1000000 : 0;
    daemon->save.at_us = tw_daemon_now_us() > age_us ? tw_daemon_now_us() - age_us : 1;
    daemon->save.bytes = save_bytes(daemon, has_live);
}

/* Reads the newest whole generation into the memory. The position is kept only together with the
 * vote it was made under: without it this node may have voted and forgotten. */
static enum tw_status memory_load(struct tw_daemon *daemon, struct tw_checkpoint_found *found,
                                  struct tw_checkpoint_state *state, struct tw_error *err) {
    const struct tw_shm *shm = &daemon->host->memory.shm;
    const bool has_slots = shm->geometry.snapshot_bytes > 0;
    struct tw_checkpoint_arrays arrays;
    memset(&arrays, 0, sizeof(arrays));
    float *phi, *u;
    tw_shm_format(shm);
    tw_shm_home(shm, 0, &phi, &u);
    tw_checkpoint_arrays_set(&arrays, TW_CHECKPOINT_ANCHOR, &daemon->setup->layout, phi, false);
    tw_checkpoint_arrays_set(&arrays, TW_CHECKPOINT_MOMENTUM, &daemon->setup->layout, u, false);
    if (has_slots) {
        tw_shm_snapshot_begin(shm, 0);
        live_arrays(daemon, tw_shm_snapshot_data(shm, 0), &arrays);
    }
    return tw_checkpoint_load(daemon->checkpoint, &arrays, state, found, err);
}

static void loaded_take(struct tw_daemon *daemon, const struct tw_checkpoint_found *found,
                        const struct tw_checkpoint_state *state) {
    const bool has_live = found->has_kind[TW_CHECKPOINT_LIVE] &&
                          found->has_kind[TW_CHECKPOINT_ADAM_M] &&
                          found->has_kind[TW_CHECKPOINT_ADAM_V];
    daemon->has_position = state->has_position;
    if (daemon->has_position) {
        daemon->position = state->position;
        daemon->lineage = state->position.lineage;
    }
    const bool is_vote_lost = daemon->is_vote_lost || !daemon->has_vote;
    if (daemon->has_position && is_vote_lost && state->position.nonce != 0) {
        tw_daemon_note(daemon, TW_LOG_WARN, "vote_missing",
                       "text=\"the checkpoint has a membership and the disk no vote: joining again "
                       "as a new member\"");
        daemon->has_position = false;
    }
    if (!daemon->has_position) daemon->has_vote = false;
    memory_describe(daemon, state, has_live);
    daemon->host->has_anchor = true;
    daemon->save.step = state->step;
    daemon->save.has_step = true;
    loaded_date(daemon, found->slot, has_live);
    daemon->train.step = state->step;
    daemon->train.tokens = state->tokens;
    for (unsigned i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        if (found->refused[i][0] == '\0') continue;
        tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_refused",
                       "text=\"%s: going on from the other generation\"", found->refused[i]);
    }
    tw_daemon_note(daemon, TW_LOG_INFO, "checkpoint_loaded",
                   "generation=%llu step=%llu tokens=%llu", (unsigned long long)found->generation,
                   (unsigned long long)state->step, (unsigned long long)state->tokens);
}

enum tw_exit tw_daemon_load(struct tw_daemon *daemon, struct tw_error *err) {
    static struct tw_checkpoint_found found;
    static struct tw_checkpoint_state state;
    struct tw_error reason = {0};
    const char *dir = daemon->setup->run_state_dir;
    if (tw_checkpoint_create(&daemon->checkpoint, watched_disk(daemon), dir, &daemon->setup->layout,
                             &daemon->setup->run_id, err) != TW_OK) {
        return TW_EXIT_STATE_DIR;
    }
    const enum tw_status status = memory_load(daemon, &found, &state, &reason);
    if (status == TW_OK && found.is_loaded) {
        loaded_take(daemon, &found, &state);
        return TW_EXIT_OK;
    }
    tw_shm_format(&daemon->host->memory.shm);
    if (status == TW_OK) { /* no checkpoint at all: whatever was voted for belonged to nothing */
        daemon->has_vote = false;
        return TW_EXIT_OK;
    }
    const bool is_damaged = status == TW_CORRUPT || status == TW_IO;
    if (is_damaged && daemon->setup->options.is_fresh) {
        daemon->has_vote = false;
        tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_given_up",
                       "text=\"%s: starting afresh, as asked\"", reason.message);
        return TW_EXIT_OK;
    }
    (void)tw_fail(err, status, "%.170s%s", reason.message,
                  is_damaged ? "; `thinwired --fresh` starts without it (peers give the model back)"
                             : "");
    return status == TW_DENIED || status == TW_CONFIG ? TW_EXIT_MANIFEST : TW_EXIT_CORRUPT;
}

/* ---- saving -------------------------------------------------------------------------------- */

/* On a thread, frozen: nobody changes (phi, u). A snapshot may be overwritten under us: then the
 * other one is whole. */
static void on_copy_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_save *save = &daemon->save;
    const struct tw_shm *shm = &daemon->host->memory.shm;
    const struct tw_layout *layout = &daemon->setup->layout;
    float *phi = (float *)(void *)save->copy, *u = phi + layout->elements;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        const uint64_t begin = layout->fragment_begin[p], bytes = view.elements * sizeof(float);
        moving_copy(daemon, phi + begin, view.phi, bytes);
        moving_copy(daemon, u + begin, view.u, bytes);
    }
    save->has_live = false;
    if (shm->geometry.snapshot_bytes == 0) return;
    for (unsigned i = 0; i < 4 && !save->has_live; i++) {
        const int slot = tw_shm_snapshot_newest(shm, &save->slot);
        if (slot < 0) return;
        const uint64_t seq = atomic_load(&save->slot.seq);
        moving_copy(daemon, save->copy + anchor_bytes(daemon),
                    tw_shm_snapshot_data(shm, (uint32_t)slot), shm->geometry.snapshot_bytes);
        atomic_thread_fence(memory_order_acquire);
        save->has_live = atomic_load(&tw_shm_control(shm)->snapshots[slot].seq) == seq;
    }
}

static void on_write_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_save *save = &daemon->save;
    const struct tw_layout *layout = &daemon->setup->layout;
    struct tw_checkpoint_arrays arrays;
    memset(&arrays, 0, sizeof(arrays));
    float *phi = (float *)(void *)save->copy;
    tw_checkpoint_arrays_set(&arrays, TW_CHECKPOINT_ANCHOR, layout, phi, false);
    tw_checkpoint_arrays_set(&arrays, TW_CHECKPOINT_MOMENTUM, layout, phi + layout->elements,
                             false);
    if (save->has_live) live_arrays(daemon, save->copy + anchor_bytes(daemon), &arrays);
    save->status = tw_checkpoint_save(daemon->checkpoint, &save->state, &arrays, &save->err);
}

static void save_start(struct tw_daemon *daemon);

static void save_end(struct tw_daemon *daemon, enum tw_status status, const char *sentence) {
    struct tw_save *save = &daemon->save;
    free(save->copy);
    save->copy = NULL;
    save->stage = TW_SAVE_IDLE;
    (void)snprintf(save->error, sizeof(save->error), "%s", status == TW_OK ? "" : sentence);
    for (uint32_t i = 0; i < save->tickets_count; i++) {
        if (daemon->api != NULL) tw_api_answer(daemon->api, save->tickets[i], status, sentence);
    }
    save->tickets_count = save->next_tickets_count;
    memcpy(save->tickets, save->next_tickets, sizeof(save->tickets));
    save->next_tickets_count = 0;
    if (save->is_wanted_again) {
        save->is_wanted_again = false;
        save_start(daemon);
        return;
    }
    tw_daemon_leave_step(daemon);
}

static void on_write_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_save *save = &daemon->save;
    char sentence[sizeof(save->err.message)];
    if (status != 0 || daemon->stage == TW_DAEMON_CLOSING) return;
    if (save->status != TW_OK) {
        (void)snprintf(sentence, sizeof(sentence), "%.80s: %.170s", daemon->setup->run_state_dir,
                       save->err.message);
        if (daemon->stage == TW_DAEMON_LEAVING && daemon->exit_code == TW_EXIT_OK)
            daemon->exit_code = TW_EXIT_STATE_DIR;
        tw_daemon_note(daemon, TW_LOG_ERROR, "checkpoint_failed", "text=\"%s\"", sentence);
        save_end(daemon, save->status, sentence);
        return;
    }
    save->step = save->state.step;
    save->has_step = true;
    save->at_us = tw_daemon_now_us();
    save->bytes = save_bytes(daemon, save->has_live);
    const unsigned long long generation = tw_checkpoint_generation(daemon->checkpoint);
    tw_daemon_note(daemon, TW_LOG_INFO, "checkpoint", "generation=%llu step=%llu bytes=%llu",
                   generation, (unsigned long long)save->step, (unsigned long long)save->bytes);
    (void)snprintf(sentence, sizeof(sentence), "checkpoint %llu of step %llu is on disk",
                   generation, (unsigned long long)save->step);
    save_end(daemon, TW_OK, sentence);
}

static void on_copy_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_save *save = &daemon->save;
    tw_worker_host_thaw(daemon->host);
    if (status != 0 || daemon->stage == TW_DAEMON_CLOSING) return;
    if (save->has_live) {
        save->state.step = save->slot.step;
        save->state.tokens = save->slot.tokens;
        save->state.updates = save->slot.updates;
        memcpy(save->state.rng, save->slot.rng, sizeof(save->state.rng));
        save->state.cursor = save->slot.cursor;
        memcpy(save->state.live_rounds, save->slot.fragment_rounds,
               sizeof(save->state.live_rounds));
    } else {
        save->state.step = daemon->train.step;
        save->state.tokens = daemon->train.tokens;
    }
    save->stage = TW_SAVE_WRITE;
    TW_ASSERT(uv_queue_work(&daemon->loop, &save->work, on_write_work, on_write_done) == 0);
}

void tw_daemon_save_frozen(struct tw_daemon *daemon) {
    struct tw_save *save = &daemon->save;
    TW_ASSERT(save->stage == TW_SAVE_FREEZE);
    memset(&save->state, 0, sizeof(save->state));
    save->state.has_position = true;
    tw_node_position(daemon->node, &save->state.position);
    save->copy = malloc(anchor_bytes(daemon) + daemon->host->memory.shm.geometry.snapshot_bytes);
    if (save->copy == NULL) {
        tw_worker_host_thaw(daemon->host);
        save_end(daemon, TW_NOMEM, "no memory for a copy of the model: the next checkpoint may do");
        return;
    }
    save->stage = TW_SAVE_COPY;
    save->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &save->work, on_copy_work, on_copy_done) == 0);
}

static void freeze_start(struct tw_daemon *daemon) {
    daemon->save.stage = TW_SAVE_FREEZE;
    if (tw_worker_host_freeze(daemon->host)) tw_daemon_save_frozen(daemon);
}

void tw_daemon_save_snapshot_done(struct tw_daemon *daemon) {
    if (daemon->save.stage == TW_SAVE_SNAPSHOT) freeze_start(daemon);
}

static void save_start(struct tw_daemon *daemon) {
    struct tw_save *save = &daemon->save;
    const uint64_t interval = daemon->setup->config.node.checkpoint_interval_us;
    save->due_us = interval == 0 ? UINT64_MAX : tw_daemon_now_us() + interval;
    if (!daemon->host->has_anchor) {
        /* Who leaves with nothing loses nothing. */
        save_end(daemon, daemon->stage == TW_DAEMON_LEAVING ? TW_OK : TW_AGAIN,
                 "nothing to save yet: no worker has started the model");
        return;
    }
    const bool has_slots = daemon->host->memory.shm.geometry.snapshot_bytes > 0;
    save->wait_until_us = tw_daemon_now_us() + TW_SNAPSHOT_WAIT_US;
    if (has_slots && tw_worker_host_is_ready(daemon->host)) {
        save->stage = TW_SAVE_SNAPSHOT;
        tw_worker_host_say(daemon->host, TW_WMSG_SNAPSHOT);
        return;
    }
    freeze_start(daemon);
}

void tw_daemon_save(struct tw_daemon *daemon, const uint32_t *ticket) {
    struct tw_save *save = &daemon->save;
    const bool is_busy = save->stage != TW_SAVE_IDLE;
    uint32_t *count = is_busy ? &save->next_tickets_count : &save->tickets_count;
    if (ticket != NULL && *count == TW_SAVE_TICKETS_MAX) {
        tw_api_answer(daemon->api, *ticket, TW_LIMIT, "too many are waiting for a checkpoint");
        return;
    }
    if (ticket != NULL) (is_busy ? save->next_tickets : save->tickets)[(*count)++] = *ticket;
    if (is_busy) {
        save->is_wanted_again = true;
    } else {
        save_start(daemon);
    }
}

/* A worker that does not answer must not cost the last checkpoint: once it is dead, nobody writes
 * into the memory and the newest snapshot is as good as it gets. */
static void worker_give_up(struct tw_daemon *daemon) {
    if (daemon->is_worker_gone) return;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_hangs", "text=\"it does not answer: ending it\"");
    daemon->is_worker_gone = true;
    (void)tw_supervisor_stop(&daemon->supervisor, 0);
}

void tw_daemon_save_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_save *save = &daemon->save;
    if (save->due_us == 0) { /* the first one after a whole interval */
        const uint64_t interval = daemon->setup->config.node.checkpoint_interval_us;
        save->due_us = interval == 0 ? UINT64_MAX : now_us + interval;
    }
    const bool is_waiting = save->stage == TW_SAVE_SNAPSHOT || save->stage == TW_SAVE_FREEZE;
    const bool is_late = is_waiting && now_us >= save->wait_until_us;
    if (is_late && daemon->stage == TW_DAEMON_LEAVING) worker_give_up(daemon);
    if (is_late && save->stage == TW_SAVE_SNAPSHOT) freeze_start(daemon);
    if (save->stage == TW_SAVE_IDLE && daemon->stage == TW_DAEMON_RUNNING &&
        now_us >= save->due_us && daemon->host->has_anchor) {
        tw_daemon_save(daemon, NULL);
    }
}
