#include "daemon/api/known_peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define SECOND_US UINT64_C(1000000)
#define SILENT_US (3600 * SECOND_US) /* time for which a silent node is dialled as usual */

void tw_known_peers_init(struct tw_known_peers *known, const char *own_name, uint64_t now_us) {
    memset(known, 0, sizeof(*known));
    tw_node_name_clean(own_name, known->own_name);
    known->open_us = known->alone_us = now_us;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static struct tw_known_peer *row_find(struct tw_known_peers *known, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        if (known->rows[i].is_used && tw_id_equal(&known->rows[i].id, id)) return &known->rows[i];
    }
    return NULL;
}

const struct tw_known_peer *tw_known_peers_find(const struct tw_known_peers *known,
                                                const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        if (known->rows[i].is_used && tw_id_equal(&known->rows[i].id, id)) return &known->rows[i];
    }
    return NULL;
}

uint64_t tw_known_peer_absence_us(const struct tw_known_peer *row, uint64_t now_us) {
    if (row->state == TW_KNOWN_LINKED) return 0;
    return row->before_us + (now_us > row->since_us ? now_us - row->since_us : 0);
}

/* Returns a row for a new node: a free one, else that of the node that was absent for longest.
 * There is one, as at most TW_PEERS_MAX nodes are linked. */
static struct tw_known_peer *row_take(struct tw_known_peers *known, const struct tw_id *id,
                                      uint64_t now_us) {
    struct tw_known_peer *found = NULL;
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_known_peer *const row = &known->rows[i];
        if (!row->is_used) {
            found = row;
            break;
        }
        if (row->state == TW_KNOWN_LINKED) continue;
        if (found == NULL ||
            tw_known_peer_absence_us(row, now_us) > tw_known_peer_absence_us(found, now_us))
            found = row;
    }
    TW_ASSERT(found != NULL);
    *found = (struct tw_known_peer){.is_used = true, .id = *id, .since_us = now_us};
    return found;
}

static struct tw_known_peer *row_have(struct tw_known_peers *known, const struct tw_id *id,
                                      const char *name, uint64_t now_us) {
    struct tw_known_peer *row = row_find(known, id);
    if (row == NULL) row = row_take(known, id, now_us);
    if (name[0] != '\0') (void)snprintf(row->name, sizeof(row->name), "%s", name);
    return row;
}

void tw_known_peers_linked(struct tw_known_peers *known, const struct tw_id *id, const char *name,
                           uint64_t now_us) {
    struct tw_known_peer *const row = row_have(known, id, name, now_us);
    row->state = TW_KNOWN_LINKED;
    row->said[0] = '\0';
    row->since_us = now_us;
    row->before_us = 0;
}

void tw_known_peers_invited(struct tw_known_peers *known, const struct tw_id *id, const char *name,
                            uint64_t now_us) {
    (void)row_have(known, id, name, now_us);
}

void tw_known_peers_merged(struct tw_known_peers *known, const struct tw_id *id) {
    struct tw_known_peer *const row = row_find(known, id);
    if (row == NULL) return;
    row->has_merged = known->has_merged = true;
}

/* Copies the reason behind the first ":" of a sentence. */
static void said_copy(struct tw_known_peer *row, const char *sentence) {
    const char *const colon = sentence != NULL ? strchr(sentence, ':') : NULL;
    if (colon == NULL) return;
    (void)snprintf(row->said, sizeof(row->said), "%s", colon + 1 + strspn(colon + 1, " "));
    for (char *at = row->said; *at != '\0'; at++) {
        if (*at < 0x20 || *at > 0x7e) *at = ' ';
    }
}

void tw_known_peers_parted(struct tw_known_peers *known, const struct tw_id *id,
                           enum tw_status reason, bool has_left, const char *sentence,
                           uint64_t now_us) {
    struct tw_known_peer *const row = row_find(known, id);
    if (row == NULL || row->state != TW_KNOWN_LINKED) return;
    row->state = reason == TW_OK                  ? TW_KNOWN_LEFT
                 : has_left && reason == TW_AGAIN ? TW_KNOWN_PAUSED
                                                  : TW_KNOWN_AWAY;
    row->since_us = known->alone_us = now_us;
    row->before_us = 0;
    row->said[0] = '\0';
    if (row->state == TW_KNOWN_PAUSED) said_copy(row, sentence);
}

