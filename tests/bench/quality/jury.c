/* jury.c - runs the cores of honest members without their transport. Links, inputs and decoded
 * results are written into a core's state directly, without the events that lead there. The answers
 * are the real core's. */
#include "tests/bench/quality/jury.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/history/log.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/vote/acceptor.h"
#include "sync/vote/proposer.h"
#include "tests/sync/signing.h"

#define BEGIN_US (1000 * SECOND_US)

struct jury {
    uint32_t nodes, honest, fragments;
    struct tw_node *cores, *scratch; /* (honest) cores; one core for trials */
};

static struct tw_id name_of(const char *what, uint64_t a, uint64_t b) {
    uint8_t bytes[32] = {0};
    memcpy(bytes, what, strnlen(what, 16));
    tw_put_u64(bytes + 16, a);
    tw_put_u64(bytes + 24, b);
    return tw_sha256(bytes, sizeof(bytes));
}

/* Ids ascend with the node number, because rosters are sorted by id. */
struct tw_id jury_id(uint32_t node) {
    struct tw_id id = name_of("node", node, 0);
    id.bytes[0] = (uint8_t)(node + 1);
    return id;
}

static uint64_t nonce_of(uint32_t node) {
    return 1000 + node;
}

/* Drops the core's actions, which the jury does not need. */
static void quiet(struct tw_node *core) {
    core->queue.head = core->queue.tail = 0;
    core->queue.messages_count = core->queue.bodies_count = 0;
}

static void link_all(const struct jury *jury, struct tw_node *core, uint32_t self) {
    for (uint32_t i = 0; i < jury->nodes; i++) {
        struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = (uint16_t)i};
        event.u.id = jury_id(i);
        if (i != self) tw_peers_up(core, (uint16_t)i, &event);
    }
    tw_reach_changed(core);
    quiet(core);
}

static void begin_at(const struct jury *jury, struct tw_position *at) {
    const uint32_t fragments = jury->fragments;
    struct tw_record *tip = &at->tip;
    at->lineage = tip->lineage = name_of("lineage", 0, 0);
    at->rounds = fragments;
    at->has_tip = 1;
    tip->round = fragments - 1;
    tip->fragment = fragments - 1;
    tip->next.count = jury->nodes;
    for (uint32_t i = 0; i < jury->nodes; i++) {
        tip->next.members[i] =
            (struct tw_member){.id = jury_id(i), .nonce = nonce_of(i), .weight = 1};
    }
    for (uint32_t p = 0; p < fragments; p++) {
        at->fragment_rounds[p] = fragments;
        at->fragment_digests[p] = name_of("phi", p, 0);
    }
}

struct jury *jury_new(uint32_t nodes, uint32_t honest, const struct tw_layout *layout) {
    struct jury *jury = calloc(1, sizeof(*jury));
    struct tw_position *at = calloc(1, sizeof(*at));
    struct tw_vote *vote = calloc(1, sizeof(*vote));
    if (jury == NULL || at == NULL || vote == NULL) abort();
    *jury = (struct jury){.nodes = nodes, .honest = honest, .fragments = layout->fragments_count};
    jury->cores = calloc(honest, sizeof(*jury->cores));
    jury->scratch = calloc(1, sizeof(*jury->scratch));
    if (jury->cores == NULL || jury->scratch == NULL) abort();
    begin_at(jury, at);
    static struct tw_id ids[TW_MEMBERS_MAX];
    struct tw_node_config config = {.fragments_count = jury->fragments,
                                    .seed = 1,
                                    .period_steps = 10,
                                    .quorum = 1,
                                    .grace_us = 2 * SECOND_US,
                                    .budget_tokens = UINT64_C(1) << 60,
                                    .members_max = TW_MEMBERS_MAX,
                                    .has_result_codec = true,
                                    .weight = 1,
                                    .judges_min = TW_JUDGES_MIN,
                                    .orphan_us = 120 * SECOND_US};
    for (uint32_t p = 0; p < jury->fragments; p++)
        config.fragment_elements[p] = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
    for (uint32_t i = 0; i < honest; i++) {
        config.self = ids[i] = jury_id(i);
        config.signing = signing_as(&ids[i]);
        at->nonce = vote->nonce = nonce_of(i);
        vote->lineage = at->lineage;
        vote->round = at->rounds;
        tw_node_init(&jury->cores[i], &config, at, vote, BEGIN_US);
        link_all(jury, &jury->cores[i], i);
    }
    free(at);
    free(vote);
    return jury;
}

void jury_free(struct jury *jury) {
    if (jury == NULL) return;
    free(jury->cores);
    free(jury->scratch);
    free(jury);
}

