#include "daemon/node/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "base/units.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"
#include "daemon/auth/gate.h"
#include "daemon/net/bans.h"
#include "daemon/net/transport.h"
#include "daemon/store/file.h"
#include "sync/members/members.h"

/* ==== certificates and revocations ============================================================ */

enum {
    LOOK_US = 2 * 1000 * 1000, /* time between two checks of files and links */
    ASK_US = 60 * 1000 * 1000, /* time between two requests for a renewal */
};

/* Identifies a version of a file: a replaced file has another stamp. */
struct stamp {
    uint64_t node, size, at_ns;
};

/* Files to write on a thread, and the results. */
struct save {
    bool is_saving, has_list, has_certs, has_recall;
    struct tw_revoked list;
    struct tw_certs old, certs;
    struct tw_recall recall;
    struct tw_id lineage; /* this node's lineage at the time of the recall */
    enum tw_status list_status, certs_status, recall_status;
    struct tw_error list_err, certs_err, recall_err;
    uv_work_t work;
};

struct tw_daemon_admission {
    uint64_t due_us, ask_due_us;
    uint16_t ask_next; /* peer number + 1 of the peer last asked for a renewal; 0 = none */
    uint16_t asked;    /* peer number + 1 of the peer that has yet to answer; 0 = none */
    struct stamp cert, list, recall; /* stamps of the files when they were read */
    bool is_late;                    /* it was logged that the certificate expires soon */
    bool has_vote;                   /* right of the certificate at the start */
    bool has_later_vote;             /* right of the certificate now, for the next start */
    /* files to write again after the write in progress */
    bool wants_list, wants_certs, wants_recall;
    struct tw_certs known; /* content of the certificate file, as last read or written */
    struct save save;
};

/* ---- writing ------------------------------------------------------------------------------- */

/* Saves the refused lineage first: once the recall itself is on disk, the next start obeys it. */
static enum tw_status save_recall(const struct tw_daemon *daemon, struct save *save) {
    TW_TRY(tw_setup_refuse(daemon->setup, &save->lineage, &save->recall_err));
    return tw_recall_save_newer(daemon->setup->config.node.state_dir, &save->recall,
                                &save->recall_err);
}

static void on_save_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct save *save = &daemon->admission->save;
    const char *const folder = daemon->setup->config.node.state_dir;
    if (save->has_list)
        save->list_status = tw_revoked_save_newer(folder, &save->list, &save->list_err);
    if (save->has_certs)
        save->certs_status =
            tw_certs_save_renewed(folder, &save->old, &save->certs, &save->certs_err);
    if (save->has_recall) save->recall_status = save_recall(daemon, save);
}

static void save_begin(struct tw_daemon *daemon);

/* Restarts the daemon, which then obeys the recall on disk. Returns false if the recall could not
 * be saved. */
static bool obey_recall(struct tw_daemon *daemon) {
    const struct save *save = &daemon->admission->save;
    if (save->recall_status != TW_OK && save->recall_status != TW_AGAIN) {
        tw_daemon_note(daemon, TW_LOG_ERROR, "recall_not_saved", "text=\"%s\"",
                       save->recall_err.message);
        return false;
    }
    daemon->setup->is_restart_wanted = true;
    tw_daemon_leave(daemon, TW_EXIT_OK);
    return true;
}

/* TW_AGAIN means that a person replaced the file during the write. The next tick reads it. */
static void on_save_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct save *save = &daemon->admission->save;
    save->is_saving = false;
    if (status != 0) return;
    if (save->has_list && save->list_status != TW_OK && save->list_status != TW_AGAIN)
        tw_daemon_note(daemon, TW_LOG_ERROR, "revocations_not_saved", "text=\"%s\"",
                       save->list_err.message);
    if (save->has_certs && save->certs_status != TW_OK && save->certs_status != TW_AGAIN)
        tw_daemon_note(daemon, TW_LOG_ERROR, "certificate_not_saved", "text=\"%s\"",
                       save->certs_err.message);
    if (save->has_certs && save->certs_status == TW_OK) daemon->admission->known = save->certs;
    if (save->has_recall && obey_recall(daemon)) return;
    save_begin(daemon);
}

