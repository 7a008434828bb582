#include "tests/proto/sample.h"

#include <stdio.h>
#include <string.h>

struct tw_id tw_sample_id(struct tw_rng *rng) {
    struct tw_id id;
    for (unsigned i = 0; i < sizeof(id.bytes); i++) id.bytes[i] = (uint8_t)tw_rng_next(rng);
    id.bytes[31] |= 1;
    return id;
}

static uint32_t draw_u32(struct tw_rng *rng) {
    return (uint32_t)(tw_rng_next(rng) >> tw_rng_below(rng, 64));
}

static uint64_t draw_u64(struct tw_rng *rng) {
    return tw_rng_next(rng) >> tw_rng_below(rng, 64);
}

static uint32_t draw_between(struct tw_rng *rng, uint32_t low, uint32_t high) {
    return low + (uint32_t)tw_rng_below(rng, (uint64_t)high - low + 1);
}

void tw_sample_roster(struct tw_rng *rng, struct tw_roster *roster, uint32_t count) {
    memset(roster, 0, sizeof(*roster));
    roster->number = draw_u32(rng);
    roster->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct tw_member *member = &roster->members[i];
        member->id = tw_sample_id(rng);
        member->id.bytes[0] = (uint8_t)(i * 2); /* keeps them sorted and distinct */
        member->nonce = draw_u64(rng);
        member->weight = tw_rng_below(rng, 4) == 0 ? 0 : draw_u32(rng) | 1;
    }
}

/* Ascending distinct members with chance 1/2 each. */
static uint32_t sample_contributors(struct tw_rng *rng, uint32_t members_count,
                                    struct tw_contributor contributors[TW_MEMBERS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < members_count; i++) {
        if (tw_rng_below(rng, 2) == 0) continue;
        contributors[count++] = (struct tw_contributor){.member_idx = i,
                                                        .steps = draw_u32(rng),
                                                        .tokens = draw_u64(rng),
                                                        .root = tw_sample_id(rng)};
    }
    return count;
}

void tw_sample_close(struct tw_rng *rng, struct tw_close *close, const struct tw_roster *roster) {
    uint32_t owners[TW_PARTS_MAX];
    uint64_t listed = 0;
    memset(close, 0, sizeof(*close));
    close->lineage = tw_sample_id(rng);
    close->parent = tw_sample_id(rng);
    close->round = draw_u64(rng);
    close->clock_tokens = draw_u64(rng);
    close->fragment = draw_between(rng, 0, TW_FRAGMENTS_MAX - 1);
    close->finals = draw_u32(rng);
    close->contributors_count = sample_contributors(rng, roster->count, close->contributors);
    for (uint32_t i = 0; i < close->contributors_count; i++)
        listed |= (uint64_t)1 << close->contributors[i].member_idx;
    close->parts_count = tw_roster_owners(roster, owners);
    for (uint32_t k = 0; k < close->parts_count; k++) {
        struct tw_part *part = &close->parts[k];
        part->owner_idx = owners[k];
        part->contributors = listed & tw_rng_next(rng);
        if (part->contributors == 0) continue; /* ABSENT */
        part->bytes = draw_between(rng, 1, TW_PAYLOAD_BYTES_MAX);
        part->result = tw_sample_id(rng);
    }
    tw_sample_roster(rng, &close->next, draw_between(rng, 1, TW_MEMBERS_MAX));
    close->roster_number = roster->number;
    close->next.number = roster->number + (uint32_t)tw_rng_below(rng, 2);
}

void tw_sample_close_full(struct tw_rng *rng, struct tw_close *close) {
    struct tw_roster roster;
    tw_sample_roster(rng, &roster, TW_MEMBERS_MAX);
    tw_sample_close(rng, close, &roster);
    close->contributors_count = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        close->contributors[i] = (struct tw_contributor){
            .member_idx = i, .steps = UINT32_MAX, .tokens = UINT64_MAX, .root = tw_sample_id(rng)};
    }
    close->parts_count = TW_PARTS_MAX;
    for (uint32_t k = 0; k < TW_PARTS_MAX; k++) {
        close->parts[k] = (struct tw_part){.owner_idx = TW_MEMBERS_MAX - TW_PARTS_MAX + k,
                                           .bytes = TW_PAYLOAD_BYTES_MAX,
                                           .contributors = UINT64_MAX,
                                           .result = tw_sample_id(rng)};
    }
    tw_sample_roster(rng, &close->next, TW_MEMBERS_MAX);
    close->next.number = close->roster_number;
}
