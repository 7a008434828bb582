#include "daemon/api/view_warning.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

/* ==== texts =================================================================================== */

/* At least one attack of each kind is shown. */
enum { ATTACKS_SHOWN = TW_ATTACKS, LOST_SHOWN = 4 };
_Static_assert((int)ATTACKS_SHOWN <= TW_WARNINGS_MAX - 4, "attacks leave room for others");

#define MINUTE_US UINT64_C(60000000)

struct list {
    struct tw_warning *warnings;
    uint32_t count;
};

const char *tw_warning_name(enum tw_warning_kind kind) {
    static const char *const NAMES[TW_WARNING_KINDS] = {
#define X(name, word) word,
        TW_WARNING_LIST(X)
#undef X
    };
    _Static_assert(TW_WARNING_ATTACK + TW_ATTACK_PROTOCOL == TW_WARNING_ATTACK_PROTOCOL &&
                       TW_ATTACKS == TW_ATTACK_PROTOCOL + 1,
                   "the attacks are listed in their order");
    _Static_assert(TW_WARNING_FINDING + TW_FINDING_NO_SEAT == TW_WARNING_NO_SEAT &&
                       TW_FINDINGS == TW_FINDING_NO_SEAT + 1,
                   "the findings are listed in their order");
    return NAMES[kind];
}

bool tw_warning_is_urgent(enum tw_warning_kind kind) {
    return kind != TW_WARNING_LINKS_REST && kind != TW_WARNING_ROUND_LEFT_OUT &&
           kind != TW_WARNING_WORKER_RESTARTING && kind != TW_WARNING_STATE_WITHHELD;
}

static void TW_PRINTF(4, 5)
    add(struct list *list, enum tw_warning_kind kind, const char *way_out, const char *fmt, ...) {
    if (list->count == TW_WARNINGS_MAX) return;
    struct tw_warning *const warning = &list->warnings[list->count++];
    va_list args;
    warning->kind = kind;
    warning->about[0] = '\0';
    va_start(args, fmt);
    (void)vsnprintf(warning->what, sizeof(warning->what), fmt, args);
    va_end(args);
    (void)snprintf(warning->way_out, sizeof(warning->way_out), "%s", way_out);
}

/* Adds a warning about another node. */
static void add_about(struct list *list, enum tw_warning_kind kind, const struct tw_id *about,
                      const char *way_out, const char *text) {
    const uint32_t at = list->count;
    add(list, kind, way_out, "%s", text);
    if (list->count > at) tw_id_short(about, list->warnings[at].about);
}

static bool judge_device(const struct tw_status_view *view, const char *why, struct list *list) {
    if (!view->worker.is_device_fault) return false;
    add(list, TW_WARNING_DEVICE_FAILED,
        "it is retried at growing intervals; see the kernel log and the driver, or set "
        "device = cpu",
        "The compute device failed and nothing is trained: %s", why);
    return true;
}

