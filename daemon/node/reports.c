#include "daemon/node/reports.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/api/history.h"
#include "daemon/api/ledger.h"
#include "daemon/api/status_view.h"
#include "daemon/net/transport.h"
#include "daemon/node/checkpoints.h"
#include "daemon/process/service.h"
#include "daemon/runlog/run_log.h"
#include "daemon/workerlink/worker_host.h"
#include "proto/record.h"

/* ==== speeds of the last minute =============================================================== */

enum {
    SAMPLE_US = 1000 * 1000,
    ROWS_MAX = 61, /* one per second */
    DATA_ROWS = 11,
};

struct row {
    uint64_t at_us, values[TW_SAMPLES];
};

struct tw_daemon_samples {
    uint64_t due_us;
    uint32_t next, count; /* next row to write; rows in use */
    uint32_t clock_count; /* number of the newest rows that belong to `lineage` */
    struct tw_id lineage; /* lineage of the run clock in the newest rows */
    struct row rows[ROWS_MAX];
};

enum tw_status tw_daemon_samples_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->samples = tw_daemon_alloc(sizeof(*daemon->samples), err);
    return daemon->samples != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_samples_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_samples *samples = daemon->samples;
    if (now_us < samples->due_us) return;
    samples->due_us = now_us + SAMPLE_US;
    struct row *row = &samples->rows[samples->next];
    *row = (struct row){.at_us = now_us};
    row->values[TW_SAMPLE_TOKENS] = daemon->counts.tokens;
    row->values[TW_SAMPLE_STEP_US] = daemon->counts.step_us;
    row->values[TW_SAMPLE_SYNC_US] = daemon->counts.sync_us;
    row->values[TW_SAMPLE_DATA_IN] = daemon->counts.data_taken_bytes;
    if (daemon->transport != NULL) {
        const struct tw_traffic all = tw_transport_traffic(daemon->transport);
        row->values[TW_SAMPLE_BYTES_IN] = all.bytes_in;
        row->values[TW_SAMPLE_BYTES_OUT] = all.bytes_out;
    }
    tw_node_view(daemon->node, &daemon->view);
    row->values[TW_SAMPLE_CLOCK_TOKENS] = daemon->view.clock_tokens;
    row->values[TW_SAMPLE_STATE_IN] = daemon->view.fetch_bytes_here;
    /* When a node joins, its clock jumps to the run's clock. The jump must not count as training
     * speed. */
    const bool is_same_clock = tw_id_equal(&samples->lineage, &daemon->view.lineage) &&
                               daemon->view.state != TW_STATE_RECEIVER;
    samples->lineage = daemon->view.lineage;
    samples->clock_count = is_same_clock ? samples->clock_count + 1 : 0;
    samples->next = (samples->next + 1) % ROWS_MAX;
    if (samples->count < ROWS_MAX) samples->count++;
}

double tw_daemon_samples_rate(const struct tw_daemon *daemon, enum tw_sample what) {
    const struct tw_daemon_samples *samples = daemon->samples;
    uint32_t count = samples->count;
    const bool is_short = what == TW_SAMPLE_DATA_IN || what == TW_SAMPLE_STATE_IN;
    if (is_short && count > DATA_ROWS) count = DATA_ROWS;
    if (what == TW_SAMPLE_CLOCK_TOKENS && count > samples->clock_count)
        count = samples->clock_count;
    if (count < 2) return NAN;
    const struct row *newest = &samples->rows[(samples->next + ROWS_MAX - 1) % ROWS_MAX];
    const struct row *oldest = &samples->rows[(samples->next + ROWS_MAX - count) % ROWS_MAX];
    const uint64_t wall_us = newest->at_us - oldest->at_us;
    const uint64_t from = oldest->values[what], to = newest->values[what];
    if (wall_us == 0 || to < from) return NAN;
    return (double)(to - from) * 1e6 / (double)wall_us;
}

void tw_daemon_samples_free(struct tw_daemon *daemon) {
    free(daemon->samples);
}

/* ==== rounds and partners ===================================================================== */

enum {
    OPENINGS_MAX = 16,
    /* Rounds with others after which a lineage is no longer one of several that nodes form while
     * they find each other. */
    FOUND_ROUNDS = 64,
};

