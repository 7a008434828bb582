/* part_weights.c - the weights of owners in the next round: part sizes by upload rate.
 *
 * An owner of a fraction s of the fragment, among n members, sends its result to all others, and
 * its contributions to the other owners: 1 + s * (n - 2) times the bytes of one contribution. Apart
 * from the constant 1, the round ends soonest when s is proportional to upload. In whole numbers:
 *
 *     weight = WEIGHT_EVEN * upload / median of the uploads,   1 to WEIGHT_MAX
 *
 * Each member measures its own upload and reports it in STATUS. All proposers thus use the same
 * numbers, and parts do not jump from round to round. A member that reports too much has more to
 * send, is late and owns nothing in the next round; WEIGHT_MAX bounds the damage. A member without
 * a report counts as the median. Without any report, and between two members, all parts are equal.
 *
 * A peer whose link is far worse than all others, as this node measured (TW_EV_MEASURED), owns
 * nothing in the rosters that this node proposes. It still contributes, and this node asks it for
 * bytes last. */
#include "sync/round/part_weights.h"

#include "base/median.h"
#include "sync/core/peers.h"
#include "sync/core/state/node.h"

enum { WEIGHT_EVEN = 16, WEIGHT_MAX = 4 * WEIGHT_EVEN };

static uint32_t upload_of(const struct tw_node *node, const struct tw_id *id) {
    if (tw_id_equal(id, &node->cfg.self)) return node->measured.upload_kib_s;
    const uint16_t peer = tw_peers_find(node, id);
    return peer != NO_PEER && tw_peers_is_live(node, peer) ? node->links[peer].status.upload_kib_s
                                                           : 0;
}

/* Returns the median of the known uploads, or 0 if none is known. */
static uint32_t median_of(const uint32_t *uploads, uint32_t count) {
    uint64_t values[TW_MEMBERS_MAX];
    uint32_t known = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (uploads[i] > 0) values[known++] = uploads[i];
    }
    return (uint32_t)tw_median_u64(values, known);
}

static uint32_t weight_of(uint32_t upload, uint32_t middle) {
    if (upload == 0) return WEIGHT_EVEN;
    const uint64_t weight = (uint64_t)WEIGHT_EVEN * upload / middle;
    if (weight > WEIGHT_MAX) return WEIGHT_MAX;
    return weight > 0 ? (uint32_t)weight : 1;
}

void tw_part_weights_set(const struct tw_node *node, struct tw_roster *next) {
    uint32_t uploads[TW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight > 0) uploads[count++] = upload_of(node, &next->members[i].id);
    }
    const uint32_t middle = median_of(uploads, count);
    if (middle == 0 || count < 3) return;
    count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight > 0)
            next->members[i].weight = weight_of(uploads[count++], middle);
    }
}

void tw_part_weights_drop_outliers(const struct tw_node *node, struct tw_roster *next,
                                   uint64_t most) {
    uint32_t owners_count = 0, outliers_count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        owners_count += next->members[i].weight > 0;
        outliers_count += next->members[i].weight > 0 &&
                          tw_peers_is_outlier(node, tw_peers_find(node, &next->members[i].id));
    }
    if (2 * outliers_count >= owners_count) return;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (member->weight > most || !tw_peers_is_outlier(node, tw_peers_find(node, &member->id)))
            continue;
        most -= member->weight;
        member->weight = 0;
    }
}

/* Takes the part away from the owner with the slowest upload. */
static void drop_slowest(struct tw_roster *next) {
    uint32_t slowest = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight == 0) continue;
        if (slowest == TW_MEMBERS_MAX || next->members[i].weight <= next->members[slowest].weight)
            slowest = i;
    }
    if (slowest < TW_MEMBERS_MAX) next->members[slowest].weight = 0;
}

void tw_part_weights_limit(struct tw_roster *next) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->count; i++) count += next->members[i].weight > 0;
    for (; count > TW_PARTS_MAX; count--) drop_slowest(next);
}