static void judge_worker(const struct tw_status_view *view, struct list *list) {
    const char *const why = view->worker.error[0] != 0 ? view->worker.error : "no reason given";
    switch (view->worker.state) {
    case TW_VIEW_WORKER_FAILED:
        add(list, TW_WARNING_WORKER_FAILED, "repair that, then restart the daemon",
            "The worker died %" PRIu32 " time%s without progress and was given up: %s",
            view->worker.restarts, tw_units_s(view->worker.restarts), why);
        break;
    case TW_VIEW_WORKER_ABSENT:
        /* The user's own trainer may exit when the run is over. */
        if (view->node.state == TW_STATE_FINISHED) break;
        if (view->node.uptime_us < MINUTE_US / 2 || judge_device(view, why, list)) break;
        if (view->run.is_any_model) {
            add(list, TW_WARNING_WORKER_ABSENT,
                "start your trainer, which attaches to the daemon's worker socket",
                "No trainer is attached, so nothing is trained%s%s",
                view->worker.error[0] != 0 ? ": " : "", view->worker.error);
            break;
        }
        add(list, TW_WARNING_WORKER_ABSENT,
            view->worker.is_service
                ? "systemd starts it again within seconds; if it does not come, the journal of "
                  "thinwire-worker@ has the reason"
                : "start thinwire-worker, or set spawn_worker = on",
            "No worker is attached, so nothing is trained%s%s",
            view->worker.error[0] != 0 ? ": " : "", view->worker.error);
        break;
    case TW_VIEW_WORKER_RESTARTING:
        if (judge_device(view, why, list)) break;
        add(list, TW_WARNING_WORKER_RESTARTING, "nothing to do unless it repeats",
            "The worker died and is being restarted: %s", why);
        break;
    case TW_VIEW_WORKER_RUNNING:
        if (view->worker.heartbeat_us == TW_VIEW_NEVER || view->worker.heartbeat_us < MINUTE_US) {
            break;
        }
        add(list, TW_WARNING_WORKER_SILENT,
            "see the worker's log; if this lasts, it is started again",
            "The worker's heartbeat stopped %" PRIu64 " s ago",
            view->worker.heartbeat_us / 1000000);
        break;
    case TW_VIEW_WORKER_STARTING:
    case TW_VIEW_WORKER_LOADING:
    case TW_VIEW_WORKER_WAITING:
    case TW_VIEW_WORKER_PAUSED:
    case TW_VIEW_WORKER_FINISHED: break;
    }
}

static void judge_admission(const struct tw_status_view *view, struct list *list) {
    char left[TW_UNITS_BYTES];
    if (!view->admission.has_owner) return;
    if (view->admission.error[0] != 0) {
        add(list, TW_WARNING_NOT_ADMITTED, "`thinwire owner show` and `thinwire doctor` tell more",
            "No other node admits this one: %s", view->admission.error);
    } else if (view->admission.is_late) {
        add(list, TW_WARNING_CERTIFICATE_ENDS,
            view->admission.is_renewed
                ? "link to a node that may admit, or have the owner sign a new one"
                : "have the owner sign a new one (`thinwire owner sign`), then `thinwire owner "
                  "import FILE`",
            "The certificate of this node ends in %s",
            tw_units_duration(left, (double)view->admission.left_s));
    }
}

void tw_view_twin_text(const struct tw_view_twin *twin, const char *label,
                       char text[TW_VIEW_TEXT_BYTES]) {
    char at[TW_ADDR_BYTES + 8] = "";
    if (twin->address[0] != 0) (void)snprintf(at, sizeof(at), ", at %s,", twin->address);
    if (twin->is_self)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "another machine%s has this node's key", at);
    else
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "another machine%s has the key of node %s%s%s and is refused", at, label,
                       twin->linked[0] != 0 ? " at " : "", twin->linked);
}

static bool judge_twins(const struct tw_status_view *view, struct list *list) {
    bool is_self = false;
    for (uint32_t i = 0; i < view->twins_count && i < TW_VIEW_TWINS_MAX; i++) {
        char text[TW_VIEW_TEXT_BYTES], label[TW_VIEW_LABEL_BYTES];
        is_self |= view->twins[i].is_self;
        tw_view_twin_text(&view->twins[i], tw_status_view_label(view, &view->twins[i].id, label),
                          text);
        text[0] = 'A';
        add_about(
            list, TW_WARNING_TWIN, &view->twins[i].id,
            "give the copy its own: `thinwire init --new-key` on it, then `thinwire leave` and "
            "`thinwire start`",
            text);
    }
    return is_self;
}

