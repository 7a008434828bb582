#include "sync/members/members.h"

#include <string.h>

#include "base/address.h"
#include "base/assert.h"

static const uint64_t NEVER_US = UINT64_MAX;

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t backoff_min_us(const struct tw_members *members) {
    return members->config.backoff_min_us > 0 ? members->config.backoff_min_us : TW_BACKOFF_MIN_US;
}

static uint64_t backoff_max_us(const struct tw_members *members) {
    const uint64_t max_us =
        members->config.backoff_max_us > 0 ? members->config.backoff_max_us : TW_BACKOFF_MAX_US;
    return max_us > backoff_min_us(members) ? max_us : backoff_min_us(members);
}

static bool is_alone(const struct tw_members *members) {
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        if (members->entries[i].is_used && members->entries[i].is_connected) return false;
    }
    return true;
}

/* Returns the present ceiling of pauses between dials. A node that lost all links has most likely
 * lost its own connection. It dials often, so that it returns soon after the connection does. */
static uint64_t pause_max_us(const struct tw_members *members, const struct tw_member_entry *entry,
                             uint64_t now_us) {
    const uint64_t max_us = backoff_max_us(members);
    const bool is_lost = entry->was_linked && now_us - entry->linked_us <= TW_LOST_US;
    return is_lost && max_us > TW_BACKOFF_LOST_US && is_alone(members) ? TW_BACKOFF_LOST_US
                                                                       : max_us;
}

/* Returns pause_us +- 30 %: nodes that lost each other at the same time must not all dial at once.
 */
static uint64_t jittered_us(struct tw_members *members, uint64_t pause_us) {
    const uint64_t span_us = pause_us * 6 / 10;
    return pause_us - span_us / 2 + (span_us > 0 ? tw_rng_below(&members->rng, span_us) : 0);
}

static const struct tw_member_entry *look_up(const struct tw_members *members,
                                             const struct tw_id *id) {
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_member_entry *entry = &members->entries[i];
        if (entry->is_used && entry->has_id && tw_id_equal(&entry->id, id)) return entry;
    }
    return NULL;
}

static struct tw_member_entry *find_id(struct tw_members *members, const struct tw_id *id) {
    const struct tw_member_entry *entry = look_up(members, id);
    return entry != NULL ? &members->entries[entry - members->entries] : NULL;
}

static struct tw_member_addr *find_addr(struct tw_member_entry *entry, const char *text) {
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].text[0] != '\0' && strcmp(entry->addrs[i].text, text) == 0)
            return &entry->addrs[i];
    }
    return NULL;
}

static bool has_addr(const struct tw_member_entry *entry) {
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].text[0] != '\0') return true;
    }
    return false;
}

static bool is_pinned(const struct tw_member_entry *entry) {
    if (entry->is_connected) return true;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].is_bootstrap || entry->addrs[i].is_dialling) return true;
    }
    return false;
}

/* True if `a` is dropped before `b`. */
static bool is_lesser(const struct tw_member_entry *a, const struct tw_member_entry *b) {
    if (a->was_connected != b->was_connected) return b->was_connected;
    return a->heard_us < b->heard_us;
}

/* Returns an entry for a new member, if necessary in place of the least useful one. Returns NULL if
 * all entries are needed. */
static struct tw_member_entry *take_entry(struct tw_members *members, uint64_t now_us) {
    struct tw_member_entry *victim = NULL;
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used) {
            victim = entry;
            break;
        }
        if (is_pinned(entry)) continue;
        if (victim == NULL || is_lesser(entry, victim)) victim = entry;
    }
    if (victim != NULL) *victim = (struct tw_member_entry){.is_used = true, .heard_us = now_us};
    return victim;
}

/* Returns a place for an address: a free one, or one whose address has reached the longest pause;
 * NULL if there is none. Bootstrap addresses and addresses being dialled stay. */
static struct tw_member_addr *find_place(const struct tw_members *members,
                                         struct tw_member_entry *entry) {
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].text[0] == '\0') return &entry->addrs[i];
    }
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        struct tw_member_addr *addr = &entry->addrs[i];
        if (addr->is_bootstrap || addr->is_dialling) continue;
        if (addr->backoff_us >= backoff_max_us(members)) return addr;
    }
    return NULL;
}

