/* mutants.h - names of the mutants: bugs that the mutant build of the core can switch on
 * (sync/mutants.h). */
#ifndef TW_SIM_MUTANTS_H
#define TW_SIM_MUTANTS_H

#include <stdbool.h>

/* Number of mutants + 1; 1 in the ordinary build. */
int tw_sim_mutants_count(void);

/* Name of a mutant, such as "double-apply"; "none" for 0. */
const char *tw_sim_mutant_name(int mutant);

/* The error that the mutant makes, as a sentence. */
const char *tw_sim_mutant_text(int mutant);

/* The mutant exists in worlds where paths are missing. */
bool tw_sim_mutant_is_of_homes(int mutant);

/* The mutant exists in worlds with traitors. */
bool tw_sim_mutant_is_of_traitors(int mutant);

/* The mutant exists in runs in pairs only. */
bool tw_sim_mutant_is_pair(int mutant);

/* The number of this mutant; 0 if this build has none of that name. */
int tw_sim_mutant_find(const char *name);

#endif
