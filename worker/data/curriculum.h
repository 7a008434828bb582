/* curriculum.h - sorts training windows from easy to hard. */
#ifndef TW_WORKER_DATA_CURRICULUM_H
#define TW_WORKER_DATA_CURRICULUM_H

#include <stdint.h>

#include "base/status.h"
#include "worker/data/token_file.h"

/* Sorts `windows` windows by difficulty: fills easiest (windows) with their indices, easiest first.
 * Window i begins at token `first` + i * context.
 *
 * Difficulty is the mean surprisal of a window's tokens under the token counts of all these
 * windows: word rarity, Platanios et al. 2019, arXiv 1903.09848, equation 2. Integer arithmetic,
 * with ties broken by index, gives the same order on every machine. Reads the tokens twice. Fails
 * with TW_DATA or TW_NOMEM. */
enum tw_status tw_curriculum_sort(struct tw_token_reader *reader, struct tw_token_file *file,
                                  uint64_t first, uint32_t context, uint32_t windows,
                                  uint32_t *easiest, struct tw_error *err);

#endif
