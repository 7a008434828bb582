/* mutants.h - names of the mutants: bugs that the mutant build of the core can switch on
 * (sync/mutants.h). */
#ifndef TW_SIM_MUTANTS_H
#define TW_SIM_MUTANTS_H

#include <stdbool.h>

/* Returns the number of mutants + 1; in the ordinary build, that is 1. */
int tw_sim_mutants_count(void);

/* Returns the name of a mutant, such as "double-apply", or "none" for 0. */
const char *tw_sim_mutant_name(int mutant);

/* Returns a sentence that describes the bug. */
const char *tw_sim_mutant_text(int mutant);

/* Returns whether the mutant is tested in worlds where paths are missing. */
bool tw_sim_mutant_is_of_homes(int mutant);

/* Returns whether the mutant is tested in worlds with traitors. */
bool tw_sim_mutant_is_of_traitors(int mutant);

/* Returns whether the mutant concerns runs in pairs only. */
bool tw_sim_mutant_is_pair(int mutant);

/* Returns the number of this mutant, or 0 if this build has none of that name. */
int tw_sim_mutant_find(const char *name);

#endif
