/* shell_gate.c - runs with an owner: revocations that go round, the certificate that is renewed.
 *
 * What the gate knows comes from three sides: the two files of the state folder, which a person may
 * replace at any time (`thinwire owner import`), lists that peers send, and certificates that a
 * peer signed when asked. Whatever came, links are looked at again, and the file is written, on a
 * thread: a disk may take its time, and peers must not decide when this node waits for it. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/units.h"
#include "daemon/auth/cert_file.h"
#include "daemon/node/shell.h"

enum {
    LOOK_US = 2 * 1000 * 1000, /* between two looks at files and links */
    ASK_US = 60 * 1000 * 1000, /* between two peers asked for a renewal */
};

/* ---- writing ------------------------------------------------------------------------------- */

static void on_save_work(uv_work_t *work) {
    struct tw_shell *shell = work->data;
    struct tw_shell_gate_save *save = &shell->gate.save;
    const char *const folder = shell->setup->config.node.state_dir;
    if (save->has_list)
        save->list_status = tw_revoked_save_newer(folder, &save->list, &save->list_err);
    if (save->has_certs)
        save->certs_status =
            tw_certs_save_renewed(folder, &save->old, &save->certs, &save->certs_err);
}

static void save_begin(struct tw_shell *shell);

/* AGAIN: a person was quicker; what is there is read with the next look at the files. */
static void on_save_done(uv_work_t *work, int status) {
    struct tw_shell *shell = work->data;
    struct tw_shell_gate_save *save = &shell->gate.save;
    save->is_saving = false;
    if (status != 0) return;
    if (save->has_list && save->list_status != TW_OK && save->list_status != TW_AGAIN)
        tw_shell_note(shell, TW_LOG_ERROR, "revocations_not_saved", "text=\"%s\"",
                      save->list_err.message);
    if (save->has_certs && save->certs_status != TW_OK && save->certs_status != TW_AGAIN)
        tw_shell_note(shell, TW_LOG_ERROR, "certificate_not_saved", "text=\"%s\"",
                      save->certs_err.message);
    if (save->has_certs && save->certs_status == TW_OK) shell->gate.known = save->certs;
    save_begin(shell);
}

static void save_begin(struct tw_shell *shell) {
    struct tw_shell_gate *gate = &shell->gate;
    struct tw_shell_gate_save *save = &gate->save;
    if (save->is_saving || (!gate->wants_list && !gate->wants_certs)) return;
    save->has_list = gate->wants_list;
    save->has_certs = gate->wants_certs;
    gate->wants_list = gate->wants_certs = false;
    if (save->has_list) save->list = shell->setup->gate.revoked;
    save->old = gate->known;
    save->certs = shell->setup->gate.own;
    save->is_saving = true;
    save->work.data = shell;
    TW_ASSERT(uv_queue_work(&shell->loop, &save->work, on_save_work, on_save_done) == 0);
}

/* ---- revocations --------------------------------------------------------------------------- */

static uint32_t list_encode(const struct tw_shell *shell, uint8_t bytes[TW_REVOKED_BYTES_MAX]) {
    return (uint32_t)tw_revoked_encode(&shell->setup->gate.revoked, bytes);
}

void tw_shell_gate_peer_up(struct tw_shell *shell, uint16_t peer) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    if (!shell->setup->has_gate || shell->setup->gate.revoked.version == 0) return;
    tw_transport_send_control(shell->transport, peer, TW_FRAME_REVOKE, bytes,
                              list_encode(shell, bytes));
}

/* There is a newer list: everybody learns of it, also who is on it, and then the links end. */
static void list_changed(struct tw_shell *shell, uint16_t from) {
    const struct tw_revoked *list = &shell->setup->gate.revoked;
    tw_shell_note(shell, TW_LOG_INFO, "revocations", "list=%llu nodes=%u",
                  (unsigned long long)list->version, list->count);
    if (tw_revoked_has(list, &shell->setup->identity.id))
        tw_shell_note(shell, TW_LOG_ERROR, "revoked",
                      "text=\"the run's owner shut this node out: it trains alone\"");
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (shell->peers[i].is_up && i != from) tw_shell_gate_peer_up(shell, i);
    }
    tw_transport_review(shell->transport);
}

