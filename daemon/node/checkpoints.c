#include "daemon/node/checkpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "base/units.h"
#include "daemon/api/api.h"
#include "daemon/api/status_view.h"
#include "daemon/process/service.h"
#include "daemon/runlog/alerts.h"
#include "daemon/store/checkpoint.h"
#include "daemon/store/generations.h"
#include "daemon/store/vote_store.h"
#include "daemon/workerlink/worker_host.h"

/* ==== the vote ================================================================================ */

enum { RETRY_MS = 1000 };

struct job {
    bool is_used;
    uint64_t seq;
    struct tw_vote vote;
};

struct tw_daemon_votes {
    struct tw_vote_store store;
    bool is_store_open;
    bool has_loaded, is_lost;
    struct tw_vote loaded;
    struct job saving, waiting;
    uv_work_t work;
    uv_timer_t timer; /* timer of the next try after a failed write */
    enum tw_status status;
    struct tw_error err;
    char error[TW_VIEW_TEXT_BYTES]; /* why the newest vote is not on disk, or "" */
};

/* ---- saving -------------------------------------------------------------------------------- */

static void on_vote_work(uv_work_t *work) {
    struct tw_daemon_votes *votes = ((struct tw_daemon *)work->data)->votes;
    votes->status = tw_vote_store_save(&votes->store, &votes->saving.vote, &votes->err);
}

static void save_vote(struct tw_daemon *daemon);

static void on_vote_timer(uv_timer_t *timer) {
    save_vote(timer->data);
}

static void on_vote_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_votes *votes = daemon->votes;
    if (daemon->stage == TW_DAEMON_CLOSING || status != 0) return;
    const char *const error = votes->status == TW_OK ? "" : votes->err.message;
    const bool is_news = strcmp(votes->error, error) != 0;
    (void)snprintf(votes->error, sizeof(votes->error), "%s", error);
    if (votes->status != TW_OK) {
        if (is_news)
            tw_daemon_note(daemon, TW_LOG_ERROR, "vote_not_saved", "text=\"%s\"",
                           votes->err.message);
        if (daemon->stage == TW_DAEMON_RUNNING) {
            TW_ASSERT(uv_timer_start(&votes->timer, on_vote_timer, RETRY_MS, 0) == 0);
            return;
        }
    }
    const struct tw_event stored = {
        .kind = TW_EV_STORED, .ok = true, .u.store_seq = votes->saving.seq};
    const bool ok = votes->status == TW_OK;
    votes->saving.is_used = false;
    if (votes->waiting.is_used) {
        votes->saving = votes->waiting;
        votes->waiting.is_used = false;
        save_vote(daemon);
    }
    if (ok) tw_daemon_event(daemon, &stored);
    tw_daemon_leave_step(daemon);
}

static void save_vote(struct tw_daemon *daemon) {
    struct tw_daemon_votes *votes = daemon->votes;
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    votes->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &votes->work, on_vote_work, on_vote_done) == 0);
}

void tw_daemon_votes_store(struct tw_daemon *daemon, const struct tw_action *action) {
    struct tw_daemon_votes *votes = daemon->votes;
    struct job *job = votes->saving.is_used ? &votes->waiting : &votes->saving;
    job->is_used = true;
    job->seq = action->u.store.seq;
    job->vote = *action->u.store.vote;
    if (job == &votes->saving) save_vote(daemon);
}

bool tw_daemon_votes_is_saving(const struct tw_daemon *daemon) {
    return daemon->votes->saving.is_used;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_votes_open(struct tw_daemon *daemon, struct tw_error *err) {
    enum tw_vote_found found = TW_VOTE_NONE;
    struct tw_error reason = {0};
    struct tw_daemon_votes *votes = tw_daemon_alloc(sizeof(*votes), err);
    if (votes == NULL) return TW_NOMEM;
    daemon->votes = votes;
    TW_ASSERT(uv_timer_init(&daemon->loop, &votes->timer) == 0);
    votes->timer.data = daemon;
    if (tw_vote_store_open(&votes->store, tw_file_system(), daemon->setup->run_state_dir,
                           &votes->loaded, &found, &reason) != TW_OK) {
        return tw_fail(err, TW_IO, "%s", reason.message);
    }
    votes->is_store_open = true;
    votes->has_loaded = found == TW_VOTE_VALID;
    if (found == TW_VOTE_CORRUPT) {
        votes->is_lost = true;
        tw_daemon_note(daemon, TW_LOG_WARN, "vote_lost",
                       "text=\"%s: this node joins its run again as a new member\"",
                       reason.message);
    }
    return TW_OK;
}

const struct tw_vote *tw_daemon_votes_loaded(const struct tw_daemon *daemon) {
    return daemon->votes->has_loaded ? &daemon->votes->loaded : NULL;
}

/* Returns true if no vote was loaded: this node may then have voted without remembering it. */
static bool is_vote_lost(const struct tw_daemon *daemon) {
    return daemon->votes->is_lost || !daemon->votes->has_loaded;
}

/* Discards the loaded vote, which belongs to no position: the core must start without it. */
static void forget_vote(struct tw_daemon *daemon) {
    daemon->votes->has_loaded = false;
}

void tw_daemon_votes_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    (void)snprintf(view->checkpoint.vote_error, sizeof(view->checkpoint.vote_error), "%s",
                   daemon->votes->error);
}

