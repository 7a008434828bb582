/* curriculum.h - windows from easy to hard. */
#ifndef TW_WORKER_DATA_CURRICULUM_H
#define TW_WORKER_DATA_CURRICULUM_H

#include <stdint.h>

#include "base/status.h"
#include "worker/data/token_file.h"

/* Numbers of the `windows` windows that begin at token `first` + number * context, from the easiest
 * on, into easiest (windows). Difficulty is the mean surprisal of a window's tokens under the
 * counts of all tokens of these windows: word rarity of Platanios et al. 2019, arXiv 1903.09848,
 * equation
 * 2. In whole numbers, equal ones by number: the same on every machine. Reads the tokens twice.
 * TW_DATA, TW_NOMEM. */
enum tw_status tw_curriculum_sort(struct tw_token_reader *reader, struct tw_token_file *file,
                                  uint64_t first, uint32_t context, uint32_t windows,
                                  uint32_t *easiest, struct tw_error *err);

#endif