static void list_take(struct tw_shell *shell, uint16_t peer, const struct tw_frame *frame) {
    struct tw_error err = {0};
    struct tw_gate *gate = &shell->setup->gate;
    const enum tw_status status = tw_gate_revoke(gate, frame->body, frame->body_bytes, &err);
    if (status == TW_AGAIN) return;
    if (status != TW_OK) { /* an honest node passes on only what it verified */
        tw_transport_blame(shell->transport, peer, TW_PROTO, err.message);
        return;
    }
    shell->gate.wants_list = true;
    save_begin(shell);
    list_changed(shell, peer);
}

bool tw_shell_gate_is_out(const struct tw_shell *shell, const struct tw_id *node) {
    return shell->setup->has_gate && tw_revoked_has(&shell->setup->gate.revoked, node);
}

/* ---- certificates -------------------------------------------------------------------------- */

static void certs_note(struct tw_shell *shell) {
    char until[TW_UNITS_BYTES];
    const struct tw_certs *own = &shell->setup->gate.own;
    tw_shell_note(shell, TW_LOG_INFO, "certificate", "until=\"%s\" signed_by=%s",
                  tw_units_utc(until, tw_certs_until(own)), own->count > 1 ? "admitter" : "owner");
    shell->gate.is_late = false;
}

static void renewal_give(struct tw_shell *shell, uint16_t peer) {
    struct tw_certs fresh;
    struct tw_error err = {0};
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    char hex[9];
    struct tw_certs old = tw_transport_certs(shell->transport, peer);
    if (old.count == 0 || tw_gate_renew(&shell->setup->gate, &old, &fresh, &err) != TW_OK) return;
    tw_transport_renew(shell->transport, peer, &fresh);
    tw_id_short(&shell->peers[peer].id, hex);
    tw_shell_note(shell, TW_LOG_INFO, "certificate_renewed", "peer=%s", hex);
    tw_transport_send_control(shell->transport, peer, TW_FRAME_CERTS, bytes,
                              (uint32_t)tw_certs_encode(&fresh, bytes));
}

static void renewal_take(struct tw_shell *shell, uint16_t peer, const struct tw_frame *frame) {
    struct tw_error err = {0};
    struct tw_gate *gate = &shell->setup->gate;
    if (shell->gate.asked != peer + 1) return; /* nobody asked for it */
    shell->gate.asked = 0;
    const enum tw_status status = tw_gate_take(gate, frame->body, frame->body_bytes, &err);
    if (status == TW_PROTO) {
        tw_transport_blame(shell->transport, peer, status, err.message);
        return;
    }
    if (status != TW_OK) { /* two clocks differ, or two lists: the next peer is asked */
        tw_shell_note(shell, TW_LOG_WARN, "renewal_refused", "text=\"%s\"", err.message);
        return;
    }
    shell->gate.wants_certs = true;
    save_begin(shell);
    certs_note(shell);
}

/* Each peer that may admit in turn, until one has answered. */
static void renewal_ask(struct tw_shell *shell, uint64_t now_us) {
    if (now_us < shell->gate.ask_due_us || !tw_gate_is_due(&shell->setup->gate)) return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const uint16_t peer = (uint16_t)((shell->gate.ask_next + i) % TW_PEERS_MAX);
        if (!shell->peers[peer].is_up) continue;
        const struct tw_certs certs = tw_transport_certs(shell->transport, peer);
        if (!tw_gate_is_admitter(&certs)) continue;
        shell->gate.ask_due_us = now_us + ASK_US;
        shell->gate.asked = shell->gate.ask_next = (uint16_t)(peer + 1);
        tw_transport_send_control(shell->transport, peer, TW_FRAME_RENEW, NULL, 0);
        return;
    }
}

static void late_note(struct tw_shell *shell) {
    char until[TW_UNITS_BYTES];
    const struct tw_gate *gate = &shell->setup->gate;
    if (shell->gate.is_late || !tw_gate_is_late(gate)) return;
    shell->gate.is_late = true;
    tw_shell_note(shell, TW_LOG_WARN, "certificate_ends",
                  "until=\"%s\" text=\"then no other node lets this one in: have it signed anew "
                  "(`thinwire owner sign`)\"",
                  tw_units_utc(until, tw_certs_until(&gate->own)));
}

/* ---- frames -------------------------------------------------------------------------------- */

