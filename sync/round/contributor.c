/* contributor.c - signatures of contributions: made, checked, and completed in records. */
#include "sync/round/contributor.h"

#include <string.h>

static bool has_signature(const struct tw_contributor *row) {
    static const uint8_t none[TW_SIGNATURE_BYTES];
    return memcmp(row->signature, none, sizeof(none)) != 0;
}

static void write_text(const struct tw_node *node, const struct tw_contributor *row,
                       uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES]) {
    tw_contributor_text(&node->cfg.run, &node->at.lineage, node->at.rounds, row, text);
}

struct tw_contributor tw_contributor_of(uint32_t member, const struct tw_msg_contrib *contrib) {
    struct tw_contributor row = {
        .member_idx = member,
        .fragment_steps = contrib->fragment_steps,
        .tokens = contrib->tokens,
        .fragment_tokens = contrib->fragment_tokens,
        .root = tw_contribution_root(contrib->hashes, contrib->parts_count),
    };
    memcpy(row.signature, contrib->signature, sizeof(row.signature));
    return row;
}

const struct tw_contributor *tw_contributor_row(const struct tw_record *record, uint32_t member) {
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        if (record->contributors[i].member_idx == member) return &record->contributors[i];
    }
    return NULL;
}

void tw_contributor_sign(const struct tw_node *node, struct tw_msg_contrib *contrib) {
    const struct tw_signing *signing = &node->cfg.signing;
    const struct tw_contributor row = tw_contributor_of(0, contrib);
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    write_text(node, &row, text);
    signing->sign(signing->key, text, sizeof(text), contrib->signature);
}

bool tw_contributor_is_of(const struct contribution *received, const struct tw_contributor *row) {
    const struct tw_msg_contrib *contrib = &received->announced;
    if (!received->has || received->is_absent) return false;
    const struct tw_id root = tw_contribution_root(contrib->hashes, contrib->parts_count);
    return tw_id_equal(&root, &row->root) && row->tokens == contrib->tokens &&
           row->fragment_tokens == contrib->fragment_tokens &&
           row->fragment_steps == contrib->fragment_steps;
}

bool tw_contributor_is_signed(const struct tw_node *node, const struct tw_contributor *row) {
    const struct contribution *received = &node->round.contributions[row->member_idx];
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    if (tw_contributor_is_of(received, row) &&
        memcmp(row->signature, received->announced.signature, sizeof(row->signature)) == 0)
        return true; /* the signature was checked when the CONTRIB arrived */
    write_text(node, row, text);
    return node->cfg.signing.is_signed(&node->roster.members[row->member_idx].id, text,
                                       sizeof(text), row->signature);
}

bool tw_contributor_has_signed(const struct tw_node *node, const struct tw_record *record,
                               const struct tw_contributor *row, const struct tw_id *id) {
    uint8_t text[TW_CONTRIBUTOR_TEXT_BYTES];
    tw_contributor_text(&node->cfg.run, &record->lineage, record->round, row, text);
    return node->cfg.signing.is_signed(id, text, sizeof(text), row->signature);
}

bool tw_contributor_complete(const struct tw_node *node, struct tw_contributor *row) {
    const struct contribution *received = &node->round.contributions[row->member_idx];
    if (!has_signature(row) && tw_contributor_is_of(received, row))
        memcpy(row->signature, received->announced.signature, sizeof(row->signature));
    return has_signature(row);
}
