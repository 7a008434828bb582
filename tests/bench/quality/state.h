/* state.h - a case that runs, on disk: everything that training changes. A case that was stopped
 * goes on from its file, and ends with the same bits as one that was never stopped.
 *
 * A file belongs to one case and one build of the program, since it has the memory of its structs.
 * It ends with the SHA-256 of the rest, and replaces the older file only when it is complete. */
#ifndef TW_TESTS_QUALITY_STATE_H
#define TW_TESTS_QUALITY_STATE_H

#include "tests/bench/quality/world.h"

/* Returns false for a world with a jury, whose cores cannot be written. */
bool state_can_save(const struct world *world);

/* Writes the state between two events. Fails with TW_IO. */
enum tw_status state_save(const char *path, const struct tw_id *program, struct world *world,
                          struct outcome *outcome, struct tw_error *err);

/* Reads the state into a world that was just opened for the same case. Sets *is_found to false,
 * with nothing changed, if there is no file, or one that is damaged or of another build. Fails with
 * TW_IO, or TW_NOMEM. */
enum tw_status state_load(const char *path, const struct tw_id *program, struct world *world,
                          struct outcome *outcome, bool *is_found, struct tw_error *err);

#endif
