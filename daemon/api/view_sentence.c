#include "daemon/api/view_sentence.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "daemon/config/quota.h"

enum { COMPANY_BYTES = 160 };

static const char NOTHING_ARRIVES[] = ", nothing arrives now";

static const char *plural(uint32_t n) {
    return n == 1 ? "" : "s";
}

/* Words for a run in which every node trains alone. */
static void describe_alone(uint32_t alive, char text[COMPANY_BYTES]) {
    if (alive > 0) {
        (void)snprintf(text, COMPANY_BYTES, "on its own, as %" PRIu32 " other%s do%s", alive,
                       plural(alive), alive == 1 ? "es" : "");
    } else {
        (void)snprintf(text, COMPANY_BYTES, "on its own, as the run says");
    }
}

/* Returns the known node that was linked last, or NULL; *others: further ones without a link. */
static const struct tw_view_peer *find_last(const struct tw_status_view *view, uint32_t *others) {
    const struct tw_view_peer *last = NULL;
    *others = 0;
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        const bool is_away = peer->link == TW_VIEW_LINK_LEFT || peer->link == TW_VIEW_LINK_PAUSED ||
                             peer->link == TW_VIEW_LINK_AWAY;
        if (!is_away || peer->absent_us == TW_VIEW_NEVER) continue;
        *others += last != NULL;
        if (last == NULL || peer->absent_us < last->absent_us) last = peer;
    }
    return last;
}

/* Writes why a node without a living peer trains alone: one sentence for each reason, the nearest
 * to this machine first. */
static void describe_lonely(const struct tw_status_view *view, char text[COMPANY_BYTES]) {
    const char *const rest = view->caps.resting != NULL ? view->caps.resting : "none";
    uint32_t others;
    const struct tw_view_peer *const last = find_last(view, &others);
    char absence[TW_VIEW_TEXT_BYTES], label[TW_VIEW_LABEL_BYTES], more[32] = "";
    if (strcmp(rest, "quota") == 0) {
        (void)snprintf(text, COMPANY_BYTES, "alone; its quota is used up until %s",
                       view->caps.month_end);
    } else if (strcmp(rest, "hours") == 0) {
        (void)snprintf(text, COMPANY_BYTES,
                       "alone; network.hours keeps its links off until "
                       "%02u:%02u",
                       view->caps.until_min / 60 % 24, view->caps.until_min % 60);
    } else if (view->net.is_offline) {
        (void)snprintf(text, COMPANY_BYTES,
                       "alone; this machine is offline, its cable or wireless link is down");
    } else if (last != NULL) {
        const char *const name =
            last->name[0] != 0 ? last->name : tw_status_view_label(view, &last->id, label);
        (void)tw_view_absence(last, absence);
        if (others > 0)
            (void)snprintf(more, sizeof(more), ", %" PRIu32 " other%s before", others,
                           plural(others));
        (void)snprintf(text, COMPANY_BYTES, "alone; %.30s %s%.80s%s", name,
                       last->link == TW_VIEW_LINK_AWAY ? "was " : "", absence, more);
    } else if (view->peers_count == 0 && view->bootstrap_count == 0) {
        (void)snprintf(text, COMPANY_BYTES, "alone; no other machine has joined yet");
    } else {
        (void)snprintf(text, COMPANY_BYTES, "alone; no peer is reachable");
    }
}

/* Returns the peer that cannot train yet, as its disk has no room for the data, or NULL. */
static const struct tw_view_peer *find_waiting(const struct tw_status_view *view) {
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        if (peer->waits_for_room && peer->link == TW_VIEW_LINK_ALIVE) return peer;
    }
    return NULL;
}

/* Writes why a node with living peers trains alone. */
static void describe_alone_so_far(const struct tw_status_view *view, char text[COMPANY_BYTES]) {
    const uint32_t alive = view->sync.alive;
    const struct tw_view_peer *const waiting = find_waiting(view);
    char label[TW_VIEW_LABEL_BYTES];
    if (waiting != NULL)
        (void)snprintf(text, COMPANY_BYTES,
                       "alone so far; the disk of %.40s has no room for the data",
                       waiting->name[0] != 0 ? waiting->name
                                             : tw_status_view_label(view, &waiting->id, label));
    else
        (void)snprintf(text, COMPANY_BYTES, "alone so far; %" PRIu32 " peer%s alive", alive,
                       alive == 1 ? " is" : "s are");
}