uint32_t jury_node_of(const struct jury *jury, uint32_t member) {
    return jury->cores[0].roster.members[member].id.bytes[0] - 1u;
}

static int member_of(const struct tw_node *core, uint32_t node) {
    const struct tw_id id = jury_id(node);
    return tw_roster_find(&core->roster, &id);
}

static uint64_t members_of(const struct tw_node *core, uint64_t nodes) {
    uint64_t members = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if ((nodes >> i & 1) != 0) members |= UINT64_C(1) << member_of(core, i);
    }
    return members;
}

/* Makes a core see all members as linked and at this round, and the other nodes as asking to join.
 */
static void see_all(const struct jury *jury, struct tw_node *core, uint32_t self) {
    uint32_t joins = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++)
        core->seats[i].seen_us = core->seats[i].live_us = core->now_us;
    for (uint32_t j = 0; j < JOINS_MAX; j++) core->lineage.joins[j].received_us = 0;
    for (uint32_t i = 0; i < jury->nodes; i++) {
        const struct tw_msg_status status = {.state = TW_STATE_MEMBER,
                                             .lineage = core->at.lineage,
                                             .rounds = core->at.rounds,
                                             .nonce = nonce_of(i)};
        if (i != self) tw_peers_status(core, (uint16_t)i, &status);
        if (i == self || member_of(core, i) >= 0 || joins == JOINS_MAX) continue;
        core->lineage.joins[joins].id = jury_id(i);
        core->lineage.joins[joins].received_us = core->now_us;
        core->lineage.joins[joins++].join = (struct tw_msg_join){.lineage = core->at.lineage,
                                                                 .rounds = core->at.rounds,
                                                                 .nonce = nonce_of(i),
                                                                 .weight = 1};
    }
    tw_reach_note(core);
    core->round.retry_us = UINT64_MAX; /* the core makes no proposal by itself */
    quiet(core);
}

void jury_open(struct jury *jury, uint64_t now_us, struct jury_round *round) {
    const struct tw_node *core = &jury->cores[0];
    for (uint32_t i = 0; i < jury->honest; i++) {
        jury->cores[i].now_us = BEGIN_US + now_us;
        see_all(jury, &jury->cores[i], i);
    }
    *round = (struct jury_round){.parts = core->round.owners_count};
    for (uint32_t i = 0; i < core->roster.count; i++) {
        round->members |= UINT64_C(1) << jury_node_of(jury, i);
        round->order[i] = jury_node_of(jury, core->round.rank[i]);
    }
    for (uint32_t k = 0; k < round->parts; k++) {
        round->owners[k] = jury_node_of(jury, core->round.owners[k]);
        round->begin[k] = core->round.begin[k];
        round->count[k] = core->round.count[k];
    }
}

void jury_hear(struct jury *jury, uint32_t node, uint64_t tokens, uint64_t fragment_tokens,
               uint32_t fragment_steps) {
    for (uint32_t i = 0; i < jury->honest; i++) {
        struct tw_node *core = &jury->cores[i];
        const int member = member_of(core, node);
        if (member < 0) continue;
        struct contribution *entry = &core->round.contributions[member];
        *entry = (struct contribution){.has = true, .received_us = core->now_us};
        entry->announced.parts_count = core->round.owners_count;
        entry->announced.tokens = tokens;
        entry->announced.fragment_tokens = fragment_tokens;
        entry->announced.fragment_steps = fragment_steps;
        /* stands for that member's signature */
        memset(entry->announced.signature, 1, TW_SIGNATURE_BYTES);
        for (uint32_t k = 0; k < entry->announced.parts_count; k++) {
            entry->announced.hashes[k] = name_of("delta", core->at.rounds, node * TW_PARTS_MAX + k);
            entry->announced.bytes[k] = 1;
        }
    }
}

static struct tw_contributor row_of(const struct tw_node *core, uint32_t member) {
    const struct tw_msg_contrib *said = &core->round.contributions[member].announced;
    return tw_contributor_of(member, said);
}

void jury_told(struct jury *jury, uint32_t part, const struct tw_id *result, uint32_t bytes,
               uint64_t from) {
    for (uint32_t i = 0; i < jury->honest; i++) {
        struct tw_node *core = &jury->cores[i];
        struct tw_msg_result *said = &core->round.results[part].announced;
        const uint64_t members = members_of(core, from);
        core->round.results[part].has = true;
        *said = (struct tw_msg_result){.lineage = core->at.lineage,
                                       .round = core->at.rounds,
                                       .part = part,
                                       .bytes = bytes,
                                       .hash = *result};
        for (uint32_t m = 0; m < core->roster.count && bytes > 0; m++) {
            if ((members >> m & 1) == 0) continue;
            said->contributors[said->contributors_count++] = row_of(core, m);
        }
    }
}