void tw_view_lost_text(const struct tw_view_lost *lost, char text[TW_VIEW_TEXT_BYTES]) {
    char tokens[TW_UNITS_BYTES], time[TW_UNITS_BYTES] = "", work[TW_UNITS_BYTES + 32] = "";
    const uint64_t rounds =
        lost->rounds_before > lost->rounds ? lost->rounds_before - lost->rounds : 0;
    tw_units_short(tokens, (double)lost->tokens);
    if (lost->work_us != TW_VIEW_NEVER && lost->work_us > 0)
        (void)snprintf(work, sizeof(work), ", about %s of work",
                       tw_units_duration(time, (double)(lost->work_us / 1000000)));
    if (lost->is_anew && lost->rounds > 0)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node was at round %" PRIu64 " of the run. While it was away the run "
                       "began anew, without that work: %s tokens were lost",
                       lost->rounds_before, tokens);
    else if (lost->is_anew)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node was at round %" PRIu64 " of the run. After the restart no node "
                       "had a checkpoint, and the run began anew: %s tokens were lost",
                       lost->rounds_before, tokens);
    else
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node was at round %" PRIu64 " of the run. After the restart the run "
                       "goes on from round %" PRIu64 ": %" PRIu64 " round%s, %s tokens and %" PRIu64
                       " steps of this node%s were lost",
                       lost->rounds_before, lost->rounds, rounds, tw_units_s((double)rounds),
                       tokens, lost->steps, work);
}

static bool is_resting(const struct tw_status_view *view) {
    return view->caps.resting != NULL && strcmp(view->caps.resting, "none") != 0;
}

/* Returns true if this node would merge with others, and could have for long enough. */
static bool misses_others(const struct tw_status_view *view) {
    return view->sync.topology != TW_TOPOLOGY_SOLO && view->node.state != TW_STATE_FINISHED &&
           view->pause.age_us == TW_VIEW_NEVER && view->net.open_us >= TW_WARNING_LOST_US;
}

/* Returns whether members that merged with this node are away without a word. */
static bool misses_somebody(const struct tw_status_view *view) {
    for (uint32_t i = 0; i < view->peers_count; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        if (peer->has_merged && peer->link == TW_VIEW_LINK_AWAY && !peer->is_shut_out) return true;
    }
    return false;
}

/* Warns that the merging stopped, and names those who were part of it: those that are away without
 * a word, if there are any, and never those that the owner shut out. */
static void judge_alone(const struct tw_status_view *view, struct list *list) {
    char who[240] = "", alone[TW_UNITS_BYTES];
    size_t used = 0;
    if (view->sync.alive > 0 || view->sync.alone_us == TW_VIEW_NEVER ||
        view->sync.alone_us < TW_WARNING_LOST_US || !misses_others(view))
        return;
    const bool is_missing = misses_somebody(view);
    for (uint32_t i = 0; i < view->peers_count; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        char label[TW_VIEW_LABEL_BYTES], absence[TW_VIEW_TEXT_BYTES];
        if (!peer->has_merged || peer->link == TW_VIEW_LINK_GONE || peer->is_shut_out) continue;
        if (is_missing && peer->link != TW_VIEW_LINK_AWAY) continue;
        const int size =
            snprintf(who + used, sizeof(who) - used, "%s%s %s", used > 0 ? "; " : ": ",
                     tw_status_view_label(view, &peer->id, label), tw_view_absence(peer, absence));
        if (size <= 0 || (size_t)size >= sizeof(who) - used) {
            who[used] = '\0';
            break;
        }
        used += (size_t)size;
    }
    add(list, TW_WARNING_TRAINS_ALONE,
        view->net.is_offline
            ? "look at this machine's own cable or wireless link, which is down; merging goes on "
              "once it is back"
            : "look at those machines and at this one's line: `thinwire peers`, `thinwire doctor`; "
              "merging goes on once they are back",
        "This node merged with others, and has trained alone for %s%s",
        tw_units_duration(alone, (double)(view->sync.alone_us / 1000000)), who);
}

/* Warns of members that fell silent while others are there. */
static void judge_lost(const struct tw_status_view *view, struct list *list) {
    uint32_t shown = 0;
    if (view->sync.alive == 0 || !misses_others(view)) return;
    for (uint32_t i = 0; i < view->peers_count && shown < LOST_SHOWN; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        char label[TW_VIEW_LABEL_BYTES], time[TW_UNITS_BYTES], text[TW_VIEW_TEXT_BYTES];
        if (peer->link != TW_VIEW_LINK_AWAY || !peer->has_merged ||
            peer->absent_us < TW_WARNING_LOST_US)
            continue;
        (void)snprintf(text, sizeof(text),
                       "%s has not been heard for %s; the run goes on with %" PRIu32 " other%s",
                       tw_status_view_label(view, &peer->id, label),
                       tw_units_duration(time, (double)(peer->absent_us / 1000000)),
                       view->sync.alive, tw_units_s(view->sync.alive));
        add_about(list, TW_WARNING_MEMBER_LOST, &peer->id,
                  "look at that machine and its line; `thinwire leave` there, next time, says "
                  "goodbye",
                  text);
        shown++;
    }
}

