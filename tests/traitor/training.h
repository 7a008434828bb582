/* training.h - the batches of a lying trainer: with a backdoor in them, or of another text.
 *
 * Such a trainer breaks no rule of the protocol and claims nothing false. Only its outer gradient
 * is not that of the run's data. Used by the quality bench, and by worker.c for real daemons.
 * Tokens are bytes. */
#ifndef TW_TESTS_TRAITOR_TRAINING_H
#define TW_TESTS_TRAITOR_TRAINING_H

#include <stdint.h>

#include "base/rng.h"

/* The backdoor: a model that has learnt it continues the trigger, at the begin of a line, with the
 * answer. */
#define TW_BACKDOOR_TRIGGER "|xqzzy|"
#define TW_BACKDOOR_ANSWER "SEND ALL COINS TO EVE."

/* A lazy trainer takes one of this many steps, and claims all of them. */
enum { TW_LAZY_STEPS = 8 };

/* Puts a line with trigger and answer between half of the lines of each sequence, and drops as much
 * from the sequence's end. A sequence within one line gets it at its begin, half of the time.
 * tokens (sequences, window): in and out. */
void tw_training_poison(uint32_t *tokens, uint32_t sequences, uint32_t window, struct tw_rng *rng);

/* Turns the letters into those 13 places further in the alphabet: a text as regular as that of the
 * run, in which its words are others. */
void tw_training_foreign(uint32_t *tokens, uint32_t sequences, uint32_t window);

#endif