struct tw_daemon_reports {
    struct tw_round_ring rounds;
    struct tw_run_pace pace;
    struct tw_clock_shares clock_shares;
    uint64_t announced_us; /* when the speeds were last noted */
    struct {
        uint64_t round; /* 1 + the round; 0 = unused */
        uint64_t at_us, bytes;
    } openings[OPENINGS_MAX]; /* state when this node began to encode for round r, in row r %
                                 OPENINGS_MAX */
    uint64_t rounds_contributed, lineage_changes;
    uint64_t lineage_rounds; /* rounds with others since this node follows its lineage */
    uint64_t round_tokens;   /* tokens of this node at that time */
    uint64_t round_us;       /* time when the newest round was committed; 0 = none yet */
    uint64_t period_us;      /* running mean of the time between rounds; 0 = not known yet */
    struct tw_id partner;    /* pairs: partner of the last merge; zero if none yet */
    uint64_t partner_us, partners_struck;
    struct tw_attacks attacks;
};

/* ---- rounds -------------------------------------------------------------------------------- */

void tw_daemon_reports_opening(struct tw_daemon *daemon, uint64_t round) {
    const unsigned at = (unsigned)(round % OPENINGS_MAX);
    daemon->reports->openings[at].round = round + 1;
    daemon->reports->openings[at].at_us = tw_daemon_now_us();
    daemon->reports->openings[at].bytes =
        daemon->counts.payload_in_bytes + daemon->counts.payload_out_bytes;
}

static void show_round(struct tw_daemon *daemon, const struct tw_record *record) {
    const uint64_t now = tw_daemon_now_us();
    const unsigned at = (unsigned)(record->round % OPENINGS_MAX);
    tw_node_view(daemon->node, &daemon->view);
    struct tw_view_round row = {
        .round = record->round,
        .fragment = record->fragment,
        .contributors = record->contributors_count,
        .roster = daemon->view.roster_count,
        .is_ours = daemon->view.rounds_contributed > daemon->reports->rounds_contributed,
        .is_solo = record->parts_count == 0,
        .took_us = TW_VIEW_NEVER,
    };
    if (daemon->reports->openings[at].round == record->round + 1) {
        row.took_us = now - daemon->reports->openings[at].at_us;
        row.bytes = daemon->counts.payload_in_bytes + daemon->counts.payload_out_bytes -
                    daemon->reports->openings[at].bytes;
    }
    if (daemon->reports->round_us != 0) {
        const uint64_t since = now - daemon->reports->round_us, mean = daemon->reports->period_us;
        daemon->reports->period_us = mean == 0 ? since : mean - mean / 8 + since / 8;
    }
    daemon->reports->round_us = now;
    daemon->reports->round_tokens = daemon->counts.tokens;
    /* a receiver learns of many rounds at once */
    if (daemon->view.state != TW_STATE_RECEIVER)
        tw_run_pace_note(&daemon->reports->pace, now, &daemon->view.lineage,
                         daemon->view.clock_tokens);
    daemon->reports->rounds_contributed = daemon->view.rounds_contributed;
    tw_round_ring_add(&daemon->reports->rounds, now, &row);
    const bool is_alone = row.is_solo && row.is_ours;
    const enum tw_outcome outcome = is_alone      ? TW_OUTCOME_ALONE
                                    : row.is_solo ? TW_OUTCOME_EMPTY
                                    : row.is_ours ? TW_OUTCOME_OURS
                                                  : TW_OUTCOME_OTHERS;
    tw_history_round(daemon->history, row.round, outcome);
    tw_ledger_file_note(daemon->ledger, record);
    tw_clock_shares_note(&daemon->reports->clock_shares, record);
    daemon->reports->lineage_rounds += row.contributors > 1;
    tw_run_log_round(daemon->run_log, &row, outcome);
    char digest[TW_ID_HEX_BYTES];
    const struct tw_id id = tw_record_digest(record);
    tw_id_hex(&id, digest);
    digest[16] = '\0';
    tw_log(row.is_solo ? TW_LOG_DEBUG : TW_LOG_INFO, "round_done",
           "round=%llu fragment=%u contributors=%u roster=%u ours=%d bytes=%llu took_us=%llu "
           "digest=%s",
           (unsigned long long)row.round, row.fragment, row.contributors, row.roster,
           (int)row.is_ours, (unsigned long long)row.bytes,
           row.took_us == TW_VIEW_NEVER ? 0 : (unsigned long long)row.took_us, digest);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void note_full(struct tw_daemon *daemon, const struct tw_id *id) {
    const unsigned members = daemon->setup->run.sync.members;
    char hex[9];
    tw_id_short(id, hex);
    if (tw_id_equal(id, &daemon->setup->identity.id)) {
        tw_daemon_note(daemon, TW_LOG_WARN, "group_full",
                       "members=%u text=\"this node follows and does not contribute until a member "
                       "leaves: sync.members of the manifest is %u\"",
                       members, members);
        return;
    }
    tw_daemon_note(
        daemon, TW_LOG_WARN, "join_refused",
        "peer=%s members=%u text=\"sync.members of the manifest is %u: no seat is free\"", hex,
        members, members);
}

/* Remembers the attack for the warnings of the status. Reports about this node itself do not count.
 */
static void note_attack(struct tw_daemon *daemon, enum tw_attack_kind kind,
                        const struct tw_action *action) {
    const struct tw_id *const id = &action->u.report.id;
    if (tw_id_equal(id, &daemon->setup->identity.id)) return;
    tw_attacks_note(&daemon->reports->attacks, kind, id, tw_daemon_now_us());
}

static void note_struck(struct tw_daemon *daemon, const char *peer,
                        const struct tw_action *action) {
    const unsigned long long round = (unsigned long long)action->u.report.round;
    const bool is_corrupt = action->u.report.reason == TW_CORRUPT;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) {
        daemon->reports->partners_struck++;
        tw_daemon_note(daemon, TW_LOG_WARN, "partner_struck", "peer=%s round=%llu why=%s", peer,
                       round, is_corrupt ? "unreadable" : "outlier");
        return;
    }
    /* An outlier alone accuses nobody: the audit that follows lifts the strike, or proves it. */
    tw_daemon_note(daemon, is_corrupt ? TW_LOG_WARN : TW_LOG_INFO, "owner_struck",
                   "peer=%s round=%llu part=%u why=%s", peer, round, action->u.report.part,
                   is_corrupt ? "false_merge" : "outlier_result");
    if (is_corrupt) note_attack(daemon, TW_ATTACK_MERGE, action);
}