static void add_addr(struct tw_members *members, struct tw_member_entry *entry, const char *text,
                     uint64_t retry_us) {
    if (find_addr(entry, text) != NULL) return;
    struct tw_member_addr *addr = find_place(members, entry);
    if (addr == NULL) return;
    *addr = (struct tw_member_addr){.retry_us = retry_us, .backoff_us = backoff_min_us(members)};
    const size_t length = strnlen(text, TW_ADDR_BYTES - 1);
    memcpy(addr->text, text, length);
}

/* Returns the time of the first dial to a member that may be about to dial us too. */
static uint64_t first_dial_us(struct tw_members *members, const struct tw_id *id, uint64_t now_us) {
    const bool is_ours = tw_id_compare(&members->config.self, id) > 0;
    return now_us + (is_ours ? 0 : TW_DIAL_YIELD_STEPS * backoff_min_us(members)) +
           tw_rng_below(&members->rng, backoff_min_us(members) / 4 + 1);
}

void tw_members_init(struct tw_members *members, const struct tw_members_config *config) {
    memset(members, 0, sizeof(*members));
    members->config = *config;
    members->self.id = config->self;
    tw_rng_seed(&members->rng, config->seed);
}

void tw_members_set_self(struct tw_members *members, const struct tw_member_row *self) {
    members->self = *self;
    members->self.id = members->config.self;
}

uint32_t tw_members_known(const struct tw_members *members) {
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++)
        count += members->entries[i].is_used && members->entries[i].has_id;
    return count;
}

enum tw_status tw_members_bootstrap(struct tw_members *members, const char *text, uint64_t now_us,
                                    struct tw_error *err) {
    char address[TW_ADDR_BYTES];
    struct tw_id id = {{0}};
    const char *equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : strnlen(text, TW_ADDR_BYTES);
    if (length >= TW_ADDR_BYTES)
        return tw_fail(err, TW_CONFIG, "peer %.80s...: the address is too long", text);
    memcpy(address, text, length);
    address[length] = '\0';
    if (!tw_address_is_valid(address))
        return tw_fail(err, TW_CONFIG, "peer %s is not host:port or host:port=id", text);
    if (equals != NULL && !tw_id_parse(equals + 1, &id))
        return tw_fail(err, TW_CONFIG, "peer %s: after `=` goes a node id of 64 hex digits",
                       address);
    if (equals != NULL && tw_id_equal(&id, &members->config.self)) return TW_OK;
    struct tw_member_entry *entry = equals != NULL ? find_id(members, &id) : NULL;
    for (unsigned i = 0; i < TW_KNOWN_MAX && equals == NULL && entry == NULL; i++) {
        struct tw_member_entry *known = &members->entries[i];
        if (known->is_used && find_addr(known, address) != NULL) { /* already known */
            find_addr(known, address)->is_bootstrap = find_addr(known, address)->is_any = true;
            return TW_OK;
        }
    }
    if (entry == NULL) entry = take_entry(members, now_us);
    if (entry == NULL)
        return tw_fail(err, TW_LIMIT, "more than %d peers are configured", TW_KNOWN_MAX);
    entry->has_id = equals != NULL;
    entry->id = id;
    add_addr(members, entry, address, now_us);
    struct tw_member_addr *addr = find_addr(entry, address);
    if (addr == NULL)
        return tw_fail(err, TW_LIMIT, "peer %s: more than %d addresses of one id", address,
                       TW_ADDRS_MAX);
    addr->is_bootstrap = true;
    addr->is_any = equals == NULL;
    return TW_OK;
}

/* ---- dialling -------------------------------------------------------------------------------- */

static bool is_v6(const struct tw_member_addr *addr) {
    return addr->text[0] == '[';
}

/* Returns the time from which an address may be dialled; NEVER_US if it is being dialled. A
 * member's addresses are dialled TW_DIAL_STAGGER_US apart. */
static uint64_t dial_us(const struct tw_member_entry *entry, const struct tw_member_addr *addr) {
    uint64_t at_us = addr->retry_us;
    if (addr->text[0] == '\0' || addr->is_dialling) return NEVER_US;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (!entry->addrs[i].is_dialling) continue;
        if (at_us < entry->dialled_us + TW_DIAL_STAGGER_US)
            at_us = entry->dialled_us + TW_DIAL_STAGGER_US;
    }
    return at_us;
}

