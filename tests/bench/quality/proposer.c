/* proposer.c - rounds of the quality bench in which proposers may lie. */
#include "tests/bench/quality/proposer.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"

/* Weights in the next roster: an honest owner's weight, and the largest that a hostile proposer
 * tries. */
enum { SHARE_EVEN = 16, SHARE_MAX = 1 << 20 };

/* Results and the names by which records refer to them: the owners' results, then a proposer's. */
struct made {
    struct payload payloads[TW_PARTS_MAX];
    struct tw_id names[TW_PARTS_MAX];
};

void proposer_open(struct world *world) {
    struct jury_round *open = &world->open;
    struct division *division = &world->round.division;
    jury_open(world->jury, world->now_us, open);
    division->parts = open->parts;
    memcpy(division->owners, open->owners, sizeof(division->owners));
    memcpy(division->begin, open->begin, sizeof(division->begin));
    memcpy(division->count, open->count, sizeof(division->count));
}

static bool is_member(const struct world *world, uint32_t node) {
    return (world->open.members >> node & 1) != 0;
}

static uint32_t majority(const struct world *world) {
    return (uint32_t)__builtin_popcountll(world->open.members) / 2 + 1;
}

static uint32_t hostile_members(const struct world *world) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->count; i++)
        count += world->nodes[i].is_hostile && is_member(world, i);
    return count;
}

static bool is_accepted(struct world *world, uint32_t proposer, const struct tw_record *record) {
    const uint32_t own = world->nodes[proposer].is_hostile ? hostile_members(world) : 0;
    return own + jury_votes(world->jury, proposer, record) >= majority(world);
}

/* Lets every honest node's worker judge the results, and remember its judgement unless is_trial.
 * Returns a bit set of the parts that too few members would accept. */
static uint32_t look(struct world *world, const struct commit *commit, const struct made *made,
                     bool is_trial) {
    const struct division *division = &commit->division;
    uint32_t without = 0, taking[TW_PARTS_MAX] = {0};
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        if (node->is_hostile) continue;
        const struct tw_outlier before = node->merger.outlier[commit->fragment];
        for (uint32_t k = 0; k < division->parts; k++) {
            if (made->payloads[k].size == 0) continue;
            const bool is_own = division->owners[k] == i && !is_trial;
            const enum jury_finding finding =
                is_own ? JURY_FAIR
                       : node_finding(node, &made->payloads[k], commit->fragment,
                                      division->begin[k], division->count[k]);
            jury_find(world->jury, i, k, &made->names[k], made->payloads[k].size, finding);
            taking[k] += is_member(world, i) && finding == JURY_FAIR;
        }
        if (is_trial) node->merger.outlier[commit->fragment] = before;
    }
    for (uint32_t k = 0; k < division->parts; k++) {
        const bool is_liars = world->nodes[division->owners[k]].is_hostile;
        if (taking[k] + (is_liars ? hostile_members(world) : 0) < majority(world))
            without |= 1u << k;
    }
    return without;
}

static void hear_all(struct world *world, const struct commit *commit, struct made *made) {
    const struct round *round = &world->round;
    for (uint32_t i = 0; i < world->count; i++) {
        const struct contribution *from = &round->from[i];
        if ((round->heard >> i & 1) == 0) continue;
        jury_hear(world->jury, i, from->tokens, from->fragment_tokens, from->fragment_steps);
    }
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        const struct payload *result = &commit->results[k];
        made->payloads[k] = *result;
        if (result->size > 0) made->names[k] = tw_sha256(result->bytes, result->size);
        jury_told(world->jury, k, &made->names[k], result->size, commit->listed[k]);
    }
}

/* ---- lies ---------------------------------------------------------------------------------- */

static void free_made(struct made *made) {
    for (uint32_t k = 0; k < TW_PARTS_MAX; k++) payload_free(&made->payloads[k]);
}

/* Replaces all results by lies that are `times` as large. */
static enum tw_status make_lies(struct world *world, uint32_t proposer, const struct commit *commit,
                                double times, struct made *lies, struct tw_error *err) {
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        const struct payload *result = &commit->results[k];
        payload_free(&lies->payloads[k]);
        if (result->size == 0) continue;
        lies->payloads[k] = payload_copy(result->bytes, result->size);
        TW_TRY(node_falsify(&world->nodes[proposer], &lies->payloads[k], commit->fragment,
                            commit->division.count[k], times, err));
        lies->names[k] = tw_sha256(lies->payloads[k].bytes, lies->payloads[k].size);
    }
    return TW_OK;
}

