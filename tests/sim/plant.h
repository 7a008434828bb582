/* plant.h - names of the bugs that can be switched on in the planted build of the core. */
#ifndef TW_SIM_PLANT_H
#define TW_SIM_PLANT_H

#include <stdbool.h>

/* Number of planted bugs + 1; 1 in the ordinary build. */
int tw_sim_plants_count(void);

/* "double-apply"; "none" for 0. */
const char *tw_sim_plant_name(int plant);

/* What the bug does, in a sentence. */
const char *tw_sim_plant_text(int plant);

/* It is of runs in pairs. */
bool tw_sim_plant_is_pair(int plant);

/* 0 when there is no such bug in this build. */
int tw_sim_plant_find(const char *name);

#endif
