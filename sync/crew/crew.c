/* crew.c - work of nodes without a seat, contributed through a member. */
#include "sync/crew/crew.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/median.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

enum {
    HAND_MISSED_MAX = 12, /* rounds missed in a row after which a hand loses its place */
    HEAD_MISSES_MAX = 2,  /* contributions left out in a row after which a hand looks for a head */
};

/* Time for which a hand does not return to a head that it left; doubles each time, to an hour. */
#define LEAVE_US (60 * SECOND_US)
/* Longest search for the CREW of a committed round. */
#define ANSWER_US (60 * SECOND_US)

static uint64_t key_of(const struct tw_id *id) {
    return tw_get_u64(id->bytes);
}

static bool is_on(const struct tw_node *node) {
    return node->cfg.crew_max > 0 && !node->cfg.is_pair;
}

/* ---- lists of crews -------------------------------------------------------------------------- */

static struct tw_id root_of(const struct tw_msg_crew *crew) {
    const struct tw_id rows = tw_crew_root(crew->rows, crew->rows_count);
    return tw_crew_bind(&crew->parts_root, crew->rows_count, &rows);
}

/* Returns the list with this root, or NULL. */
static const struct tw_msg_crew *find_list(const struct tw_node *node, const struct tw_id *head,
                                           uint64_t round, const struct tw_id *root) {
    for (uint32_t i = 0; i < CREWS_KEPT; i++) {
        const struct tw_msg_crew *crew = &node->crew.kept[i];
        if (crew->rows_count == 0 || crew->round != round || !tw_id_equal(&crew->head, head))
            continue;
        const struct tw_id actual = root_of(crew);
        if (tw_id_equal(&actual, root)) return crew;
    }
    return NULL;
}

/* Keeps the list. It replaces another one of the same head and round, so that no head fills the
 * table. */
static void keep_list(struct tw_node *node, const struct tw_msg_crew *crew) {
    struct crew *all = &node->crew;
    TW_ASSERT(crew->rows_count > 0 && crew->rows_count <= TW_CREW_MAX);
    for (uint32_t i = 0; i < CREWS_KEPT; i++) {
        struct tw_msg_crew *known = &all->kept[i];
        if (known->rows_count == 0 || known->round != crew->round ||
            !tw_id_equal(&known->head, &crew->head))
            continue;
        *known = *crew;
        return;
    }
    all->kept[all->kept_next] = *crew;
    all->kept_next = (all->kept_next + 1) % CREWS_KEPT;
}

/* True if the list is the one that this hand looks for. */
static bool is_wanted(const struct tw_node *node, const struct tw_msg_crew *list) {
    const struct crew *crew = &node->crew;
    const struct tw_id root = root_of(list);
    return tw_crew_is_open(node, list->round) && tw_id_equal(&list->head, &crew->head) &&
           tw_id_equal(&root, &crew->root);
}

static bool has_leaf(const struct tw_msg_crew *crew, uint64_t key, const struct tw_id *leaf) {
    for (uint32_t i = 0; i < crew->rows_count; i++) {
        if (crew->rows[i].key == key && tw_id_equal(&crew->rows[i].leaf, leaf)) return true;
    }
    return false;
}

