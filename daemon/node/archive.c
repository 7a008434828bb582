#include "daemon/node/archive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/store/file.h"
#include "daemon/workerlink/worker_host.h"
#include "proto/archive.h"

enum {
    JOBS_MAX = 64,
    HELD_MAX = 4, /* rounds whose results wait for the disk in the pool, which other rounds need */
};

enum folder { ROUNDS, STATES, MEMBERS, FOLDERS };

/* One file to be written, from one of three sources. */
struct job {
    enum folder folder;
    char name[TW_ARCHIVE_NAME_BYTES];
    uint32_t bytes_count;
    uint8_t bytes[TW_ARCHIVE_ROUND_BYTES_MAX]; /* a round, or certificates */
    uint32_t rows_count;
    uint32_t rows[TW_PARTS_MAX]; /* results: rows of the pool, held until they are written */
    void *state;                 /* a state, owned; NULL: none */
    uint64_t state_bytes;
};

/* Where the archived rounds of a fragment lead. */
struct reach {
    struct tw_id lineage;
    uint64_t rounds; /* value of tw_shm_state after the newest archived one; 0: none is archived */
};

struct tw_daemon_archive {
    int dirs[FOLDERS]; /* handles of the file functions; negative: not open */
    struct reach reach[TW_FRAGMENTS_MAX];
    struct job jobs[JOBS_MAX]; /* ring */
    uint32_t first, count, held;
    bool is_writing, is_state_queued;
    uint64_t rounds, bytes, lost;
    enum tw_status status;
    struct tw_error err;
    uint64_t written_bytes; /* of the job that a thread writes */
    char error[TW_VIEW_TEXT_BYTES];
    uv_work_t work;
};

/* ---- writing, on a thread -------------------------------------------------------------------- */

static uint64_t size_of(const struct tw_daemon *daemon, const struct job *job) {
    uint64_t size = job->bytes_count + job->state_bytes;
    for (uint32_t i = 0; i < job->rows_count; i++)
        size += daemon->host->payloads.pool.rows[job->rows[i]].bytes;
    return size;
}

static enum tw_status write_parts(const struct tw_daemon *daemon, struct tw_durable *file,
                                  const struct job *job, struct tw_error *err) {
    const struct tw_payloads *const payloads = &daemon->host->payloads;
    uint64_t at = 0;
    if (job->bytes_count > 0) TW_TRY(tw_durable_write(file, job->bytes, job->bytes_count, 0, err));
    if (job->state != NULL) TW_TRY(tw_durable_write(file, job->state, job->state_bytes, 0, err));
    for (uint32_t i = 0; i < job->rows_count; i++) {
        const uint32_t bytes = payloads->pool.rows[job->rows[i]].bytes;
        TW_TRY(tw_durable_write(file, tw_payloads_bytes(payloads, job->rows[i]), bytes, at, err));
        at += bytes;
    }
    return TW_OK;
}

/* A file of that name is there already after a restart. */
static bool exists(int dir, const char *name) {
    const struct tw_file_ops *const ops = tw_file_system();
    const int file = ops->open(ops->ctx, dir, name);
    if (file >= 0) (void)ops->close(ops->ctx, file);
    return file >= 0;
}

static void on_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_archive *archive = daemon->archive;
    const struct job *const job = &archive->jobs[archive->first];
    const int dir = archive->dirs[job->folder];
    struct tw_durable file;
    archive->written_bytes = 0;
    archive->status = TW_OK;
    if (job->folder != MEMBERS && exists(dir, job->name)) return; /* certificates are renewed */
    const uint64_t size = size_of(daemon, job);
    archive->status =
        tw_durable_begin(&file, tw_file_system_shared(), dir, job->name, size, &archive->err);
    if (archive->status != TW_OK) return;
    archive->status = write_parts(daemon, &file, job, &archive->err);
    if (archive->status != TW_OK) {
        tw_durable_abort(&file);
        return;
    }
    archive->status = tw_durable_commit(&file, &archive->err);
    archive->written_bytes = size;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void release(struct tw_daemon *daemon, struct job *job) {
    for (uint32_t i = 0; i < job->rows_count; i++)
        tw_pool_release(&daemon->host->payloads.pool, job->rows[i]);
    if (job->rows_count > 0) daemon->archive->held--;
    if (job->state != NULL) daemon->archive->is_state_queued = false;
    free(job->state);
    *job = (struct job){.rows_count = 0};
}

static void start(struct tw_daemon *daemon);

static void note_outcome(struct tw_daemon *daemon) {
    struct tw_daemon_archive *archive = daemon->archive;
    const bool had_error = archive->error[0] != '\0', has_error = archive->status != TW_OK;
    if (has_error) {
        archive->lost++;
        (void)snprintf(archive->error, sizeof(archive->error), "%s", archive->err.message);
        if (!had_error)
            tw_daemon_note(daemon, TW_LOG_WARN, "archive_failed", "text=\"%s\"",
                           archive->err.message);
        return;
    }
    archive->bytes += archive->written_bytes;
    const struct job *const job = &archive->jobs[archive->first];
    archive->rounds += job->folder == ROUNDS && job->bytes_count > 0;
    archive->error[0] = '\0';
    if (had_error)
        tw_daemon_note(daemon, TW_LOG_INFO, "archive_writes", "text=\"it writes again\"");
}