static void describe_company(const struct tw_status_view *view, char text[COMPANY_BYTES]) {
    const uint32_t alive = view->sync.alive;
    /* Peers whose work was merged recently may have left since. */
    const uint32_t mixed = view->sync.mixed < alive ? view->sync.mixed : alive;
    const enum tw_node_state state = view->node.state;
    const bool is_pair = view->sync.topology == TW_TOPOLOGY_PAIR;
    if (view->sync.topology == TW_TOPOLOGY_SOLO && view->node.links) {
        describe_alone(alive, text);
    } else if (is_pair && state == TW_STATE_SOLO && mixed > 0) {
        (void)snprintf(text, COMPANY_BYTES, "in pairs, lately with %" PRIu32 " other%s", mixed,
                       plural(mixed));
    } else if (is_pair && state == TW_STATE_RECEIVER && alive > 0) {
        (void)snprintf(text, COMPANY_BYTES, "and fetches the state of another node");
    } else if (state == TW_STATE_MEMBER && mixed > 0) {
        (void)snprintf(text, COMPANY_BYTES, "together with %" PRIu32 " other%s", mixed,
                       plural(mixed));
    } else if (state == TW_STATE_RECEIVER && alive > 0) {
        (void)snprintf(text, COMPANY_BYTES, "and fetches the state of the other nodes");
    } else if (!view->node.links) {
        (void)snprintf(text, COMPANY_BYTES, "alone, as configured");
    } else if (alive > 0) {
        describe_alone_so_far(view, text);
    } else {
        describe_lonely(view, text);
    }
}

/* Appends one reason for a pause. *count is the number of reasons already in the text. */
static void add_reason(char text[TW_VIEW_TEXT_BYTES], uint32_t *count, const char *reason) {
    const size_t used = strlen(text);
    (void)snprintf(text + used, TW_VIEW_TEXT_BYTES - used, "%s%s", (*count)++ > 0 ? "; " : "",
                   reason);
}

static void describe_reasons(const struct tw_view_pause *pause, char text[TW_VIEW_TEXT_BYTES]) {
    const uint32_t until = pause->until_min;
    uint32_t count = 0;
    char reason[96];
    text[0] = '\0';
    if (pause->is_by_owner) {
        char share[32] = "";
        const double others = pause->is_gpu ? pause->others_gpu : pause->others_cpu;
        if (!isnan(others))
            (void)snprintf(share, sizeof(share), " (%.0f %% of the %s)", 100 * others,
                           pause->is_gpu ? "GPU" : "CPU");
        (void)snprintf(reason, sizeof(reason),
                       "the owner uses the computer%s; goes on after %" PRIu64 " s of quiet", share,
                       (pause->quiet_us + 999999) / 1000000);
        add_reason(text, &count, reason);
    }
    if (pause->is_by_hours) {
        char end[32] = "at all hours";
        if (until < TW_DAY_MINUTES)
            (void)snprintf(end, sizeof(end), "until %02" PRIu32 ":%02" PRIu32, until / 60,
                           until % 60);
        (void)snprintf(reason, sizeof(reason), "worker.hours forbids training %s", end);
        add_reason(text, &count, reason);
    }
    if (pause->is_by_run)
        add_reason(text, &count,
                   "the owner of the run paused all its nodes, until thinwire resume --run");
    if (pause->is_by_user) add_reason(text, &count, "`thinwire resume` is awaited");
}

void tw_view_pause_text(const struct tw_view_pause *pause, char text[TW_VIEW_TEXT_BYTES]) {
    const char *const memory = pause->is_memory_back ? "; its memory is given back" : "";
    char reasons[TW_VIEW_TEXT_BYTES];
    describe_reasons(pause, reasons);
    if (pause->is_by_owner || pause->is_by_hours || pause->is_by_run)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "paused: %.200s%s", reasons, memory);
    else
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "paused; `thinwire resume` continues%s", memory);
}