void tw_daemon_votes_close(struct tw_daemon *daemon) {
    uv_close((uv_handle_t *)&daemon->votes->timer, NULL);
}

void tw_daemon_votes_free(struct tw_daemon *daemon) {
    if (daemon->votes->is_store_open) tw_vote_store_close(&daemon->votes->store);
    free(daemon->votes);
}

/* ==== checkpoints ============================================================================= */

enum {
    REQUESTS_MAX = 16, /* API requests that may wait for one checkpoint */
    SNAPSHOT_WAIT_US = 10 * 1000 * 1000,
    FIRST_US = 2 * 1000 * 1000, /* from the first merge to its checkpoint */
    LOST_US = 3 * 1000 * 1000,  /* from the death of peers: several may die in a row */
};

enum stage {
    STAGE_IDLE,
    STAGE_SNAPSHOT, /* the worker was asked for a snapshot */
    STAGE_FREEZE,   /* waiting until (phi, u) is not being changed */
    STAGE_COPY,     /* thread: memory to memory; skipped without snapshots */
    STAGE_WRITE,    /* thread: memory to disk */
};

/* Identifies the content of a generation: two with equal marks have the same content. */
struct mark {
    bool exists, has_live, has_position;
    uint64_t step, tokens, rounds;
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
};

struct tw_daemon_checkpoints {
    struct tw_checkpoint *files; /* owned */
    struct mark newest;          /* newest generation on disk */
    uint32_t newest_file;        /* file number of `newest`, for tw_checkpoint_file_name */
    uint32_t loaded_file; /* the loaded generation; TW_CHECKPOINT_FILES: none, or replaced since */
    struct tw_generations generations;
    uint64_t work_saved; /* work_of(daemon) at the newest save: no save is due until it changes */
    uint64_t frozen_us;  /* time of the state that is being saved */
    enum stage stage;
    bool is_wanted_again;           /* another checkpoint was requested during this one */
    struct tw_checkpoint_pace pace; /* when the next periodic one is due */
    bool has_pace, has_merged; /* has_merged: work of another node was merged since the start */
    uint32_t alive;            /* peers alive at the last tick */
    uint64_t write_us;         /* time that the last write took */
    bool is_older_kept;        /* the present write replaces the newest generation */
    uint64_t wait_until_us;
    uint32_t requests_count;
    uint32_t requests[REQUESTS_MAX]; /* API requests that the checkpoint in progress will answer */
    uint32_t next_requests_count;
    /* API requests that the next checkpoint will answer. */
    uint32_t next_requests[REQUESTS_MAX];
    bool has_live;
    uint8_t *copy; /* phi, u and the snapshot, from COPY to the end of WRITE. If NULL, (phi, u)
                      stays frozen that long and is written from the shared memory */
    struct tw_snapshot_slot slot;
    struct tw_checkpoint_state state;
    enum tw_status status;
    struct tw_error err;
    uv_work_t work;
    struct tw_file_ops disk; /* file functions that also add to daemon->moved */
    uint64_t noted_us;       /* time of the last report of loading to the service manager */
    bool has_position;
    struct tw_position position; /* position of the loaded checkpoint */
    /* properties of the newest checkpoint on disk */
    uint64_t step, at_us, bytes;
    bool has_step;
    char error[TW_VIEW_TEXT_BYTES];
    bool is_room_short; /* `error` is about the next checkpoint, which was not tried yet */
};

/* ---- the disk ------------------------------------------------------------------------------ */

enum { NOTIFY_US = 5 * 1000 * 1000 };

/* Counts progress. Writing a large checkpoint to a slow disk takes long, and the daemon gives up
 * only if no byte moves. */
static void count_moved(struct tw_daemon *daemon, int64_t bytes) {
    if (bytes > 0) atomic_fetch_add(&daemon->moved, (uint64_t)bytes);
}

/* Tells the service manager that loading goes on. Loading blocks the loop, and the service manager
 * would otherwise give up. */
static void note_loading(struct tw_daemon *daemon) {
    const uint64_t now_us = tw_daemon_now_us();
    if (now_us - daemon->checkpoints->noted_us < NOTIFY_US) return;
    daemon->checkpoints->noted_us = now_us;
    tw_notify("EXTEND_TIMEOUT_USEC=%u\nSTATUS=loading the checkpoint: %llu MiB",
              (unsigned)TW_NOTIFY_EXTEND_US,
              (unsigned long long)(atomic_load(&daemon->moved) >> 20));
}

/* Copies piece by piece and counts the bytes as progress. Memory may be slow, too: swapped pages
 * are read from disk. */
static void copy_counted(struct tw_daemon *daemon, void *to, const void *from, uint64_t bytes) {
    enum { PIECE_BYTES = 1 << 20 };
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        memcpy((uint8_t *)to + done, (const uint8_t *)from + done, piece);
        done += piece;
        count_moved(daemon, (int64_t)piece);
    }
}

static int64_t counted_read(void *ctx, int file, void *bytes, size_t size, uint64_t offset) {
    const int64_t done = tw_file_system()->read(NULL, file, bytes, size, offset);
    count_moved(ctx, done);
    note_loading(ctx);
    return done;
}

