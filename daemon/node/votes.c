/* votes.c - the vote, the member cache, the bans and what links are like, on disk: read at
 * start. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/net/bans.h"
#include "daemon/node/runtime.h"
#include "daemon/store/durable.h"

enum { VOTE_RETRY_MS = 1000 };

/* ---- votes --------------------------------------------------------------------------------- */

enum tw_status tw_daemon_votes_open(struct tw_daemon *daemon, struct tw_error *err) {
    enum tw_vote_found found = TW_VOTE_NONE;
    struct tw_error reason = {0};
    TW_TRY(tw_vote_store_open(&daemon->votes, tw_file_system(), daemon->setup->run_state_dir,
                              &daemon->vote, &found, &reason) != TW_OK
               ? tw_fail(err, TW_IO, "%s", reason.message)
               : TW_OK);
    daemon->has_votes = true;
    daemon->has_vote = found == TW_VOTE_VALID;
    if (found == TW_VOTE_CORRUPT) {
        daemon->is_vote_lost = true;
        tw_daemon_note(daemon, TW_LOG_WARN, "vote_lost",
                       "text=\"%s: this node joins its run again as a new member\"",
                       reason.message);
    }
    return TW_OK;
}

static void on_vote_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    daemon->vote_status =
        tw_vote_store_save(&daemon->votes, &daemon->vote_saving.vote, &daemon->vote_err);
}

static void vote_save(struct tw_daemon *daemon);

static void on_vote_timer(uv_timer_t *timer) {
    vote_save(timer->data);
}

static void on_vote_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    if (daemon->stage == TW_DAEMON_CLOSING || status != 0) return;
    const char *const error = daemon->vote_status == TW_OK ? "" : daemon->vote_err.message;
    const bool is_news = strcmp(daemon->vote_error, error) != 0;
    (void)snprintf(daemon->vote_error, sizeof(daemon->vote_error), "%s", error);
    if (daemon->vote_status != TW_OK) {
        if (is_news)
            tw_daemon_note(daemon, TW_LOG_ERROR, "vote_not_saved", "text=\"%s\"",
                           daemon->vote_err.message);
        if (daemon->stage == TW_DAEMON_RUNNING) {
            TW_ASSERT(uv_timer_start(&daemon->vote_timer, on_vote_timer, VOTE_RETRY_MS, 0) == 0);
            return;
        }
    }
    const struct tw_event stored = {
        .kind = TW_EV_STORED, .ok = true, .u.store_seq = daemon->vote_saving.seq};
    const bool ok = daemon->vote_status == TW_OK;
    daemon->vote_saving.is_used = false;
    if (daemon->vote_waiting.is_used) {
        daemon->vote_saving = daemon->vote_waiting;
        daemon->vote_waiting.is_used = false;
        vote_save(daemon);
    }
    if (ok) tw_daemon_event(daemon, &stored);
    tw_daemon_leave_step(daemon);
}

static void vote_save(struct tw_daemon *daemon) {
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    daemon->vote_work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &daemon->vote_work, on_vote_work, on_vote_done) == 0);
}

void tw_daemon_vote_store(struct tw_daemon *daemon, const struct tw_action *action) {
    struct tw_vote_job *job =
        daemon->vote_saving.is_used ? &daemon->vote_waiting : &daemon->vote_saving;
    job->is_used = true;
    job->seq = action->u.store.seq;
    job->vote = *action->u.store.vote;
    if (job == &daemon->vote_saving) vote_save(daemon);
}

/* ---- member cache -------------------------------------------------------------------------- */

static const char cache_name[] = "members";