/* True if `a` is dialled before `b`. Both are addresses of the same member. */
static bool is_sooner(const struct tw_member_entry *entry, const struct tw_member_addr *a,
                      const struct tw_member_addr *b, uint64_t now_us) {
    const uint64_t a_us = dial_us(entry, a), b_us = dial_us(entry, b);
    if (a_us <= now_us && b_us <= now_us && is_v6(a) != is_v6(b)) return is_v6(a);
    return a_us < b_us;
}

static struct tw_member_addr *next_of(struct tw_member_entry *entry, uint64_t now_us) {
    struct tw_member_addr *best = &entry->addrs[0];
    for (unsigned k = 1; k < TW_ADDRS_MAX; k++) {
        if (is_sooner(entry, &entry->addrs[k], best, now_us)) best = &entry->addrs[k];
    }
    return best;
}

/* True if the member is known only from rows of other nodes. */
static bool is_hearsay(const struct tw_member_entry *entry) {
    if (entry->was_connected) return false;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].is_bootstrap || entry->addrs[i].is_proven) return false;
    }
    return true;
}

static bool may_dial_hearsay(const struct tw_members *members) {
    unsigned dials = 0;
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used || !is_hearsay(entry)) continue;
        for (unsigned k = 0; k < TW_ADDRS_MAX; k++) dials += entry->addrs[k].is_dialling;
    }
    return dials < TW_DIALS_MAX / 2;
}

/* Returns the address that has been due for longest, hearsay members last, or NULL if no member
 * waits for a dial. Members known only from other nodes get at most half of the dials, so a peer
 * that invents members delays nobody. */
static struct tw_member_addr *next_addr(struct tw_members *members, uint64_t now_us,
                                        struct tw_member_entry **entry_out) {
    struct tw_member_addr *best[2] = {NULL, NULL};
    struct tw_member_entry *entries[2] = {NULL, NULL};
    uint64_t best_us[2] = {NEVER_US, NEVER_US};
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used || entry->is_connected) continue;
        struct tw_member_addr *addr = next_of(entry, now_us);
        const uint64_t at_us = dial_us(entry, addr);
        const unsigned kind = is_hearsay(entry);
        if (at_us >= best_us[kind]) continue;
        best[kind] = addr;
        best_us[kind] = at_us;
        entries[kind] = entry;
    }
    const bool is_other = best_us[1] < best_us[0] && best_us[0] > now_us;
    const unsigned chosen = is_other && may_dial_hearsay(members);
    if (best[chosen] != NULL) *entry_out = entries[chosen];
    return best[chosen];
}

bool tw_members_next_dial(struct tw_members *members, uint64_t now_us, struct tw_dial *dial) {
    struct tw_member_entry *entry = NULL;
    struct tw_member_addr *addr = next_addr(members, now_us, &entry);
    if (addr == NULL || dial_us(entry, addr) > now_us) return false;
    addr->is_dialling = true;
    entry->dialled_us = now_us;
    *dial = (struct tw_dial){.has_id = entry->has_id && !addr->is_any,
                             .id = entry->id,
                             .is_hearsay = !addr->is_bootstrap,
                             .is_unproven = !addr->is_bootstrap && !addr->is_proven};
    memcpy(dial->address, addr->text, sizeof(dial->address));
    return true;
}

uint64_t tw_members_deadline(const struct tw_members *members, uint64_t now_us) {
    struct tw_member_entry *entry = NULL;
    /* The cast is safe: next_addr does not change *members. */
    const struct tw_member_addr *addr =
        next_addr((struct tw_members *)(uintptr_t)members, now_us, &entry);
    if (addr == NULL) return NEVER_US;
    const uint64_t at_us = dial_us(entry, addr);
    return at_us > now_us ? at_us : now_us;
}

static struct tw_member_addr *find_dialled(struct tw_members *members, const char *address,
                                           struct tw_member_entry **entry_out) {
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used) continue;
        struct tw_member_addr *addr = find_addr(entry, address);
        if (addr == NULL || !addr->is_dialling) continue;
        *entry_out = entry;
        return addr;
    }
    return NULL;
}

void tw_members_put_off(struct tw_members *members, const char *address, uint64_t retry_us) {
    struct tw_member_entry *entry = NULL;
    struct tw_member_addr *addr = find_dialled(members, address, &entry);
    if (addr == NULL) return;
    addr->is_dialling = false;
    addr->retry_us = retry_us;
}

static void free_addr(struct tw_member_entry *entry, struct tw_member_addr *addr) {
    *addr = (struct tw_member_addr){0};
    if (!entry->has_id && !has_addr(entry)) *entry = (struct tw_member_entry){0};
}