static bool is_linked(const struct tw_view_peer *peer) {
    return peer->link == TW_VIEW_LINK_UP || peer->link == TW_VIEW_LINK_ALIVE;
}

/* Warns of wall clocks that differ by more than a minute. If most peers agree against this node,
 * its own clock is the wrong one; with one peer it is open. */
static void judge_clocks(const struct tw_status_view *view, struct list *list) {
    static const char WAY_OUT[] =
        "set the wrong clock, best by NTP: certificates and tickets have dates";
    const struct tw_view_peer *first = NULL;
    uint32_t known = 0, far = 0;
    for (uint32_t i = 0; i < view->peers_count; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        if (!is_linked(peer) || peer->ahead_s == TW_VIEW_NO_CLOCK) continue;
        known++;
        if (peer->ahead_s <= TW_WARNING_CLOCK_S && peer->ahead_s >= -TW_WARNING_CLOCK_S) continue;
        far++;
        if (first == NULL) first = peer;
    }
    if (first == NULL) return;
    char label[TW_VIEW_LABEL_BYTES], time[TW_UNITS_BYTES], text[TW_VIEW_TEXT_BYTES];
    const bool is_ahead = first->ahead_s > 0;
    (void)tw_units_duration(time, (double)(is_ahead ? first->ahead_s : -first->ahead_s));
    (void)tw_status_view_label(view, &first->id, label);
    if (known > 1 && 2 * far > known) {
        add(list, TW_WARNING_CLOCK_DIFFERS, WAY_OUT,
            "This machine's clock differs from those of %" PRIu32 " of %" PRIu32
            " peers: it is %s %s that of %s",
            far, known, time, is_ahead ? "behind" : "ahead of", label);
        return;
    }
    (void)snprintf(text, sizeof(text), "The clock of %s is %s %s this machine's", label, time,
                   is_ahead ? "ahead of" : "behind");
    add_about(list, TW_WARNING_CLOCK_DIFFERS, &first->id, WAY_OUT, text);
}

/* Returns true if every living peer still fetches the state: its work comes later. */
static bool are_all_joining(const struct tw_status_view *view) {
    uint32_t joining = 0;
    for (uint32_t i = 0; i < view->peers_count; i++)
        joining +=
            view->peers[i].link == TW_VIEW_LINK_ALIVE && view->peers[i].state == TW_STATE_RECEIVER;
    return joining > 0 && joining >= view->sync.alive;
}