enum tw_drop tw_crew_list(struct tw_node *node, uint16_t peer, const struct tw_msg_crew *crew) {
    if (!is_on(node)) return TW_DROP_OTHER_RUN;
    if (!tw_id_equal(&crew->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    if (is_wanted(node, crew)) {
        keep_list(node, crew);
        return TW_DROP_NONE;
    }
    /* Of a head itself only that of about the open round, so that no head fills the table. */
    if (!tw_id_equal(&node->links[peer].id, &crew->head)) return TW_DROP_UNASKED;
    if (tw_roster_find(&node->roster, &crew->head) < 0) return TW_DROP_NO_SEAT;
    if (crew->round + 1 < node->at.rounds) return TW_DROP_OLD_ROUND;
    if (crew->round > node->at.rounds + 1) return TW_DROP_ROUND_TO_COME;
    keep_list(node, crew);
    return TW_DROP_NONE;
}

enum tw_drop tw_crew_get(struct tw_node *node, uint16_t peer, const struct tw_msg_crew_get *get) {
    if (!tw_id_equal(&get->lineage, &node->at.lineage)) return TW_DROP_OTHER_LINEAGE;
    const struct tw_msg_crew *crew = find_list(node, &get->head, get->round, &get->root);
    if (crew == NULL) return TW_DROP_UNKNOWN;
    struct tw_message *message = tw_act_message(node, TW_MSG_CREW);
    if (message != NULL) message->u.crew = *crew;
    tw_act_send(node, message, peer);
    return TW_DROP_NONE;
}

/* ---- a head ---------------------------------------------------------------------------------- */

bool tw_crew_is_hand(const struct tw_node *node, uint16_t peer) {
    return is_on(node) && !node->cfg.is_hand && node->round.self_idx >= 0 &&
           tw_roster_find(&node->roster, &node->links[peer].id) < 0;
}

/* Returns the row of this hand, or a free one if it is new. NULL: the crew is full. */
static struct crew_hand *find_hand(struct tw_node *node, const struct tw_id *id, bool is_new) {
    struct crew_hand *free_row = NULL;
    for (uint32_t i = 0; i + 1 < node->cfg.crew_max; i++) {
        struct crew_hand *hand = &node->crew.hands[i];
        if (tw_id_equal(&hand->id, id)) return hand;
        if (free_row == NULL && tw_id_is_zero(&hand->id)) free_row = hand;
    }
    if (!is_new || free_row == NULL) return NULL;
    *free_row = (struct crew_hand){.id = *id};
    return free_row;
}

static struct crew_work work_of(const struct tw_id *id, const struct tw_msg_contrib *contrib) {
    struct tw_contributor row = tw_contributor_of(0, contrib);
    return (struct crew_work){.tokens = contrib->tokens,
                              .fragment_tokens = contrib->fragment_tokens,
                              .fragment_steps = contrib->fragment_steps,
                              .bytes = contrib->bytes[0],
                              .hash = contrib->hashes[0],
                              .root = row.root,
                              .leaf = tw_crew_leaf(id, &row)};
}

enum tw_drop tw_crew_contrib(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_contrib *contrib) {
    const struct tw_id *id = &node->links[peer].id;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    if (contrib->parts_count != 1 || contrib->crew_count != 0 || contrib->bytes[0] == 0)
        return TW_DROP_IMPOSSIBLE;
    const struct tw_contributor row = tw_contributor_of(0, contrib);
    if (!tw_account_is_possible(node, &row, 1) ||
        !tw_payload_is_possible(node, TW_CONTENT_DELTA, node->cfg.fragment_elements[fragment],
                                contrib->bytes[0])) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    if (!tw_id_equal(&contrib->base, &node->at.fragment_digests[fragment]))
        return TW_DROP_NOT_READY; /* one of the two has not applied all rounds of the fragment */
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    tw_contributor_text(&node->cfg.run, &contrib->lineage, contrib->round, &row, text);
    if (!node->cfg.signing.is_signed(id, text, sizeof(text), contrib->signature)) {
        tw_act_misbehaved(node, peer, TW_PROTO);
        return TW_DROP_FALSE;
    }
    struct crew_hand *hand = find_hand(node, id, true);
    if (hand == NULL) return TW_DROP_CREW_FULL;
    if (hand->has) return TW_DROP_TWICE;
    hand->has = true;
    hand->is_bad = hand->is_ready = false;
    hand->work = work_of(id, contrib);
    return TW_DROP_NONE;
}

/* Calls for the work of all hands that this node knows. */
static void call_hands(struct tw_node *node) {
    struct tw_message *message = tw_act_message(node, TW_MSG_GATHER);
    if (message == NULL) return;
    message->u.gather =
        (struct tw_msg_gather){.lineage = node->at.lineage, .round = node->at.rounds};
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (node->links[i].is_up && find_hand(node, &node->links[i].id, false) != NULL)
            tw_act_send(node, message, i);
    }
}

/* Our own work has been encoded: it is the first input of the crew's. */
static void begin_collecting(struct tw_node *node, const struct tw_event *event) {
    struct crew *crew = &node->crew;
    struct tw_msg_contrib own = {.lineage = node->at.lineage, .round = node->at.rounds};
    struct tw_contributor row;
    node->round.own_step = event->u.encoded.step;
    node->round.own_tokens = event->u.encoded.tokens;
    node->worker.last_send_step = event->u.encoded.step;
    tw_account_row(node, tw_progress_fragment(node, node->at.rounds), &row);
    own.parts_count = 1;
    own.tokens = row.tokens;
    own.fragment_tokens = row.fragment_tokens;
    own.fragment_steps = row.fragment_steps;
    own.hashes[0] = event->u.encoded.hashes[0];
    own.bytes[0] = event->u.encoded.bytes[0];
    tw_contributor_sign(node, &own);
    crew->own = work_of(&node->cfg.self, &own);
    crew->phase = CREW_COLLECTING;
    crew->began_us = node->now_us;
    node->round.own = OWN_GATHERING;
    call_hands(node);
}

/* Fetches the hand's payload. */
static void fetch_work(struct tw_node *node, struct crew_hand *hand) {
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    const uint64_t count = node->cfg.fragment_elements[fragment];
    const struct payload *known = tw_payload_find(node, &hand->work.hash);
    if (known != NULL && (known->bytes != hand->work.bytes ||
                          !tw_payload_is_as(node, known, TW_CONTENT_DELTA, count))) {
        hand->is_bad = true;
        return;
    }
    struct payload *payload =
        tw_payload_want(node, &hand->work.hash, hand->work.bytes, TW_CONTENT_DELTA, count);
    if (payload == NULL) return;
    payload->from = hand->id;
    if (payload->keep_round < node->at.rounds) payload->keep_round = node->at.rounds;
    hand->is_ready = payload->state == PAYLOAD_HELD;
    hand->is_bad = tw_payload_is_lost(payload);
}

/* True if the hand is linked and at the open round, so that its work may arrive. */
static bool is_awaited(const struct tw_node *node, const struct crew_hand *hand) {
    const uint16_t peer = tw_peers_find(node, &hand->id);
    return peer != NO_PEER && tw_peers_in_lineage(node, peer) && !hand->is_bad &&
           node->links[peer].status.rounds == node->at.rounds &&
           node->at.rounds % (UINT64_C(1) << hand->missed / 2) == 0;
}

/* Fetches the work of all hands. Returns true once no more is worth waiting for. */
static bool collect(struct tw_node *node) {
    uint32_t pending = 0;
    for (uint32_t i = 0; i + 1 < node->cfg.crew_max; i++) {
        struct crew_hand *hand = &node->crew.hands[i];
        if (tw_id_is_zero(&hand->id)) continue;
        if (hand->has && !hand->is_bad && !hand->is_ready) fetch_work(node, hand);
        pending += (!hand->has || !hand->is_ready) && is_awaited(node, hand);
    }
    const uint64_t end_us = node->crew.began_us + node->cfg.grace_us;
    if (pending == 0 || node->now_us >= end_us) return true;
    tw_act_wake(node, end_us);
    return false;
}

/* A hand that is not linked any more, or whose work never comes, gives its place to another. */
static void note_hand(struct tw_node *node, struct crew_hand *hand) {
    if (hand->has && hand->is_ready) {
        hand->missed = 0;
    } else if (tw_peers_find(node, &hand->id) == NO_PEER || hand->missed >= HAND_MISSED_MAX) {
        hand->id = (struct tw_id){{0}};
    } else {
        hand->missed++;
    }
}

static void add_input(struct tw_node *node, struct tw_gather *gather, struct tw_id *input,
                      const struct tw_id *id, const struct crew_work *work) {
    const uint32_t at = gather->inputs_count++;
    node->crew.merged[at] = *id;
    node->crew.works[at] = *work;
    gather->inputs[at].tokens = work->fragment_tokens;
    gather->inputs[at].steps = work->fragment_steps;
    *input = work->hash;
}

static void request_gather(struct tw_node *node) {
    struct crew *crew = &node->crew;
    struct tw_action *action = tw_act_body(node, TW_ACT_GATHER);
    struct tw_gather *gather = &action->u.gather;
    *gather = (struct tw_gather){.round = node->at.rounds,
                                 .fragment = tw_progress_fragment(node, node->at.rounds),
                                 .parts_count = node->round.owners_count};
    for (uint32_t k = 0; k < gather->parts_count; k++) {
        gather->parts[k].begin = node->round.begin[k];
        gather->parts[k].count = node->round.count[k];
    }
    add_input(node, gather, &action->inputs[0], &node->cfg.self, &crew->own);
    for (uint32_t i = 0; i + 1 < node->cfg.crew_max; i++) {
        struct crew_hand *hand = &crew->hands[i];
        if (tw_id_is_zero(&hand->id)) continue;
        if (hand->has && hand->is_ready)
            add_input(node, gather, &action->inputs[gather->inputs_count], &hand->id, &hand->work);
        note_hand(node, hand);
    }
    crew->merged_count = gather->inputs_count;
    crew->phase = CREW_MERGING;
}

/* Sends the list of the crew to its hands, so that each knows, and to all members, so that they can
 * tell a hand whose head is gone. */
static void send_list(struct tw_node *node, const struct tw_msg_crew *list) {
    struct tw_message *message = tw_act_message(node, TW_MSG_CREW);
    if (message == NULL) return;
    message->u.crew = *list;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!node->links[i].is_up) continue;
        if (tw_roster_find(&node->roster, &node->links[i].id) >= 0 ||
            find_hand(node, &node->links[i].id, false) != NULL)
            tw_act_send(node, message, i);
    }
}

