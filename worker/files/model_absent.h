/* model_absent.h - explains which files a folder without a readable model holds, and how to make a
 * model of them. */
#ifndef TW_WORKER_FILES_MODEL_ABSENT_H
#define TW_WORKER_FILES_MODEL_ABSENT_H

#include "base/status.h"

/* Refuses an adapter of peft, which holds only changes to a model. Returns TW_OK if the folder
 * holds none. */
enum tw_status tw_model_absent_adapter(const char *folder, struct tw_error *err);

/* Always fails; for a folder without config.json. TW_CONFIG names a model in another format or in a
 * subfolder. TW_IO: there is no model. */
enum tw_status tw_model_absent_config(const char *folder, struct tw_error *err);

/* Always fails; for a folder without weights under the names that are read. TW_CONFIG names the
 * weights that are there. TW_IO: there are none. */
enum tw_status tw_model_absent_weights(const char *folder, struct tw_error *err);

#endif