void tw_known_peers_rest(struct tw_known_peers *known, uint64_t now_us) {
    known->open_us = now_us;
}

uint64_t tw_known_peers_alone_us(const struct tw_known_peers *known, uint64_t now_us) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        if (known->rows[i].is_used && known->rows[i].state == TW_KNOWN_LINKED) return UINT64_MAX;
    }
    return known->has_merged ? now_us - known->alone_us : UINT64_MAX;
}

bool tw_known_peers_is_absent(const struct tw_known_peers *known, const struct tw_id *id,
                              uint64_t now_us) {
    const struct tw_known_peer *const row = tw_known_peers_find(known, id);
    if (row == NULL) return false;
    const enum tw_known_state state = tw_known_peer_state(row, now_us);
    return state == TW_KNOWN_LEFT || state == TW_KNOWN_PAUSED || state == TW_KNOWN_GONE;
}

void tw_known_peers_sweep(struct tw_known_peers *known, uint64_t now_us, void *user,
                          void (*forget)(void *user, const struct tw_id *id)) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        struct tw_known_peer *const row = &known->rows[i];
        if (!row->is_used || tw_known_peer_absence_us(row, now_us) < TW_KNOWN_FORGET_US) continue;
        forget(user, &row->id);
        *row = (struct tw_known_peer){.is_used = false};
    }
}

/* ---- state of a row ---------------------------------------------------------------------- */

enum tw_known_state tw_known_peer_state(const struct tw_known_peer *row, uint64_t now_us) {
    const bool may_be_gone = row->state == TW_KNOWN_PAUSED || row->state == TW_KNOWN_AWAY;
    if (may_be_gone && tw_known_peer_absence_us(row, now_us) >= TW_KNOWN_GONE_US)
        return TW_KNOWN_GONE;
    return row->state;
}

uint64_t tw_known_peer_pause_us(const struct tw_known_peer *row, uint64_t now_us) {
    const uint64_t waited_us = now_us > row->since_us ? now_us - row->since_us : 0;
    if (row->state == TW_KNOWN_LINKED) return 0;
    if (row->state == TW_KNOWN_AWAY && waited_us < SILENT_US) return 0;
    return waited_us / 10 < TW_KNOWN_PAUSE_MAX_US ? waited_us / 10 : TW_KNOWN_PAUSE_MAX_US;
}

const char *tw_known_peers_label(const struct tw_known_peers *known, const struct tw_id *id,
                                 char label[TW_KNOWN_LABEL_BYTES]) {
    enum { FEW = 4, MANY = 8 };
    const struct tw_known_peer *const row = tw_known_peers_find(known, id);
    char hex[9], other[9];
    tw_id_short(id, hex);
    (void)snprintf(label, TW_KNOWN_LABEL_BYTES, "%s", hex);
    if (row == NULL || row->name[0] == '\0') return label;
    int digits = strcmp(row->name, known->own_name) == 0 ? FEW : 0;
    for (uint32_t i = 0; i < TW_KNOWN_MAX && digits < MANY; i++) {
        const struct tw_known_peer *const at = &known->rows[i];
        if (!at->is_used || at == row || strcmp(at->name, row->name) != 0) continue;
        tw_id_short(&at->id, other);
        digits = strncmp(hex, other, FEW) == 0 ? MANY : FEW;
    }
    (void)snprintf(label, TW_KNOWN_LABEL_BYTES, "%s%s%.*s", row->name, digits > 0 ? "-" : "",
                   digits, hex);
    return label;
}

/* ---- over a restart ------------------------------------------------------------------------ */

static const char *const WORDS[] = {[TW_KNOWN_NEVER] = "never",
                                    [TW_KNOWN_LINKED] = "away",
                                    [TW_KNOWN_LEFT] = "left",
                                    [TW_KNOWN_PAUSED] = "paused",
                                    [TW_KNOWN_AWAY] = "away"};

