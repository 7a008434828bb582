#include "daemon/api/attacks.h"

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
         "if that history is not the run's, shut the node out and go back: `thinwire "
         "rollback`"},
    [TW_ATTACK_HELD] = {"Node %s made a result far larger than the usual ones; it was not accepted "
                        "here",
                        "nothing to do unless it repeats: then ask its operator, or shut it out"},
    [TW_ATTACK_APPLIED] = {"A result of node %s far larger than the usual ones was applied: the "
                           "other members decided so",
                           "watch the anchor's loss in `thinwire status`; `thinwire rollback` goes "
                           "back"},
    [TW_ATTACK_OVERSIZED] = {"Node %s sends work far too large to be merged; it is left out",
                             "ask its operator to look at its data and its losses"},
    [TW_ATTACK_STATE] = {"Node %s gave this node a state that is not the run's",
                         "nothing to do: it is fetched from other members; if it repeats, ask the "
                         "node's operator, or shut it out"},
    [TW_ATTACK_PROTOCOL] = {"Node %s broke the protocol; its link was ended or its message dropped",
                            "`thinwire events` has the reason; is its version the same?"},
};

static bool is_older(const struct tw_attack *a, const struct tw_attack *b) {
    return a->count == 0 || (b->count > 0 && a->at_us < b->at_us);
}

void tw_attacks_note(struct tw_attacks *attacks, enum tw_attack_kind kind, const struct tw_id *id,
                     uint64_t now_us) {
    struct tw_attack *row = &attacks->rows[0];
    for (uint32_t i = 0; i < TW_ATTACKS_MAX; i++) {
        struct tw_attack *const at = &attacks->rows[i];
        if (at->count > 0 && at->kind == kind && tw_id_equal(&at->id, id)) {
            at->count += at->count < UINT32_MAX;
            at->at_us = now_us;
            return;
        }
        if (is_older(at, row)) row = at;
    }
    *row = (struct tw_attack){.kind = kind, .id = *id, .count = 1, .at_us = now_us};
}

uint32_t tw_attacks_recent(const struct tw_attacks *attacks, uint64_t now_us,
                           struct tw_attack *rows) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_ATTACKS_MAX; i++) {
        const struct tw_attack *const at = &attacks->rows[i];
        if (at->count == 0 || now_us - at->at_us > TW_ATTACK_SHOWN_US) continue;
        uint32_t place = count++;
        for (; place > 0 && rows[place - 1].at_us < at->at_us; place--)
            rows[place] = rows[place - 1];
        rows[place] = *at;
    }
    return count;
}

void tw_attack_text(const struct tw_attack *attack, const char *label,
                    char text[TW_ATTACK_TEXT_BYTES]) {
    char sentence[TW_ATTACK_TEXT_BYTES - 24];
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
    if (attack->count > 1)
        (void)snprintf(text, TW_ATTACK_TEXT_BYTES, "%s (%u times)", sentence, attack->count);
    else
        (void)snprintf(text, TW_ATTACK_TEXT_BYTES, "%s", sentence);
}

const char *tw_attack_way_out(enum tw_attack_kind kind) {
    TW_ASSERT(kind < TW_ATTACKS);
    return SENTENCES[kind].way_out;
}
