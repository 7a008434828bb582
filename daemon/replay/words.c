#include "daemon/replay/words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "proto/message.h"

struct writer {
    char *text;
    size_t size;
};

static void put(struct writer *to, const char *fmt, ...) TW_PRINTF(2, 3);

static void put(struct writer *to, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int size = vsnprintf(to->text + to->size, WORDS_LINE_BYTES - to->size, fmt, args);
    va_end(args);
    if (size > 0) to->size += (size_t)size;
    if (to->size >= WORDS_LINE_BYTES) to->size = WORDS_LINE_BYTES - 1;
}

static const char *id_of(char text[9], const struct tw_id *id) {
    tw_id_short(id, text);
    return text;
}

const char *tw_words_time(char *text, uint64_t unix_us) {
    const time_t s = (time_t)(unix_us / 1000000);
    struct tm parts;
    char date[24];
    if (gmtime_r(&s, &parts) == NULL || strftime(date, sizeof(date), "%F %T", &parts) == 0)
        date[0] = '\0';
    (void)snprintf(text, WORDS_TIME_BYTES, "%s.%06u UTC", date, (unsigned)(unix_us % 1000000));
    return text;
}

static const char *state_word(enum tw_node_state state) {
    switch (state) {
    case TW_STATE_SOLO: return "solo";
    case TW_STATE_RECEIVER: return "receiver";
    case TW_STATE_MEMBER: return "member";
    case TW_STATE_FINISHED: return "finished";
    }
    return "?";
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Writes the message's kind, and its round and ballot if it has them. */
static void put_message(struct writer *to, const struct tw_message *message) {
    char hex[9];
    put(to, "%s", tw_message_name(message->kind));
    switch (message->kind) {
    case TW_MSG_STATUS:
        put(to, " %s, %" PRIu64 " rounds, step %" PRIu64, state_word(message->u.status.state),
            message->u.status.rounds, message->u.status.step);
        return;
    case TW_MSG_CONTRIB:
        put(to, " round %" PRIu64 ", %" PRIu32 " parts, %" PRIu32 " steps",
            message->u.contrib.round, message->u.contrib.parts_count,
            message->u.contrib.fragment_steps);
        return;
    case TW_MSG_RESULT:
        put(to, " round %" PRIu64 ", part %" PRIu32 ", %" PRIu32 " contributors, %s",
            message->u.result.round, message->u.result.part, message->u.result.contributors_count,
            id_of(hex, &message->u.result.hash));
        return;
    case TW_MSG_PREPARE:
        put(to, " round %" PRIu64 ", ballot %" PRIu64, message->u.prepare.round,
            message->u.prepare.ballot);
        return;
    case TW_MSG_PROMISE:
        put(to, " round %" PRIu64 ", ballot %" PRIu64, message->u.promise.round,
            message->u.promise.ballot);
        return;
    case TW_MSG_PROPOSE:
        put(to, " round %" PRIu64 ", ballot %" PRIu64 ", %" PRIu32 " contributors",
            message->u.propose.record.round, message->u.propose.ballot,
            message->u.propose.record.contributors_count);
        return;
    case TW_MSG_ACCEPT:
        put(to, " round %" PRIu64 ", ballot %" PRIu64 ", record %s", message->u.accept.round,
            message->u.accept.ballot, id_of(hex, &message->u.accept.digest));
        return;
    case TW_MSG_NACK:
        put(to, " round %" PRIu64 ", promised %" PRIu64 ", refused parts %" PRIx64,
            message->u.nack.round, message->u.nack.promised,
            (uint64_t)message->u.nack.refused_parts);
        return;
    case TW_MSG_LOCK: put(to, " round %" PRIu64, message->u.lock.round); return;
    case TW_MSG_COMMIT: put(to, " round %" PRIu64, message->u.commit.record.round); return;
    case TW_MSG_LOG_GET: put(to, " round %" PRIu64, message->u.log_get.round); return;
    case TW_MSG_PULL:
        put(to, " %s, chunks %" PRIu32 " to %" PRIu32, id_of(hex, &message->u.pull.hash),
            message->u.pull.first, message->u.pull.first + message->u.pull.count - 1);
        return;
    case TW_MSG_PEERS:
    case TW_MSG_LEAVE:
    case TW_MSG_JOIN:
    case TW_MSG_LOG_NONE:
    case TW_MSG_STATE_GET:
    case TW_MSG_STATE:
    case TW_MSG_MISSING:
    case TW_MSG_PAIR_REQUEST:
    case TW_MSG_PAIR_ACCEPT:
    case TW_MSG_PAIR_BUSY:
    case TW_MSG_PAIR_OFFER:
    case TW_MSG_ACCUSE:
    case TW_MSG_PROBE:
    case TW_MSG_PROBED:
    case TW_MSG_LINKS:
    case TW_MSG_RELAY_CALL:
    case TW_MSG_PUNCH:
    case TW_MSG_EVIDENCE: return;
    case TW_MSG_GATHER: put(to, " round %" PRIu64, message->u.gather.round); return;
    case TW_MSG_CREW:
        put(to, " round %" PRIu64 ", head %s, %" PRIu32 " nodes", message->u.crew.round,
            id_of(hex, &message->u.crew.head), message->u.crew.rows_count);
        return;
    case TW_MSG_CREW_GET:
        put(to, " round %" PRIu64 ", head %s", message->u.crew_get.round,
            id_of(hex, &message->u.crew_get.head));
        return;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *const EVENTS[] = {
    [TW_EV_TICK] = "tick",
    [TW_EV_PEER_UP] = "link up",
    [TW_EV_PEER_DOWN] = "link down",
    [TW_EV_MESSAGE] = "got",
    [TW_EV_CHUNK] = "chunk stored",
    [TW_EV_VERIFIED] = "payload verified",
    [TW_EV_WORKER_UP] = "worker up",
    [TW_EV_WORKER_DOWN] = "worker down",
    [TW_EV_STEP] = "step",
    [TW_EV_ENCODED] = "encoded",
    [TW_EV_REDUCED] = "merged a part",
    [TW_EV_APPLIED] = "applied",
    [TW_EV_EXPORTED] = "state packed",
    [TW_EV_STORED] = "vote stored",
    [TW_EV_LEAVE] = "asked to leave",
    [TW_EV_MEASURED] = "links measured",
    [TW_EV_JUDGED] = "checked the training of a contribution",
    [TW_EV_REFUSED] = "a request refused",
    [TW_EV_GATHERED] = "merged a crew's work",
};

const char *tw_words_event(char *text, const struct tw_event *event) {
    struct writer to = {.text = text};
    char hex[9];
    text[0] = '\0';
    put(&to, "%s", EVENTS[event->kind]);
    switch (event->kind) {
    case TW_EV_PEER_UP: put(&to, " %u: %s", event->peer, id_of(hex, &event->u.id)); break;
    case TW_EV_REFUSED:
    case TW_EV_PEER_DOWN: put(&to, " %u", event->peer); break;
    case TW_EV_MESSAGE:
        put(&to, " from %u: ", event->peer);
        put_message(&to, event->u.message);
        break;
    case TW_EV_CHUNK:
        put(&to, " from %u: %s, chunk %" PRIu32, event->peer, id_of(hex, &event->u.chunk.hash),
            event->u.chunk.idx);
        break;
    case TW_EV_VERIFIED:
        put(&to, ": %s %s", id_of(hex, &event->u.chunk.hash), event->ok ? "is right" : "is WRONG");
        break;
    case TW_EV_STEP: put(&to, " %" PRIu64, event->u.step.step); break;
    case TW_EV_GATHERED:
    case TW_EV_ENCODED:
        put(&to, " round %" PRIu64 "%s", event->u.encoded.round, event->ok ? "" : ": NOTHING");
        break;
    case TW_EV_REDUCED:
        put(&to, " round %" PRIu64 ", part %" PRIu32 "%s%s", event->u.reduced.round,
            event->u.reduced.part, event->u.reduced.is_audit ? ", as an audit" : "",
            event->ok ? "" : ": FAILED");
        break;
    case TW_EV_APPLIED:
        put(&to, " fragment %" PRIu32 ", %" PRIu64 " rounds, anchor %s%s",
            event->u.applied.fragment, event->u.applied.rounds,
            id_of(hex, &event->u.applied.digest), event->ok ? "" : ": FAILED");
        break;
    case TW_EV_JUDGED:
        put(&to, " of round %" PRIu64, event->u.judged.round);
        if (event->ok) put(&to, ": score %.1f", event->u.judged.score / 1000.0);
        if (!event->ok) put(&to, ": NOT POSSIBLE");
        break;
    case TW_EV_TICK:
    case TW_EV_WORKER_UP:
    case TW_EV_WORKER_DOWN:
    case TW_EV_EXPORTED:
    case TW_EV_STORED:
    case TW_EV_LEAVE:
    case TW_EV_MEASURED: break;
    }
    return text;
}

/* ---- actions --------------------------------------------------------------------------------- */

static const char *const ACTIONS[] = {
    [TW_ACT_SEND] = "send",
    [TW_ACT_CLOSE] = "close the link",
    [TW_ACT_SEND_CHUNK] = "send a chunk",
    [TW_ACT_EXPECT] = "expect",
    [TW_ACT_VERIFY] = "verify",
    [TW_ACT_DROP] = "drop",
    [TW_ACT_ENCODE] = "encode",
    [TW_ACT_REDUCE] = "merge",
    [TW_ACT_APPLY] = "apply",
    [TW_ACT_SOLO] = "step alone",
    [TW_ACT_PAIR_ENCODE] = "encode for a partner",
    [TW_ACT_PAIR_APPLY] = "apply with a partner",
    [TW_ACT_EXPORT] = "pack the state",
    [TW_ACT_LOAD] = "load a state",
    [TW_ACT_STORE_VOTE] = "store the vote",
    [TW_ACT_CLOCK] = "tell the run clock",
    [TW_ACT_FINISH] = "finish",
    [TW_ACT_REPORT] = "report",
    [TW_ACT_JUDGE] = "check the training of a contribution",
    [TW_ACT_GATHER] = "merge a crew's work",
};

static const char *const REPORTS[] = {
    [TW_REPORT_PEER_DEAD] = "a peer is silent",
    [TW_REPORT_ROUND_COMMITTED] = "round committed",
    [TW_REPORT_LINEAGE] = "now in lineage",
    [TW_REPORT_STATE] = "state",
    [TW_REPORT_MISBEHAVED] = "a peer broke the protocol",
    [TW_REPORT_REFUSED] = "a contribution is too large",
    [TW_REPORT_STRUCK] = "a member owns no part for a while",
    [TW_REPORT_STALLED] = "a member held up rounds",
    [TW_REPORT_INSANE] = "a result is refused",
    [TW_REPORT_FULL] = "the roster is full",
    [TW_REPORT_PAIRED] = "merged with",
    [TW_REPORT_FORGED] = "a forged record",
    [TW_REPORT_LEFT] = "left its lineage for that of",
    [TW_REPORT_OUTLIER] = "an outlier is applied",
    [TW_REPORT_TWO_FACED] = "two votes or results that exclude each other by",
    [TW_REPORT_ONE_SIDED] = "merged, but not the partner",
    [TW_REPORT_DIFFERS] = "another anchor at",
    [TW_REPORT_FALSE_STATE] = "a false state of",
    [TW_REPORT_UNTRAINED] = "work that was not trained on its data by",
    [TW_REPORT_LARGE] = "a merge is large because of",
};

static void put_report(struct writer *to, const struct tw_report *report) {
    char hex[9], base[9];
    put(to, ": %s", REPORTS[report->kind]);
    if (report->kind == TW_REPORT_STATE) {
        put(to, " %s", state_word(report->state));
    } else if (report->kind == TW_REPORT_ROUND_COMMITTED) {
        const struct tw_id digest = tw_record_digest(report->record);
        const bool is_told = !tw_id_is_zero(&report->record->base);
        put(to, ": %" PRIu64 ", fragment %" PRIu32 ", %" PRIu32 " contributors, record %s, base %s",
            report->record->round, report->record->fragment, report->record->contributors_count,
            id_of(hex, &digest), is_told ? id_of(base, &report->record->base) : "not told");
    } else {
        put(to, " %s", id_of(hex, &report->id));
    }
}

const char *tw_words_action(char *text, const struct tw_action *action) {
    struct writer to = {.text = text};
    char hex[9];
    text[0] = '\0';
    put(&to, "%s", ACTIONS[action->kind]);
    switch (action->kind) {
    case TW_ACT_SEND:
        put(&to, " to %u: ", action->peer);
        put_message(&to, action->u.message);
        break;
    case TW_ACT_CLOSE:
        put(&to, " to %u: %s", action->peer, tw_status_name(action->u.reason));
        break;
    case TW_ACT_SEND_CHUNK:
        put(&to, " to %u: %s, chunk %" PRIu32, action->peer, id_of(hex, &action->u.payload.hash),
            action->u.payload.idx);
        break;
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_DROP: put(&to, " %s", id_of(hex, &action->u.payload.hash)); break;
    case TW_ACT_ENCODE:
        put(&to, " round %" PRIu64 ", fragment %" PRIu32, action->u.encode.round,
            action->u.encode.fragment);
        break;
    case TW_ACT_JUDGE:
        put(&to, " round %" PRIu64 ", fragment %" PRIu32, action->u.judge.round,
            action->u.judge.fragment);
        break;
    case TW_ACT_REDUCE:
        put(&to, " round %" PRIu64 ", part %" PRIu32 ", %" PRIu32 " inputs", action->u.reduce.round,
            action->u.reduce.part, action->u.reduce.inputs_count);
        break;
    case TW_ACT_GATHER:
        put(&to, " round %" PRIu64 ", fragment %" PRIu32 ", %" PRIu32 " inputs",
            action->u.gather.round, action->u.gather.fragment, action->u.gather.inputs_count);
        break;
    case TW_ACT_APPLY:
        put(&to, " round %" PRIu64 ", fragment %" PRIu32 ", from step %" PRIu64,
            action->u.apply.round, action->u.apply.fragment, action->u.apply.min_step);
        break;
    case TW_ACT_REPORT: put_report(&to, &action->u.report); break;
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_CLOCK:
    case TW_ACT_FINISH: break;
    }
    return text;
}

/* ---- the state ------------------------------------------------------------------------------- */

static void print_peers(FILE *to, const struct tw_node_view *view) {
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
        char hex[9];
        if (!view->peers[i].is_up) continue;
        (void)fprintf(to, "  link %-3" PRIu32 "  %s, %s%s, %" PRIu64 " rounds, step %" PRIu64 "\n",
                      i, id_of(hex, &view->peers[i].id), state_word(view->peers[i].status.state),
                      view->peers[i].is_member ? " here too" : "", view->peers[i].status.rounds,
                      view->peers[i].status.step);
        if (view->peers[i].strike.count > 0)
            (void)fprintf(to, "            owns no part: %" PRIu32 " strikes\n",
                          view->peers[i].strike.count);
    }
}

void tw_words_view(FILE *to, const struct tw_node_view *view) {
    char lineage[9], tip[9], clock[TW_UNITS_BYTES], open[TW_UNITS_BYTES];
    (void)fprintf(to, "  state     %s, lineage %s, step %" PRIu64 "\n", state_word(view->state),
                  id_of(lineage, &view->lineage), view->step);
    (void)fprintf(to, "  rounds    %" PRIu64 " decided, the last with record %s; clock %s tokens\n",
                  view->rounds, id_of(tip, &view->tip),
                  tw_units_count(clock, (double)view->clock_tokens));
    if (view->open_us > 0)
        (void)fprintf(to, "  open      round %" PRIu64 " for %s%s\n", view->rounds,
                      tw_units_duration(open, (double)view->open_us / 1e6),
                      view->is_contributing ? ", contributed" : "");
    (void)fprintf(to, "  roster    %" PRIu32 " members:", view->roster.count);
    for (uint32_t i = 0; i < view->roster.count; i++) {
        char hex[9];
        (void)fprintf(to, " %s", id_of(hex, &view->roster.members[i].id));
    }
    (void)fputc('\n', to);
    print_peers(to, view);
}