static void save_begin(struct tw_daemon *daemon) {
    struct tw_daemon_admission *gate = daemon->admission;
    struct save *save = &gate->save;
    if (save->is_saving || (!gate->wants_list && !gate->wants_certs && !gate->wants_recall)) return;
    save->has_list = gate->wants_list;
    save->has_certs = gate->wants_certs;
    save->has_recall = gate->wants_recall;
    gate->wants_list = gate->wants_certs = gate->wants_recall = false;
    save->recall = daemon->setup->gate.recall;
    save->lineage = daemon->lineage;
    if (save->has_list) save->list = daemon->setup->gate.revoked;
    save->old = gate->known;
    save->certs = daemon->setup->gate.own;
    save->is_saving = true;
    save->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &save->work, on_save_work, on_save_done) == 0);
}

/* ---- revocations --------------------------------------------------------------------------- */

static uint32_t encode_list(const struct tw_daemon *daemon, uint8_t bytes[TW_REVOKED_BYTES_MAX]) {
    return (uint32_t)tw_revoked_encode(&daemon->setup->gate.revoked, bytes);
}

static void send_list(struct tw_daemon *daemon, uint16_t peer) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    tw_transport_send_control(daemon->transport, peer, TW_FRAME_REVOKE, bytes,
                              encode_list(daemon, bytes));
}

static void send_recall(struct tw_daemon *daemon, uint16_t peer) {
    uint8_t bytes[TW_RECALL_BYTES];
    tw_recall_encode(&daemon->setup->gate.recall, bytes);
    tw_transport_send_control(daemon->transport, peer, TW_FRAME_RECALL, bytes, sizeof(bytes));
}

void tw_daemon_admission_peer_up(struct tw_daemon *daemon, uint16_t peer) {
    if (!daemon->setup->has_gate) return;
    if (daemon->setup->gate.revoked.version > 0) send_list(daemon, peer);
    if (daemon->setup->gate.recall.version > 0) send_recall(daemon, peer);
}

/* Sends a newer list to every peer but `from`, then closes the links of revoked nodes. They receive
 * the list first. */
static void spread_list(struct tw_daemon *daemon, uint16_t from) {
    const struct tw_revoked *list = &daemon->setup->gate.revoked;
    tw_daemon_note(daemon, TW_LOG_INFO, "revocations", "list=%llu nodes=%u run_paused=%d",
                   (unsigned long long)list->version, tw_revoked_nodes(list),
                   (int)tw_revoked_is_paused(list));
    if (tw_revoked_has(list, &daemon->setup->identity.id))
        tw_daemon_note(daemon, TW_LOG_ERROR, "revoked",
                       "text=\"the run's owner revoked this node: it trains alone\"");
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up && i != from) send_list(daemon, i);
    }
    tw_transport_review(daemon->transport);
}

static void take_list(struct tw_daemon *daemon, uint16_t peer, const struct tw_frame *frame) {
    struct tw_error err = {0};
    struct tw_gate *gate = &daemon->setup->gate;
    const enum tw_status status = tw_gate_revoke(gate, frame->body, frame->body_bytes, &err);
    if (status == TW_AGAIN) return;
    if (status != TW_OK) { /* an honest peer would have verified the list before sending it */
        tw_transport_blame(daemon->transport, peer, TW_PROTO, err.message);
        return;
    }
    daemon->admission->wants_list = true;
    save_begin(daemon);
    spread_list(daemon, peer);
}

bool tw_daemon_admission_is_paused(const struct tw_daemon *daemon) {
    return daemon->setup->has_gate && tw_revoked_is_paused(&daemon->setup->gate.revoked);
}

/* ---- recalls ------------------------------------------------------------------------------- */

/* Passes a newer recall on to every peer but `from`. Once it is on disk, the daemon restarts. */
static void spread_recall(struct tw_daemon *daemon, uint16_t from) {
    const struct tw_recall *recall = &daemon->setup->gate.recall;
    char lineage[9];
    tw_id_short(&recall->lineage, lineage);
    tw_daemon_note(daemon, TW_LOG_WARN, "recall",
                   "recall=%llu lineage=%s rounds=%llu text=\"the run's owner returns the run to "
                   "this round: starting anew\"",
                   (unsigned long long)recall->version, lineage,
                   (unsigned long long)recall->rounds);
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up && i != from) send_recall(daemon, i);
    }
    daemon->admission->wants_recall = true;
    save_begin(daemon);
}