/* Proposes the largest lies that win a vote. Sets *has_lies if there are any. */
static enum tw_status put_lies(struct world *world, uint32_t proposer, const struct commit *commit,
                               struct made *lies, struct tw_record *record, bool *has_lies,
                               struct tw_error *err) {
    static const double sizes[] = {10, 6, 4, 3, 2, 1};
    struct tw_record *tried = malloc(sizeof(*tried));
    TW_ASSERT(tried != NULL);
    enum tw_status status = TW_OK;
    *has_lies = false;
    for (uint32_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && !*has_lies; s++) {
        status = make_lies(world, proposer, commit, sizes[s], lies, err);
        if (status != TW_OK) break;
        (void)look(world, commit, lies, true);
        *tried = *record;
        for (uint32_t k = 0; k < commit->division.parts; k++) {
            if (lies->payloads[k].size == 0) continue;
            jury_set_part(world->jury, tried, k, &lies->names[k], lies->payloads[k].size,
                          commit->listed[k]);
        }
        *has_lies = is_accepted(world, proposer, tried);
    }
    if (*has_lies) *record = *tried;
    if (!*has_lies) free_made(lies);
    free(tried);
    return status;
}

/* Tries to list the true results with only one contributor each. */
static bool misfile(struct world *world, uint32_t proposer, const struct commit *commit,
                    const struct made *made, struct tw_record *record, struct tw_record *tried) {
    *tried = *record;
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        if (tried->parts[k].bytes == 0) continue;
        const uint32_t last = 63 - (uint32_t)__builtin_clzll(commit->listed[k]);
        jury_set_part(world->jury, tried, k, &made->names[k], made->payloads[k].size,
                      UINT64_C(1) << last);
    }
    if (!is_accepted(world, proposer, tried)) return false;
    *record = *tried;
    return true;
}

/* Makes the node own nothing in the next round, as if it were late. */
static void take_part(uint32_t node, struct tw_roster *next) {
    const struct tw_id id = jury_id(node);
    const int at = tw_roster_find(next, &id);
    if (at >= 0) next->members[at].weight = 0;
}

/* Leaves out as many results as members accept. */
static void leave_out(struct world *world, uint32_t proposer, const struct commit *commit,
                      struct tw_record *record, struct tw_record *tried) {
    for (uint32_t most = commit->division.parts; most > 0; most--) {
        uint32_t left_out = 0;
        *tried = *record;
        for (uint32_t k = 0; k < commit->division.parts && left_out < most; k++) {
            if (tried->parts[k].bytes == 0) continue;
            jury_set_part(world->jury, tried, k, NULL, 0, 0);
            take_part(commit->division.owners[k], &tried->next);
            left_out++;
        }
        if (left_out == 0 || !is_accepted(world, proposer, tried)) continue;
        *record = *tried;
        return;
    }
}

static bool is_hostile_member(const struct world *world, const struct tw_member *member) {
    for (uint32_t i = 0; i < world->count; i++) {
        const struct tw_id id = jury_id(i);
        if (tw_id_equal(&id, &member->id)) return world->nodes[i].is_hostile;
    }
    return false;
}

/* Makes a next roster with as few honest members as they accept. */
static void vote_out(struct world *world, uint32_t proposer, struct tw_record *record,
                     struct tw_record *tried) {
    for (uint32_t honest = 0; honest < record->next.count; honest++) {
        uint32_t kept = 0;
        *tried = *record;
        tried->next.count = 0;
        for (uint32_t i = 0; i < record->next.count; i++) {
            const struct tw_member *member = &record->next.members[i];
            if (!is_hostile_member(world, member) && kept++ >= honest) continue;
            tried->next.members[tried->next.count++] = *member;
            tried->next.members[tried->next.count - 1].weight = member->weight > 0;
        }
        if (tried->next.count == record->next.count) return;
        tried->next.number = record->roster_number + 1;
        if (!is_accepted(world, proposer, tried)) continue;
        *record = *tried;
        return;
    }
}

/* Keeps `kept` honest owners in the next roster, with weight SHARE_EVEN each. Returns the share of
 * hostile members. */
static double divide(const struct world *world, struct tw_roster *next, uint32_t kept,
                     uint32_t weight) {
    uint32_t honest = 0;
    double ours = 0, all = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (is_hostile_member(world, member)) {
            member->weight = weight;
            ours += weight;
        } else if (member->weight > 0) {
            member->weight = honest++ < kept ? SHARE_EVEN : 0;
        }
        all += member->weight;
    }
    return all > 0 ? ours / all : 0;
}

/* Gives hostile members as large a share of the next round as members accept. */
static void share_out(struct world *world, uint32_t proposer, struct tw_record *record,
                      struct tw_record *tried) {
    struct tw_roster best = record->next;
    double most = 0;
    for (uint32_t kept = 0; kept < record->next.count; kept++) {
        for (uint32_t weight = SHARE_MAX; weight > 0; weight = 3 * weight / 4) {
            *tried = *record;
            const double ours = divide(world, &tried->next, kept, weight);
            if (ours <= most) break;
            if (!is_accepted(world, proposer, tried)) continue;
            most = ours;
            best = tried->next;
            break;
        }
    }
    record->next = best;
}