/* Sums the values, each of which counts up to TW_CLAIM_MEDIANS times their lower median, as the
 * run clock does with contributors: a hand cannot prove its counts. */
static uint64_t sum_claims(const uint64_t *values, uint32_t count) {
    uint64_t sorted[TW_CREW_MAX], sum = 0;
    TW_ASSERT(count > 0 && count <= TW_CREW_MAX);
    memcpy(sorted, values, count * sizeof(sorted[0]));
    tw_sort_u64(sorted, count);
    const uint64_t usual = sorted[(count - 1) / 2];
    const uint64_t times = count >= 3 ? TW_CLAIM_MEDIANS : TW_CLAIM_FEW;
    const uint64_t most = usual > 0 && usual <= TOKENS_MAX / times ? times * usual : TOKENS_MAX;
    for (uint32_t i = 0; i < count; i++) sum += at_most(values[i], most);
    return sum;
}

/* Fills in the counts of several nodes' work: sums of tokens, and the mean of steps, since guard
 * and outer step ask for the length of a Delta. */
static void count_crew(const struct tw_node *node, const struct crew_work *const *works,
                       uint32_t count, struct tw_msg_contrib *contrib) {
    const uint64_t most = tw_account_tokens_max(node), step = node->cfg.step_tokens;
    uint64_t tokens[TW_CREW_MAX], fragment_tokens[TW_CREW_MAX], steps[TW_CREW_MAX];
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = works[i]->tokens;
        fragment_tokens[i] = works[i]->fragment_tokens;
        steps[i] = works[i]->fragment_steps;
    }
    const uint64_t all_steps = sum_claims(steps, count);
    const bool is_by_steps = step > 0 && !node->cfg.has_own_start;
    contrib->tokens = at_most(sum_claims(tokens, count), most);
    contrib->fragment_steps = (uint32_t)((all_steps + count - 1) / count);
    contrib->fragment_tokens = at_most(sum_claims(fragment_tokens, count), most);
    if (is_by_steps) contrib->fragment_tokens = all_steps > most / step ? most : all_steps * step;
}