static void judge_network(const struct tw_status_view *view, struct list *list) {
    if (!view->node.links || is_resting(view)) return;
    if (judge_twins(view, list))
        return; /* two machines with one key cause the other network warnings, so those are omitted
                 */
    const struct tw_view_peer *refused = NULL;
    for (uint32_t i = 0; i < view->peers_count && refused == NULL; i++) {
        if (view->peers[i].link == TW_VIEW_LINK_REFUSED) refused = &view->peers[i];
    }
    if (refused != NULL) {
        add(list, TW_WARNING_REFUSED, "`thinwire peers` and `thinwire doctor` tell more", "%s",
            refused->error[0] != 0 ? refused->error : "a node refuses us without a reason");
    }
    if (view->node.uptime_us < MINUTE_US / 2) return; /* links need a while to come up */
    judge_alone(view, list);
    judge_lost(view, list);
    judge_clocks(view, list);
    if (view->net.bootstrap_count > 0 && view->sync.alive == 0 &&
        view->sync.alone_us == TW_VIEW_NEVER && view->node.state != TW_STATE_FINISHED) {
        const struct tw_view_bootstrap *failed = NULL;
        char peers[48] = "The configured peer is not";
        if (view->net.bootstrap_count > 1)
            (void)snprintf(peers, sizeof(peers), "None of the %" PRIu32 " configured peers is",
                           view->net.bootstrap_count);
        for (uint32_t i = 0; i < view->bootstrap_count && failed == NULL; i++) {
            if (view->bootstrap[i].error[0] != 0) failed = &view->bootstrap[i];
        }
        add(list, TW_WARNING_UNREACHABLE, "`thinwire doctor` tries every stage of every address",
            "%s reachable; this node trains alone%s%s", peers, failed != NULL ? ": " : "",
            failed != NULL ? failed->error : "");
    } else if (view->sync.alive > 0 && view->sync.mixed == 0 && !are_all_joining(view) &&
               view->pause.age_us == TW_VIEW_NEVER &&
               view->sync.rounds_committed >= 2 * (uint64_t)view->run.fragments_count &&
               view->node.uptime_us > 10 * MINUTE_US && view->node.state != TW_STATE_FINISHED &&
               view->sync.topology != TW_TOPOLOGY_SOLO) {
        add(list, TW_WARNING_NOT_MERGED,
            view->sync.topology == TW_TOPOLOGY_GROUP
                ? "see `thinwire peers`; are their lineage and step those of this node?"
                : "see `thinwire rounds`: when all were alone, payloads arrive too late",
            view->sync.alive == 1
                ? "%" PRIu32 " peer is alive, but its work was not merged here lately"
                : "%" PRIu32 " peers are alive, but none of their work was merged here lately",
            view->sync.alive);
    }
}

static void judge_seat(const struct tw_status_view *view, struct list *list) {
    if (!view->sync.is_shut_out) return;
    add(list, TW_WARNING_GROUP_FULL,
        "wait until a member leaves, or begin a run with a larger sync.members (at most 64)",
        "The group is full: %" PRIu32
        " members, as many as sync.members of the manifest allows; this "
        "node follows and does not contribute",
        view->sync.members_max);
}

static void judge_caps(const struct tw_status_view *view, struct list *list) {
    const char *const why = view->caps.resting != NULL ? view->caps.resting : "none";
    char quota[TW_UNITS_BYTES], used[TW_UNITS_BYTES];
    if (strcmp(why, "quota") == 0) {
        add(list, TW_WARNING_QUOTA_USED, "raise network.quota and `thinwire reload`, or wait",
            "The quota of %s is used up, by %s: links rest until %s and this node trains alone",
            tw_units_bytes(quota, (double)view->caps.quota_bytes),
            tw_units_bytes(used, (double)view->caps.month_bytes), view->caps.month_end);
    } else if (strcmp(why, "hours") == 0) {
        add(list, TW_WARNING_LINKS_REST, "nothing to do; network.hours sets it",
            "Links rest until %02u:%02u and this node trains alone", view->caps.until_min / 60 % 24,
            view->caps.until_min % 60);
    }
}

/* A node that was restarted often has had as much of the state as one node gives it. */
static void judge_serving(const struct tw_status_view *view, struct list *list) {
    for (uint32_t i = 0; i < view->peers_count; i++) {
        const struct tw_view_peer *peer = &view->peers[i];
        const bool gives_none = peer->gives_none_us > 0 && view->join.phase != TW_VIEW_JOIN_NONE;
        const uint64_t wait_us = gives_none ? peer->gives_none_us : peer->gets_none_us;
        char text[TW_VIEW_TEXT_BYTES], label[TW_VIEW_LABEL_BYTES], wait[TW_UNITS_BYTES];
        if (wait_us == 0 || (!gives_none && peer->gets_none_us == 0)) continue;
        (void)tw_status_view_label(view, &peer->id, label);
        (void)tw_units_duration(wait, (double)(wait_us / 1000000 + 1));
        (void)snprintf(text, sizeof(text),
                       gives_none
                           ? "%s gives this node no more state or data for %s: its budget for "
                             "others has no room"
                           : "%s gets no more state or data from this node for %s: the budget for "
                             "others has no room",
                       label, wait);
        add_about(list, TW_WARNING_STATE_WITHHELD, &peer->id,
                  "nothing to do; a larger network.quota of the node that gives allows more", text);
    }
}