/* Writes "1.2 of 2.9 MB", or "980 kB of 2.9 MB" where the units differ. */
static void describe_share(uint64_t here, uint64_t all, char *text, size_t room) {
    char here_text[TW_UNITS_BYTES], all_text[TW_UNITS_BYTES];
    (void)tw_units_bytes(here_text, (double)here);
    (void)tw_units_bytes(all_text, (double)all);
    char *const here_unit = strchr(here_text, ' '), *const all_unit = strchr(all_text, ' ');
    if (here_unit != NULL && all_unit != NULL && strcmp(here_unit, all_unit) == 0) *here_unit = 0;
    (void)snprintf(text, room, "%s of %s", here_text, all_text);
}

/* Writes the progress of a transfer, such as "42 %, 1.2 of 2.9 MB at 80 kB/s, about 20 s left"; ""
 * before its size is known. */
static void join_text(const struct tw_view_join *join, char text[TW_VIEW_TEXT_BYTES]) {
    char share[2 * TW_UNITS_BYTES + 8], number[TW_UNITS_BYTES], rate[64] = "", left[64] = "";
    text[0] = '\0';
    if (join->bytes == 0) return;
    describe_share(join->bytes_here, join->bytes, share, sizeof(share));
    if (join->bytes_per_s > 0)
        (void)snprintf(rate, sizeof(rate), " at %s/s", tw_units_bytes(number, join->bytes_per_s));
    else if (join->bytes_per_s == 0 && join->bytes_here < join->bytes)
        (void)snprintf(rate, sizeof(rate), "%s", NOTHING_ARRIVES);
    if (join->eta_us != TW_VIEW_NEVER)
        (void)snprintf(left, sizeof(left), ", about %s left",
                       tw_units_duration(number, (double)(join->eta_us / 1000000 + 1)));
    (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%.0f %%, %s%s%s",
                   floor(100.0 * (double)join->bytes_here / (double)join->bytes), share, rate,
                   left);
}

/* Writes which peer gives no more, and for how long, instead of NOTHING_ARRIVES. Writes nothing if
 * no peer has said so. */
static void describe_donor(const struct tw_status_view *view, char *text, size_t room) {
    for (uint32_t i = 0; i < view->peers_count; i++) {
        const struct tw_view_peer *peer = &view->peers[i];
        char label[TW_VIEW_LABEL_BYTES], wait[TW_UNITS_BYTES];
        if (peer->gives_none_us == 0) continue;
        (void)tw_status_view_label(view, &peer->id, label);
        (void)tw_units_duration(wait, (double)(peer->gives_none_us / 1000000 + 1));
        (void)snprintf(text, room, "; %.40s gives no more for %s", label, wait);
        return;
    }
}

/* Writes the sentence of a node that joins or catches up. Returns false if it does neither, or
 * cannot say anything of it. */
static bool describe_join(const struct tw_status_view *view, char text[TW_VIEW_TEXT_BYTES]) {
    static const char *const WORDS[] = {
        [TW_VIEW_JOIN_NONE] = "",
        [TW_VIEW_JOIN_DATA] = "fetches its data",
        [TW_VIEW_JOIN_STATE] = "fetches its state",
        [TW_VIEW_JOIN_SEAT] = "has its state, and the next round gives it a seat",
    };
    char progress[TW_VIEW_TEXT_BYTES];
    const enum tw_view_join_phase phase = view->join.phase;
    if (phase == TW_VIEW_JOIN_NONE || view->node.is_leaving) return false;
    const bool may_train =
        view->worker.state == TW_VIEW_WORKER_RUNNING ||
        view->worker.state == TW_VIEW_WORKER_LOADING; /* it waits for the state */
    if (!may_train && phase != TW_VIEW_JOIN_DATA) return false;
    join_text(&view->join, progress);
    char *const idle = strstr(progress, NOTHING_ARRIVES);
    if (idle != NULL) describe_donor(view, idle, (size_t)(progress + sizeof(progress) - idle));
    if (phase == TW_VIEW_JOIN_DATA && progress[0] == '\0' && view->data.error[0] == '\0')
        return false;
    const bool has_progress = progress[0] != '\0' && phase != TW_VIEW_JOIN_SEAT;
    if (phase == TW_VIEW_JOIN_DATA && view->data.error[0] != '\0') {
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "%.63s joins %.63s: waits until its data can be "
                       "stored",
                       view->node.name, view->run.name);
        return true;
    }
    (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%.63s %s %.63s: %s%s%.80s", view->node.name,
                   view->join.is_return ? "catches up with" : "joins", view->run.name, WORDS[phase],
                   has_progress ? ", " : "", has_progress ? progress : "");
    return true;
}