/* Offers the mean of the crew as this node's contribution. */
static void offer(struct tw_node *node, const struct tw_event *event) {
    struct crew *crew = &node->crew;
    struct tw_msg_crew list = {
        .lineage = node->at.lineage, .head = node->cfg.self, .round = node->at.rounds};
    struct tw_msg_contrib *announced = tw_round_entry(node);
    const struct crew_work *works[TW_CREW_MAX];
    for (uint32_t i = 0; i < crew->merged_count; i++) {
        const bool is_refused = (event->u.encoded.refused >> i & 1) != 0;
        if (is_refused && !TW_IS_MUTANT(node, TW_MUTANT_CREW_PADDED)) continue;
        works[list.rows_count] = &crew->works[i];
        list.rows[list.rows_count++] =
            (struct tw_crew_row){.key = key_of(&crew->merged[i]), .leaf = crew->works[i].leaf};
    }
    count_crew(node, works, list.rows_count, announced);
    for (uint32_t k = 0; k < announced->parts_count; k++) {
        announced->hashes[k] = event->u.encoded.hashes[k];
        announced->bytes[k] = event->u.encoded.bytes[k];
    }
    list.parts_root = tw_contribution_root(announced->hashes, announced->parts_count);
    announced->crew_count = list.rows_count;
    announced->crew_root = tw_crew_root(list.rows, list.rows_count);
    tw_contributor_sign(node, announced);
    keep_list(node, &list);
    send_list(node, &list);
    node->round.own = OWN_READY;
    crew->phase = CREW_NONE;
}

