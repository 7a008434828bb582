/* proposer.h - rounds with possibly lying proposers: which node proposes, its proposal, and the
 * votes of honest cores (jury.h). Only for worlds with hostile proposers; in others a round is
 * decided as its owners made it.
 *
 * A hostile proposer knows which proposals honest members accept, and makes the worst of these. It
 * replaces every result by a lie, as large as workers accept. Failing that, it lists results
 * without their contributors, whose work is then merged twice; else it leaves out as many results
 * as possible. Its next roster has as few honest members, and as large parts for hostile ones, as
 * possible. Other proposers are honest, and hostile members never vote for them. The delay of a
 * refused proposer (2 s) is not simulated. */
#ifndef TW_TESTS_QUALITY_PROPOSER_H
#define TW_TESTS_QUALITY_PROPOSER_H

#include "tests/bench/quality/world.h"

/* Makes the jury's open round the world's. */
void proposer_open(struct world *world);

/* Decides the round after its results are made: *commit becomes the content that a majority
 * accepts. */
enum tw_status proposer_decide(struct world *world, struct commit *commit, struct tw_error *err);

#endif