/* ---- attacks ------------------------------------------------------------------------------- */

/* Logs the attack with the sentence that the status shows. */
static void show_attack(struct tw_daemon *daemon, enum tw_attack_kind kind, const char *event,
                        const struct tw_action *action) {
    const struct tw_attack attack = {.kind = kind, .id = action->u.report.id, .count = 1};
    char hex[9], name[TW_KNOWN_LABEL_BYTES], text[TW_ATTACK_TEXT_BYTES];
    note_attack(daemon, kind, action);
    tw_id_short(&attack.id, hex);
    tw_attack_text(&attack, tw_known_peers_label(daemon->known, &attack.id, name), text);
    tw_daemon_note(daemon, TW_LOG_WARN, event, "peer=%s text=\"%s\"", hex, text);
}

/* A size proves nothing: few members were in time, or this node compares with other merges than the
 * others. The core audits such a result, and strikes the owner of a false merge. */
static void show_large(struct tw_daemon *daemon, const struct tw_action *action, const char *end) {
    char hex[9];
    tw_id_short(&action->u.report.id, hex);
    tw_daemon_note(
        daemon, TW_LOG_INFO, "result_large",
        "peer=%s text=\"its result is far larger than those that this node saw before: %s\"", hex,
        end);
    tw_daemon_checkpoints_wild(daemon);
}

/* Nodes that find each other form several small lineages, of which all but one are left soon. */
static void show_left(struct tw_daemon *daemon, const struct tw_action *action) {
    char hex[9];
    if (daemon->reports->lineage_rounds >= FOUND_ROUNDS) {
        show_attack(daemon, TW_ATTACK_LEFT, "lineage_left", action);
        return;
    }
    tw_id_short(&action->u.report.id, hex);
    tw_daemon_note(daemon, TW_LOG_INFO, "lineage_found",
                   "peer=%s text=\"the nodes find each other: its history is followed\"", hex);
}

/* Honest nodes compute equal anchors, so the memory, disk or program of one node is faulty. */
static void show_differs(struct tw_daemon *daemon, const struct tw_report *report) {
    const bool is_self = tw_id_equal(&report->id, &daemon->setup->identity.id);
    char hex[9];
    tw_id_short(&report->id, hex);
    tw_daemon_note(daemon, is_self ? TW_LOG_WARN : TW_LOG_INFO, "anchor_differs",
                   "peer=%s round=%llu fragment=%u text=\"%s\"", hex,
                   (unsigned long long)report->round, report->part,
                   is_self ? "most members have another one, which is fetched from them"
                           : "its work is not merged here in this round");
}

static const char *describe_state(enum tw_node_state state) {
    switch (state) {
    case TW_STATE_SOLO: return "this node closes rounds alone";
    case TW_STATE_RECEIVER: return "this node fetches the run's state, or asks for a seat";
    case TW_STATE_MEMBER: return "this node is a member: its work is merged";
    case TW_STATE_FINISHED: return "the run is finished";
    }
    return "unknown";
}