void tw_crew_alone(struct tw_node *node) {
    struct crew *crew = &node->crew;
    struct contribution *entry = &node->round.contributions[node->round.self_idx];
    if (!is_on(node) || node->round.own != OWN_READY || entry->announced.crew_count > 0) return;
    struct tw_msg_crew list = {
        .lineage = node->at.lineage, .head = node->cfg.self, .round = node->at.rounds};
    const struct tw_contributor row = tw_contributor_of(0, &entry->announced);
    crew->merged_count = list.rows_count = 1;
    crew->merged[0] = node->cfg.self;
    crew->works[0] = work_of(&node->cfg.self, &entry->announced);
    list.parts_root = row.root;
    list.rows[0] =
        (struct tw_crew_row){.key = key_of(&node->cfg.self), .leaf = crew->works[0].leaf};
    entry->announced.crew_count = 1;
    entry->announced.crew_root = tw_crew_root(list.rows, 1);
    tw_contributor_sign(node, &entry->announced);
    keep_list(node, &list);
    send_list(node, &list);
}

enum tw_drop tw_crew_gathered(struct tw_node *node, const struct tw_event *event) {
    struct round *round = &node->round;
    const bool is_now = event->u.encoded.round == node->at.rounds &&
                        node->crew.phase == CREW_MERGING &&
                        event->u.encoded.parts_count == round->owners_count;
    for (uint32_t k = 0; event->ok && k < event->u.encoded.parts_count; k++) {
        if (event->u.encoded.bytes[k] == 0) continue;
        tw_payload_hold(node, &event->u.encoded.hashes[k], event->u.encoded.bytes[k],
                        is_now ? TW_CONTENT_DELTA : TW_CONTENT_OPAQUE, is_now ? round->count[k] : 0,
                        is_now ? node->at.rounds + AUDIT_ROUNDS : 0);
    }
    if (!is_now) return TW_DROP_UNASKED;
    TW_ASSERT(!event->ok || (event->u.encoded.refused & 1) == 0);
    if (event->ok) {
        offer(node, event);
        return TW_DROP_NONE;
    }
    (void)tw_round_entry(node);
    round->own = OWN_FAILED;
    round->own_retry_us = node->now_us + PATIENCE_FLOOR_US;
    node->crew.phase = CREW_NONE;
    return TW_DROP_NONE;
}

static void advance_head(struct tw_node *node) {
    if (node->crew.phase != CREW_COLLECTING || !node->worker.is_up) return;
    if (collect(node)) request_gather(node);
}

/* ---- a hand ---------------------------------------------------------------------------------- */