static void on_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_archive *archive = daemon->archive;
    TW_ASSERT(archive->count > 0);
    if (status == 0) note_outcome(daemon);
    release(daemon, &archive->jobs[archive->first]);
    archive->first = (archive->first + 1) % JOBS_MAX;
    archive->count--;
    archive->is_writing = false;
    start(daemon);
    tw_daemon_leave_step(daemon);
}

static void start(struct tw_daemon *daemon) {
    struct tw_daemon_archive *archive = daemon->archive;
    if (archive->is_writing || archive->count == 0 || daemon->stage == TW_DAEMON_CLOSING) return;
    archive->is_writing = true;
    archive->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &archive->work, on_work, on_done) == 0);
}

/* Returns a place at the end of the queue, or NULL, counted, if it is full. */
static struct job *add(struct tw_daemon_archive *archive, enum folder folder) {
    if (archive->count == JOBS_MAX) {
        archive->lost++;
        return NULL;
    }
    struct job *const job = &archive->jobs[(archive->first + archive->count++) % JOBS_MAX];
    *job = (struct job){.folder = folder};
    return job;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void tw_daemon_archive_decided(struct tw_daemon *daemon, const struct tw_record *record) {
    struct tw_daemon_archive *archive = daemon->archive;
    const struct tw_proof *proof;
    if (archive == NULL || tw_node_round(daemon->node, record->round, &proof) == NULL) return;
    struct job *const job = add(archive, ROUNDS);
    if (job == NULL) return;
    tw_archive_round_name(record, "round", job->name);
    job->bytes_count = (uint32_t)tw_archive_round_encode(record, proof, job->bytes);
    start(daemon);
}

/* Copies (phi, u) of the fragment into a job. The copy waits for a later round while another one is
 * queued or the worker changes (phi, u). */
static void keep_state(struct tw_daemon *daemon, uint32_t fragment) {
    struct tw_daemon_archive *archive = daemon->archive;
    const struct tw_shm *const shm = &daemon->host->memory.shm;
    struct tw_shm_view view;
    if (archive->is_state_queued || tw_calls_changes(daemon->host) > 0) return;
    tw_shm_view(shm, fragment, &view);
    const uint64_t phi_bytes = view.elements * sizeof(float),
                   u_bytes = view.elements * tw_momentum_bytes(shm->momentum);
    uint8_t *const copy = malloc(phi_bytes + u_bytes);
    struct job *const job = copy != NULL ? add(archive, STATES) : NULL;
    if (job == NULL) {
        free(copy);
        return;
    }
    memcpy(copy, view.phi, phi_bytes);
    if (u_bytes > 0) memcpy(copy + phi_bytes, view.u, u_bytes);
    tw_archive_state_name(&view.state.digest, job->name);
    job->state = copy;
    job->state_bytes = phi_bytes + u_bytes;
    archive->is_state_queued = true;
}

/* Holds the results of the round in the pool until they are written. Returns false, counted, if
 * that is not possible. */
static bool keep_results(struct tw_daemon *daemon, const struct tw_record *record) {
    struct tw_pool *const pool = &daemon->host->payloads.pool;
    struct tw_daemon_archive *const archive = daemon->archive;
    struct job *const job = archive->held < HELD_MAX ? add(archive, ROUNDS) : NULL;
    archive->lost += archive->held == HELD_MAX;
    if (job == NULL) return false;
    tw_archive_round_name(record, "results", job->name);
    archive->held++;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes == 0) continue;
        const int row = tw_pool_find(pool, &record->parts[k].result);
        if (row < 0 || pool->rows[row].state != TW_PAYLOAD_HELD) {
            archive->held -= job->rows_count == 0;
            release(daemon, job);
            archive->count--;
            archive->lost++;
            return false;
        }
        tw_pool_hold(pool, (uint32_t)row);
        job->rows[job->rows_count++] = (uint32_t)row;
    }
    if (job->rows_count > 0) return true;
    archive->held--; /* every part is absent: there is nothing to write */
    archive->count--;
    return true;
}

