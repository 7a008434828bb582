/* proposer.h - rounds whose proposers may lie: who closes, what is proposed, what honest cores
 * accept (jury.h). Only in worlds with hostile proposers; in others a round is what its owners
 * made.
 *
 * A hostile proposer knows what honest members vote for, and does the worst of it: lies in place of
 * every result, as large as workers let pass; else results without their contributors, who then
 * merge their work twice; else as many results left out as can be. The next roster without as many
 * honest members, and with as much of its parts for its own, as can be done. Other proposers are
 * honest, and hostile members never vote for what they propose. What a refused proposer costs in
 * time (2 s) is left out. */
#ifndef TW_TESTS_QUALITY_PROPOSER_H
#define TW_TESTS_QUALITY_PROPOSER_H

#include "tests/bench/quality/world.h"

/* The open round of the jury becomes the world's. */
void proposer_open(struct world *world);

/* The results are made; in what is left of them *commit becomes what a majority accepts. */
enum tw_status proposer_decide(struct world *world, struct commit *commit, struct tw_error *err);

#endif
