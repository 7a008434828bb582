/* roster.c - searches a roster for a member, and lists the owners of parts and the voters. */
#include "base/assert.h"
#include "proto/record.h"

int tw_roster_find(const struct tw_roster *roster, const struct tw_id *id) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint32_t low = 0, high = roster->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        const int order = tw_id_compare(&roster->members[middle].id, id);
        if (order == 0) return (int)middle;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

uint32_t tw_roster_owners(const struct tw_roster *roster, uint32_t owners[TW_PARTS_MAX]) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < roster->count && count < TW_PARTS_MAX; i++) {
        if (roster->members[i].weight > 0) owners[count++] = i;
    }
    return count;
}

uint64_t tw_roster_voters(const struct tw_roster *roster) {
    TW_ASSERT(roster->count <= TW_MEMBERS_MAX);
    uint64_t voters = 0;
    for (uint32_t i = 0; i < roster->count; i++)
        voters |= (uint64_t)!roster->members[i].lacks_vote << i;
    return voters;
}
