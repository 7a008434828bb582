/* model_absent.h - names the contents of a folder without a model, and how a model comes of them.
 */
#ifndef TW_WORKER_FILES_MODEL_ABSENT_H
#define TW_WORKER_FILES_MODEL_ABSENT_H

#include "base/status.h"

/* Refuses an adapter of peft, which holds only changes to a model. TW_OK: it is none. */
enum tw_status tw_model_absent_adapter(const char *folder, struct tw_error *err);

/* Fails for a folder without config.json: TW_CONFIG names a model in another form, or in a folder
 * within; TW_IO: there is none. */
enum tw_status tw_model_absent_config(const char *folder, struct tw_error *err);

/* Fails for a folder without weights under the names that are read: TW_CONFIG names those that are
 * there; TW_IO: there are none. */
enum tw_status tw_model_absent_weights(const char *folder, struct tw_error *err);

#endif
