/* trace.c - events and actions as hashes, and events as bytes. */
#include "sync/trace/trace.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "proto/control.h"

/* ---- hashes ---------------------------------------------------------------------------------- */

uint64_t tw_trace_mix_id(uint64_t h, const struct tw_id *id) {
    uint64_t words[4];
    memcpy(words, id->bytes, sizeof words);
    h = tw_trace_mix(h, words[0] ^ (words[1] << 21 | words[1] >> 43));
    return tw_trace_mix(h, words[2] ^ (words[3] << 21 | words[3] >> 43));
}

static uint64_t mix_roster(uint64_t h, const struct tw_roster *roster) {
    h = tw_trace_mix(h, (uint64_t)roster->number << 32 | roster->count);
    for (uint32_t i = 0; i < roster->count; i++) {
        h = tw_trace_mix_id(h, &roster->members[i].id);
        h = tw_trace_mix(h, roster->members[i].nonce);
        h = tw_trace_mix(h, roster->members[i].weight |
                                (uint64_t)roster->members[i].lacks_vote << 32 |
                                (uint64_t)roster->members[i].merges << 33);
    }
    return h;
}

static uint64_t mix_contributors(uint64_t h, const struct tw_contributor *contributors,
                                 uint32_t count) {
    h = tw_trace_mix(h, count);
    for (uint32_t i = 0; i < count; i++) {
        h = tw_trace_mix(h, (uint64_t)contributors[i].member_idx << 32 |
                                contributors[i].fragment_steps);
        h = tw_trace_mix(h, contributors[i].tokens);
        h = tw_trace_mix(h, contributors[i].fragment_tokens);
        h = tw_trace_mix_id(h, &contributors[i].root);
    }
    return h;
}

static uint64_t mix_close(uint64_t h, const struct tw_record *record) {
    h = tw_trace_mix_id(h, &record->lineage);
    h = tw_trace_mix_id(h, &record->parent);
    h = tw_trace_mix(h, record->round);
    h = tw_trace_mix_id(h, &record->base);
    h = tw_trace_mix(h, record->clock_tokens);
    h = tw_trace_mix(h, (uint64_t)record->fragment << 32 | record->roster_number);
    h = tw_trace_mix(h, (uint64_t)record->finals << 32 | record->parts_count);
    h = mix_contributors(h, record->contributors, record->contributors_count);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        h = tw_trace_mix(h, (uint64_t)record->parts[k].owner_idx << 32 | record->parts[k].bytes);
        h = tw_trace_mix(h, record->parts[k].contributors);
        h = tw_trace_mix_id(h, &record->parts[k].result);
    }
    return mix_roster(h, &record->next);
}

static uint64_t mix_status(uint64_t h, const struct tw_msg_status *status) {
    h = tw_trace_mix(h, (uint64_t)status->state << 32 | status->tokens_per_s);
    h = tw_trace_mix(h, status->upload_kib_s);
    if (status->role != TW_NODE_ROLE_TRAIN) h = tw_trace_mix(h, (uint64_t)status->role);
    h = tw_trace_mix_id(h, &status->lineage);
    h = tw_trace_mix_id(h, &status->tip);
    h = tw_trace_mix(h, status->rounds);
    h = tw_trace_mix(h, status->clock_tokens);
    h = tw_trace_mix(h, status->step);
    h = tw_trace_mix(h, status->tokens);
    h = tw_trace_mix(h, status->nonce);
    return tw_trace_mix(h, status->boot);
}

static uint64_t mix_peers(uint64_t h, const struct tw_msg_peers *peers) {
    h = tw_trace_mix(h, peers->count);
    for (uint32_t i = 0; i < peers->count; i++) {
        h = tw_trace_mix_id(h, &peers->rows[i].id);
        for (uint32_t a = 0; a < TW_ADDRS_MAX; a++) {
            const char *addr = peers->rows[i].addrs[a];
            h = tw_trace_mix(h, tw_xxh64(addr, strnlen(addr, TW_ADDR_BYTES)));
        }
    }
    return h;
}