enum tw_drop tw_crew_called(struct tw_node *node, uint16_t peer) {
    if (!is_on(node) || !node->cfg.is_hand) return TW_DROP_OTHER_RUN;
    if (tw_roster_find(&node->roster, &node->links[peer].id) < 0) return TW_DROP_NO_SEAT;
    node->crew.is_called = true;
    return TW_DROP_NONE;
}

/* True if this hand has left the head, not long ago. */
static bool has_left_head(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < HEADS_LEFT_MAX; i++) {
        const struct crew_left *left = &node->crew.left[i];
        if (tw_id_equal(&left->id, id)) return node->now_us < left->until_us;
    }
    return false;
}

/* The head left our work out several times, or hides its list: looks for another one. */
static void leave_head(struct tw_node *node) {
    enum { DOUBLINGS_MAX = 6 };
    struct crew_left *row = &node->crew.left[0];
    for (uint32_t i = 0; i < HEADS_LEFT_MAX; i++) {
        struct crew_left *left = &node->crew.left[i];
        if (left->until_us < row->until_us) row = left;
    }
    for (uint32_t i = 0; i < HEADS_LEFT_MAX; i++) {
        if (tw_id_equal(&node->crew.left[i].id, &node->crew.head)) row = &node->crew.left[i];
    }
    const bool is_known = tw_id_equal(&row->id, &node->crew.head);
    row->times = is_known ? row->times + 1 : 0;
    row->id = node->crew.head;
    row->until_us = node->now_us + (LEAVE_US << at_most(row->times, DOUBLINGS_MAX));
    node->crew.misses = 0;
}

/* Returns the peer that is this hand's head: of all linked members, the one with the highest hash
 * of both ids, so that hands spread over heads and stay with them. */
static uint16_t find_head(const struct tw_node *node) {
    struct tw_id best = {{0}};
    uint16_t head = NO_PEER;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct tw_id *id = &node->links[i].id;
        if (!tw_peers_is_donor(node, i) || tw_roster_find(&node->roster, id) < 0) continue;
        if (has_left_head(node, id)) continue;
        const struct tw_id rank = tw_sha256_pair(&node->cfg.self, sizeof(*id), id, sizeof(*id));
        if (head != NO_PEER && tw_id_compare(&rank, &best) <= 0) continue;
        best = rank;
        head = i;
    }
    return head;
}

/* Our contribution that was out is known to be in the anchor, or not. */
static void close_out(struct tw_node *node, enum crew_word word) {
    struct crew *crew = &node->crew;
    TW_ASSERT(crew->is_out);
    crew->is_out = false;
    crew->words[crew->round % TW_ROUNDS_KEPT] = (uint8_t)word;
    if (word != CREW_IN) return;
    if (!TW_IS_MUTANT(node, TW_MUTANT_CREW_TWICE)) node->at.tokens_listed = crew->tokens;
    node->at.delta_tokens[crew->fragment] = at_most(crew->tokens, node->worker.tokens);
    node->at.delta_steps[crew->fragment] = at_most(crew->step, node->worker.step);
    node->log.contributed_count++;
}

void tw_crew_commit(struct tw_node *node, const struct tw_record *record) {
    struct crew *crew = &node->crew;
    const uint64_t row = record->round % TW_ROUNDS_KEPT;
    crew->words[row] = node->cfg.is_hand ? CREW_OUT : CREW_BY_ROW;
    if (!crew->is_out || crew->round != record->round) return;
    const int seat = tw_roster_find(&node->roster, &crew->head);
    const struct tw_contributor *by = seat >= 0 ? tw_contributor_row(record, (uint32_t)seat) : NULL;
    if (by == NULL) {
        close_out(node, CREW_OUT);
        return;
    }
    crew->words[row] = CREW_OPEN;
    crew->seats[row] = (uint8_t)seat;
    crew->root = by->root;
    crew->committed_us = node->now_us;
    crew->asked_us = 0;
}