static uint64_t wall_s(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

/* Bytes of that file in the run's folder, into cache_text. */
static size_t text_load(const struct tw_daemon *daemon, const char *name, size_t capacity) {
    char path[TW_PATH_BYTES + 16];
    (void)snprintf(path, sizeof(path), "%s/%s", daemon->setup->run_state_dir, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t size = read(fd, daemon->cache_text, capacity);
    (void)close(fd);
    return size > 0 ? (size_t)size : 0;
}

void tw_daemon_cache_load(struct tw_daemon *daemon) {
    const size_t size = text_load(daemon, cache_name, TW_MEMBERS_TEXT_MAX);
    const uint32_t skipped =
        tw_members_decode(daemon->members, daemon->cache_text, size, tw_daemon_now_us());
    if (skipped > 0) tw_log(TW_LOG_WARN, "cache_damaged", "lines_skipped=%u", skipped);
}

/* At most a few hundred short lines, once a minute and at the end: written here, without a sync,
 * for a lost text costs a reconnect, or a ban, and nothing else. */
static void text_save(const struct tw_daemon *daemon, const char *name, const char *text,
                      size_t size) {
    char path[TW_PATH_BYTES + 16], temporary[TW_PATH_BYTES + 24];
    (void)snprintf(path, sizeof(path), "%s/%s", daemon->setup->run_state_dir, name);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    const bool ok = write(fd, text, size) == (ssize_t)size;
    (void)close(fd);
    if (ok && rename(temporary, path) == 0) return;
    (void)unlink(temporary);
}

void tw_daemon_cache_save(struct tw_daemon *daemon) {
    size_t size = 0;
    if (daemon->transport == NULL) return;
    tw_members_encode(daemon->members, daemon->cache_text, TW_MEMBERS_TEXT_MAX, &size);
    text_save(daemon, cache_name, daemon->cache_text, size);
}

/* ---- bans ---------------------------------------------------------------------------------- */

static const char bans_name[] = "bans";
_Static_assert((size_t)TW_BANS_TEXT_MAX <= TW_MEMBERS_TEXT_MAX, "one buffer does for both");

void tw_daemon_bans_load(struct tw_daemon *daemon) {
    const size_t size = text_load(daemon, bans_name, TW_BANS_TEXT_MAX);
    const uint32_t skipped =
        tw_bans_decode(tw_transport_bans(daemon->transport), daemon->cache_text, size);
    if (skipped > 0) tw_log(TW_LOG_WARN, "bans_damaged", "lines_skipped=%u", skipped);
}

void tw_daemon_bans_save(struct tw_daemon *daemon) {
    const size_t size = tw_bans_encode(tw_transport_bans(daemon->transport), daemon->cache_text);
    text_save(daemon, bans_name, daemon->cache_text, size);
}

void tw_daemon_bans_clock(struct tw_daemon *daemon) {
    if (tw_bans_clock(tw_transport_bans(daemon->transport), wall_s())) tw_daemon_bans_save(daemon);
}

enum tw_status tw_daemon_bans_lift(struct tw_daemon *daemon, const char *hex,
                                   struct tw_error *answer) {
    struct tw_id id;
    char node[9];
    if (daemon->transport == NULL)
        return tw_fail(answer, TW_AGAIN, "links = off: nobody is banned here");
    TW_TRY(tw_bans_lift(tw_transport_bans(daemon->transport), hex, wall_s(), &id, answer));
    tw_daemon_bans_save(daemon);
    tw_members_moved(daemon->members, tw_daemon_now_us()); /* it need not wait out its pause */
    tw_id_short(&id, node);
    tw_daemon_note(daemon, TW_LOG_INFO, "ban_lifted", "peer=%s", node);
    (void)snprintf(answer->message, sizeof(answer->message), "node %s may link again", node);
    return TW_OK;
}

void tw_daemon_bans_fill(struct tw_daemon *daemon, struct tw_status_view *view) {
    const uint64_t now_s = wall_s();
    const struct tw_bans *bans = tw_transport_bans(daemon->transport);
    for (uint32_t i = 0; i < TW_BANS_MAX; i++) {
        const uint64_t left_s = tw_bans_left_s(bans, &bans->rows[i].id, now_s);
        if (left_s == 0) continue;
        view->bans[view->net.banned++] =
            (struct tw_view_ban){.id = bans->rows[i].id, .left_s = left_s};
    }
}

/* ---- what links are like -------------------------------------------------------------------- */

static const char crowd_name[] = "crowd";
_Static_assert((size_t)TW_LINK_QUALITY_FILE_MAX <= TW_MEMBERS_TEXT_MAX, "one buffer does for all");

void tw_daemon_link_quality_load(struct tw_daemon *daemon) {
    const size_t size = text_load(daemon, crowd_name, TW_LINK_QUALITY_FILE_MAX);
    const uint32_t skipped = tw_link_quality_decode(&daemon->quality.quality, daemon->cache_text,
                                                    size, tw_daemon_now_us(), wall_s());
    if (skipped > 0) tw_log(TW_LOG_WARN, "crowd_damaged", "lines_skipped=%u", skipped);
}

void tw_daemon_link_quality_save(struct tw_daemon *daemon) {
    if (daemon->transport == NULL) return;
    const size_t size = tw_link_quality_encode(&daemon->quality.quality, daemon->cache_text,
                                               tw_daemon_now_us(), wall_s());
    text_save(daemon, crowd_name, daemon->cache_text, size);
}