/* Takes the address away from the entry, because it belongs to another node now. */
static void lose_addr(struct tw_member_entry *entry, struct tw_member_addr *addr) {
    *addr = (struct tw_member_addr){0};
    if (!entry->is_connected && !has_addr(entry)) *entry = (struct tw_member_entry){0};
}

/* Moves `addr` of `entry` to member `id`, because a dial proved that it is an address of `id`. */
static void move_addr(struct tw_members *members, struct tw_member_entry *entry,
                      struct tw_member_addr *addr, const struct tw_id *id, uint64_t now_us) {
    struct tw_member_entry *owner = find_id(members, id);
    if (owner == NULL && !entry->has_id) {
        owner = entry;
        owner->has_id = true;
        owner->id = *id;
    }
    if (owner == NULL) {
        addr->is_dialling = true; /* keeps take_entry from dropping `entry` */
        owner = take_entry(members, now_us);
        addr->is_dialling = false;
    }
    if (owner == NULL || owner == entry) return;
    const struct tw_member_addr moved = *addr;
    free_addr(entry, addr);
    add_addr(members, owner, moved.text, moved.retry_us);
    struct tw_member_addr *now_there = find_addr(owner, moved.text);
    if (now_there != NULL) {
        now_there->is_bootstrap |= moved.is_bootstrap;
        now_there->is_any |= moved.is_any;
        now_there->is_proven = true;
    }
    owner->has_id = true;
    owner->id = *id;
}

/* True if another node than the entry's has the address for good: its pause is at the ceiling, or
 * that node is a linked member. */
static bool is_settled(const struct tw_members *members, const struct tw_member_addr *addr,
                       const struct tw_id *id, uint64_t max_us) {
    const struct tw_member_entry *other = look_up(members, id);
    return addr->backoff_us >= max_us || (other != NULL && other->is_connected);
}

bool tw_members_dialled(struct tw_members *members, const char *address, bool ok,
                        const struct tw_id *id, uint64_t now_us) {
    struct tw_member_entry *entry = NULL;
    struct tw_member_addr *addr = find_dialled(members, address, &entry);
    if (addr == NULL) return false;
    addr->is_dialling = false;
    if (id != NULL && tw_id_equal(id, &members->config.self)) {
        /* Under another id it is mostly that of this machine before it was set up again. */
        const bool is_others = entry->has_id;
        if (!is_others && addr->is_bootstrap)
            addr->retry_us = NEVER_US;
        else
            lose_addr(entry, addr);
        return is_others;
    }
    const uint64_t max_us = pause_max_us(members, entry, now_us);
    if (ok) {
        addr->backoff_us = backoff_min_us(members);
        addr->is_proven = true;
    }
    if (addr->backoff_us > max_us) addr->backoff_us = max_us;
    const uint64_t pause_us = entry->rest_us > addr->backoff_us ? entry->rest_us : addr->backoff_us;
    addr->retry_us = now_us + jittered_us(members, pause_us);
    const bool is_others = !ok && id != NULL && entry->has_id && !tw_id_equal(id, &entry->id);
    if (is_others && !addr->is_bootstrap && is_settled(members, addr, id, max_us)) {
        lose_addr(entry, addr);
        return true;
    }
    if (!ok) addr->backoff_us = addr->backoff_us > max_us / 2 ? max_us : 2 * addr->backoff_us;
    if (ok && id != NULL) move_addr(members, entry, addr, id, now_us);
    return false;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Replaces the addresses that other nodes reported by the addresses that the member announces.
 * Bootstrap and proven addresses stay. */
static void replace_addrs(struct tw_members *members, struct tw_member_entry *entry,
                          const struct tw_member_row *record, uint64_t now_us) {
    if (record->addrs[0][0] == '\0') return;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        struct tw_member_addr *addr = &entry->addrs[i];
        bool is_said = addr->is_bootstrap || addr->is_dialling || addr->is_proven;
        for (unsigned k = 0; k < TW_ADDRS_MAX; k++)
            is_said |= strncmp(addr->text, record->addrs[k], TW_ADDR_BYTES) == 0;
        if (!is_said) *addr = (struct tw_member_addr){0};
    }
    for (unsigned k = 0; k < TW_ADDRS_MAX; k++) {
        if (tw_address_is_valid(record->addrs[k]))
            add_addr(members, entry, record->addrs[k], now_us);
    }
}