static uint64_t mix_contrib(uint64_t h, const struct tw_msg_contrib *contrib) {
    h = tw_trace_mix_id(h, &contrib->lineage);
    h = tw_trace_mix(h, contrib->round);
    h = tw_trace_mix_id(h, &contrib->base);
    h = tw_trace_mix(h, contrib->tokens);
    h = tw_trace_mix(h, contrib->fragment_tokens);
    h = tw_trace_mix(h, (uint64_t)contrib->fragment_steps << 32 | contrib->parts_count);
    if (contrib->cursor != 0) h = tw_trace_mix(h, contrib->cursor);
    if (contrib->crew_count != 0) h = tw_trace_mix_id(h, &contrib->crew_root);
    for (uint32_t k = 0; k < contrib->parts_count; k++) {
        h = tw_trace_mix_id(h, &contrib->hashes[k]);
        h = tw_trace_mix(h, contrib->bytes[k]);
    }
    return h;
}

static uint64_t mix_ballot(uint64_t h, const struct tw_id *lineage, uint64_t round,
                           uint64_t ballot) {
    h = tw_trace_mix_id(h, lineage);
    h = tw_trace_mix(h, round);
    return tw_trace_mix(h, ballot);
}

static uint64_t mix_pair(uint64_t h, const struct tw_pair_id *pair) {
    return tw_trace_mix(tw_trace_mix(h, pair->high), pair->low);
}

static uint64_t mix_links(uint64_t h, const struct tw_msg_links *links) {
    h = tw_trace_mix(h, (uint64_t)links->direct_count << 32 | links->relayed_count);
    for (uint32_t i = 0; i < links->direct_count; i++) h = tw_trace_mix_id(h, &links->direct[i]);
    for (uint32_t i = 0; i < links->relayed_count; i++) h = tw_trace_mix_id(h, &links->relayed[i]);
    return h;
}