void tw_daemon_reports_show(struct tw_daemon *daemon, const struct tw_action *action) {
    char hex[9];
    switch (action->u.report.kind) {
    case TW_REPORT_PEER_DEAD:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_dead", "peer=%s silent_us=%u", hex,
                       (unsigned)TW_PEER_SILENCE_US);
        return;
    case TW_REPORT_ROUND_COMMITTED: show_round(daemon, action->u.report.record); return;
    case TW_REPORT_LINEAGE:
        tw_id_short(&action->u.report.id, hex);
        daemon->lineage = action->u.report.id;
        daemon->reports->lineage_changes++;
        daemon->reports->lineage_rounds = 0;
        tw_daemon_note(daemon, TW_LOG_INFO, "lineage",
                       "lineage=%s text=\"the rounds of lineage %s are followed from here on\"",
                       hex, hex);
        return;
    case TW_REPORT_STATE:
        tw_daemon_note(daemon, TW_LOG_INFO, "state", "state=%s text=\"%s\"",
                       tw_view_state_name(action->u.report.state),
                       describe_state(action->u.report.state));
        tw_notify("STATUS=%s", tw_view_state_name(action->u.report.state));
        tw_worker_host_set_settled(daemon->host, action->u.report.state == TW_STATE_FINISHED);
        return;
    case TW_REPORT_PAIRED:
        tw_id_short(&action->u.report.id, hex);
        tw_history_pair(daemon->history);
        tw_run_log_pair(daemon->run_log, &action->u.report.id);
        tw_daemon_note(daemon, TW_LOG_INFO, "paired", "peer=%s", hex);
        tw_round_ring_pair(&daemon->reports->rounds, &action->u.report.id);
        daemon->reports->partner = action->u.report.id;
        daemon->reports->partner_us = tw_daemon_now_us();
        return;
    case TW_REPORT_ONE_SIDED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_INFO, "pair_one_sided", "peer=%s", hex);
        return;
    case TW_REPORT_DIFFERS: show_differs(daemon, &action->u.report); return;
    case TW_REPORT_FORGED: show_attack(daemon, TW_ATTACK_FORGED, "round_forged", action); return;
    case TW_REPORT_TWO_FACED:
        show_attack(daemon, TW_ATTACK_TWO_FACED, "two_faced", action);
        tw_transport_ban(daemon->transport, &action->u.report.id,
                         "it signed two statements that exclude each other");
        return;
    case TW_REPORT_UNTRAINED: show_attack(daemon, TW_ATTACK_UNTRAINED, "untrained", action); return;
    case TW_REPORT_FALSE_STATE: show_attack(daemon, TW_ATTACK_STATE, "state_false", action); return;
    case TW_REPORT_LEFT: show_left(daemon, action); return;
    case TW_REPORT_LARGE: {
        const struct tw_report *const report = &action->u.report;
        char text[TW_VIEW_TEXT_BYTES];
        tw_id_short(&report->id, hex);
        tw_view_large_text(report->merges, report->times, report->tenths, text, sizeof(text));
        tw_daemon_note(daemon, TW_LOG_INFO, "work_large", "peer=%s text=\"%s\"", hex, text);
        return;
    }
    case TW_REPORT_OUTLIER: show_large(daemon, action, "the other members took it"); return;
    case TW_REPORT_INSANE: show_large(daemon, action, "this node does not vote for it"); return;
    case TW_REPORT_MISBEHAVED:
        note_attack(daemon, TW_ATTACK_PROTOCOL, action);
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "misbehaved", "peer=%s reason=%s", hex,
                       tw_status_name(action->u.report.reason));
        return;
    case TW_REPORT_REFUSED:
        /* An honest node that trained alone for long is left out once for each fragment: then it
         * clips its Delta (worker/merge/merger.h). */
        if (action->u.report.times > daemon->setup->layout.fragments_count)
            note_attack(daemon, TW_ATTACK_OVERSIZED, action);
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "contribution_refused", "peer=%s round=%llu times=%u",
                       hex, (unsigned long long)action->u.report.round, action->u.report.times);
        return;
    case TW_REPORT_FULL: note_full(daemon, &action->u.report.id); return;
    case TW_REPORT_STRUCK:
        tw_id_short(&action->u.report.id, hex);
        note_struck(daemon, hex, action);
        return;
    case TW_REPORT_STALLED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_stalls",
                       "peer=%s text=\"it held up rounds: for a while rounds do not wait for it\"",
                       hex);
        return;
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_reports_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->reports = tw_daemon_alloc(sizeof(*daemon->reports), err);
    return daemon->reports != NULL ? TW_OK : TW_NOMEM;
}

