#include "daemon/net/twin.h"

#include <stdio.h>

#include "base/assert.h"

enum { ROWS = sizeof(((struct tw_twins *)0)->rows) / sizeof(struct tw_twin_row) };

/* Returns the index of the row, or ROWS if there is none. */
static unsigned row_at(const struct tw_twins *twins, const struct tw_id *id) {
    unsigned at = 0;
    while (at < ROWS && !tw_id_equal(&twins->rows[at].id, id)) at++;
    return at;
}

static const struct tw_twin_row *row_find(const struct tw_twins *twins, const struct tw_id *id) {
    const unsigned at = row_at(twins, id);
    return at < ROWS ? &twins->rows[at] : NULL;
}

static struct tw_twin_row *row_change(struct tw_twins *twins, const struct tw_id *id) {
    const unsigned at = row_at(twins, id);
    return at < ROWS ? &twins->rows[at] : NULL;
}

/* Returns the node's row. A new row replaces the least recently used one. */
static struct tw_twin_row *row_take(struct tw_twins *twins, const struct tw_id *id,
                                    uint64_t now_us) {
    TW_ASSERT(!tw_id_is_zero(id));
    struct tw_twin_row *row = row_change(twins, id);
    if (row == NULL) {
        row = &twins->rows[0];
        for (unsigned i = 1; i < ROWS; i++) {
            if (twins->rows[i].used_us < row->used_us) row = &twins->rows[i];
        }
        *row = (struct tw_twin_row){.id = *id};
    }
    row->used_us = now_us;
    return row;
}

void tw_twins_init(struct tw_twins *twins, uint64_t answer_us) {
    *twins = (struct tw_twins){.answer_us = answer_us != 0 ? answer_us : TW_TWIN_ANSWER_US};
}

void tw_twins_linked(struct tw_twins *twins, const struct tw_id *id, uint64_t process,
                     uint64_t now_us) {
    struct tw_twin_row *row = row_take(twins, id, now_us);
    row->nonce = 0;
    if (row->process == process) return;
    row->before = row->process;
    row->process = process;
}

bool tw_twins_was_linked(const struct tw_twins *twins, const struct tw_id *id) {
    return row_find(twins, id) != NULL;
}

enum tw_twin_verdict tw_twins_judge(const struct tw_twins *twins, const struct tw_id *id,
                                    uint64_t process) {
    const struct tw_twin_row *row = row_find(twins, id);
    if (row == NULL || process == 0 || row->process == 0 || row->process == process)
        return TW_TWIN_NONE;
    if (row->before == process) return TW_TWIN_PROVEN;
    return row->nonce != 0 ? TW_TWIN_WAIT : TW_TWIN_ASK;
}

void tw_twins_asked(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce,
                    const char *address, uint64_t now_us) {
    struct tw_twin_row *row = row_take(twins, id, now_us);
    TW_ASSERT(nonce != 0);
    row->nonce = nonce;
    row->asked_us = now_us;
    (void)snprintf(row->address, sizeof(row->address), "%s", address);
}

bool tw_twins_answered(struct tw_twins *twins, const struct tw_id *id, uint64_t nonce) {
    struct tw_twin_row *row = row_change(twins, id);
    if (row == NULL || nonce == 0 || row->nonce != nonce) return false;
    row->nonce = 0;
    return true;
}

void tw_twins_close(struct tw_twins *twins, const struct tw_id *id) {
    struct tw_twin_row *row = row_change(twins, id);
    if (row != NULL) row->nonce = 0;
}

uint64_t tw_twins_deadline_us(const struct tw_twins *twins, const struct tw_id *id) {
    const struct tw_twin_row *row = row_find(twins, id);
    return row == NULL || row->nonce == 0 ? UINT64_MAX : row->asked_us + twins->answer_us;
}

bool tw_twins_found(struct tw_twins *twins, const struct tw_id *id, const char *address,
                    uint64_t now_us) {
    const bool is_new = tw_twins_find(twins, id, now_us) == NULL;
    struct tw_twin_row *row = row_take(twins, id, now_us);
    if (address != NULL) (void)snprintf(row->address, sizeof(row->address), "%s", address);
    row->seen_us = now_us;
    return is_new;
}

const struct tw_twin_row *tw_twins_find(const struct tw_twins *twins, const struct tw_id *id,
                                        uint64_t now_us) {
    const struct tw_twin_row *row = row_find(twins, id);
    if (row == NULL || row->seen_us == 0) return NULL;
    return now_us < row->seen_us + TW_TWIN_KEPT_US ? row : NULL;
}