size_t tw_known_peers_encode(const struct tw_known_peers *known, char text[TW_KNOWN_TEXT_MAX],
                             uint64_t now_us, uint64_t wall_s) {
    size_t at = 0;
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_known_peer *const row = &known->rows[i];
        char hex[TW_ID_HEX_BYTES], line[TW_KNOWN_LINE_BYTES];
        if (!row->is_used) continue;
        const uint64_t absent_s = tw_known_peer_absence_us(row, now_us) / SECOND_US;
        tw_id_hex(&row->id, hex);
        const int size =
            snprintf(line, sizeof(line), "%s %" PRIu64 " %s %s %s\n", hex,
                     wall_s > absent_s ? wall_s - absent_s : 0, WORDS[row->state],
                     row->has_merged ? "merged" : "-", row->name[0] != '\0' ? row->name : "-");
        if (size <= 0 || (size_t)size >= sizeof(line)) continue;
        memcpy(text + at, line, (size_t)size);
        at += (size_t)size;
    }
    return at;
}

/* Reads a line without its newline. Returns false for a line that encode does not write. */
static bool line_read(const char *line, uint64_t now_us, uint64_t wall_s,
                      struct tw_known_peer *row) {
    char hex[TW_ID_HEX_BYTES], word[8], merged[8], name[TW_NODE_NAME_BYTES],
        clean[TW_NODE_NAME_BYTES];
    unsigned long long seen_s;
    int end = 0;
    if (sscanf(line, "%64[0-9a-f] %15llu %7[a-z] %7[a-z-] %32s%n", hex, &seen_s, word, merged, name,
               &end) != 5 ||
        line[end] != '\0')
        return false;
    *row = (struct tw_known_peer){.is_used = true, .since_us = now_us};
    if (!tw_id_parse(hex, &row->id) || tw_id_is_zero(&row->id)) return false;
    if (strcmp(word, "left") == 0)
        row->state = TW_KNOWN_LEFT;
    else if (strcmp(word, "paused") == 0)
        row->state = TW_KNOWN_PAUSED;
    else if (strcmp(word, "away") == 0)
        row->state = TW_KNOWN_AWAY;
    else if (strcmp(word, "never") != 0)
        return false;
    row->has_merged = strcmp(merged, "merged") == 0;
    if (!row->has_merged && strcmp(merged, "-") != 0) return false;
    tw_node_name_clean(name, clean);
    if (strcmp(name, "-") != 0 && strcmp(name, clean) != 0) return false;
    memcpy(row->name, clean, sizeof(row->name));
    /* After a week without power all nodes are old, and a clock may be wrong: each is looked for
     * once more before it is forgotten. */
    const uint64_t absent_us = wall_s > seen_s ? (wall_s - seen_s) * SECOND_US : 0,
                   most_us = TW_KNOWN_FORGET_US - SILENT_US;
    row->before_us = absent_us < most_us ? absent_us : most_us;
    return true;
}

uint32_t tw_known_peers_decode(struct tw_known_peers *known, const char *text, size_t size,
                               uint64_t now_us, uint64_t wall_s) {
    uint32_t skipped = 0;
    for (size_t at = 0; at < size;) {
        const char *const newline = memchr(text + at, '\n', size - at);
        const size_t length = newline != NULL ? (size_t)(newline - text) - at : size - at;
        char line[TW_KNOWN_LINE_BYTES] = "";
        struct tw_known_peer row;
        if (length < sizeof(line)) memcpy(line, text + at, length);
        const bool is_good = newline != NULL && length > 0 && strlen(line) == length &&
                             line_read(line, now_us, wall_s, &row) &&
                             row_find(known, &row.id) == NULL;
        if (is_good) {
            *row_take(known, &row.id, now_us) = row;
            known->has_merged |=
                row.has_merged && tw_known_peer_state(&row, now_us) == TW_KNOWN_AWAY;
        } else {
            skipped++;
        }
        at += length + 1;
    }
    return skipped;
}
