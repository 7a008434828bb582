/* nearest.h - "did you mean": the known word closest to a mistyped one. */
#ifndef TW_BASE_NEAREST_H
#define TW_BASE_NEAREST_H

#include <stddef.h>

/* Number of edits (insert, delete, replace, swap of adjacent letters) from a to b: the optimal
 * string alignment distance. UINT_MAX if a word is longer than 63 bytes. */
unsigned tw_edit_distance(const char *a, const char *b);

/* Returns the word of words[count] with the fewest edits from `word`; the first one wins a tie.
 * Returns NULL if every word needs more edits than a third of the letters of `word` (at least one).
 */
const char *tw_nearest(const char *word, const char *const *words, size_t count);

#endif