static void take_recall(struct tw_daemon *daemon, uint16_t peer, const struct tw_frame *frame) {
    struct tw_error err = {0};
    const enum tw_status status =
        tw_gate_recall(&daemon->setup->gate, frame->body, frame->body_bytes, &err);
    if (status == TW_AGAIN) return;
    if (status != TW_OK) { /* an honest peer would have verified the recall before sending it */
        tw_transport_blame(daemon->transport, peer, TW_PROTO, err.message);
        return;
    }
    spread_recall(daemon, peer);
}

bool tw_daemon_admission_is_out(const struct tw_daemon *daemon, const struct tw_id *node) {
    return daemon->setup->has_gate && tw_revoked_has(&daemon->setup->gate.revoked, node);
}

/* ---- certificates -------------------------------------------------------------------------- */

/* The core has the right to vote from the start, and keeps it until the next one. */
static void note_vote(struct tw_daemon *daemon) {
    struct tw_daemon_admission *admission = daemon->admission;
    const bool has_vote = tw_certs_has_vote(&daemon->setup->gate.own);
    if (admission->has_later_vote == has_vote) return;
    admission->has_later_vote = has_vote;
    if (has_vote != admission->has_vote)
        tw_daemon_note(daemon, TW_LOG_WARN, "vote_changes",
                       "text=\"by its new certificate this node %s, from its next start\"",
                       has_vote ? "votes" : "trains, but does not vote");
}

bool tw_daemon_admission_has_vote(const struct tw_daemon *daemon) {
    return !daemon->setup->has_gate || daemon->admission->has_vote;
}

static void note_certs(struct tw_daemon *daemon) {
    char until[TW_UNITS_BYTES];
    const struct tw_certs *own = &daemon->setup->gate.own;
    tw_daemon_note(daemon, TW_LOG_INFO, "certificate", "until=\"%s\" signed_by=%s votes=%d",
                   tw_units_utc(until, tw_certs_until(own)), own->count > 1 ? "admitter" : "owner",
                   (int)tw_certs_has_vote(own));
    daemon->admission->is_late = false;
}

static void give_renewal(struct tw_daemon *daemon, uint16_t peer) {
    struct tw_certs fresh;
    struct tw_error err = {0};
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    char hex[9];
    struct tw_certs old = tw_transport_certs(daemon->transport, peer);
    if (old.count == 0 || tw_gate_renew(&daemon->setup->gate, &old, &fresh, &err) != TW_OK) return;
    tw_transport_renew(daemon->transport, peer, &fresh);
    tw_id_short(&daemon->peers[peer].id, hex);
    tw_daemon_note(daemon, TW_LOG_INFO, "certificate_renewed", "peer=%s", hex);
    tw_transport_send_control(daemon->transport, peer, TW_FRAME_CERTS, bytes,
                              (uint32_t)tw_certs_encode(&fresh, bytes));
}

static void take_renewal(struct tw_daemon *daemon, uint16_t peer, const struct tw_frame *frame) {
    struct tw_error err = {0};
    struct tw_gate *gate = &daemon->setup->gate;
    if (daemon->admission->asked != peer + 1) return; /* this node did not ask */
    daemon->admission->asked = 0;
    const enum tw_status status = tw_gate_take(gate, frame->body, frame->body_bytes, &err);
    if (status == TW_PROTO) {
        tw_transport_blame(daemon->transport, peer, status, err.message);
        return;
    }
    if (status != TW_OK) { /* a certificate is rejected if this node's clock or revocation list
                              differs from the signer's: ask the next peer */
        tw_daemon_note(daemon, TW_LOG_WARN, "renewal_refused", "text=\"%s\"", err.message);
        return;
    }
    daemon->admission->wants_certs = true;
    save_begin(daemon);
    note_certs(daemon);
}

