/* proposer.h - rounds in which proposers may lie: which node proposes, its proposal, and the votes
 * of honest cores (jury.h). Only worlds with hostile proposers use this. In other worlds, a round
 * is decided as its owners made it.
 *
 * A hostile proposer knows which proposals honest members accept, and makes the worst of these. It
 * replaces every result by a lie that is as large as workers accept. Failing that, it lists results
 * with only one contributor each, so that the work of the others is merged twice. Failing that too,
 * it leaves out as many results as possible. Its next roster has as few honest members, and gives
 * hostile members as large parts, as possible. Other proposers are honest, and hostile members
 * never vote for them. The delay of a refused proposer (2 s) is not simulated. */
#ifndef TW_TESTS_QUALITY_PROPOSER_H
#define TW_TESTS_QUALITY_PROPOSER_H

#include "tests/bench/quality/world.h"

/* Sets the world's open round to that of the jury. */
void proposer_open(struct world *world);

/* Decides the round, once its results are made. *commit becomes the content that a majority
 * accepts. */
enum tw_status proposer_decide(struct world *world, struct commit *commit, struct tw_error *err);

#endif