bool tw_shell_gate_frame(struct tw_shell *shell, uint16_t peer, const struct tw_frame *frame) {
    const bool is_list = frame->kind == TW_FRAME_REVOKE, is_ask = frame->kind == TW_FRAME_RENEW;
    if (!is_list && !is_ask && frame->kind != TW_FRAME_CERTS) return false;
    if (!shell->setup->has_gate) return true; /* skipped, as kinds nobody knows */
    if (is_list) {
        list_take(shell, peer, frame);
    } else if (is_ask) {
        renewal_give(shell, peer);
    } else {
        renewal_take(shell, peer, frame);
    }
    return true;
}

void tw_shell_gate_peer_down(struct tw_shell *shell, uint16_t peer) {
    if (shell->gate.asked == peer + 1) shell->gate.asked = 0;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Which file that is, and in which state; zeros when there is none. */
static struct tw_shell_stamp stamp_of(const struct tw_shell *shell, const char *name) {
    struct stat about;
    char path[TW_PATH_BYTES + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", shell->setup->config.node.state_dir, name);
    if (stat(path, &about) != 0) return (struct tw_shell_stamp){0};
    return (struct tw_shell_stamp){.node = about.st_ino,
                                   .size = (uint64_t)about.st_size,
                                   .at_ns = (uint64_t)about.st_mtim.tv_sec * 1000000000u +
                                            (uint64_t)about.st_mtim.tv_nsec};
}

static bool stamps_take(struct tw_shell *shell) {
    const struct tw_shell_stamp cert = stamp_of(shell, TW_CERT_FILE);
    const struct tw_shell_stamp list = stamp_of(shell, TW_REVOKED_FILE);
    const bool is_same = cert.node == shell->gate.cert.node && cert.size == shell->gate.cert.size &&
                         cert.at_ns == shell->gate.cert.at_ns &&
                         list.node == shell->gate.list.node && list.size == shell->gate.list.size &&
                         list.at_ns == shell->gate.list.at_ns;
    shell->gate.cert = cert;
    shell->gate.list = list;
    return !is_same;
}

/* Somebody replaced a file, perhaps this very node: then nothing in it is new. */
static void files_read(struct tw_shell *shell) {
    struct tw_error err = {0};
    struct tw_gate *gate = &shell->setup->gate;
    const uint64_t version = gate->revoked.version, until_s = tw_certs_until(&gate->own);
    if (tw_setup_gate(shell->setup, &err) != TW_EXIT_OK)
        tw_shell_note(shell, TW_LOG_ERROR, "certificate_refused", "text=\"%s\"", err.message);
    else
        shell->gate.known = gate->own;
    if (tw_certs_until(&gate->own) != until_s) certs_note(shell);
    if (gate->revoked.version != version) list_changed(shell, TW_PEERS_MAX);
}

void tw_shell_gate_open(struct tw_shell *shell) {
    if (!shell->setup->has_gate) return;
    (void)stamps_take(shell);
    shell->gate.known = shell->setup->gate.own;
    certs_note(shell);
}

void tw_shell_gate_chores(struct tw_shell *shell, uint64_t now_us) {
    if (!shell->setup->has_gate || shell->transport == NULL || now_us < shell->gate.due_us) return;
    shell->gate.due_us = now_us + LOOK_US;
    /* Not in between: what is not written yet is newer than what is there. */
    if (!shell->gate.save.is_saving && stamps_take(shell)) files_read(shell);
    tw_transport_review(shell->transport);
    renewal_ask(shell, now_us);
    late_note(shell);
}

void tw_shell_gate_fill(const struct tw_shell *shell, struct tw_status_view *view) {
    const struct tw_gate *gate = &shell->setup->gate;
    struct tw_error err = {0};
    if (!shell->setup->has_gate) return;
    const uint64_t now_s = gate->clock_s();
    view->admission.has_owner = true;
    view->admission.is_admitter = tw_gate_is_admitter(&gate->own);
    view->admission.is_renewed = gate->own.count > 1;
    view->admission.until_s = tw_certs_until(&gate->own);
    if (view->admission.until_s > now_s) view->admission.left_s = view->admission.until_s - now_s;
    view->admission.is_late = tw_gate_is_late(gate);
    view->admission.list = gate->revoked.version;
    view->admission.revoked = gate->revoked.count;
    if (tw_gate_judge(gate, &gate->own, &gate->identity->id, TW_CERT_TRAIN, 0, &err) != TW_OK)
        (void)snprintf(view->admission.error, sizeof(view->admission.error), "%s", err.message);
}