/* Asks one peer after another that may admit nodes, until the certificate is renewed. */
static void ask_renewal(struct tw_daemon *daemon, uint64_t now_us) {
    if (now_us < daemon->admission->ask_due_us || !tw_gate_is_due(&daemon->setup->gate)) return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const uint16_t peer = (uint16_t)((daemon->admission->ask_next + i) % TW_PEERS_MAX);
        if (!daemon->peers[peer].is_up) continue;
        const struct tw_certs certs = tw_transport_certs(daemon->transport, peer);
        if (!tw_gate_is_renewer(&daemon->setup->gate, &certs)) continue;
        daemon->admission->ask_due_us = now_us + ASK_US;
        daemon->admission->asked = daemon->admission->ask_next = (uint16_t)(peer + 1);
        tw_transport_send_control(daemon->transport, peer, TW_FRAME_RENEW, NULL, 0);
        return;
    }
}

static void note_late(struct tw_daemon *daemon) {
    char until[TW_UNITS_BYTES];
    const struct tw_gate *gate = &daemon->setup->gate;
    if (daemon->admission->is_late || !tw_gate_is_late(gate)) return;
    daemon->admission->is_late = true;
    tw_daemon_note(daemon, TW_LOG_WARN, "certificate_ends",
                   "until=\"%s\" text=\"then no other node admits this one: have it signed anew "
                   "(`thinwire owner sign`)\"",
                   tw_units_utc(until, tw_certs_until(&gate->own)));
}

/* ---- frames -------------------------------------------------------------------------------- */

bool tw_daemon_admission_frame(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_frame *frame) {
    const bool is_list = frame->kind == TW_FRAME_REVOKE, is_ask = frame->kind == TW_FRAME_RENEW,
               is_recall = frame->kind == TW_FRAME_RECALL;
    if (!is_list && !is_ask && !is_recall && frame->kind != TW_FRAME_CERTS) return false;
    if (!daemon->setup->has_gate) return true; /* ignored, like an unknown kind of frame */
    if (is_list) {
        take_list(daemon, peer, frame);
    } else if (is_recall) {
        take_recall(daemon, peer, frame);
    } else if (is_ask) {
        give_renewal(daemon, peer);
    } else {
        take_renewal(daemon, peer, frame);
    }
    return true;
}

