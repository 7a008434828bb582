/* mutants.c - names of the mutants: bugs that the mutant build of the core can switch on. */
#include "tests/sim/mutants.h"

#include <string.h>

#ifdef TW_MUTANTS
#include "sync/mutants.h"
#endif

static const struct {
    const char *name, *text;
} mutants[] = {{"none", "no bug"},
#ifdef TW_MUTANTS
#define X(upper, name, text) {name, text},
               TW_MUTANT_LIST(X) TW_MUTANT_HOMES_LIST(X) TW_MUTANT_TRAITORS_LIST(X)
                   TW_MUTANT_PAIR_LIST(X)
#undef X
#endif
};

int tw_sim_mutants_count(void) {
    return (int)(sizeof mutants / sizeof mutants[0]);
}

const char *tw_sim_mutant_name(int mutant) {
    return mutants[mutant].name;
}

const char *tw_sim_mutant_text(int mutant) {
    return mutants[mutant].text;
}

bool tw_sim_mutant_is_pair(int mutant) {
#ifdef TW_MUTANTS
#define X(upper, name, text) +1
    return mutant > 0 TW_MUTANT_LIST(X) TW_MUTANT_HOMES_LIST(X) TW_MUTANT_TRAITORS_LIST(X);
#undef X
#else
    (void)mutant;
    return false;
#endif
}

bool tw_sim_mutant_is_of_traitors(int mutant) {
#ifdef TW_MUTANTS
#define X(upper, name, text) +1
    return mutant > 0 TW_MUTANT_LIST(X) TW_MUTANT_HOMES_LIST(X) && !tw_sim_mutant_is_pair(mutant);
#undef X
#else
    (void)mutant;
    return false;
#endif
}

bool tw_sim_mutant_is_of_homes(int mutant) {
#ifdef TW_MUTANTS
#define X(upper, name, text) +1
    return mutant > 0 TW_MUTANT_LIST(X) && !tw_sim_mutant_is_pair(mutant) &&
           !tw_sim_mutant_is_of_traitors(mutant);
#undef X
#else
    (void)mutant;
    return false;
#endif
}

int tw_sim_mutant_find(const char *name) {
    for (int i = 0; i < tw_sim_mutants_count(); i++) {
        if (strcmp(mutants[i].name, name) == 0) return i;
    }
    return 0;
}