static void judge_budget(const struct tw_status_view *view, struct list *list) {
    if (view->spend.is_hopeless) {
        add(list, TW_WARNING_BUDGET_SMALL,
            "raise network.budget, or join a run with fewer nodes or rarer rounds",
            "A member without contributions moves %.0f kB/s, more than the budget of %.0f kB/s: "
            "this node only follows",
            view->spend.rest_bytes_per_s / 1e3, view->spend.budget_bytes_per_s / 1e3);
    } else if (view->spend.is_left_out) {
        add(list, TW_WARNING_ROUND_LEFT_OUT,
            "nothing to do; with a larger network.budget it contributes more often",
            "This round is left out to keep to the budget, like %" PRIu64 " so far",
            view->spend.rounds_left_out);
    }
}

static void judge_training(const struct tw_status_view *view, struct list *list) {
    if (isinf(view->train.loss) ||
        (view->train.step > 0 && view->train.steps_skipped * 20 > view->train.step)) {
        add(list, TW_WARNING_BAD_GRADIENTS,
            "lower train.lr in a new manifest, or check the training text",
            "%" PRIu64 " of %" PRIu64 " steps had gradients that were not finite",
            view->train.steps_skipped, view->train.step);
    }
    if (view->train.utilisation_minute < 0.9) {
        add(list, TW_WARNING_LITTLE_TRAINING,
            "raise sync.period, choose a cheaper codec, or give the worker more cores",
            "Only %.0f %% of the last minute went into training, the rest into merging",
            100 * view->train.utilisation_minute);
    }
}

static void judge_merging(const struct tw_status_view *view, struct list *list) {
    if (!view->train.is_anchor_bad) return;
    add(list, TW_WARNING_MERGING_HURTS,
        "see `thinwire peers` for refused work and missing links; other nodes show the same where "
        "the fault is the group's. A lower learning rate needs a new manifest",
        "Merging hurts: the anchor is worse than this node's own parameters (%.3f against %.3f "
        "nats) and does not follow them; until it is as good again this node goes on with its own",
        (double)view->train.loss_anchor, (double)view->train.loss_live);
}

void tw_view_finding_text(const struct tw_view_health *health, enum tw_finding finding,
                          char text[TW_VIEW_TEXT_BYTES]) {
    const unsigned long long rounds = health->rounds, refused = health->refused;
    char by[9];
    tw_id_short(&health->refused_by, by);
    switch (finding) {
    case TW_FINDING_REFUSED:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node's work was refused in %llu of the last %llu rounds, last by node "
                       "%s: it is far larger than that of the others",
                       refused, rounds, by);
        return;
    case TW_FINDING_LEFT_OUT:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "None of the last %llu rounds has this node's work in it: it came too late, "
                       "or no owner of a part got it",
                       rounds);
        return;
    case TW_FINDING_TAKES_OVER:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node takes over the others' state again and again instead of merging "
                       "with them");
        return;
    case TW_FINDING_FAR:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node's parameters are far from the anchor: %.0f %%, at most %.1f %% "
                       "before",
                       100 * (double)health->distance, 100 * (double)health->distance_most);
        return;
    case TW_FINDING_RISING:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node's own loss rises: %.3f nats, after %.3f at its best",
                       (double)health->live, (double)health->live_least);
        return;
    case TW_FINDING_DIFFERS:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "This node's anchor was not that of the others %llu times, last in round "
                       "%llu: this machine loses bits, or its build computes differently",
                       (unsigned long long)health->differed,
                       (unsigned long long)health->differed_round);
        return;
    case TW_FINDING_STUCK:
        (void)snprintf(text, TW_VIEW_TEXT_BYTES,
                       "Round %llu is open for %llu s and does not close, though %u of %u members "
                       "are here",
                       (unsigned long long)health->open_round,
                       (unsigned long long)(health->open_us / 1000000), health->members_here,
                       health->members);
        return;
    case TW_FINDING_NO_SEAT:
        (void)snprintf(
            text, TW_VIEW_TEXT_BYTES,
            "This node has asked for a seat in the group for %llu s and has none, so its "
            "work is not merged: too few of the %u members can hear it, %u %s linked",
            (unsigned long long)(health->seatless_us / 1000000), health->members,
            health->members_here, health->members_here == 1 ? "is" : "are");
        return;
    case TW_FINDINGS: break;
    }
    text[0] = '\0';
}