uint64_t tw_trace_message(const struct tw_message *message) {
    uint64_t h = tw_trace_mix(1, (uint64_t)message->kind);
    switch (message->kind) {
    case TW_MSG_STATUS: return mix_status(h, &message->u.status);
    case TW_MSG_PEERS: return mix_peers(h, &message->u.peers);
    case TW_MSG_PROBE:
    case TW_MSG_RELAY_CALL:
    case TW_MSG_PUNCH:
    case TW_MSG_PROBED: return h; /* handled by the runtime */
    case TW_MSG_LINKS: return mix_links(h, &message->u.links);
    case TW_MSG_LEAVE: return tw_trace_mix(h, message->u.leave.reason);
    case TW_MSG_JOIN:
        h = mix_ballot(h, &message->u.join.lineage, message->u.join.rounds, message->u.join.nonce);
        return tw_trace_mix(h, message->u.join.weight);
    case TW_MSG_CONTRIB: return mix_contrib(h, &message->u.contrib);
    case TW_MSG_RESULT:
        h = mix_ballot(h, &message->u.result.lineage, message->u.result.round,
                       (uint64_t)message->u.result.part << 32 | message->u.result.bytes);
        h = tw_trace_mix_id(h, &message->u.result.hash);
        return mix_contributors(h, message->u.result.contributors,
                                message->u.result.contributors_count);
    case TW_MSG_PREPARE:
        return mix_ballot(h, &message->u.prepare.lineage, message->u.prepare.round,
                          message->u.prepare.ballot);
    case TW_MSG_PROMISE:
        h = mix_ballot(h, &message->u.promise.lineage, message->u.promise.round,
                       message->u.promise.ballot);
        if (message->u.promise.lock.ballot == 0) return h;
        h = tw_trace_mix(h, message->u.promise.lock.ballot);
        return mix_close(h, &message->u.promise.locked);
    case TW_MSG_PROPOSE:
        h = tw_trace_mix(h, message->u.propose.ballot);
        return mix_close(h, &message->u.propose.record);
    case TW_MSG_EVIDENCE:
        h = mix_ballot(h, &message->u.evidence.lineage, message->u.evidence.round,
                       message->u.evidence.ballot);
        h = tw_trace_mix_id(h, &message->u.evidence.first.digest);
        return tw_trace_mix_id(h, &message->u.evidence.second.digest);
    case TW_MSG_LOCK:
        h = mix_ballot(h, &message->u.lock.lineage, message->u.lock.round,
                       message->u.lock.proof.ballot);
        return tw_trace_mix_id(h, &message->u.lock.digest);
    case TW_MSG_ACCEPT:
        h = mix_ballot(h, &message->u.accept.lineage, message->u.accept.round,
                       message->u.accept.ballot);
        return tw_trace_mix_id(h, &message->u.accept.digest);
    case TW_MSG_NACK:
        h = mix_ballot(h, &message->u.nack.lineage, message->u.nack.round,
                       message->u.nack.promised);
        return message->u.nack.refused_parts == 0 ? h
                                                  : tw_trace_mix(h, message->u.nack.refused_parts);
    case TW_MSG_COMMIT: return mix_close(h, &message->u.commit.record);
    case TW_MSG_GATHER:
        return mix_ballot(h, &message->u.gather.lineage, message->u.gather.round, 0);
    case TW_MSG_CREW: {
        const struct tw_id root = tw_crew_root(message->u.crew.rows, message->u.crew.rows_count);
        h = mix_ballot(h, &message->u.crew.lineage, message->u.crew.round, 0);
        h = tw_trace_mix_id(h, &message->u.crew.head);
        return tw_trace_mix_id(h, &root);
    }
    case TW_MSG_CREW_GET:
        h = mix_ballot(h, &message->u.crew_get.lineage, message->u.crew_get.round, 0);
        return tw_trace_mix_id(h, &message->u.crew_get.root);
    case TW_MSG_LOG_GET:
        return mix_ballot(h, &message->u.log_get.lineage, message->u.log_get.round, 0);
    case TW_MSG_LOG_NONE:
        return mix_ballot(h, &message->u.log_none.lineage, message->u.log_none.oldest_round,
                          message->u.log_none.rounds);
    case TW_MSG_STATE_GET:
        h = mix_ballot(h, &message->u.state_get.lineage, message->u.state_get.fragment, 0);
        h = tw_trace_mix_id(h, &message->u.state_get.digest);
        return message->u.state_get.rounds == 0 ? h : tw_trace_mix(h, message->u.state_get.rounds);
    case TW_MSG_STATE:
        h = mix_ballot(h, &message->u.state.lineage, message->u.state.rounds,
                       (uint64_t)message->u.state.fragment << 32 | message->u.state.bytes);
        h = tw_trace_mix_id(h, &message->u.state.digest);
        return tw_trace_mix_id(h, &message->u.state.hash);
    case TW_MSG_PULL:
        h = tw_trace_mix_id(h, &message->u.pull.hash);
        return tw_trace_mix(h, (uint64_t)message->u.pull.first << 32 | message->u.pull.count);
    case TW_MSG_MISSING: return tw_trace_mix_id(h, &message->u.missing.hash);
    case TW_MSG_PAIR_REQUEST:
        h = mix_pair(h, &message->u.pair_request.pair);
        return tw_trace_mix(h, (uint64_t)message->u.pair_request.fragment << 1 |
                                   message->u.pair_request.wants_whole);
    case TW_MSG_PAIR_ACCEPT:
        h = mix_pair(h, &message->u.pair_accept.pair);
        return tw_trace_mix(h, message->u.pair_accept.wants_whole);
    case TW_MSG_PAIR_BUSY: return mix_pair(h, &message->u.pair_busy.pair);
    case TW_MSG_ACCUSE:
        if (message->u.accuse.trainer != 0) h = tw_trace_mix(h, message->u.accuse.trainer);
        return mix_ballot(h, &message->u.accuse.lineage, message->u.accuse.round,
                          message->u.accuse.part);
    case TW_MSG_PAIR_OFFER:
        h = mix_pair(h, &message->u.pair_offer.pair);
        h = tw_trace_mix_id(h, &message->u.pair_offer.delta_hash);
        h = tw_trace_mix_id(h, &message->u.pair_offer.phi_hash);
        return tw_trace_mix(h, message->u.pair_offer.clock_tokens);
    }
    return h;
}

