#include "base/nearest.h"

#include <limits.h>
#include <string.h>

enum { WORD_MAX = 63 };

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

unsigned tw_edit_distance(const char *a, const char *b) {
    const size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len > WORD_MAX || b_len > WORD_MAX) return UINT_MAX;
    unsigned rows[3][WORD_MAX + 1]; /* the current row of the distance table and the two rows above
                                       it */
    unsigned *above2 = rows[0], *above = rows[1], *row = rows[2];
    for (unsigned j = 0; j <= b_len; j++) above2[j] = above[j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            const unsigned replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(replaced, least(above[j], row[j - 1]) + 1);
            const int is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swap) row[j] = least(row[j], above2[j - 2] + 1);
        }
        unsigned *const oldest = above2;
        above2 = above;
        above = row;
        row = oldest;
    }
    return above[b_len];
}

const char *tw_nearest(const char *word, const char *const *words, size_t count) {
    const size_t third = strlen(word) / 3;
    unsigned bound = third > 1 ? (unsigned)third : 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        const unsigned distance = tw_edit_distance(word, words[i]);
        if (distance > bound || (nearest != NULL && distance == bound)) continue;
        nearest = words[i];
        bound = distance;
    }
    return nearest;
}