void tw_members_connected(struct tw_members *members, const struct tw_member_row *record,
                          uint64_t now_us) {
    struct tw_member_entry *entry = find_id(members, &record->id);
    if (entry == NULL) entry = take_entry(members, now_us);
    if (entry == NULL)
        return; /* all entries belong to bootstrap, linked or dialled members: the peer gets none */
    /* This is the first link: the connection is back, so other members are reachable too. */
    if (is_alone(members)) tw_members_moved(members, now_us);
    entry->has_id = true;
    entry->id = record->id;
    entry->is_connected = entry->was_connected = entry->was_linked = true;
    entry->rest_us = 0;
    entry->heard_us = entry->linked_us = entry->up_us = now_us;
    replace_addrs(members, entry, record, now_us);
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++)
        entry->addrs[i].backoff_us = backoff_min_us(members);
}

/* Returns the pause after short links. It is least_us, doubles with each short link after the
 * second, and is most_us at most. */
static uint64_t pause_of_shorts(const struct tw_member_entry *entry, uint64_t least_us,
                                uint64_t most_us) {
    uint64_t pause_us = least_us;
    for (uint32_t i = 2; i < entry->shorts && pause_us < most_us; i++) pause_us *= 2;
    return pause_us < most_us ? pause_us : most_us;
}

void tw_members_relayed(struct tw_members *members, const struct tw_member_row *record,
                        uint64_t now_us) {
    struct tw_member_entry *entry = find_id(members, &record->id);
    if (entry == NULL) entry = take_entry(members, now_us);
    if (entry == NULL || entry->is_connected) return;
    entry->has_id = true;
    entry->id = record->id;
    entry->heard_us = now_us;
    replace_addrs(members, entry, record, now_us);
    const uint64_t pause_us =
        pause_of_shorts(entry, backoff_max_us(members), TW_BACKOFF_RELAYED_US);
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        struct tw_member_addr *addr = &entry->addrs[i];
        if (addr->text[0] == '\0' || addr->is_dialling || addr->retry_us == NEVER_US) continue;
        if (addr->backoff_us <= backoff_min_us(members) && entry->shorts < 2)
            continue; /* not tried yet */
        addr->backoff_us = backoff_max_us(members);
        addr->retry_us = now_us + jittered_us(members, pause_us);
    }
}

void tw_members_rest(struct tw_members *members, const struct tw_id *id, uint64_t pause_us) {
    struct tw_member_entry *entry = find_id(members, id);
    if (entry != NULL) entry->rest_us = pause_us;
}

void tw_members_forget(struct tw_members *members, const struct tw_id *id) {
    struct tw_member_entry *entry = find_id(members, id);
    if (entry != NULL && !is_pinned(entry)) *entry = (struct tw_member_entry){0};
}

void tw_members_sweep(struct tw_members *members, uint64_t now_us) {
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used || entry->was_connected || is_pinned(entry)) continue;
        if (now_us - entry->heard_us >= TW_HEARSAY_KEPT_US) *entry = (struct tw_member_entry){0};
    }
}

bool tw_members_is_bootstrap(const struct tw_members *members, const struct tw_id *id) {
    const struct tw_member_entry *entry = look_up(members, id);
    for (unsigned k = 0; entry != NULL && k < TW_ADDRS_MAX; k++) {
        if (entry->addrs[k].is_bootstrap) return true;
    }
    return false;
}

bool tw_members_may_reach(const struct tw_members *members, const struct tw_id *id) {
    const struct tw_member_entry *entry = look_up(members, id);
    for (unsigned k = 0; entry != NULL && k < TW_ADDRS_MAX; k++) {
        const struct tw_member_addr *addr = &entry->addrs[k];
        if (addr->text[0] == '\0' || addr->retry_us == NEVER_US) continue;
        if (addr->backoff_us <= backoff_min_us(members)) return true;
    }
    return false;
}

uint32_t tw_members_shorts(const struct tw_members *members, const struct tw_id *id) {
    const struct tw_member_entry *entry = look_up(members, id);
    return entry != NULL ? entry->shorts : 0;
}