static uint64_t mix_worker(uint64_t h, const struct tw_event *event) {
    h = tw_trace_mix(h, event->u.worker->step);
    h = tw_trace_mix(h, event->u.worker->tokens);
    for (uint32_t f = 0; f < TW_FRAGMENTS_MAX; f++) {
        h = tw_trace_mix(h, event->u.worker->fragment_rounds[f]);
        h = tw_trace_mix_id(h, &event->u.worker->fragment_digests[f]);
    }
    return h;
}

uint64_t tw_trace_event(const struct tw_event *event) {
    uint64_t h = tw_trace_mix(2, (uint64_t)event->kind << 32 | (uint64_t)event->peer << 1 |
                                     (uint64_t)event->ok);
    switch (event->kind) {
    case TW_EV_TICK:
    case TW_EV_PEER_DOWN:
    case TW_EV_WORKER_DOWN:
    case TW_EV_REFUSED:
    case TW_EV_LEAVE: return h;
    case TW_EV_MEASURED:
        h = tw_trace_mix(h, (uint64_t)event->u.measured.upload_kib_s << 1 |
                                (uint64_t)event->u.measured.is_short);
        return tw_trace_mix(h, event->u.measured.odd);
    case TW_EV_PEER_UP: return tw_trace_mix_id(h, &event->u.id);
    case TW_EV_MESSAGE: return tw_trace_mix(h, tw_trace_message(event->u.message));
    case TW_EV_CHUNK:
    case TW_EV_VERIFIED:
        return tw_trace_mix(tw_trace_mix_id(h, &event->u.chunk.hash),
                            event->kind == TW_EV_CHUNK ? event->u.chunk.idx : 0);
    case TW_EV_WORKER_UP: return mix_worker(h, event);
    case TW_EV_STEP: return tw_trace_mix(tw_trace_mix(h, event->u.step.step), event->u.step.tokens);
    case TW_EV_GATHERED:
    case TW_EV_ENCODED:
        h = tw_trace_mix(tw_trace_mix(h, event->u.encoded.round), event->u.encoded.step);
        for (uint32_t k = 0; k < event->u.encoded.parts_count; k++) {
            h = tw_trace_mix_id(h, &event->u.encoded.hashes[k]);
            h = tw_trace_mix(h, event->u.encoded.bytes[k]);
        }
        return h;
    case TW_EV_REDUCED:
        h = tw_trace_mix(tw_trace_mix(h, event->u.reduced.round), event->u.reduced.part);
        h = tw_trace_mix(h, event->u.reduced.refused);
        for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
            if (event->u.reduced.sizes[i] != 0)
                h = tw_trace_mix(h, (uint64_t)i << 16 | event->u.reduced.sizes[i]);
        }
        return tw_trace_mix_id(h, &event->u.reduced.hash);
    case TW_EV_APPLIED:
        h = tw_trace_mix(tw_trace_mix(h, event->u.applied.rounds), event->u.applied.fragment);
        return tw_trace_mix_id(h, &event->u.applied.digest);
    case TW_EV_EXPORTED:
        h = tw_trace_mix(tw_trace_mix(h, event->u.exported.rounds), event->u.exported.fragment);
        return tw_trace_mix_id(h, &event->u.exported.hash);
    case TW_EV_STORED: return tw_trace_mix(h, event->u.store_seq);
    case TW_EV_JUDGED:
        h = tw_trace_mix(h, event->u.judged.round);
        return tw_trace_mix(h, (uint64_t)(uint32_t)event->u.judged.score << 32 |
                                   event->u.judged.share);
    }
    return h;
}

static uint64_t mix_reduce(uint64_t h, const struct tw_action *action) {
    h = tw_trace_mix(h, action->u.reduce.round);
    h = tw_trace_mix(h, (uint64_t)action->u.reduce.fragment << 32 | action->u.reduce.part);
    for (uint32_t i = 0; i < action->u.reduce.inputs_count; i++) {
        h = tw_trace_mix_id(h, &action->inputs[i]);
        h = tw_trace_mix(h, action->u.reduce.inputs[i].tokens);
    }
    return h;
}

static uint64_t mix_judge(uint64_t h, const struct tw_action *action) {
    h = tw_trace_mix(tw_trace_mix(h, action->u.judge.round), action->u.judge.seed);
    h = tw_trace_mix(tw_trace_mix(h, action->u.judge.cursor), action->u.judge.draw);
    for (uint32_t k = 0; k < action->u.judge.parts_count; k++)
        h = tw_trace_mix_id(h, &action->inputs[k]);
    return h;
}