/* ---- deciding ------------------------------------------------------------------------------ */

static uint32_t first_honest(const struct world *world) {
    for (uint32_t i = 0; i < world->count; i++) {
        if (!world->nodes[i].is_hostile && is_member(world, i)) return i;
    }
    return 0; /* reached only if no honest member is left */
}

static enum tw_status lie(struct world *world, uint32_t proposer, const struct commit *commit,
                          const struct made *made, uint32_t without, struct made *lies,
                          struct tw_record *record, struct tw_error *err) {
    struct tw_record *tried = malloc(sizeof(*tried));
    bool has_lies = false;
    TW_ASSERT(tried != NULL);
    jury_write(world->jury, first_honest(world), without, record);
    enum tw_status status = TW_OK;
    if (world->setting->hostile.kind != HOSTILE_NAN)
        status = put_lies(world, proposer, commit, lies, record, &has_lies, err);
    if (!has_lies && !misfile(world, proposer, commit, made, record, tried))
        leave_out(world, proposer, commit, record, tried);
    vote_out(world, proposer, record, tried);
    share_out(world, proposer, record, tried);
    free(tried);
    return status;
}

/* Returns true for one part in sixteen, as in sync/check/audit.c. */
static bool is_audited(const struct world *world, const struct commit *commit, uint32_t part) {
    uint64_t state = world->setting->seed * 1000003 + commit->round * TW_PARTS_MAX + part;
    return tw_splitmix64(&state) % 16 == 0;
}

static uint64_t nodes_of(const struct world *world, uint64_t members) {
    uint64_t nodes = 0;
    for (uint32_t m = 0; m < TW_MEMBERS_MAX; m++) {
        if ((members >> m & 1) != 0) nodes |= UINT64_C(1) << jury_node_of(world->jury, m);
    }
    return nodes;
}

/* Replaces the round's content by the decided one, which may come from a hostile proposer. */
static void adopt(struct world *world, struct commit *commit, const struct tw_record *record,
                  struct made *lies) {
    uint32_t found = 0;
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        const struct tw_part *part = &record->parts[k];
        const uint64_t listed = nodes_of(world, part->contributors);
        struct node *owner = &world->nodes[commit->division.owners[k]];
        const bool is_absent = part->bytes == 0;
        const bool is_other =
            lies->payloads[k].size > 0 && tw_id_equal(&lies->names[k], &part->result);
        /* No owner is blamed for a result that it did not announce (sync/check/audit.c). */
        const bool is_false = owner->is_hostile && world->setting->hostile.is_owner && !is_other &&
                              listed == commit->listed[k];
        world->traffic.refused += is_absent && commit->results[k].size > 0;
        if (is_absent || is_other) payload_free(&commit->results[k]);
        if (is_other)
            commit->results[k] =
                payload_copy(part->bytes > 0 ? lies->payloads[k].bytes : NULL, part->bytes);
        commit->listed[k] = is_absent ? 0 : listed;
        if (!is_absent && is_false && is_audited(world, commit, k)) found |= 1u << k;
    }
    jury_commit(world->jury, record);
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        if ((found >> k & 1) != 0) jury_strike(world->jury, commit->division.owners[k], k);
    }
}

enum tw_status proposer_decide(struct world *world, struct commit *commit, struct tw_error *err) {
    struct made made = {.payloads = {{.bytes = NULL}}}, lies = {.payloads = {{.bytes = NULL}}};
    struct tw_record *record = malloc(sizeof(*record));
    TW_ASSERT(record != NULL);
    hear_all(world, commit, &made);
    const uint32_t without = look(world, commit, &made, false);
    const uint32_t members = (uint32_t)__builtin_popcountll(world->open.members);
    enum tw_status status = TW_AGAIN;
    for (uint32_t rank = 0; rank < members && status == TW_AGAIN; rank++) {
        const uint32_t proposer = world->open.order[rank];
        if (world->nodes[proposer].is_hostile) {
            const enum tw_status lied =
                lie(world, proposer, commit, &made, without, &lies, record, err);
            if (lied != TW_OK) status = lied;
        } else {
            jury_write(world->jury, proposer, without, record);
        }
        if (status == TW_AGAIN && is_accepted(world, proposer, record)) status = TW_OK;
    }
    if (status == TW_OK) adopt(world, commit, record, &lies);
    if (status == TW_AGAIN)
        status = tw_fail(err, TW_AGAIN, "round %llu: nobody proposes what a majority accepts",
                         (unsigned long long)commit->round);
    free_made(&lies);
    free(record);
    return status;
}