void tw_daemon_admission_peer_down(struct tw_daemon *daemon, uint16_t peer) {
    if (daemon->admission->asked == peer + 1) daemon->admission->asked = 0;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Returns the stamp of a file, all zeros if there is no file. */
static struct stamp read_stamp(const struct tw_daemon *daemon, const char *name) {
    struct stat about;
    char path[TW_PATH_BYTES + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", daemon->setup->config.node.state_dir, name);
    if (stat(path, &about) != 0) return (struct stamp){0};
    return (struct stamp){.node = about.st_ino,
                          .size = (uint64_t)about.st_size,
                          .at_ns = (uint64_t)about.st_mtim.tv_sec * 1000000000u +
                                   (uint64_t)about.st_mtim.tv_nsec};
}

/* Returns true if the file was replaced since the last call. */
static bool take_stamp(struct tw_daemon *daemon, const char *name, struct stamp *last) {
    const struct stamp now = read_stamp(daemon, name);
    const bool is_same =
        now.node == last->node && now.size == last->size && now.at_ns == last->at_ns;
    *last = now;
    return !is_same;
}

static bool take_stamps(struct tw_daemon *daemon) {
    struct tw_daemon_admission *const seen = daemon->admission;
    const bool is_cert = take_stamp(daemon, TW_CERT_FILE, &seen->cert);
    const bool is_list = take_stamp(daemon, TW_REVOKED_FILE, &seen->list);
    const bool is_recall = take_stamp(daemon, TW_RECALL_FILE, &seen->recall);
    return is_cert || is_list || is_recall;
}

/* Reads files that a person replaced. A file that the daemon itself wrote is not read again. */
static void read_files(struct tw_daemon *daemon) {
    struct tw_error err = {0};
    struct tw_gate *gate = &daemon->setup->gate;
    const uint64_t version = gate->revoked.version, until_s = tw_certs_until(&gate->own),
                   recall = gate->recall.version;
    if (tw_setup_gate(daemon->setup, &err) != TW_EXIT_OK)
        tw_daemon_note(daemon, TW_LOG_ERROR, "certificate_refused", "text=\"%s\"", err.message);
    else
        daemon->admission->known = gate->own;
    if (tw_certs_until(&gate->own) != until_s) note_certs(daemon);
    note_vote(daemon);
    if (gate->revoked.version != version) spread_list(daemon, TW_PEERS_MAX);
    if (gate->recall.version != recall) spread_recall(daemon, TW_PEERS_MAX);
}

enum tw_status tw_daemon_admission_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->admission = tw_daemon_alloc(sizeof(*daemon->admission), err);
    if (daemon->admission == NULL) return TW_NOMEM;
    if (!daemon->setup->has_gate) return TW_OK;
    (void)take_stamps(daemon);
    daemon->admission->known = daemon->setup->gate.own;
    daemon->admission->has_vote = daemon->admission->has_later_vote =
        tw_certs_has_vote(&daemon->setup->gate.own);
    note_certs(daemon);
    if (!tw_id_is_zero(&daemon->setup->awaited))
        tw_daemon_note(daemon, TW_LOG_WARN, "recall_waits",
                       "recall=%llu rounds=%llu text=\"no checkpoint here holds the state that the "
                       "owner returned the run to: waiting for a node that has it\"",
                       (unsigned long long)daemon->setup->gate.recall.version,
                       (unsigned long long)daemon->setup->gate.recall.rounds);
    return TW_OK;
}

void tw_daemon_admission_tick(struct tw_daemon *daemon, uint64_t now_us) {
    if (!daemon->setup->has_gate || daemon->transport == NULL || now_us < daemon->admission->due_us)
        return;
    daemon->admission->due_us = now_us + LOOK_US;
    /* While a write is in progress, the state in memory is newer than the files. */
    if (!daemon->admission->save.is_saving && take_stamps(daemon)) read_files(daemon);
    tw_transport_review(daemon->transport);
    ask_renewal(daemon, now_us);
    note_late(daemon);
}

void tw_daemon_admission_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_gate *gate = &daemon->setup->gate;
    struct tw_error err = {0};
    if (!daemon->setup->has_gate) return;
    const uint64_t now_s = gate->clock_s();
    view->admission.has_owner = true;
    view->admission.is_admitter = tw_gate_is_admitter(&gate->own);
    view->admission.has_vote = tw_daemon_admission_has_vote(daemon);
    view->admission.is_renewed = gate->own.count > 1;
    view->admission.until_s = tw_certs_until(&gate->own);
    if (view->admission.until_s > now_s) view->admission.left_s = view->admission.until_s - now_s;
    view->admission.is_late = tw_gate_is_late(gate);
    view->admission.list = gate->revoked.version;
    view->admission.revoked = tw_revoked_nodes(&gate->revoked);
    view->admission.recall = gate->recall.version;
    view->admission.is_waiting = !tw_id_is_zero(&daemon->setup->awaited) &&
                                 tw_id_equal(&daemon->setup->awaited, &daemon->lineage);
    if (tw_gate_judge(gate, &gate->own, &gate->identity->id, TW_CERT_TRAIN, 0, &err) != TW_OK)
        (void)snprintf(view->admission.error, sizeof(view->admission.error), "%s", err.message);
}

void tw_daemon_admission_free(struct tw_daemon *daemon) {
    free(daemon->admission);
}

/* ==== bans and refusals ======================================================================= */

enum {
    REFUSAL_LINE_US = 600 * 1000 * 1000, /* time between two lines about one host and reason */
    LINES_MAX = 32,
    REFUSAL_ANY_US = 1000 * 1000, /* time between two lines about any refusal */
};

/* Rate limit of log lines for one host and one reason. */
struct line {
    char host[TW_ADDR_BYTES];
    uint64_t reason; /* hash of the sentence without its numbers and ids */
    struct tw_log_limit limit;
};

struct tw_daemon_refusals {
    uint64_t refused;          /* refused links */
    struct tw_log_limit limit; /* rate limit of all log lines about refusals together */
    struct line lines[LINES_MAX];
    char text[TW_BANS_TEXT_MAX]; /* content of the file `bans` */
};