static uint64_t mix_apply(uint64_t h, const struct tw_action *action) {
    h = tw_trace_mix(tw_trace_mix(h, action->u.apply.round), action->u.apply.min_step);
    h = tw_trace_mix(h, action->u.apply.version);
    h = tw_trace_mix(h, action->u.apply.steps);
    for (uint32_t k = 0; k < action->u.apply.parts_count; k++) {
        h = tw_trace_mix(h, (uint64_t)action->u.apply.parts[k].mode);
        h = tw_trace_mix(h, action->u.apply.parts[k].begin);
        h = tw_trace_mix_id(h, &action->inputs[k]);
    }
    return h;
}

static uint64_t mix_pair_encode(uint64_t h, const struct tw_wmsg_pair_encode *request) {
    return tw_trace_mix(tw_trace_mix(tw_trace_mix(h, request->round), request->fragment),
                        request->is_whole);
}

static uint64_t mix_pair_apply(uint64_t h, const struct tw_action *action) {
    const struct tw_wmsg_pair_apply *request = &action->u.pair_apply;
    h = tw_trace_mix(tw_trace_mix(h, request->round), request->fragment);
    h = tw_trace_mix(h, (uint64_t)request->is_alone << 1);
    for (unsigned k = 0; k < TW_PAIR_PAYLOADS; k++) {
        h = tw_trace_mix_id(h, &action->inputs[k]);
        h = tw_trace_mix_id(h, &action->inputs[TW_PAIR_THEIRS + k]);
    }
    return h;
}

static uint64_t mix_vote(uint64_t h, const struct tw_vote *vote) {
    h = mix_ballot(h, &vote->lineage, vote->round, vote->promised);
    h = tw_trace_mix(tw_trace_mix(h, vote->nonce), vote->accepted_ballot);
    h = tw_trace_mix(tw_trace_mix(h, vote->lock.ballot), vote->has_announced);
    return vote->has_accepted ? mix_close(h, &vote->accepted) : h;
}

static uint64_t mix_report(uint64_t h, const struct tw_action *action) {
    h = tw_trace_mix(h, (uint64_t)action->u.report.kind);
    switch (action->u.report.kind) {
    case TW_REPORT_PEER_DEAD:
    case TW_REPORT_MISBEHAVED: return tw_trace_mix(h, (uint64_t)action->u.report.reason);
    case TW_REPORT_ROUND_COMMITTED: return mix_close(h, action->u.report.record);
    case TW_REPORT_REFUSED:
    case TW_REPORT_FULL:
    case TW_REPORT_FORGED:
    case TW_REPORT_TWO_FACED:
    case TW_REPORT_LEFT:
    case TW_REPORT_OUTLIER:
    case TW_REPORT_INSANE:
    case TW_REPORT_STRUCK:
    case TW_REPORT_STALLED:
    case TW_REPORT_LINEAGE: return tw_trace_mix_id(h, &action->u.report.id);
    case TW_REPORT_STATE: return tw_trace_mix(h, (uint64_t)action->u.report.state);
    case TW_REPORT_PAIRED:
    case TW_REPORT_ONE_SIDED:
    case TW_REPORT_DIFFERS:
    case TW_REPORT_UNTRAINED:
    case TW_REPORT_LARGE:
    case TW_REPORT_FALSE_STATE: return tw_trace_mix_id(h, &action->u.report.id);
    }
    return h;
}

