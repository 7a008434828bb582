#include "daemon/node/refusals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"
#include "daemon/net/bans.h"
#include "daemon/net/transport.h"
#include "daemon/store/cache_file.h"
#include "sync/members/members.h"

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

/* ---- one key on two machines ----------------------------------------------------------------- */

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
