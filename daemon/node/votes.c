#include "daemon/node/votes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api/status_view.h"
#include "daemon/store/vote_store.h"

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

bool tw_daemon_votes_is_lost(const struct tw_daemon *daemon) {
    return daemon->votes->is_lost || !daemon->votes->has_loaded;
}

void tw_daemon_votes_forget(struct tw_daemon *daemon) {
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