uint64_t tw_trace_action(const struct tw_action *action) {
    uint64_t h = tw_trace_mix(3, (uint64_t)action->kind << 32 | action->peer);
    switch (action->kind) {
    case TW_ACT_SEND: return tw_trace_mix(h, tw_trace_message(action->u.message));
    case TW_ACT_CLOSE: return tw_trace_mix(h, (uint64_t)action->u.reason);
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_DROP: return tw_trace_mix_id(h, &action->u.payload.hash);
    case TW_ACT_ENCODE:
        h = tw_trace_mix(h, action->u.encode.round);
        for (uint32_t k = 0; k < action->u.encode.parts_count; k++) {
            h = tw_trace_mix(tw_trace_mix(h, action->u.encode.parts[k].begin),
                             action->u.encode.parts[k].count);
        }
        return h;
    case TW_ACT_REDUCE: return mix_reduce(h, action);
    case TW_ACT_APPLY: return mix_apply(h, action);
    case TW_ACT_SOLO:
        return tw_trace_mix(tw_trace_mix(h, action->u.solo.round), action->u.solo.fragment);
    case TW_ACT_PAIR_ENCODE: return mix_pair_encode(h, &action->u.pair_encode);
    case TW_ACT_PAIR_APPLY: return mix_pair_apply(h, action);
    case TW_ACT_EXPORT: return tw_trace_mix(h, action->u.export.fragment);
    case TW_ACT_LOAD:
        h = tw_trace_mix(tw_trace_mix(h, action->u.load.fragment), action->u.load.rounds);
        return tw_trace_mix_id(tw_trace_mix_id(h, &action->inputs[0]), &action->u.load.digest);
    case TW_ACT_STORE_VOTE:
        return mix_vote(tw_trace_mix(h, action->u.store.seq), action->u.store.vote);
    case TW_ACT_CLOCK:
        h = tw_trace_mix(tw_trace_mix(h, action->u.clock.clock_tokens),
                         action->u.clock.contributors);
        return tw_trace_mix(h, action->u.clock.tokens_listed);
    case TW_ACT_FINISH: return tw_trace_mix(h, action->u.finish.goes_on);
    case TW_ACT_REPORT: return mix_report(h, action);
    case TW_ACT_JUDGE: return mix_judge(h, action);
    case TW_ACT_GATHER:
        h = tw_trace_mix(h, action->u.gather.round);
        for (uint32_t i = 0; i < action->u.gather.inputs_count; i++)
            h = tw_trace_mix(tw_trace_mix_id(h, &action->inputs[i]),
                             action->u.gather.inputs[i].tokens);
        return h;
    }
    return h;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { IS_OK = 1, IS_RELAYED = 2, LACKS_ROLES = 4, LACKS_VOTE = 8, HEAD_BYTES = 4 };
#define FLAGS (IS_OK | IS_RELAYED | LACKS_ROLES | LACKS_VOTE)

/* One pass over the fields, encoding or decoding: the list of fields of a kind is thus written
 * once. */
struct pass {
    uint8_t *to;         /* output when encoding; NULL when decoding */
    const uint8_t *from; /* decoding */
    size_t size;         /* bytes written so far, or bytes left to read */
    bool is_short;       /* decoding: the input ended too early */
};

static const uint8_t *take(struct pass *pass, size_t size) {
    static const uint8_t zeros[8];
    TW_ASSERT(size <= sizeof(zeros));
    if (pass->is_short || size > pass->size) {
        pass->is_short = true;
        return zeros;
    }
    const uint8_t *const bytes = pass->from;
    pass->from += size;
    pass->size -= size;
    return bytes;
}

static void pass_u64(struct pass *pass, uint64_t *value) {
    if (pass->to == NULL) {
        *value = tw_get_u64(take(pass, 8));
        return;
    }
    tw_put_u64(pass->to + pass->size, *value);
    pass->size += 8;
}

static void pass_u32(struct pass *pass, uint32_t *value) {
    if (pass->to == NULL) {
        *value = tw_get_u32(take(pass, 4));
        return;
    }
    tw_put_u32(pass->to + pass->size, *value);
    pass->size += 4;
}

static void pass_bool(struct pass *pass, bool *value) {
    uint32_t word = *value ? 1 : 0;
    pass_u32(pass, &word);
    *value = word != 0;
}

static void pass_id(struct pass *pass, struct tw_id *id) {
    for (size_t i = 0; i < sizeof(id->bytes); i += 8) {
        uint64_t word = tw_get_u64(id->bytes + i);
        pass_u64(pass, &word);
        tw_put_u64(id->bytes + i, word);
    }
}

static void pass_worker(struct pass *pass, struct tw_worker_state *worker) {
    pass_u64(pass, &worker->step);
    pass_u64(pass, &worker->tokens);
    for (uint32_t f = 0; f < TW_FRAGMENTS_MAX; f++) {
        pass_u64(pass, &worker->fragment_rounds[f]);
        pass_id(pass, &worker->fragment_digests[f]);
    }
}

static void pass_encoded(struct pass *pass, struct tw_event *event) {
    pass_u64(pass, &event->u.encoded.round);
    pass_u64(pass, &event->u.encoded.step);
    pass_u64(pass, &event->u.encoded.tokens);
    pass_u64(pass, &event->u.encoded.cursor);
    pass_u32(pass, &event->u.encoded.parts_count);
    if (event->u.encoded.parts_count > TW_PARTS_MAX) pass->is_short = true;
    for (uint32_t k = 0; !pass->is_short && k < event->u.encoded.parts_count; k++) {
        pass_id(pass, &event->u.encoded.hashes[k]);
        pass_u32(pass, &event->u.encoded.bytes[k]);
    }
}

/* The set of large inputs, then their sizes. */
static void pass_sizes(struct pass *pass, uint16_t *sizes) {
    uint64_t large = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) large |= (uint64_t)(sizes[i] != 0) << i;
    pass_u64(pass, &large);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        uint32_t size = sizes[i];
        if ((large >> i & 1) == 0) continue;
        pass_u32(pass, &size);
        if (size == 0 || size > UINT16_MAX) pass->is_short = true;
        sizes[i] = (uint16_t)size;
    }
}