static int64_t counted_write(void *ctx, int file, const void *bytes, size_t size, uint64_t offset) {
    const int64_t done = tw_file_system()->write(NULL, file, bytes, size, offset);
    count_moved(ctx, done);
    return done;
}

static int counted_sync(void *ctx, int file) {
    const int result = tw_file_system()->sync(NULL, file);
    count_moved(ctx, 1);
    return result;
}

static const struct tw_file_ops *count_disk(struct tw_daemon *daemon) {
    daemon->checkpoints->disk = *tw_file_system(); /* the context can be replaced: the functions of
                                                      tw_file_system() use none */
    daemon->checkpoints->disk.ctx = daemon;
    daemon->checkpoints->disk.read = counted_read;
    daemon->checkpoints->disk.write = counted_write;
    daemon->checkpoints->disk.sync = counted_sync;
    daemon->checkpoints->noted_us = tw_daemon_now_us();
    return &daemon->checkpoints->disk;
}

/* ---- arrays -------------------------------------------------------------------------------- */

static bool is_bf16(const struct tw_daemon *daemon) {
    return daemon->setup->memory.snapshot == TW_SNAPSHOT_BF16_MOMENTS;
}

/* Points `arrays` at theta, m and v of a snapshot slot. */
static void set_live_arrays(const struct tw_daemon *daemon, uint8_t *slot,
                            struct tw_checkpoint_arrays *arrays) {
    const struct tw_layout *layout = &daemon->setup->layout;
    const uint64_t moment_bytes = layout->elements * (is_bf16(daemon) ? 2 : 4);
    uint8_t *m = slot + layout->elements * 4;
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_LIVE, layout, slot, false);
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_ADAM_M, layout, m, is_bf16(daemon));
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_ADAM_V, layout, m + moment_bytes,
                             is_bf16(daemon));
}

/* Points `arrays` at phi and, if the run keeps one, u. */
static void set_anchor_arrays(const struct tw_layout *layout, float *phi, void *u,
                              struct tw_checkpoint_arrays *arrays) {
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_ANCHOR, layout, phi, false);
    if (layout->momentum == TW_MOMENTUM_NONE) return;
    tw_checkpoint_arrays_set(arrays, TW_CHECKPOINT_MOMENTUM, layout, u,
                             layout->momentum == TW_MOMENTUM_BF16);
}

static uint64_t anchor_bytes(const struct tw_daemon *daemon) {
    const struct tw_layout *const layout = &daemon->setup->layout;
    return layout->elements * (sizeof(float) + tw_momentum_bytes(layout->momentum));
}

static uint64_t save_bytes(const struct tw_daemon *daemon, bool has_live) {
    return anchor_bytes(daemon) + (has_live ? daemon->host->memory.shm.geometry.snapshot_bytes : 0);
}

/* ---- good and bad generations -------------------------------------------------------------- */

void tw_daemon_checkpoints_judged(struct tw_daemon *daemon, float loss, bool is_hurt) {
    tw_generations_judge(&daemon->checkpoints->generations, loss, is_hurt, tw_daemon_now_us());
}

void tw_daemon_checkpoints_wild(struct tw_daemon *daemon) {
    tw_generations_wild(&daemon->checkpoints->generations, tw_daemon_now_us());
}

static struct mark mark_of(const struct tw_checkpoint_state *state, bool has_live) {
    struct mark mark = {
        .exists = true, .has_live = has_live, .step = state->step, .tokens = state->tokens};
    if (!state->has_position) return mark;
    mark.has_position = true;
    mark.rounds = state->position.rounds;
    memcpy(mark.fragment_rounds, state->position.fragment_rounds, sizeof(mark.fragment_rounds));
    memcpy(mark.fragment_digests, state->position.fragment_digests, sizeof(mark.fragment_digests));
    return mark;
}

static bool is_same(const struct mark *a, const struct mark *b) {
    return a->exists && b->exists && a->has_live == b->has_live && a->step == b->step &&
           a->tokens == b->tokens && a->rounds == b->rounds &&
           memcmp(a->fragment_rounds, b->fragment_rounds, sizeof(a->fragment_rounds)) == 0 &&
           memcmp(a->fragment_digests, b->fragment_digests, sizeof(a->fragment_digests)) == 0;
}

/* ---- loading ------------------------------------------------------------------------------- */

/* Returns the rounds of fragment `p` according to the position. If the loaded fragment does not
 * have the position's digest, marks it as one to be fetched from a peer. */
