/* engine_model.h - opens a model for a command of thinwire-engine, and reads or makes its manifest.
 */
#ifndef TW_WORKER_FILES_ENGINE_MODEL_H
#define TW_WORKER_FILES_ENGINE_MODEL_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/files/model_source.h"

/* Default context length in tokens, unless the model's positions are weights. */
enum { TW_ENGINE_CONTEXT = 2048 };

/* Reads a manifest from a file and fills the layout. Fails with TW_IO if the file cannot be read,
 * and with TW_CONFIG if the manifest is invalid. */
enum tw_status tw_engine_manifest_read(const char *path, struct tw_run *run,
                                       struct tw_layout *layout, struct tw_error *err);

/* Makes a manifest to continue training the model of a config.json: model keys as found,
 * conservative training keys, and a run name derived from `name`. `context` is the caller's choice,
 * or 0 for the default. Sets *known (may be NULL) to the number of positions that the model
 * supports. Fails with TW_CONFIG, TW_CORRUPT or TW_NOMEM. */
enum tw_status tw_engine_manifest_make(const struct tw_model_source *source, const char *name,
                                       uint32_t context, struct tw_run *run, uint32_t *known,
                                       struct tw_error *err);

/* Opens a model and binds it to a layout. If a folder has a config.json, it must describe the
 * manifest's model. On failure nothing is left open. */
enum tw_status tw_engine_source_open(struct tw_model_source *source, const char *path,
                                     const struct tw_run *run, const struct tw_layout *layout,
                                     const char *part, struct tw_error *err);

#endif