static void pass_reduced(struct pass *pass, struct tw_event *event) {
    pass_u64(pass, &event->u.reduced.round);
    pass_u64(pass, &event->u.reduced.refused);
    pass_u32(pass, &event->u.reduced.part);
    pass_u32(pass, &event->u.reduced.bytes);
    pass_id(pass, &event->u.reduced.hash);
    pass_bool(pass, &event->u.reduced.is_audit);
    pass_sizes(pass, event->u.reduced.sizes);
}

static void pass_applied(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.applied.fragment);
    pass_u64(pass, &event->u.applied.rounds);
    pass_id(pass, &event->u.applied.digest);
    pass_bool(pass, &event->u.applied.is_alone);
    pass_bool(pass, &event->u.applied.is_outlier);
}

static void pass_exported(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.exported.fragment);
    pass_u64(pass, &event->u.exported.rounds);
    pass_id(pass, &event->u.exported.digest);
    pass_id(pass, &event->u.exported.hash);
    pass_u32(pass, &event->u.exported.bytes);
}

static void pass_measured(struct pass *pass, struct tw_event *event) {
    pass_u32(pass, &event->u.measured.upload_kib_s);
    pass_u64(pass, &event->u.measured.odd);
    pass_bool(pass, &event->u.measured.is_relay);
    pass_bool(pass, &event->u.measured.is_short);
}

static void pass_judged(struct pass *pass, struct tw_event *event) {
    uint32_t score = (uint32_t)event->u.judged.score;
    pass_u64(pass, &event->u.judged.round);
    pass_u32(pass, &score);
    pass_u32(pass, &event->u.judged.share);
    event->u.judged.score = (int32_t)score;
}

static void pass_chunk(struct pass *pass, struct tw_event *event) {
    uint32_t sanity = (uint32_t)event->u.chunk.sanity;
    pass_id(pass, &event->u.chunk.hash);
    pass_u32(pass, &event->u.chunk.idx);
    pass_u32(pass, &sanity);
    pass_bool(pass, &event->u.chunk.is_unfit);
    if (sanity > TW_SANITY_EXTREME) pass->is_short = true;
    event->u.chunk.sanity = (enum tw_sanity)sanity;
}

