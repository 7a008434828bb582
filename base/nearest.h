/* nearest.h - "did you mean": the known word closest to a mistyped one. */
#ifndef TW_BASE_NEAREST_H
#define TW_BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap of neighbours) from a to b; words longer than 63 bytes count
 * as far from everything. Optimal string alignment distance. */
unsigned tw_edit_distance(const char *a, const char *b);

/* The one of words[count] that a person most likely meant by `word`: at most a third of its letters
 * differ (at least one may). The first of equals; NULL when none is near. */
const char *tw_nearest(const char *word, const char *const *words, size_t count);

#endif
