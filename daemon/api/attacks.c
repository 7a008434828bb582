#include "daemon/api/attacks.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* Warning for each kind of attack: a sentence in which "%s" is the node, and advice to a person. */
static const struct {
    const char *text, *way_out;
} SENTENCES[TW_ATTACKS] = {
    [TW_ATTACK_FORGED] = {"Node %s sent a round that its group did not decide; it was refused",
                          "ask its operator; if it goes on, shut the node out: a new secret, or "
                          "`thinwire owner revoke`"},
    [TW_ATTACK_TWO_FACED] =
        {"Node %s signed two statements that exclude each other; every node bans it",
         "ask its operator: a copied or restored folder of a node does that "
         "too; `thinwire unban` lets it back in"},
    [TW_ATTACK_LEFT] =
        {"This node left its group for the history of node %s, though most members "
         "were linked",
         "groups that were apart come together like that; if that history is not the run's, shut "
         "the node out and go back: `thinwire rollback`"},
    [TW_ATTACK_MERGE] = {"Node %s made a result that is not the merge of its contributions; it "
                         "merges nothing for a while",
                         "ask its operator to test its memory and its build; if it goes on, shut "
                         "the node out"},
    [TW_ATTACK_OVERSIZED] = {"Node %s sends work far too large to be merged; it is left out",
                             "ask its operator to look at its data and its losses"},
    [TW_ATTACK_STATE] = {"Node %s gave this node a state that is not the run's",
                         "nothing to do: it is fetched from other members; if it repeats, ask the "
                         "node's operator, or shut it out"},
    [TW_ATTACK_UNTRAINED] =
        {"Node %s sends work that was not trained on its part of the data; this "
         "node leaves it out",
         "ask its operator for its data; if it goes on, shut the node out, as "
         "the guide says"},
    [TW_ATTACK_PROTOCOL] = {"Node %s broke the protocol; its link was ended or its message dropped",
                            "`thinwire events` has the reason; is its version the same?"},
};

static bool is_shown(const struct tw_attack *row, uint64_t now_us) {
    return row->count > 0 && now_us - row->at_us <= TW_ATTACK_SHOWN_US;
}

static uint32_t add_counts(uint32_t a, uint32_t b) {
    return a < UINT32_MAX - b ? a + b : UINT32_MAX;
}

static const struct tw_attack *find_newest(const struct tw_attack rows[TW_ATTACKS_PER_KIND]) {
    const struct tw_attack *newest = &rows[0];
    for (uint32_t i = 1; i < TW_ATTACKS_PER_KIND; i++) {
        if (rows[i].count > 0 && rows[i].at_us >= newest->at_us) newest = &rows[i];
    }
    return newest;
}

void tw_attacks_note(struct tw_attacks *attacks, enum tw_attack_kind kind, const struct tw_id *id,
                     uint64_t now_us) {
    struct tw_attack *const rows = attacks->rows[kind];
    /* The last row is the one that a crowd of nodes shares. */
    struct tw_attack *row = &rows[TW_ATTACKS_PER_KIND - 1];
    for (uint32_t i = TW_ATTACKS_PER_KIND; i-- > 0;) {
        if (rows[i].count > 0 && tw_id_equal(&rows[i].id, id)) {
            rows[i].count = add_counts(rows[i].count, 1);
            rows[i].at_us = now_us;
            return;
        }
        if (!is_shown(&rows[i], now_us)) row = &rows[i];
    }
    if (is_shown(row, now_us)) {
        const bool is_old = now_us - attacks->others[kind].at_us > TW_ATTACK_SHOWN_US;
        const uint32_t before = is_old ? 0 : attacks->others[kind].count;
        attacks->others[kind].count = add_counts(before, row->count);
        attacks->others[kind].at_us = now_us;
    }
    *row = (struct tw_attack){.kind = kind, .id = *id, .count = 1, .at_us = now_us};
}

/* Inserts a row behind the newer ones of rows[first .. count - 1]. */
static void insert(struct tw_attack *rows, uint32_t first, uint32_t count,
                   const struct tw_attack *row) {
    uint32_t place = count;
    for (; place > first && rows[place - 1].at_us < row->at_us; place--)
        rows[place] = rows[place - 1];
    rows[place] = *row;
}

uint32_t tw_attacks_recent(const struct tw_attacks *attacks, uint64_t now_us,
                           struct tw_attack *rows) {
    uint32_t count = 0;
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        struct tw_attack newest = *find_newest(attacks->rows[kind]);
        if (!is_shown(&newest, now_us)) continue;
        if (now_us - attacks->others[kind].at_us <= TW_ATTACK_SHOWN_US)
            newest.others = attacks->others[kind].count;
        insert(rows, 0, count++, &newest);
    }
    const uint32_t kinds = count;
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        const struct tw_attack *const newest = find_newest(attacks->rows[kind]);
        for (uint32_t i = 0; i < TW_ATTACKS_PER_KIND; i++) {
            const struct tw_attack *const row = &attacks->rows[kind][i];
            if (row != newest && is_shown(row, now_us)) insert(rows, kinds, count++, row);
        }
    }
    return count;
}

void tw_attack_text(const struct tw_attack *attack, const char *label,
                    char text[TW_ATTACK_TEXT_BYTES]) {
    char sentence[TW_ATTACK_TEXT_BYTES - 64], times[24] = "", others[40] = "";
    const size_t length = strlen(label);
    TW_ASSERT(attack->kind < TW_ATTACKS && length < TW_ATTACK_LABEL_BYTES);
    const char *const fmt = SENTENCES[attack->kind].text;
    size_t used = 0;
    for (const char *at = fmt; *at != 0 && used + length + 1 < sizeof(sentence); at++) {
        if (at[0] == '%') {
            memcpy(sentence + used, label, length);
            used += length;
            at++;
        } else {
            sentence[used++] = *at;
        }
    }
    sentence[used] = 0;
    if (attack->count > 1) (void)snprintf(times, sizeof(times), " (%u times)", attack->count);
    if (attack->others > 0)
        (void)snprintf(others, sizeof(others), "; other nodes did so %u times", attack->others);
    (void)snprintf(text, TW_ATTACK_TEXT_BYTES, "%s%s%s", sentence, times, others);
}

const char *tw_attack_way_out(enum tw_attack_kind kind) {
    TW_ASSERT(kind < TW_ATTACKS);
    return SENTENCES[kind].way_out;
}
