/* shell_store.c - the vote, the member cache, the bans and what links are like, on disk: read at
 * start. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/net/bans.h"
#include "daemon/node/shell.h"
#include "daemon/store/durable.h"

enum { VOTE_RETRY_MS = 1000 };

/* ---- votes --------------------------------------------------------------------------------- */

enum tw_status tw_shell_votes_open(struct tw_shell *shell, struct tw_error *err) {
    enum tw_vote_found found = TW_VOTE_NONE;
    struct tw_error reason = {0};
    TW_TRY(tw_vote_store_open(&shell->votes, tw_file_system(), shell->setup->run_state_dir,
                              &shell->vote, &found, &reason) != TW_OK
               ? tw_fail(err, TW_IO, "%s", reason.message)
               : TW_OK);
    shell->has_votes = true;
    shell->has_vote = found == TW_VOTE_VALID;
    if (found == TW_VOTE_CORRUPT) {
        shell->is_vote_lost = true;
        tw_shell_note(shell, TW_LOG_WARN, "vote_lost",
                      "text=\"%s: this node joins its run again as a new member\"", reason.message);
    }
    return TW_OK;
}

static void on_vote_work(uv_work_t *work) {
    struct tw_shell *shell = work->data;
    shell->vote_status =
        tw_vote_store_save(&shell->votes, &shell->vote_saving.vote, &shell->vote_err);
}

static void vote_save(struct tw_shell *shell);

static void on_vote_timer(uv_timer_t *timer) {
    vote_save(timer->data);
}

static void on_vote_done(uv_work_t *work, int status) {
    struct tw_shell *shell = work->data;
    if (shell->stage == TW_SHELL_CLOSING || status != 0) return;
    const char *const error = shell->vote_status == TW_OK ? "" : shell->vote_err.message;
    const bool is_news = strcmp(shell->vote_error, error) != 0;
    (void)snprintf(shell->vote_error, sizeof(shell->vote_error), "%s", error);
    if (shell->vote_status != TW_OK) {
        if (is_news)
            tw_shell_note(shell, TW_LOG_ERROR, "vote_not_saved", "text=\"%s\"",
                          shell->vote_err.message);
        if (shell->stage == TW_SHELL_RUNNING) {
            TW_ASSERT(uv_timer_start(&shell->vote_timer, on_vote_timer, VOTE_RETRY_MS, 0) == 0);
            return;
        }
    }
    const struct tw_event stored = {
        .kind = TW_EV_STORED, .ok = true, .u.store_seq = shell->vote_saving.seq};
    const bool ok = shell->vote_status == TW_OK;
    shell->vote_saving.is_used = false;
    if (shell->vote_waiting.is_used) {
        shell->vote_saving = shell->vote_waiting;
        shell->vote_waiting.is_used = false;
        vote_save(shell);
    }
    if (ok) tw_shell_event(shell, &stored);
    tw_shell_leave_step(shell);
}

static void vote_save(struct tw_shell *shell) {
    if (shell->stage == TW_SHELL_CLOSING) return;
    shell->vote_work.data = shell;
    TW_ASSERT(uv_queue_work(&shell->loop, &shell->vote_work, on_vote_work, on_vote_done) == 0);
}

void tw_shell_vote_store(struct tw_shell *shell, const struct tw_action *action) {
    struct tw_vote_job *job =
        shell->vote_saving.is_used ? &shell->vote_waiting : &shell->vote_saving;
    job->is_used = true;
    job->seq = action->u.store.seq;
    job->vote = *action->u.store.vote;
    if (job == &shell->vote_saving) vote_save(shell);
}

/* ---- member cache -------------------------------------------------------------------------- */

static const char cache_name[] = "members";

