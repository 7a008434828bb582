/* plant.c - see plant.h. */
#include "tests/sim/plant.h"

#include <string.h>

#ifdef TW_PLANT
#include "sync/plant.h"
#endif

static const struct {
    const char *name, *text;
} plants[] = {{"none", "no bug"},
#ifdef TW_PLANT
#define X(upper, name, text) {name, text},
              TW_PLANT_LIST(X) TW_PLANT_PAIR_LIST(X)
#undef X
#endif
};

int tw_sim_plants_count(void) {
    return (int)(sizeof plants / sizeof plants[0]);
}

const char *tw_sim_plant_name(int plant) {
    return plants[plant].name;
}

const char *tw_sim_plant_text(int plant) {
    return plants[plant].text;
}

bool tw_sim_plant_is_pair(int plant) {
#ifdef TW_PLANT
#define X(upper, name, text) +1
    return plant > 0 TW_PLANT_LIST(X);
#undef X
#else
    (void)plant;
    return false;
#endif
}

int tw_sim_plant_find(const char *name) {
    for (int i = 1; i < tw_sim_plants_count(); i++) {
        if (strcmp(plants[i].name, name) == 0) return i;
    }
    return 0;
}