void tw_members_disconnected(struct tw_members *members, const struct tw_id *id, uint64_t now_us) {
    struct tw_member_entry *entry = find_id(members, id);
    if (entry == NULL || !entry->is_connected) return;
    entry->is_connected = false;
    entry->shorts = now_us - entry->up_us < TW_LINK_STEADY_US ? entry->shorts + 1 : 0;
    entry->heard_us = entry->linked_us = now_us;
    const uint64_t pause_us =
        entry->shorts < 2
            ? 0
            : pause_of_shorts(entry, backoff_min_us(members), pause_max_us(members, entry, now_us));
    const uint64_t retry_us = first_dial_us(members, id, now_us + pause_us);
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].retry_us == NEVER_US) continue;
        entry->addrs[i].retry_us = retry_us;
        if (pause_us > entry->addrs[i].backoff_us) entry->addrs[i].backoff_us = pause_us;
    }
}

void tw_members_moved(struct tw_members *members, uint64_t now_us) {
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        entry->shorts = 0;
        for (unsigned k = 0; k < TW_ADDRS_MAX; k++) {
            struct tw_member_addr *addr = &entry->addrs[k];
            if (addr->text[0] == '\0' || addr->is_dialling || addr->retry_us == NEVER_US) continue;
            addr->backoff_us = backoff_min_us(members);
            if (addr->retry_us > now_us) addr->retry_us = now_us;
        }
    }
}

/* ---- PEERS messages -------------------------------------------------------------------------- */

static bool is_announced(const struct tw_member_entry *entry, uint64_t now_us) {
    if (!entry->is_used || !entry->has_id || !has_addr(entry)) return false;
    if (entry->is_connected) return true;
    return entry->was_linked && now_us - entry->linked_us <= TW_RECORD_FRESH_US;
}

static void fill_row(const struct tw_member_entry *entry, struct tw_member_row *record) {
    unsigned count = 0;
    *record = (struct tw_member_row){.id = entry->id};
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (entry->addrs[i].text[0] != '\0')
            memcpy(record->addrs[count++], entry->addrs[i].text, TW_ADDR_BYTES);
    }
}

void tw_members_records(struct tw_members *members, uint64_t now_us, struct tw_msg_peers *peers) {
    memset(peers, 0, sizeof(*peers));
    if (members->self.addrs[0][0] != '\0') peers->rows[peers->count++] = members->self;
    for (unsigned i = 0; i < TW_KNOWN_MAX && peers->count < TW_MEMBER_ROWS_PER_MESSAGE; i++) {
        const struct tw_member_entry *entry = &members->entries[members->rotor % TW_KNOWN_MAX];
        members->rotor = (members->rotor + 1) % TW_KNOWN_MAX;
        if (is_announced(entry, now_us)) fill_row(entry, &peers->rows[peers->count++]);
    }
}

/* True if a dial of this member, which was never connected, has failed and none is under way. */
static bool is_in_doubt(const struct tw_members *members, const struct tw_member_entry *entry) {
    bool has_failed = false;
    for (unsigned k = 0; k < TW_ADDRS_MAX; k++) {
        const struct tw_member_addr *addr = &entry->addrs[k];
        if (addr->is_dialling) return false;
        has_failed |= addr->text[0] != '\0' && addr->backoff_us > backoff_min_us(members);
    }
    return has_failed;
}

/* Returns an entry for a node that this peer tells of, or NULL if the peer has told of too many. */
static struct tw_member_entry *take_told(struct tw_members *members, const struct tw_id *teller,
                                         uint64_t now_us) {
    struct tw_member_entry *doubtful = NULL;
    unsigned told = 0;
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_member_entry *entry = &members->entries[i];
        if (!entry->is_used || !is_hearsay(entry) || !tw_id_equal(&entry->teller, teller)) continue;
        told++;
        if (!is_in_doubt(members, entry)) continue;
        if (doubtful == NULL || entry->heard_us < doubtful->heard_us) doubtful = entry;
    }
    if (told < TW_TOLD_MAX) doubtful = take_entry(members, now_us);
    if (doubtful == NULL) return NULL;
    *doubtful = (struct tw_member_entry){.is_used = true, .heard_us = now_us, .teller = *teller};
    return doubtful;
}