static uint64_t wall_s(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

/* Bytes of that file in the run's folder, into cache_text. */
static size_t text_load(const struct tw_shell *shell, const char *name, size_t capacity) {
    char path[TW_PATH_BYTES + 16];
    (void)snprintf(path, sizeof(path), "%s/%s", shell->setup->run_state_dir, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t size = read(fd, shell->cache_text, capacity);
    (void)close(fd);
    return size > 0 ? (size_t)size : 0;
}

void tw_shell_cache_load(struct tw_shell *shell) {
    const size_t size = text_load(shell, cache_name, TW_MEMBERS_TEXT_MAX);
    const uint32_t skipped =
        tw_members_decode(shell->members, shell->cache_text, size, tw_shell_now_us());
    if (skipped > 0) tw_log(TW_LOG_WARN, "cache_damaged", "lines_skipped=%u", skipped);
}

/* At most a few hundred short lines, once a minute and at the end: written here, without a sync,
 * for a lost text costs a reconnect, or a ban, and nothing else. */
static void text_save(const struct tw_shell *shell, const char *name, const char *text,
                      size_t size) {
    char path[TW_PATH_BYTES + 16], temporary[TW_PATH_BYTES + 24];
    (void)snprintf(path, sizeof(path), "%s/%s", shell->setup->run_state_dir, name);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    const bool ok = write(fd, text, size) == (ssize_t)size;
    (void)close(fd);
    if (ok && rename(temporary, path) == 0) return;
    (void)unlink(temporary);
}

void tw_shell_cache_save(struct tw_shell *shell) {
    size_t size = 0;
    if (shell->transport == NULL) return;
    tw_members_encode(shell->members, shell->cache_text, TW_MEMBERS_TEXT_MAX, &size);
    text_save(shell, cache_name, shell->cache_text, size);
}

/* ---- bans ---------------------------------------------------------------------------------- */

static const char bans_name[] = "bans";
_Static_assert((size_t)TW_BANS_TEXT_MAX <= TW_MEMBERS_TEXT_MAX, "one buffer does for both");

void tw_shell_bans_load(struct tw_shell *shell) {
    const size_t size = text_load(shell, bans_name, TW_BANS_TEXT_MAX);
    const uint32_t skipped =
        tw_bans_decode(tw_transport_bans(shell->transport), shell->cache_text, size);
    if (skipped > 0) tw_log(TW_LOG_WARN, "bans_damaged", "lines_skipped=%u", skipped);
}

void tw_shell_bans_save(struct tw_shell *shell) {
    const size_t size = tw_bans_encode(tw_transport_bans(shell->transport), shell->cache_text);
    text_save(shell, bans_name, shell->cache_text, size);
}

void tw_shell_bans_clock(struct tw_shell *shell) {
    if (tw_bans_clock(tw_transport_bans(shell->transport), wall_s())) tw_shell_bans_save(shell);
}

enum tw_status tw_shell_bans_lift(struct tw_shell *shell, const char *hex,
                                  struct tw_error *answer) {
    struct tw_id id;
    char node[9];
    if (shell->transport == NULL)
        return tw_fail(answer, TW_AGAIN, "links = off: nobody is banned here");
    TW_TRY(tw_bans_lift(tw_transport_bans(shell->transport), hex, wall_s(), &id, answer));
    tw_shell_bans_save(shell);
    tw_members_moved(shell->members, tw_shell_now_us()); /* it need not wait out its pause */
    tw_id_short(&id, node);
    tw_shell_note(shell, TW_LOG_INFO, "ban_lifted", "peer=%s", node);
    (void)snprintf(answer->message, sizeof(answer->message), "node %s may link again", node);
    return TW_OK;
}

void tw_shell_bans_fill(struct tw_shell *shell, struct tw_status_view *view) {
    const uint64_t now_s = wall_s();
    const struct tw_bans *bans = tw_transport_bans(shell->transport);
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

void tw_shell_crowd_load(struct tw_shell *shell) {
    const size_t size = text_load(shell, crowd_name, TW_LINK_QUALITY_FILE_MAX);
    const uint32_t skipped = tw_link_quality_decode(&shell->quality.quality, shell->cache_text,
                                                    size, tw_shell_now_us(), wall_s());
    if (skipped > 0) tw_log(TW_LOG_WARN, "crowd_damaged", "lines_skipped=%u", skipped);
}

void tw_shell_crowd_save(struct tw_shell *shell) {
    if (shell->transport == NULL) return;
    const size_t size = tw_link_quality_encode(&shell->quality.quality, shell->cache_text,
                                               tw_shell_now_us(), wall_s());
    text_save(shell, crowd_name, shell->cache_text, size);
}