bool tw_crew_is_ours(const struct tw_node *node, const struct tw_record *record, uint32_t k,
                     int self) {
    const uint64_t row = record->round % TW_ROUNDS_KEPT;
    const enum crew_word word = (enum crew_word)node->crew.words[row];
    const uint64_t listed = record->parts[k].contributors;
    if (word == CREW_IN) return (listed >> node->crew.seats[row] & 1) != 0;
    return word == CREW_BY_ROW && self >= 0 && (listed >> self & 1) != 0;
}

bool tw_crew_is_open(const struct tw_node *node, uint64_t round) {
    return node->crew.is_out && node->crew.round == round &&
           node->crew.words[round % TW_ROUNDS_KEPT] == CREW_OPEN && round < node->at.rounds;
}

static void ask_for_list(struct tw_node *node) {
    struct crew *crew = &node->crew;
    const uint64_t due_us = crew->asked_us + SECOND_US;
    if (crew->asked_us != 0 && node->now_us < due_us) {
        tw_act_wake(node, due_us);
        return;
    }
    struct tw_message *message = tw_act_message(node, TW_MSG_CREW_GET);
    if (message == NULL) return;
    crew->asked_us = node->now_us;
    message->u.crew_get = (struct tw_msg_crew_get){
        .lineage = crew->lineage, .head = crew->head, .round = crew->round, .root = crew->root};
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i)) tw_act_send(node, message, i);
    }
    tw_act_wake(node, node->now_us + SECOND_US);
}

/* Finds out whether a committed round contains our work. */
static void settle_out(struct tw_node *node) {
    struct crew *crew = &node->crew;
    if (!crew->is_out) return;
    if (!tw_id_equal(&crew->lineage, &node->at.lineage)) {
        crew->is_out = false; /* a change of lineage settles all counts */
        tw_account_settle_clock(node);
        return;
    }
    if (crew->round >= node->at.rounds) return;
    const struct tw_msg_crew *list = find_list(node, &crew->head, crew->round, &crew->root);
    const bool is_known = crew->words[crew->round % TW_ROUNDS_KEPT] == CREW_OPEN;
    if (is_known && list != NULL) {
        const bool is_in = has_leaf(list, key_of(&node->cfg.self), &crew->leaf) ||
                           TW_IS_MUTANT(node, TW_MUTANT_CREW_MIXES);
        crew->misses = is_in ? 0 : crew->misses + 1;
        if (crew->misses >= HEAD_MISSES_MAX) leave_head(node);
        close_out(node, is_in ? CREW_IN : CREW_OUT);
    } else if (!is_known || node->now_us >= crew->committed_us + ANSWER_US) {
        /* It may be in the anchor: its tokens do not count again. */
        if (is_known) leave_head(node);
        close_out(node, is_known ? CREW_LOST : CREW_OUT);
        tw_account_settle_clock(node);
    } else {
        ask_for_list(node);
    }
}

static void encode_work(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    if (node->crew.is_out || round->own != OWN_IDLE || node->roster.count == 0) return;
    if (node->lineage.needs_tip || node->at.is_moving != 0 || !node->worker.is_up) return;
    if (tw_progress_is_apart(node) || tw_progress_is_applying(node, fragment)) return;
    if (round->owners_count == 0 || tw_progress_due(node, fragment) != UINT64_MAX) return;
    if (node->at.fragment_rounds[fragment] == NOT_HELD || node->has_left) return;
    if (node->state != TW_STATE_RECEIVER || find_head(node) == NO_PEER) return;
    if (!tw_round_is_due(node)) return;
    if (node->now_us < round->own_retry_us) {
        tw_act_wake(node, round->own_retry_us);
        return;
    }
    round->own = OWN_ENCODING;
    struct tw_action *action = tw_act_body(node, TW_ACT_ENCODE);
    action->u.encode.round = node->at.rounds;
    action->u.encode.fragment = fragment;
    action->u.encode.parts_count = 1;
    action->u.encode.parts[0].count = node->cfg.fragment_elements[fragment];
}

