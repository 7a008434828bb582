/* engine_model.h - what the verbs know of a model before they open it: its manifest. */
#ifndef TW_WORKER_FILES_ENGINE_MODEL_H
#define TW_WORKER_FILES_ENGINE_MODEL_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/files/model_source.h"

/* Longest sequence a manifest made here trains on, where the model has no weights for positions. */
enum { TW_ENGINE_CONTEXT = 2048 };

/* Reads a manifest from a file and fills the layout. TW_IO: cannot be read; TW_CONFIG: refused. */
enum tw_status tw_engine_manifest_read(const char *path, struct tw_run *run,
                                       struct tw_layout *layout, struct tw_error *err);

/* A manifest for the model of a config.json, to go on training it: the model's keys as found,
 * context 0 or what the caller wants, training keys careful. `name` is made a run's name. *known
 * (may be NULL): positions the model knows. TW_CONFIG, TW_CORRUPT, TW_NOMEM. */
enum tw_status tw_engine_manifest_make(const struct tw_model_source *source, const char *name,
                                       uint32_t context, struct tw_run *run, uint32_t *known,
                                       struct tw_error *err);

/* Opens a model and binds it to a layout; with a manifest that must be the same model as its
 * config.json, where it has one. On failure nothing is left open. */
enum tw_status tw_engine_source_open(struct tw_model_source *source, const char *path,
                                     const struct tw_run *run, const struct tw_layout *layout,
                                     const char *part, struct tw_error *err);

#endif