static uint64_t check_position(struct tw_daemon *daemon, uint32_t p, const struct tw_id *digest) {
    struct tw_position *position = &daemon->checkpoints->position;
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

/* Writes rounds and digests of the loaded arrays to the control page. */
static void describe_memory(struct tw_daemon *daemon, const struct tw_checkpoint_state *state,
                            bool has_live) {
    const struct tw_shm *shm = &daemon->host->memory.shm;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        float *phi;
        void *u;
        tw_shm_home(shm, p, &phi, &u);
        struct tw_shm_state home = {.rounds = 0};
        note_loading(daemon); /* hashing takes long, too */
        home.digest = tw_shm_digest(phi, u, tw_shm_fragment_elements(shm, p), shm->momentum);
        if (daemon->checkpoints->has_position)
            home.rounds = check_position(daemon, p, &home.digest);
        tw_shm_home_set(shm, p, &home);
    }
    if (!has_live || shm->geometry.snapshot_bytes == 0) {
        /* the count of steps continues from the checkpoint */
        atomic_store(&tw_shm_control(shm)->step, state->step);
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
    if (!daemon->checkpoints->has_position)
        memset(slot.fragment_rounds, 0, sizeof(slot.fragment_rounds));
    tw_shm_snapshot_end(shm, 0, &slot);
}

/* Sets the age of the loaded generation for the status, by its file's time. */
static void date_loaded(struct tw_daemon *daemon, uint32_t slot, bool has_live) {
    char path[TW_PATH_BYTES + 32];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/ckpt.%c.safetensors", daemon->setup->run_state_dir,
                   slot == 0 ? 'a' : 'b');
    if (stat(path, &info) != 0) return;
    const time_t now = time(NULL);
    const uint64_t age_us = now > info.st_mtime ? (uint64_t)(now - info.st_mtime) * 1000000 : 0;
    daemon->checkpoints->at_us = tw_daemon_now_us() > age_us ? tw_daemon_now_us() - age_us : 1;
    daemon->checkpoints->bytes = save_bytes(daemon, has_live);
}

/* Reads the newest valid generation into the worker's memory. */
static enum tw_status load_memory(struct tw_daemon *daemon, struct tw_checkpoint_found *found,
                                  struct tw_checkpoint_state *state, struct tw_error *err) {
    const struct tw_shm *shm = &daemon->host->memory.shm;
    const bool has_slots = shm->geometry.snapshot_bytes > 0;
    struct tw_checkpoint_arrays arrays;
    memset(&arrays, 0, sizeof(arrays));
    float *phi;
    void *u;
    tw_shm_format(shm);
    tw_shm_home(shm, 0, &phi, &u);
    set_anchor_arrays(&daemon->setup->layout, phi, u, &arrays);
    if (has_slots) {
        tw_shm_snapshot_begin(shm, 0);
        set_live_arrays(daemon, tw_shm_snapshot_data(shm, 0), &arrays);
    }
    return tw_checkpoint_load(daemon->checkpoints->files, &arrays, state, found, err);
}

static void take_loaded(struct tw_daemon *daemon, const struct tw_checkpoint_found *found,
                        const struct tw_checkpoint_state *state) {
    const bool has_live = found->has_kind[TW_CHECKPOINT_LIVE] &&
                          found->has_kind[TW_CHECKPOINT_ADAM_M] &&
                          found->has_kind[TW_CHECKPOINT_ADAM_V];
    daemon->checkpoints->has_position = state->has_position;
    if (daemon->checkpoints->has_position) {
        daemon->checkpoints->position = state->position;
        daemon->lineage = state->position.lineage;
    }
    /* Without its vote, this node may have forgotten that it voted, so it must not use the
     * position. */
    if (daemon->checkpoints->has_position && is_vote_lost(daemon) && state->position.nonce != 0) {
        tw_daemon_note(daemon, TW_LOG_WARN, "vote_missing",
                       "text=\"the disk has no vote for the checkpoint's membership: joining "
                       "again as a new member\"");
        daemon->checkpoints->has_position = false;
    }
    if (!daemon->checkpoints->has_position) forget_vote(daemon);
    describe_memory(daemon, state, has_live);
    daemon->host->has_anchor = true;
    daemon->checkpoints->newest = mark_of(state, has_live);
    daemon->checkpoints->newest_file = tw_checkpoint_newest_file(daemon->checkpoints->files);
    daemon->checkpoints->loaded_file = daemon->checkpoints->newest_file;
    tw_generations_resume(&daemon->checkpoints->generations, state->least_e6, state->is_wild != 0);
    daemon->checkpoints->step = state->step;
    daemon->checkpoints->has_step = true;
    date_loaded(daemon, found->slot, has_live);
    daemon->counts.step = state->step;
    daemon->counts.tokens = state->tokens;
    for (unsigned i = 0; i < TW_CHECKPOINT_SLOTS; i++) {
        if (found->refused[i][0] == '\0') continue;
        tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_refused",
                       "text=\"%s: loading the other generation\"", found->refused[i]);
    }
    tw_daemon_note(daemon, TW_LOG_INFO, "checkpoint_loaded",
                   "generation=%llu step=%llu tokens=%llu", (unsigned long long)found->generation,
                   (unsigned long long)state->step, (unsigned long long)state->tokens);
}

/* After a recall by the owner, no generation on disk is of use. They stay, and the next save gets a
 * higher number than any of them. */
static enum tw_exit pass_over(struct tw_daemon *daemon, struct tw_checkpoint_found *found,
                              struct tw_checkpoint_state *state) {
    static const struct tw_checkpoint_arrays nowhere;
    (void)tw_checkpoint_load(daemon->checkpoints->files, &nowhere, state, found, NULL);
    tw_shm_format(&daemon->host->memory.shm);
    forget_vote(daemon);
    return TW_EXIT_OK;
}