void jury_find(struct jury *jury, uint32_t node, uint32_t part, const struct tw_id *result,
               uint32_t bytes, enum jury_finding finding) {
    struct tw_node *core = &jury->cores[node];
    const struct tw_part what = {.bytes = bytes, .result = *result};
    struct payload *payload = tw_payload_want_result(
        core, &what, tw_progress_fragment(core, core->at.rounds), core->round.begin[part],
        core->round.count[part], tw_round_keep(core));
    TW_ASSERT(payload != NULL);
    payload->state = PAYLOAD_CHECKING;
    struct tw_event event = {.kind = TW_EV_VERIFIED, .ok = finding != JURY_UNFIT};
    event.u.chunk.hash = *result;
    event.u.chunk.is_unfit = finding == JURY_UNFIT;
    if (event.ok) event.u.chunk.sanity = (enum tw_sanity)finding;
    tw_payload_verified(core, &event);
    quiet(core);
}

void jury_write(struct jury *jury, uint32_t proposer, uint32_t without, struct tw_record *record) {
    struct tw_node *core = &jury->cores[proposer];
    core->round.left_out = without;
    tw_proposer_write(core);
    *record = core->round.proposal;
    quiet(core);
}

void jury_set_part(const struct jury *jury, struct tw_record *record, uint32_t part,
                   const struct tw_id *result, uint32_t bytes, uint64_t from) {
    const struct tw_node *core = &jury->cores[0];
    const uint64_t before = core->at.tip.clock_tokens;
    uint64_t listed = 0;
    record->parts[part] = (struct tw_part){.owner_idx = record->parts[part].owner_idx};
    if (bytes > 0) {
        record->parts[part].bytes = bytes;
        record->parts[part].result = *result;
        record->parts[part].contributors = members_of(core, from);
    }
    for (uint32_t k = 0; k < record->parts_count; k++) listed |= record->parts[k].contributors;
    record->contributors_count = 0;
    record->clock_tokens = before;
    for (uint32_t m = 0; m < core->roster.count; m++) {
        if ((listed >> m & 1) == 0) continue;
        record->contributors[record->contributors_count++] = row_of(core, m);
    }
    record->clock_tokens += tw_record_tokens(record, &core->at.tip);
}

static bool votes_for(struct tw_node *core, uint32_t proposer, const struct tw_msg_propose *said) {
    const struct tw_id digest = tw_record_digest(&said->record);
    tw_acceptor_propose(core, (uint16_t)proposer, said);
    tw_vote_advance(core);
    quiet(core);
    if (core->vote.has_accepted == 0 || core->vote.round != core->at.rounds) return false;
    const struct tw_id accepted = tw_record_digest(&core->vote.accepted);
    return tw_id_equal(&accepted, &digest);
}

uint32_t jury_votes(struct jury *jury, uint32_t proposer, const struct tw_record *record) {
    const struct round *round = &jury->cores[0].round;
    struct tw_msg_propose *said = calloc(1, sizeof(*said));
    uint32_t votes = 0;
    uint64_t rank = 0;
    if (said == NULL) abort();
    while (jury_node_of(jury, round->rank[rank]) != proposer) rank++;
    said->ballot = rank == 0 ? 1 : TW_MEMBERS_MAX + rank;
    said->record = *record;
    signing_shown(&jury->cores[0].cfg.run, &jury->cores[0].roster, said);
    if (said->ballot > 1)
        signing_justify(&jury->cores[0].cfg.run, &jury->cores[0].roster, 0, 0, said);
    for (uint32_t i = 0; i < jury->honest; i++) {
        if (member_of(&jury->cores[i], i) < 0) continue;
        memcpy(jury->scratch, &jury->cores[i], sizeof(*jury->scratch));
        votes += i == proposer || votes_for(jury->scratch, proposer, said);
    }
    free(said);
    return votes;
}

void jury_commit(struct jury *jury, const struct tw_record *record) {
    for (uint32_t i = 0; i < jury->honest; i++) {
        struct tw_node *core = &jury->cores[i];
        tw_log_commit(core, record, &(struct tw_proof){.ballot = 0});
        quiet(core);
        core->at.fragment_rounds[record->fragment] = record->round + 1;
        tw_payload_drop_all(core);
        quiet(core);
    }
}

void jury_strike(struct jury *jury, uint32_t owner, uint32_t part) {
    const struct tw_id id = jury_id(owner);
    for (uint32_t i = 0; i < jury->honest; i++) {
        struct tw_node *core = &jury->cores[i];
        if (i != owner) tw_conduct_strike(core, &id, true, core->at.rounds - 1, part);
        quiet(core);
    }
}
