/* payload_rows.h - the payloads that the runtime of a fuzzed node holds. */
#ifndef TW_TESTS_FUZZ_PAYLOAD_ROWS_H
#define TW_TESTS_FUZZ_PAYLOAD_ROWS_H

#include "base/assert.h"
#include "base/id.h"
#include "base/limits.h"

enum { ROWS_MAX = 2 * TW_PAYLOADS_MAX };

enum held { HELD_NOT, HELD_EXPECTED, HELD_CHECKING, HELD_YES };

struct row {
    enum held held;
    struct tw_id hash;
    uint32_t bytes;
};

static inline struct row *find_row(struct row rows[ROWS_MAX], const struct tw_id *hash) {
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        if (rows[i].held != HELD_NOT && tw_id_equal(&rows[i].hash, hash)) return &rows[i];
    }
    return NULL;
}

static inline void put_row(struct row rows[ROWS_MAX], const struct tw_id *hash, uint32_t bytes,
                           enum held held) {
    struct row *row = find_row(rows, hash);
    for (uint32_t i = 0; row == NULL; i++) {
        TW_ASSERT(i < ROWS_MAX);
        if (rows[i].held == HELD_NOT) row = &rows[i];
    }
    *row = (struct row){.held = held, .hash = *hash, .bytes = bytes};
}

static inline void must_hold(struct row rows[ROWS_MAX], const struct tw_id *hash) {
    const struct row *row = find_row(rows, hash);
    TW_ASSERT(row != NULL);
    TW_ASSERT(row->held == HELD_YES);
}

#endif