/* ---- bans ---------------------------------------------------------------------------------- */

static const char BANS_NAME[] = "bans";

static uint64_t wall_s(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

void tw_daemon_refusals_load(struct tw_daemon *daemon) {
    char *text = daemon->refusals->text;
    const size_t size =
        tw_cache_file_load(daemon->setup->run_state_dir, BANS_NAME, text, TW_BANS_TEXT_MAX);
    const uint32_t skipped = tw_bans_decode(tw_transport_bans(daemon->transport), text, size);
    if (skipped > 0) tw_log(TW_LOG_WARN, "bans_damaged", "lines_skipped=%u", skipped);
}

static void save_bans(struct tw_daemon *daemon) {
    char *text = daemon->refusals->text;
    const size_t size = tw_bans_encode(tw_transport_bans(daemon->transport), text);
    tw_cache_file_save(daemon->setup->run_state_dir, BANS_NAME, text, size);
}

void tw_daemon_refusals_look(struct tw_daemon *daemon) {
    if (tw_bans_clock(tw_transport_bans(daemon->transport), wall_s())) save_bans(daemon);
}

enum tw_status tw_daemon_refusals_unban(struct tw_daemon *daemon, const char *hex,
                                        struct tw_error *answer) {
    struct tw_id id;
    char node[9];
    if (daemon->transport == NULL)
        return tw_fail(answer, TW_AGAIN, "network.links = off: this node has no bans");
    TW_TRY(tw_bans_lift(tw_transport_bans(daemon->transport), hex, wall_s(), &id, answer));
    save_bans(daemon);
    tw_members_moved(daemon->members,
                     tw_daemon_now_us()); /* so the node may be dialled again at once */
    tw_id_short(&id, node);
    tw_daemon_note(daemon, TW_LOG_INFO, "ban_lifted", "peer=%s", node);
    (void)snprintf(answer->message, sizeof(answer->message), "node %s may link again", node);
    return TW_OK;
}

/* ---- refusals ------------------------------------------------------------------------------ */

void tw_daemon_refusals_banned(void *user, const struct tw_id *id, uint32_t seconds,
                               const char *sentence) {
    struct tw_daemon *daemon = user;
    char hex[9];
    tw_id_short(id, hex);
    tw_daemon_note(daemon, TW_LOG_WARN, "peer_banned", "peer=%s for_s=%u text=\"%s\"", hex, seconds,
                   sentence);
    save_bans(daemon);
}

/* Returns true if the word is a number, a port or an id: it has a digit, or only hexadecimal
 * letters. */
static bool is_varying(const char *word, size_t length) {
    enum { ID_DIGITS = 8 };
    return strcspn(word, "0123456789") < length || strspn(word, "abcdef") >= ID_DIGITS;
}

/* Hashes the words that are the same in every refusal for the same reason. */
static uint64_t hash_words(const char *sentence) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, 64 bits */
    for (const char *at = sentence; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (!is_varying(at, length)) {
            for (size_t i = 0; i < length; i++)
                hash = (hash ^ (uint8_t)at[i]) * UINT64_C(0x100000001b3);
        }
        at += length + strspn(at + length, " ");
    }
    return hash;
}

/* Returns the row of this host and reason. A new row replaces the one that was logged longest ago.
 */
static struct line *find_line(struct tw_daemon *daemon, const char *address, uint64_t reason) {
    struct line *oldest = &daemon->refusals->lines[0];
    const char *colon = strrchr(address, ':');
    const size_t length = colon != NULL ? (size_t)(colon - address) : strlen(address);
    for (uint32_t i = 0; i < LINES_MAX; i++) {
        struct line *line = &daemon->refusals->lines[i];
        if (line->reason == reason && strncmp(line->host, address, length) == 0 &&
            line->host[length] == '\0')
            return line;
        if (line->limit.said_us < oldest->limit.said_us) oldest = line;
    }
    *oldest = (struct line){.reason = reason};
    memcpy(oldest->host, address, length);
    return oldest;
}