static void merge_one(struct tw_members *members, const struct tw_id *teller,
                      const struct tw_member_row *record, uint64_t now_us) {
    bool is_dialable = false;
    for (unsigned k = 0; k < TW_ADDRS_MAX; k++)
        is_dialable |= tw_address_is_valid(record->addrs[k]);
    if (!is_dialable || tw_id_is_zero(&record->id)) return;
    if (tw_id_equal(&record->id, &members->config.self)) return;
    struct tw_member_entry *entry = find_id(members, &record->id);
    if (entry != NULL && entry->is_connected) return;
    if (entry == NULL) {
        entry = take_told(members, teller, now_us);
        if (entry == NULL) return;
        entry->has_id = true;
        entry->id = record->id;
    }
    entry->heard_us = now_us;
    const uint64_t retry_us = first_dial_us(members, &record->id, now_us);
    for (unsigned k = 0; k < TW_ADDRS_MAX; k++) {
        if (tw_address_is_valid(record->addrs[k]))
            add_addr(members, entry, record->addrs[k], retry_us);
    }
}

void tw_members_merge(struct tw_members *members, const struct tw_id *teller,
                      const struct tw_msg_peers *peers, uint64_t now_us) {
    const uint32_t count =
        peers->count < TW_MEMBER_ROWS_PER_MESSAGE ? peers->count : TW_MEMBER_ROWS_PER_MESSAGE;
    for (uint32_t i = 0; i < count; i++) merge_one(members, teller, &peers->rows[i], now_us);
}

/* ---- cache file ------------------------------------------------------------------------------ */

static size_t put_line(const struct tw_member_entry *entry,
                       char line[TW_MEMBERS_TEXT_MAX / TW_KNOWN_MAX]) {
    tw_id_hex(&entry->id, line);
    size_t at = TW_ID_HEX_BYTES - 1;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        const size_t length = strnlen(entry->addrs[i].text, TW_ADDR_BYTES);
        if (length == 0) continue;
        line[at++] = ' ';
        memcpy(line + at, entry->addrs[i].text, length);
        at += length;
    }
    line[at++] = '\n';
    return at;
}

void tw_members_encode(const struct tw_members *members, char *text, size_t capacity,
                       size_t *size_out) {
    bool is_done[TW_KNOWN_MAX] = {false};
    size_t at = 0;
    for (unsigned row = 0; row < TW_KNOWN_MAX; row++) {
        int newest = -1;
        for (int i = 0; i < TW_KNOWN_MAX; i++) {
            const struct tw_member_entry *entry = &members->entries[i];
            if (is_done[i] || !entry->is_used || !entry->was_connected || !has_addr(entry))
                continue;
            if (newest < 0 || entry->heard_us > members->entries[newest].heard_us) newest = i;
        }
        if (newest < 0) break;
        is_done[newest] = true;
        char line[TW_MEMBERS_TEXT_MAX / TW_KNOWN_MAX];
        const size_t length = put_line(&members->entries[newest], line);
        if (length > capacity - at) break;
        memcpy(text + at, line, length);
        at += length;
    }
    *size_out = at;
}

/* Reads one line without its newline. Returns false for a line that encode does not write. */
static bool take_line(struct tw_members *members, const char *line, size_t length,
                      uint64_t now_us) {
    char hex[TW_ID_HEX_BYTES], address[TW_ADDR_BYTES];
    struct tw_id id;
    size_t at = TW_ID_HEX_BYTES - 1;
    if (length <= at || line[at] != ' ') return false;
    memcpy(hex, line, at);
    hex[at] = '\0';
    if (!tw_id_parse(hex, &id)) return false;
    if (tw_id_is_zero(&id) || tw_id_equal(&id, &members->config.self)) return false;
    struct tw_member_entry *entry = find_id(members, &id);
    while (at < length) {
        const char *begin = line + at + 1, *end = line + length;
        const char *space = memchr(begin, ' ', (size_t)(end - begin));
        const size_t size = (size_t)((space != NULL ? space : end) - begin);
        if (size >= TW_ADDR_BYTES) return false;
        memcpy(address, begin, size);
        address[size] = '\0';
        if (strlen(address) != size || !tw_address_is_valid(address)) return false;
        if (entry == NULL) entry = take_entry(members, now_us);
        if (entry == NULL) return true;
        entry->has_id = entry->was_connected = true;
        entry->id = id;
        add_addr(members, entry, address, now_us);
        at += 1 + size;
    }
    return true;
}

uint32_t tw_members_decode(struct tw_members *members, const char *text, size_t size,
                           uint64_t now_us) {
    uint32_t bad_count = 0;
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(text + at, '\n', size - at);
        const size_t length = newline != NULL ? (size_t)(newline - (text + at)) : size - at;
        if (newline == NULL || !take_line(members, text + at, length, now_us)) bad_count++;
        at += length + 1;
    }
    return bad_count;
}