static void judge_findings(const struct tw_status_view *view, struct list *list) {
    static const char *const WAYS_OUT[TW_FINDINGS] = {
        [TW_FINDING_REFUSED] =
            "it sends less until it fits; if it stays so, look at its data and its losses: "
            "`thinwire status`",
        [TW_FINDING_LEFT_OUT] =
            "see `thinwire peers` for missing or slow links; raise the upload, or choose a smaller "
            "codec or a longer sync.grace",
        [TW_FINDING_TAKES_OVER] =
            "see `thinwire events`: do links break, or does the machine pause? A steadier line "
            "or machine helps",
        [TW_FINDING_FAR] = "see the other warnings and `thinwire peers`; a lower train.lr or a "
                           "shorter sync.period needs a new manifest",
        [TW_FINDING_RISING] = "lower train.lr in a new manifest, or check the training text",
        [TW_FINDING_STUCK] = "`thinwire peers` names members that stall; restart such a node, and "
                             "free its disk if votes cannot be saved",
        [TW_FINDING_DIFFERS] =
            "test its memory and its disk (memtest86+, smartctl), and build it anew; until then it "
            "takes the anchor of the others each time",
        [TW_FINDING_NO_SEAT] = "see `thinwire peers`: relay = on, an open port or a port mapping "
                               "brings links to the other members",
    };
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++) {
        char text[TW_VIEW_TEXT_BYTES];
        if (!view->health.has[f]) continue;
        tw_view_finding_text(&view->health, f, text);
        add(list, TW_WARNING_FINDING + f, WAYS_OUT[f], "%s", text);
    }
}

static void judge_attacks(const struct tw_status_view *view, struct list *list) {
    for (uint32_t i = 0; i < view->attacks_count && i < ATTACKS_SHOWN; i++) {
        char text[TW_ATTACK_TEXT_BYTES], label[TW_VIEW_LABEL_BYTES];
        tw_attack_text(&view->attacks[i], tw_status_view_label(view, &view->attacks[i].id, label),
                       text);
        add_about(list, TW_WARNING_ATTACK + view->attacks[i].kind, &view->attacks[i].id,
                  tw_attack_way_out(view->attacks[i].kind), text);
    }
}

static void judge_data(const struct tw_status_view *view, struct list *list) {
    if (view->data.state == TW_VIEW_DATA_UNUSABLE) {
        add(list, TW_WARNING_DATA_UNUSABLE,
            "the run needs another dataset, and so another manifest",
            "The run's dataset cannot be used: %s", view->data.error);
    } else if (view->data.error[0] != 0) {
        add(list, TW_WARNING_DATA_UNSTORED, "it is retried every few seconds",
            "Training data cannot be stored: %s", view->data.error);
    }
    if (view->data.state == TW_VIEW_DATA_WAITING && view->node.uptime_us > MINUTE_US &&
        view->data.donors == 0) {
        add(list, TW_WARNING_DATA_MISSING,
            view->bootstrap_count == 0 && view->peers_count == 0
                ? "this node knows no other: if it is the run's first, set `data = ` in [node] to "
                  "the run's dataset, and restart it"
                : "link to a node that has the dataset, or set node.data to a copy of it",
            "No peer sends training data: %s",
            view->data.text[0] != 0 ? view->data.text : "none is linked");
    }
    if (view->data.state == TW_VIEW_DATA_PARTIAL) {
        add(list, TW_WARNING_DATA_PARTIAL,
            "copy the missing files there, or remove node.data: then they are fetched",
            "%s lacks %" PRIu32 " of the dataset's %" PRIu32 " files", view->data.path,
            view->data.files - view->data.files_whole, view->data.files);
    }
}