/* Passes over the fields of every kind but MESSAGE. Returns false if there is no such kind. */
static bool pass_fields(struct pass *pass, struct tw_event *event) {
    switch (event->kind) {
    case TW_EV_TICK:
    case TW_EV_PEER_DOWN:
    case TW_EV_WORKER_DOWN:
    case TW_EV_REFUSED:
    case TW_EV_LEAVE: return true;
    case TW_EV_PEER_UP: pass_id(pass, &event->u.id); return true;
    case TW_EV_MESSAGE:
    case TW_EV_WORKER_UP: return false;
    case TW_EV_CHUNK:
    case TW_EV_VERIFIED: pass_chunk(pass, event); return true;
    case TW_EV_STEP:
        pass_u64(pass, &event->u.step.step);
        pass_u64(pass, &event->u.step.tokens);
        return true;
    case TW_EV_ENCODED: pass_encoded(pass, event); return true;
    case TW_EV_GATHERED:
        pass_encoded(pass, event);
        pass_u64(pass, &event->u.encoded.refused);
        return true;
    case TW_EV_REDUCED: pass_reduced(pass, event); return true;
    case TW_EV_APPLIED: pass_applied(pass, event); return true;
    case TW_EV_EXPORTED: pass_exported(pass, event); return true;
    case TW_EV_STORED: pass_u64(pass, &event->u.store_seq); return true;
    case TW_EV_MEASURED: pass_measured(pass, event); return true;
    case TW_EV_JUDGED: pass_judged(pass, event); return true;
    }
    return false;
}

size_t tw_event_encode(const struct tw_event *event, uint8_t bytes[TW_EVENT_BYTES_MAX]) {
    bytes[0] = (uint8_t)event->kind;
    bytes[1] =
        (uint8_t)((event->ok ? IS_OK : 0) | (event->is_relayed ? IS_RELAYED : 0) |
                  (event->lacks_roles ? LACKS_ROLES : 0) | (event->lacks_vote ? LACKS_VOTE : 0));
    tw_put_u16(bytes + 2, event->peer);
    if (event->kind == TW_EV_MESSAGE) {
        size_t size = 0;
        tw_put_u16(bytes + HEAD_BYTES, (uint16_t)event->u.message->kind);
        TW_ASSERT(tw_control_encode(event->u.message, bytes + HEAD_BYTES + 2, TW_CONTROL_BYTES_MAX,
                                    &size, NULL) == TW_OK);
        return HEAD_BYTES + 2 + size;
    }
    struct pass pass = {.to = bytes, .size = HEAD_BYTES};
    /* a pass needs a writable event, but encoding changes nothing */
    if (event->kind == TW_EV_WORKER_UP) {
        struct tw_worker_state copy = *event->u.worker;
        pass_worker(&pass, &copy);
        return pass.size;
    }
    struct tw_event copy = *event;
    TW_ASSERT(pass_fields(&pass, &copy));
    return pass.size;
}

enum tw_status tw_event_decode(const uint8_t *bytes, size_t size, struct tw_event *event,
                               struct tw_message *message, struct tw_worker_state *worker,
                               struct tw_error *err) {
    if (size < HEAD_BYTES || bytes[0] > TW_EV_GATHERED || bytes[1] > FLAGS)
        return tw_fail(err, TW_CORRUPT, "an event of no known kind");
    memset(event, 0, sizeof(*event));
    event->kind = (enum tw_event_kind)bytes[0];
    event->ok = (bytes[1] & IS_OK) != 0;
    event->is_relayed = (bytes[1] & IS_RELAYED) != 0;
    event->lacks_roles = (bytes[1] & LACKS_ROLES) != 0;
    event->lacks_vote = (bytes[1] & LACKS_VOTE) != 0;
    event->peer = tw_get_u16(bytes + 2);
    if (event->peer >= TW_PEERS_MAX) return tw_fail(err, TW_CORRUPT, "an event of no known peer");
    struct pass pass = {.from = bytes + HEAD_BYTES, .size = size - HEAD_BYTES};
    if (event->kind == TW_EV_MESSAGE) {
        const uint16_t kind = tw_get_u16(take(&pass, 2));
        event->u.message = message;
        if (tw_control_decode(kind, pass.from, pass.size, message, err) != TW_OK)
            return tw_fail(err, TW_CORRUPT, "a message of kind %u that does not decode", kind);
        return TW_OK;
    }
    bool is_known = true;
    if (event->kind == TW_EV_WORKER_UP) {
        event->u.worker = worker;
        pass_worker(&pass, worker);
    } else {
        is_known = pass_fields(&pass, event);
    }
    if (!is_known || pass.is_short || pass.size > 0)
        return tw_fail(err, TW_CORRUPT, "an event of the wrong size");
    return TW_OK;
}