enum tw_exit tw_daemon_checkpoints_load(struct tw_daemon *daemon, struct tw_error *err) {
    static struct tw_checkpoint_found found;
    static struct tw_checkpoint_state state;
    struct tw_error reason = {0};
    const char *dir = daemon->setup->run_state_dir;
    if (tw_checkpoint_create(&daemon->checkpoints->files, count_disk(daemon), dir,
                             &daemon->setup->layout, &daemon->setup->run_id, err) != TW_OK) {
        return TW_EXIT_STATE_DIR;
    }
    if (!tw_id_is_zero(&daemon->setup->awaited)) return pass_over(daemon, &found, &state);
    const enum tw_status status = load_memory(daemon, &found, &state, &reason);
    if (status == TW_OK && found.is_loaded) {
        take_loaded(daemon, &found, &state);
        return TW_EXIT_OK;
    }
    tw_shm_format(&daemon->host->memory.shm);
    if (status == TW_OK) { /* there is no checkpoint, so a stored vote belongs to no position */
        forget_vote(daemon);
        return TW_EXIT_OK;
    }
    const bool is_damaged = status == TW_CORRUPT || status == TW_IO;
    if (is_damaged && daemon->setup->options.is_fresh) {
        forget_vote(daemon);
        tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_given_up",
                       "text=\"%s: starting without a checkpoint (--fresh)\"", reason.message);
        return TW_EXIT_OK;
    }
    (void)tw_fail(err, status, "%.170s%s", reason.message,
                  is_damaged
                      ? "; `thinwire start --fresh` starts without it (peers give the model back)"
                      : "");
    return status == TW_DENIED || status == TW_CONFIG ? TW_EXIT_MANIFEST : TW_EXIT_CORRUPT;
}

void tw_daemon_checkpoints_measure(struct tw_daemon *daemon, uint64_t steps_before) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const struct tw_file_ops *ops = tw_file_system();
    char have[TW_UNITS_BYTES], need[TW_UNITS_BYTES], lost[64] = "";
    const uint64_t bytes = save_bytes(daemon, true);
    const int dir = ops->dir_open(ops->ctx, daemon->setup->run_state_dir);
    if (dir < 0) return;
    const int64_t room = ops->room(ops->ctx, dir);
    (void)ops->close(ops->ctx, dir);
    save->is_room_short = room >= 0 && (uint64_t)room < bytes;
    if (!save->is_room_short) return;
    if (save->has_step && steps_before > save->step)
        (void)snprintf(lost, sizeof(lost), "; the newest one lacks %llu steps of this node",
                       (unsigned long long)(steps_before - save->step));
    (void)snprintf(save->error, sizeof(save->error), "%.80s has %s free, and it needs %s%s",
                   daemon->setup->run_state_dir, tw_units_bytes(have, (double)room),
                   tw_units_bytes(need, (double)bytes), lost);
    tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_no_room", "text=\"%s\"", save->error);
}

/* ---- saving -------------------------------------------------------------------------------- */

/* Copies on a thread, while (phi, u) is frozen. If the worker overwrites the snapshot during the
 * copy, tries again with the other one of the two in shared memory. */
static void on_copy_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const struct tw_shm *shm = &daemon->host->memory.shm;
    const struct tw_layout *layout = &daemon->setup->layout;
    const uint64_t u_bytes = tw_momentum_bytes(shm->momentum); /* of one element */
    float *phi = (float *)(void *)save->copy;
    uint8_t *u = (uint8_t *)(phi + layout->elements);
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        const uint64_t begin = layout->fragment_begin[p];
        copy_counted(daemon, phi + begin, view.phi, view.elements * sizeof(float));
        copy_counted(daemon, u + begin * u_bytes, view.u, view.elements * u_bytes);
    }
    save->has_live = false;
    if (shm->geometry.snapshot_bytes == 0) return;
    for (unsigned i = 0; i < 4 && !save->has_live; i++) {
        const int slot = tw_shm_snapshot_newest(shm, &save->slot);
        if (slot < 0) return;
        const uint64_t seq = atomic_load(&save->slot.seq);
        copy_counted(daemon, save->copy + anchor_bytes(daemon),
                     tw_shm_snapshot_data(shm, (uint32_t)slot), shm->geometry.snapshot_bytes);
        atomic_thread_fence(memory_order_acquire);
        save->has_live = atomic_load(&tw_shm_control(shm)->snapshots[slot].seq) == seq;
    }
}

/* Points `arrays` at (phi, u) in shared memory, where each fragment is at home or in the spare. */
static void set_shared_arrays(const struct tw_shm *shm, struct tw_checkpoint_arrays *arrays) {
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        arrays->at[TW_CHECKPOINT_ANCHOR][p] = (void *)(uintptr_t)view.phi;
        if (shm->momentum != TW_MOMENTUM_NONE)
            arrays->at[TW_CHECKPOINT_MOMENTUM][p] = (void *)(uintptr_t)view.u;
    }
    arrays->is_bf16[TW_CHECKPOINT_MOMENTUM] = shm->momentum == TW_MOMENTUM_BF16;
}