void tw_daemon_archive_apply(struct tw_daemon *daemon, const struct tw_action *action) {
    struct tw_daemon_archive *archive = daemon->archive;
    const struct tw_proof *proof;
    const uint32_t fragment = action->u.apply.fragment;
    if (archive == NULL || !tw_worker_host_is_ready(daemon->host)) return;
    const struct tw_record *const record =
        tw_node_round(daemon->node, action->u.apply.round, &proof);
    if (record == NULL || record->parts_count == 0) return;
    struct reach *const reach = &archive->reach[fragment];
    struct tw_shm_view view;
    tw_shm_view(&daemon->host->memory.shm, fragment, &view);
    if (reach->rounds != view.state.rounds || !tw_id_equal(&reach->lineage, &record->lineage))
        keep_state(daemon, fragment);
    if (keep_results(daemon, record))
        *reach = (struct reach){.lineage = record->lineage, .rounds = record->round + 1};
    start(daemon);
}

void tw_daemon_archive_admitted(struct tw_daemon *daemon, const struct tw_id *node,
                                const struct tw_certs *certs) {
    struct tw_daemon_archive *archive = daemon->archive;
    struct job *const job = archive != NULL && certs->count > 0 ? add(archive, MEMBERS) : NULL;
    if (job == NULL) return;
    tw_archive_member_name(node, job->name);
    job->bytes_count = (uint32_t)tw_certs_encode(certs, job->bytes);
    start(daemon);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum tw_status make_folder(const char *path, struct tw_error *err) {
    if (mkdir(path, 0750) == 0 || errno == EEXIST) return TW_OK;
    return tw_fail(err, TW_IO, "node.archive: %.200s: %s", path, strerror(errno));
}

static enum tw_status open_folder(struct tw_daemon_archive *archive, const char *path,
                                  enum folder folder, struct tw_error *err) {
    static const char *const NAMES[FOLDERS] = {"rounds", "states", "members"};
    const struct tw_file_ops *const ops = tw_file_system();
    char inner[TW_PATH_BYTES + 16];
    (void)snprintf(inner, sizeof(inner), "%s/%s", path, NAMES[folder]);
    TW_TRY(make_folder(inner, err));
    archive->dirs[folder] = ops->dir_open(ops->ctx, inner);
    if (archive->dirs[folder] >= 0) return TW_OK;
    return tw_fail(err, TW_IO, "node.archive: %.200s: %s", inner, strerror(-archive->dirs[folder]));
}

/* An archive holds one run. */
static enum tw_status write_manifest(const struct tw_daemon *daemon, const char *path,
                                     struct tw_error *err) {
    static const char NAME[] = "run.manifest";
    char there[TW_MANIFEST_BYTES_MAX + 1];
    const char *const ours = daemon->setup->manifest;
    const size_t size = tw_cache_file_load(path, NAME, there, sizeof(there));
    if (size == strlen(ours) && memcmp(there, ours, size) == 0) return TW_OK;
    if (size > 0)
        return tw_fail(err, TW_IO, "node.archive: %.200s has another run: name an empty folder",
                       path);
    tw_cache_file_save(path, NAME, ours, strlen(ours));
    if (tw_cache_file_load(path, NAME, there, sizeof(there)) == strlen(ours)) return TW_OK;
    return tw_fail(err, TW_IO, "node.archive: %.200s cannot be written", path);
}

enum tw_status tw_daemon_archive_open(struct tw_daemon *daemon, struct tw_error *err) {
    const char *const path = daemon->setup->config.node.archive;
    if (path[0] == '\0') return TW_OK;
    struct tw_daemon_archive *archive = tw_daemon_alloc(sizeof(*archive), err);
    if (archive == NULL) return TW_NOMEM;
    daemon->archive = archive;
    for (int i = 0; i < FOLDERS; i++) archive->dirs[i] = -1;
    TW_TRY(make_folder(path, err));
    TW_TRY(write_manifest(daemon, path, err));
    for (int i = 0; i < FOLDERS; i++) TW_TRY(open_folder(archive, path, (enum folder)i, err));
    tw_daemon_archive_admitted(daemon, &daemon->setup->identity.id, &daemon->setup->gate.own);
    return TW_OK;
}

bool tw_daemon_archive_is_saving(const struct tw_daemon *daemon) {
    return daemon->archive != NULL && daemon->archive->count > 0;
}

void tw_daemon_archive_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_daemon_archive *const archive = daemon->archive;
    view->archive.is_on = archive != NULL;
    if (archive == NULL) return;
    view->archive.rounds = archive->rounds;
    view->archive.bytes = archive->bytes;
    view->archive.lost = archive->lost;
    (void)snprintf(view->archive.error, sizeof(view->archive.error), "%s", archive->error);
}

void tw_daemon_archive_free(struct tw_daemon *daemon) {
    struct tw_daemon_archive *archive = daemon->archive;
    const struct tw_file_ops *const ops = tw_file_system();
    if (archive == NULL) return;
    for (; archive->count > 0; archive->count--) {
        free(archive->jobs[archive->first].state);
        archive->first = (archive->first + 1) % JOBS_MAX;
    }
    for (int i = 0; i < FOLDERS; i++)
        if (archive->dirs[i] >= 0) (void)ops->close(ops->ctx, archive->dirs[i]);
    free(archive);
    daemon->archive = NULL;
}
