/* mutants.h - names of the bugs that can be switched on in the mutant build of the core. */
#ifndef TW_SIM_MUTANTS_H
#define TW_SIM_MUTANTS_H

#include <stdbool.h>

/* Number of mutants + 1; 1 in the ordinary build. */
int tw_sim_mutants_count(void);

/* "double-apply"; "none" for 0. */
const char *tw_sim_mutant_name(int mutant);

/* What the bug does, in a sentence. */
const char *tw_sim_mutant_text(int mutant);

/* It is of runs in pairs. */
bool tw_sim_mutant_is_pair(int mutant);

/* 0 when there is no such bug in this build. */
int tw_sim_mutant_find(const char *name);

#endif