static void on_write_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const struct tw_layout *layout = &daemon->setup->layout;
    struct tw_checkpoint_arrays arrays;
    memset(&arrays, 0, sizeof(arrays));
    if (save->copy != NULL) {
        float *phi = (float *)(void *)save->copy;
        set_anchor_arrays(layout, phi, phi + layout->elements, &arrays);
    } else {
        set_shared_arrays(&daemon->host->memory.shm, &arrays);
    }
    if (save->has_live) set_live_arrays(daemon, save->copy + anchor_bytes(daemon), &arrays);
    const uint64_t begin_us = tw_daemon_now_us();
    save->status =
        tw_checkpoint_save(daemon->checkpoints->files, &save->state, &arrays, &save->err);
    save->write_us = tw_daemon_now_us() - begin_us;
}

static void start_save(struct tw_daemon *daemon);

static void end_save(struct tw_daemon *daemon, enum tw_status status, const char *sentence) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const bool was_frozen = save->copy == NULL && daemon->host->is_frozen;
    free(save->copy);
    save->copy = NULL;
    save->stage = STAGE_IDLE;
    if (was_frozen) tw_worker_host_thaw(daemon->host);
    /* To have nothing to save yet is an answer to the caller, and no failure. */
    if (status != TW_AGAIN) save->is_room_short = false;
    if (status != TW_AGAIN)
        (void)snprintf(save->error, sizeof(save->error), "%s", status == TW_OK ? "" : sentence);
    for (uint32_t i = 0; i < save->requests_count; i++) {
        if (daemon->api != NULL) tw_api_answer(daemon->api, save->requests[i], status, sentence);
    }
    save->requests_count = save->next_requests_count;
    memcpy(save->requests, save->next_requests, sizeof(save->requests));
    save->next_requests_count = 0;
    if (save->is_wanted_again) {
        save->is_wanted_again = false;
        start_save(daemon);
        return;
    }
    tw_daemon_leave_step(daemon);
}

/* Chooses the interval for a file that took `write_us` to write. Reports a change of it. */
static void note_pace(struct tw_daemon *daemon) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const uint64_t before_us = save->pace.spaced_us;
    const enum tw_checkpoint_cost cost = save->pace.cost;
    tw_checkpoint_pace_wrote(&save->pace, save->write_us, save->bytes);
    const uint64_t spaced_us = save->pace.spaced_us;
    const bool is_far = spaced_us > before_us + before_us / 4 || spaced_us < before_us / 4 * 3;
    if (cost == save->pace.cost && !is_far) return;
    tw_daemon_note(daemon, save->pace.cost == TW_CHECKPOINT_SLOW ? TW_LOG_WARN : TW_LOG_INFO,
                   "checkpoint_interval",
                   "interval_us=%llu wanted_us=%llu write_us=%llu bytes=%llu text=\"%s\"",
                   (unsigned long long)spaced_us, (unsigned long long)save->pace.interval_us,
                   (unsigned long long)save->write_us, (unsigned long long)save->bytes,
                   save->pace.cost == TW_CHECKPOINT_CHEAP ? "as configured"
                   : save->pace.cost == TW_CHECKPOINT_WEARS
                       ? "longer, to spare the disk so many bytes"
                       : "longer, because this disk is slow");
}

static void on_write_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    char sentence[sizeof(save->err.message)];
    if (status != 0 || daemon->stage == TW_DAEMON_CLOSING) return;
    if (save->status != TW_OK) {
        (void)snprintf(sentence, sizeof(sentence), "%.80s: %.170s", daemon->setup->run_state_dir,
                       save->err.message);
        if (daemon->stage == TW_DAEMON_LEAVING && daemon->exit_code == TW_EXIT_OK)
            daemon->exit_code = TW_EXIT_STATE_DIR;
        tw_daemon_note(daemon, TW_LOG_ERROR, "checkpoint_failed", "text=\"%s\"", sentence);
        end_save(daemon, save->status, sentence);
        return;
    }
    save->newest = mark_of(&save->state, save->has_live);
    save->newest_file = tw_checkpoint_newest_file(save->files);
    tw_generations_saved(&save->generations, save->frozen_us, save->is_older_kept);
    save->step = save->state.step;
    save->has_step = true;
    save->at_us = tw_daemon_now_us();
    save->bytes = save_bytes(daemon, save->has_live);
    note_pace(daemon);
    const unsigned long long generation = tw_checkpoint_generation(daemon->checkpoints->files);
    tw_daemon_note(daemon, TW_LOG_INFO, "checkpoint", "generation=%llu step=%llu bytes=%llu",
                   generation, (unsigned long long)save->step, (unsigned long long)save->bytes);
    (void)snprintf(sentence, sizeof(sentence), "checkpoint %llu of step %llu is on disk",
                   generation, (unsigned long long)save->step);
    end_save(daemon, TW_OK, sentence);
}