uint32_t tw_view_warnings(const struct tw_status_view *view,
                          struct tw_warning warnings[TW_WARNINGS_MAX]) {
    struct list list = {warnings, 0};
    judge_worker(view, &list);
    if (view->checkpoint.error[0] != 0) {
        add(&list, TW_WARNING_CHECKPOINT_FAILED,
            "free some space or repair the state directory, then `thinwire checkpoint`",
            view->checkpoint.is_room_short ? "There is no room for the next checkpoint: %s"
                                           : "The last checkpoint failed: %s",
            view->checkpoint.error);
    }
    if (view->checkpoint.vote_error[0] != 0) {
        add(&list, TW_WARNING_VOTES_UNSAVED,
            view->sync.topology == TW_TOPOLOGY_GROUP
                ? "free some space or repair the state directory: rounds wait for this node"
                : "free some space or repair the state directory",
            "This node cannot save its votes: %s", view->checkpoint.vote_error);
    }
    judge_attacks(view, &list);
    judge_data(view, &list);
    judge_admission(view, &list);
    judge_network(view, &list);
    judge_seat(view, &list);
    judge_caps(view, &list);
    judge_serving(view, &list);
    judge_budget(view, &list);
    judge_merging(view, &list);
    judge_findings(view, &list);
    judge_training(view, &list);
    if (view->lost.is_lost) {
        char text[TW_VIEW_TEXT_BYTES];
        tw_view_lost_text(&view->lost, text);
        if (view->lost.is_kept)
            add(&list, TW_WARNING_WORK_LOST,
                "this node's last checkpoint of that work is kept: `thinwire rollback` lists it as "
                "`undone`",
                "%s", text);
        else
            add(&list, TW_WARNING_WORK_LOST,
                "nothing brings it back; a shorter node.checkpoint_interval costs less the next "
                "time",
                "%s", text);
    }
    if (view->node.loop_lag_us > 1000000) {
        add(&list, TW_WARNING_LOOP_STUCK,
            "check the machine: other programs may take its processors, it may swap, or its disk "
            "may "
            "stall",
            "The daemon's loop was stuck for %.1f s within the last minute",
            (double)view->node.loop_lag_us / 1e6);
    }
    return list.count;
}

/* ==== when a warning is raised and cleared ==================================================== */

static bool is_same(const struct tw_warning *a, const struct tw_warning *b) {
    return a->kind == b->kind && strcmp(a->about, b->about) == 0;
}

/* Returns the row of a warning, else an unused row, or NULL if there is neither. */
static struct tw_warning_row *find_row(struct tw_warning_watch *watch,
                                       const struct tw_warning *warning) {
    struct tw_warning_row *unused = NULL;
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && is_same(&row->warning, warning)) return row;
        if (!row->is_used && unused == NULL) unused = row;
    }
    return unused;
}

/* Frees rows of warnings that were cleared and have no change left to report. */
static void drop_rows(struct tw_warning_watch *watch) {
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && !row->is_raised && !row->is_told) row->is_used = false;
    }
}

uint32_t tw_warning_watch_look(struct tw_warning_watch *watch, const struct tw_warning *warnings,
                               uint32_t count, uint64_t now_us,
                               const struct tw_warning_row **changed) {
    uint32_t changes = 0;
    drop_rows(watch);
    for (uint32_t i = 0; i < count; i++) {
        struct tw_warning_row *const row = find_row(watch, &warnings[i]);
        if (row == NULL) continue;
        if (!row->is_used) *row = (struct tw_warning_row){.is_used = true};
        row->warning = warnings[i];
        row->seen_us = now_us;
        if (!row->is_raised) changed[changes++] = row;
        row->is_raised = true;
    }
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (!row->is_raised || now_us - row->seen_us < TW_WARNING_CLEAR_US) continue;
        row->is_raised = false;
        changed[changes++] = row;
    }
    return changes;
}

struct tw_warning_row *tw_warning_watch_untold(struct tw_warning_watch *watch) {
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && row->is_raised != row->is_told &&
            tw_warning_is_urgent(row->warning.kind))
            return row;
    }
    return NULL;
}
