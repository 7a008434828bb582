/* model_absent.h - explains which files a folder without a readable model holds, and how to make a
 * model of them. */
#ifndef TW_WORKER_FILES_MODEL_ABSENT_H
#define TW_WORKER_FILES_MODEL_ABSENT_H

#include "base/status.h"

/* Refuses an adapter of peft, which holds only changes to a model. Returns TW_OK if the folder
 * holds none. */
enum tw_status tw_model_absent_adapter(const char *folder, struct tw_error *err);

/* Explains why a folder without config.json cannot be read. Always fails: with TW_CONFIG, naming a
 * model in another format or in a subfolder, or with TW_IO if there is none. */
enum tw_status tw_model_absent_config(const char *folder, struct tw_error *err);

/* Explains why a folder has no weights under the names that are read. Always fails: with TW_CONFIG,
 * naming the weights that are there, or with TW_IO if there are none. */
enum tw_status tw_model_absent_weights(const char *folder, struct tw_error *err);

#endif