/* Called when the state to save is known: writes it, unless it is already on disk. */
static void start_write(struct tw_daemon *daemon) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    if (save->has_live) {
        save->state.step = save->slot.step;
        save->state.tokens = save->slot.tokens;
        save->state.updates = save->slot.updates;
        memcpy(save->state.rng, save->slot.rng, sizeof(save->state.rng));
        save->state.cursor = save->slot.cursor;
        memcpy(save->state.live_rounds, save->slot.fragment_rounds,
               sizeof(save->state.live_rounds));
    } else {
        save->state.step = daemon->counts.step;
        save->state.tokens = daemon->counts.tokens;
    }
    save->state.least_e6 = save->generations.least_e6;
    save->state.is_wild = save->generations.is_wild;
    const struct mark mark = mark_of(&save->state, save->has_live);
    if (is_same(&mark, &save->newest)) { /* a second copy of the same content would displace the
                                            older generation */
        char sentence[96];
        (void)snprintf(sentence, sizeof(sentence), "checkpoint %llu of step %llu is on disk",
                       (unsigned long long)tw_checkpoint_generation(save->files),
                       (unsigned long long)save->step);
        end_save(daemon, TW_OK, sentence);
        return;
    }
    const bool has_evaluations = daemon->setup->config.node.eval_steps > 0;
    save->work.data = daemon;
    save->is_older_kept =
        tw_generations_awaits_judgement(&save->generations, has_evaluations, tw_daemon_now_us());
    tw_checkpoint_keep_older(save->files, save->is_older_kept);
    tw_checkpoint_keep_replaced(save->files,
                                tw_generations_is_older_good(&save->generations, has_evaluations));
    if (save->is_older_kept == (save->loaded_file == save->newest_file))
        save->loaded_file = TW_CHECKPOINT_FILES;
    save->stage = STAGE_WRITE;
    TW_ASSERT(uv_queue_work(&daemon->loop, &save->work, on_write_work, on_write_done) == 0);
}

static void on_copy_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    tw_worker_host_thaw(daemon->host);
    if (status == 0 && daemon->stage != TW_DAEMON_CLOSING) start_write(daemon);
}

void tw_daemon_checkpoints_frozen(struct tw_daemon *daemon) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    TW_ASSERT(save->stage == STAGE_FREEZE);
    memset(&save->state, 0, sizeof(save->state));
    save->state.has_position = true;
    save->frozen_us = tw_daemon_now_us();
    tw_node_position(daemon->node, &save->state.position);
    save->has_live = false;
    if (daemon->setup->memory.copy_bytes == 0) {
        start_write(daemon);
        return;
    }
    save->copy = malloc(anchor_bytes(daemon) + daemon->host->memory.shm.geometry.snapshot_bytes);
    if (save->copy == NULL) {
        end_save(daemon, TW_NOMEM,
                 "no memory for a copy of the model; it is tried again at the next checkpoint");
        return;
    }
    save->stage = STAGE_COPY;
    save->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &save->work, on_copy_work, on_copy_done) == 0);
}

static void start_freeze(struct tw_daemon *daemon) {
    daemon->checkpoints->stage = STAGE_FREEZE;
    if (tw_worker_host_freeze(daemon->host)) tw_daemon_checkpoints_frozen(daemon);
}

void tw_daemon_checkpoints_snapshot_done(struct tw_daemon *daemon) {
    if (daemon->checkpoints->stage == STAGE_SNAPSHOT) start_freeze(daemon);
}

/* Returns true if the core still waits for a state of the run after the owner's recall. */
static bool is_awaiting(const struct tw_daemon *daemon) {
    struct tw_position position;
    if (tw_id_is_zero(&daemon->setup->awaited)) return false;
    tw_node_position(daemon->node, &position);
    return position.has_held == 0;
}

/* Returns a count that grows while training succeeds: steps, or rounds if the node takes none. */
static uint64_t work_of(const struct tw_daemon *daemon) {
    const bool trains = daemon->setup->config.node.role == TW_NODE_ROLE_TRAIN;
    return trains ? daemon->counts.steps_made : daemon->view.rounds;
}

static void start_save(struct tw_daemon *daemon) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    tw_checkpoint_pace_began(&save->pace, tw_daemon_now_us());
    save->work_saved = work_of(daemon);
    if (!daemon->host->has_anchor) {
        /* A node that leaves without a model loses nothing. */
        end_save(daemon, daemon->stage == TW_DAEMON_LEAVING ? TW_OK : TW_AGAIN,
                 "nothing to save yet: no worker has started the model");
        return;
    }
    if (is_awaiting(daemon)) {
        end_save(daemon, daemon->stage == TW_DAEMON_LEAVING ? TW_OK : TW_AGAIN,
                 "nothing to save yet: this node waits for the state that the owner recalled");
        return;
    }
    const bool has_slots = daemon->host->memory.shm.geometry.snapshot_bytes > 0;
    save->wait_until_us = tw_daemon_now_us() + SNAPSHOT_WAIT_US;
    if (has_slots && tw_worker_host_is_ready(daemon->host)) {
        save->stage = STAGE_SNAPSHOT;
        tw_worker_host_say(daemon->host, TW_WMSG_SNAPSHOT);
        return;
    }
    start_freeze(daemon);
}

void tw_daemon_checkpoints_save(struct tw_daemon *daemon, const uint32_t *request) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const bool is_busy = save->stage != STAGE_IDLE;
    uint32_t *count = is_busy ? &save->next_requests_count : &save->requests_count;
    if (request != NULL && *count == REQUESTS_MAX) {
        tw_api_answer(daemon->api, *request, TW_LIMIT,
                      "too many clients wait for a checkpoint; ask again later");
        return;
    }
    if (request != NULL) (is_busy ? save->next_requests : save->requests)[(*count)++] = *request;
    if (is_busy) {
        save->is_wanted_again = true;
    } else {
        start_save(daemon);
    }
}

