/* nearest.h - "did you mean": the known word closest to a mistyped one. */
#ifndef TW_BASE_NEAREST_H
#define TW_BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap of neighbours) from a to b: optimal string alignment
 * distance. Words longer than 63 bytes are far from everything. */
unsigned tw_edit_distance(const char *a, const char *b);

/* The word of words[count] that a person most likely meant by `word`: at most a third of its
 * letters (at least one) may differ. The first of equals; NULL if none is near. */
const char *tw_nearest(const char *word, const char *const *words, size_t count);

#endif