/* Sends our encoded work to the head. Without a head it stays in Delta. */
static void send_work(struct tw_node *node, const struct tw_event *event) {
    struct crew *crew = &node->crew;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    const uint16_t head = find_head(node);
    struct tw_message *message = head != NO_PEER ? tw_act_message(node, TW_MSG_CONTRIB) : NULL;
    if (message == NULL) {
        node->round.own = OWN_IDLE;
        node->round.own_retry_us = node->now_us + SECOND_US;
        return;
    }
    struct tw_contributor row;
    node->round.own_step = event->u.encoded.step;
    node->round.own_tokens = event->u.encoded.tokens;
    tw_account_row(node, fragment, &row);
    message->u.contrib = (struct tw_msg_contrib){.lineage = node->at.lineage,
                                                 .round = node->at.rounds,
                                                 .base = node->at.fragment_digests[fragment],
                                                 .tokens = row.tokens,
                                                 .fragment_tokens = row.fragment_tokens,
                                                 .fragment_steps = row.fragment_steps,
                                                 .parts_count = 1};
    message->u.contrib.hashes[0] = event->u.encoded.hashes[0];
    message->u.contrib.bytes[0] = event->u.encoded.bytes[0];
    tw_contributor_sign(node, &message->u.contrib);
    tw_act_send(node, message, head);
    const struct crew_work work = work_of(&node->cfg.self, &message->u.contrib);
    node->worker.last_send_step = event->u.encoded.step;
    node->round.own = OWN_SENT;
    crew->is_out = true;
    crew->lineage = node->at.lineage;
    crew->head = node->links[head].id;
    crew->leaf = work.leaf;
    crew->round = node->at.rounds;
    crew->fragment = fragment;
    crew->step = event->u.encoded.step;
    crew->tokens = event->u.encoded.tokens;
}

void tw_crew_greet(struct tw_node *node) {
    /* Work that was out when this process began may be in the anchor. */
    if (node->cfg.is_hand && !node->crew.has_greeted && node->at.has_tip != 0)
        tw_account_settle_clock(node);
    node->crew.has_greeted = true;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool tw_crew_is_encoding(const struct tw_node *node) {
    return is_on(node) && (node->cfg.is_hand || node->crew.phase == CREW_ENCODING);
}

enum tw_drop tw_crew_encoded(struct tw_node *node, const struct tw_event *event) {
    struct round *round = &node->round;
    const bool is_now = event->u.encoded.round == node->at.rounds && round->own == OWN_ENCODING &&
                        event->u.encoded.parts_count == 1;
    const uint32_t fragment = tw_progress_fragment(node, node->at.rounds);
    if (event->ok && event->u.encoded.parts_count == 1 && event->u.encoded.bytes[0] > 0)
        tw_payload_hold(node, &event->u.encoded.hashes[0], event->u.encoded.bytes[0],
                        is_now ? TW_CONTENT_DELTA : TW_CONTENT_OPAQUE,
                        is_now ? node->cfg.fragment_elements[fragment] : 0,
                        is_now ? node->at.rounds + AUDIT_ROUNDS : 0);
    if (!is_now) return TW_DROP_UNASKED;
    if (event->ok && node->cfg.is_hand) {
        send_work(node, event);
    } else if (event->ok) {
        begin_collecting(node, event);
    } else {
        if (!node->cfg.is_hand) (void)tw_round_entry(node);
        round->own = node->cfg.is_hand ? OWN_IDLE : OWN_FAILED;
        round->own_retry_us = node->now_us + PATIENCE_FLOOR_US;
        node->crew.phase = CREW_NONE;
    }
    return TW_DROP_NONE;
}

void tw_crew_forget(struct tw_node *node) {
    const bool is_lost = node->crew.phase != CREW_NONE || node->round.own == OWN_GATHERING;
    if (is_lost) node->round.own = OWN_IDLE;
    node->crew.phase = CREW_NONE;
}

void tw_crew_advance(struct tw_node *node) {
    if (!is_on(node)) return;
    if (!node->cfg.is_hand) {
        advance_head(node);
        return;
    }
    settle_out(node);
    if (node->cfg.role == TW_NODE_ROLE_TRAIN) encode_work(node);
}