static bool is_waiting(const struct tw_daemon_checkpoints *save) {
    return save->stage == STAGE_SNAPSHOT || save->stage == STAGE_FREEZE;
}

bool tw_daemon_checkpoints_is_late(const struct tw_daemon *daemon, uint64_t now_us) {
    return is_waiting(daemon->checkpoints) && now_us >= daemon->checkpoints->wait_until_us;
}

bool tw_daemon_checkpoints_is_saving(const struct tw_daemon *daemon) {
    return daemon->checkpoints->stage != STAGE_IDLE;
}

/* A checkpoint is due soon after the first merge with others, so that a group that is killed in its
 * first minutes goes on where it was. And when peers die: their power may be this node's. */
static void watch_group(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    tw_node_view(daemon->node, &daemon->view);
    if (!save->has_merged && daemon->view.mixed > 0) {
        save->has_merged = true;
        tw_checkpoint_pace_hurry(&save->pace, FIRST_US, now_us);
    }
    if (daemon->view.alive < save->alive) tw_checkpoint_pace_hurry(&save->pace, LOST_US, now_us);
    save->alive = daemon->view.alive;
}

void tw_daemon_checkpoints_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_checkpoints *save = daemon->checkpoints;
    const uint64_t interval_us = daemon->setup->config.node.checkpoint_interval_us;
    if (!save->has_pace || save->pace.interval_us != interval_us)
        tw_checkpoint_pace_init(&save->pace, interval_us, now_us);
    save->has_pace = true;
    watch_group(daemon, now_us);
    const bool is_late = tw_daemon_checkpoints_is_late(daemon, now_us);
    if (is_late && save->stage == STAGE_SNAPSHOT) start_freeze(daemon);
    /* While no step succeeds, the state itself may be the cause: it must not replace the older
     * generations on disk. */
    const bool is_due = now_us >= save->pace.due_us && work_of(daemon) != save->work_saved;
    if (save->stage == STAGE_IDLE && daemon->stage == TW_DAEMON_RUNNING && is_due &&
        daemon->host->has_anchor) {
        tw_daemon_checkpoints_save(daemon, NULL);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_checkpoints_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->checkpoints = tw_daemon_alloc(sizeof(*daemon->checkpoints), err);
    if (daemon->checkpoints == NULL) return TW_NOMEM;
    daemon->checkpoints->loaded_file = TW_CHECKPOINT_FILES;
    return TW_OK;
}

const struct tw_position *tw_daemon_checkpoints_position(const struct tw_daemon *daemon) {
    return daemon->checkpoints->has_position ? &daemon->checkpoints->position : NULL;
}

uint64_t tw_daemon_checkpoints_saved_unix_s(const struct tw_daemon *daemon, uint64_t *rounds) {
    const struct tw_daemon_checkpoints *const save = daemon->checkpoints;
    *rounds = save->newest.rounds;
    if (!save->newest.exists || save->at_us == 0) return 0;
    return (tw_daemon_unix_us() - (tw_daemon_now_us() - save->at_us)) / 1000000;
}

bool tw_daemon_checkpoints_set_aside(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_daemon_checkpoints *const save = daemon->checkpoints;
    return save->loaded_file != TW_CHECKPOINT_FILES &&
           tw_checkpoint_set_aside(save->files, save->loaded_file, err) == TW_OK;
}

void tw_daemon_checkpoints_newest(const struct tw_daemon *daemon, struct tw_evaluations_now *now) {
    const struct mark *const newest = &daemon->checkpoints->newest;
    now->is_saving = tw_daemon_checkpoints_is_saving(daemon);
    now->newest.is_whole = newest->has_position;
    for (uint32_t p = 0; p < daemon->setup->layout.fragments_count; p++)
        if (newest->fragment_rounds[p] == UINT64_MAX) now->newest.is_whole = false;
    now->newest.file = daemon->checkpoints->newest_file;
    now->newest.rounds = newest->rounds;
    now->newest.step = newest->step;
    now->newest.tokens = newest->tokens;
}

void tw_daemon_checkpoints_fill(const struct tw_daemon *daemon, uint64_t now_us,
                                struct tw_status_view *view) {
    const struct tw_daemon_checkpoints *save = daemon->checkpoints;
    (void)snprintf(view->checkpoint.error, sizeof(view->checkpoint.error), "%s", save->error);
    view->checkpoint.is_room_short = save->is_room_short;
    view->checkpoint.interval_us = save->pace.spaced_us;
    view->checkpoint.wanted_us = save->pace.interval_us;
    if (!save->has_step) return;
    view->checkpoint.step = save->step;
    view->checkpoint.bytes = save->bytes;
    if (save->newest.has_position) view->checkpoint.rounds = save->newest.rounds;
    if (save->at_us != 0) {
        view->checkpoint.age_us = now_us > save->at_us ? now_us - save->at_us : 0;
    }
}

void tw_daemon_checkpoints_free(struct tw_daemon *daemon) {
    tw_checkpoint_destroy(daemon->checkpoints->files);
    free(daemon->checkpoints->copy);
    free(daemon->checkpoints);
}