/* Returns whether a member of the roster is linked, or is this node. */
static bool is_here(const struct tw_daemon *daemon, const struct tw_id *id) {
    if (tw_id_equal(id, &daemon->setup->identity.id)) return true;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->view.peers[i].is_up && tw_id_equal(&daemon->view.peers[i].id, id)) return true;
    }
    return false;
}

void tw_daemon_reports_tick(struct tw_daemon *daemon, uint64_t now_us) {
    enum { SECOND_US = 1000 * 1000 };
    const struct tw_node_view *view = &daemon->view;
    if (now_us < daemon->reports->announced_us + SECOND_US) return;
    daemon->reports->announced_us = now_us;
    tw_node_view(daemon->node, &daemon->view);
    const bool is_in = view->state != TW_STATE_RECEIVER;
    struct tw_run_speeds speeds = {.has_own = is_in, .is_whole = true};
    uint64_t said_per_s[TW_PEERS_MAX + 1];
    uint32_t count = 0;
    if (is_in && view->tokens_per_s > 0) said_per_s[count++] = view->tokens_per_s;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_msg_status *const said = &view->peers[i].status;
        if (!view->peers[i].is_up || !tw_id_equal(&said->lineage, &view->lineage)) continue;
        if (said->state == TW_STATE_RECEIVER || said->tokens_per_s == 0) continue;
        said_per_s[count++] = said->tokens_per_s;
        speeds.others++;
    }
    speeds.tokens_per_s = tw_run_pace_counted(said_per_s, count);
    for (uint32_t i = 0; i < view->roster.count; i++)
        speeds.is_whole &= is_here(daemon, &view->roster.members[i].id);
    tw_run_pace_announce(&daemon->reports->pace, &speeds);
}

const struct tw_run_pace *tw_daemon_reports_pace(const struct tw_daemon *daemon) {
    return &daemon->reports->pace;
}

const struct tw_clock_shares *tw_daemon_reports_clock_shares(const struct tw_daemon *daemon) {
    return &daemon->reports->clock_shares;
}

uint64_t tw_daemon_reports_period_us(const struct tw_daemon *daemon) {
    return daemon->reports->period_us;
}

/* Returns the tokens that this node trained on since the newest round, if rounds are long overdue;
 * 0 otherwise. The run clock stands still meanwhile, which is no loss: the next round counts them.
 */
static uint64_t count_unmerged(const struct tw_daemon *daemon, uint64_t now_us) {
    enum { LATE_US = 20 * 1000 * 1000, LATE_PERIODS = 4 };
    const struct tw_daemon_reports *reports = daemon->reports;
    const bool is_member =
        daemon->view.state == TW_STATE_MEMBER || daemon->view.state == TW_STATE_SOLO;
    if (reports->round_us == 0 || !is_member ||
        daemon->setup->run.sync.topology != TW_TOPOLOGY_GROUP ||
        daemon->setup->config.node.role != TW_NODE_ROLE_TRAIN)
        return 0;
    const uint64_t since_us = now_us > reports->round_us ? now_us - reports->round_us : 0;
    if (since_us < LATE_US || since_us < LATE_PERIODS * reports->period_us) return 0;
    const uint64_t tokens = daemon->counts.tokens;
    return tokens > reports->round_tokens ? tokens - reports->round_tokens : 0;
}

/* Returns the rounds that list this node as a contributor, in this process and before. */
static uint64_t count_given(const struct tw_daemon *daemon) {
    const struct tw_ledger *const ledger = tw_ledger_file_table(daemon->ledger);
    for (uint32_t i = 0; i < ledger->rows_count; i++) {
        if (tw_id_equal(&ledger->rows[i].id, &daemon->setup->identity.id))
            return ledger->rows[i].rounds;
    }
    return 0;
}

void tw_daemon_reports_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view) {
    const struct tw_daemon_reports *reports = daemon->reports;
    if (reports->period_us > 0) view->run.period_us = reports->period_us;
    view->run.unmerged_tokens = count_unmerged(daemon, now_us);
    view->sync.rounds_given = count_given(daemon);
    view->sync.lineage_changes = reports->lineage_changes;
    view->sync.pairs_struck = reports->partners_struck;
    view->sync.partner = reports->partner;
    if (reports->partner_us != 0) {
        view->sync.partner_age_us = now_us > reports->partner_us ? now_us - reports->partner_us : 0;
    }
    tw_round_ring_fill(&reports->rounds, now_us, view);
    view->attacks_count = tw_attacks_recent(&reports->attacks, now_us, view->attacks);
}

void tw_daemon_reports_free(struct tw_daemon *daemon) {
    free(daemon->reports);
}