void tw_daemon_refusals_refused(void *user, const char *address, enum tw_status reason,
                                const char *sentence) {
    struct tw_daemon *daemon = user;
    uint64_t held_back = 0;
    /* Two nodes dialled each other at the same time, so one of the links is not needed. */
    if (reason == TW_OK) {
        tw_log(TW_LOG_DEBUG, "spare_link", "addr=%s text=\"%s\"", address, sentence);
        return;
    }
    daemon->refusals->refused++;
    struct line *line = find_line(daemon, address, hash_words(sentence));
    const uint64_t now_us = tw_daemon_now_us();
    uint64_t others = 0;
    if (!tw_log_may_say(&line->limit, now_us, REFUSAL_LINE_US, &held_back)) return;
    if (!tw_log_may_say(&daemon->refusals->limit, now_us, REFUSAL_ANY_US, &others)) {
        line->limit = (struct tw_log_limit){.held_back = held_back + 1}; /* counted by the next line
                                                                            that is logged */
        return;
    }
    const enum tw_dial_cause cause = tw_dial_cause_of_status(reason);
    /* A dialler that gives up in TLS expects another node at this address, or is a stranger: that
     * is for the log, and no person need act. */
    const enum tw_log_level level = reason == TW_TLS ? TW_LOG_INFO : TW_LOG_WARN;
    tw_daemon_note(daemon, level, "refused", "addr=%s reason=%s text=\"%s\" held_back=%llu",
                   address,
                   tw_dial_is_refusal(cause) ? tw_dial_cause_name(cause) : tw_status_name(reason),
                   sentence, (unsigned long long)held_back);
}

/* ==== one key on two machines ================================================================= */

void tw_daemon_refusals_twin(void *user, const struct tw_twin_report *report) {
    struct tw_daemon *daemon = user;
    struct tw_view_twin twin = {.id = report->id, .is_self = report->linked == NULL};
    char hex[9], name[TW_KNOWN_LABEL_BYTES], text[TW_VIEW_TEXT_BYTES];
    if (report->address != NULL)
        (void)snprintf(twin.address, sizeof(twin.address), "%s", report->address);
    if (report->linked != NULL)
        (void)snprintf(twin.linked, sizeof(twin.linked), "%s", report->linked);
    tw_id_short(&report->id, hex);
    tw_view_twin_text(&twin, tw_known_peers_label(daemon->known, &report->id, name), text);
    tw_daemon_note(daemon, TW_LOG_WARN, "twin", "peer=%s addr=%s text=\"%s\"", hex,
                   twin.address[0] != '\0' ? twin.address : "none", text);
}

static void fill_twins(const struct tw_daemon *daemon, struct tw_status_view *view) {
    struct tw_twin_info twins[TW_TWIN_INFOS_MAX];
    _Static_assert((int)TW_TWIN_INFOS_MAX == (int)TW_VIEW_TWINS_MAX, "all are shown");
    view->twins_count = tw_transport_twins(daemon->transport, twins);
    for (uint32_t i = 0; i < view->twins_count; i++) {
        struct tw_view_twin *out = &view->twins[i];
        *out = (struct tw_view_twin){.id = twins[i].id, .is_self = twins[i].is_self};
        memcpy(out->address, twins[i].address, sizeof(out->address));
        memcpy(out->linked, twins[i].linked, sizeof(out->linked));
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_refusals_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->refusals = tw_daemon_alloc(sizeof(*daemon->refusals), err);
    return daemon->refusals != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_refusals_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    view->net.links_refused = daemon->refusals->refused;
    if (daemon->transport == NULL) return;
    fill_twins(daemon, view);
    const uint64_t now_s = wall_s();
    const struct tw_bans *bans = tw_transport_bans(daemon->transport);
    for (uint32_t i = 0; i < TW_BANS_MAX; i++) {
        const uint64_t left_s = tw_bans_left_s(bans, &bans->rows[i].id, now_s);
        if (left_s == 0) continue;
        view->bans[view->net.banned++] =
            (struct tw_view_ban){.id = bans->rows[i].id, .left_s = left_s};
    }
}

void tw_daemon_refusals_free(struct tw_daemon *daemon) {
    free(daemon->refusals);
}