/* A worker that another program starts comes within this time. */
enum { WORKER_COMES_US = 20 * 1000 * 1000 };

/* Returns the words for a node whose worker takes no steps, or NULL if it takes some. */
static const char *describe_rest(const struct tw_status_view *view) {
    if (view->node.is_leaving) return "is saving its state and saying goodbye";
    switch (view->worker.state) {
    case TW_VIEW_WORKER_FAILED: return "does not train: its worker failed";
    case TW_VIEW_WORKER_ABSENT:
        if (view->run.is_any_model) return "waits for its trainer";
        if (view->node.uptime_us < WORKER_COMES_US) return "has started and waits for its worker";
        return "does not train: no worker is attached";
    case TW_VIEW_WORKER_WAITING: return "waits for training data";
    case TW_VIEW_WORKER_STARTING: return "is starting its worker";
    case TW_VIEW_WORKER_LOADING:
        return view->node.state == TW_STATE_RECEIVER
                   ? "fetches the state of the run before it trains"
                   : "looks for other nodes of the run before it trains";
    case TW_VIEW_WORKER_RESTARTING: return "is restarting its worker";
    case TW_VIEW_WORKER_PAUSED:
    case TW_VIEW_WORKER_RUNNING:
    case TW_VIEW_WORKER_FINISHED: break;
    }
    return NULL;
}

/* Writes the sentence of a node whose trainer does something else. Returns false if it trains. */
static bool describe_still(const struct tw_status_view *view, char text[TW_VIEW_TEXT_BYTES]) {
    char still[TW_UNITS_BYTES];
    if (view->worker.state != TW_VIEW_WORKER_RUNNING || view->node.is_leaving) return false;
    if (view->worker.still_us == TW_VIEW_NEVER) return false;
    (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                   "%s waits for its trainer, which has taken no step for %s", view->node.name,
                   tw_units_duration(still, (double)(view->worker.still_us / 1000000)));
    return true;
}

void tw_view_sentence(const struct tw_status_view *view, char text[TW_VIEW_TEXT_BYTES]) {
    const char *const name = view->node.name, *const run = view->run.name;
    const char *const rest = describe_rest(view);
    const bool is_failed = view->worker.state == TW_VIEW_WORKER_FAILED;
    char with[COMPANY_BYTES];
    if (describe_still(view, text) || describe_join(view, text)) return;
    if (view->node.state == TW_STATE_FINISHED && !view->node.is_leaving && !is_failed) {
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%s has finished %s and serves it to others", name,
                       run);
    } else if (rest != NULL) {
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%s %s", name, rest);
    } else if (view->worker.state == TW_VIEW_WORKER_PAUSED) {
        char pause[TW_VIEW_TEXT_BYTES];
        tw_view_pause_text(&view->pause, pause);
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%.50s is %.200s", name, pause);
    } else if (view->worker.state == TW_VIEW_WORKER_FINISHED) {
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%s has reached its last step of %s", name, run);
    } else {
        describe_company(view, with);
        static const char *const VERBS[] = {"trains", "follows", "merges for"};
        const char *const verb = VERBS[view->node.role];
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "%.50s %s %.40s %.150s", name, verb, run, with);
    }
}
