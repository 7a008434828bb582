/* weight_files.h - the safetensors files of a model: one file, or those of a folder. */
#ifndef TW_DAEMON_CLI_RUN_WEIGHT_FILES_H
#define TW_DAEMON_CLI_RUN_WEIGHT_FILES_H

#include <stdint.h>

#include <jansson.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/config/config.h"

enum { CLI_WEIGHT_FILES_MAX = 512 };

struct cli_weight_files {
    uint32_t count;
    json_t *map; /* weight_map of the index: tensor to file; owned; NULL: there is no index */
    char paths[CLI_WEIGHT_FILES_MAX][TW_PATH_BYTES]; /* sorted by name */
};

/* Lists the file, or the files of the folder that transformers would load: model.safetensors, or
 * those that model.safetensors.index.json names; without either, all whose name ends with
 * .safetensors. The caller frees them, also after a failure. TW_DATA with the remedy. */
enum tw_status cli_weight_files_find(const char *path, struct cli_weight_files *files,
                                     struct tw_error *err);
void cli_weight_files_free(struct cli_weight_files *files);

/* SHA-256 as in model.base: of the file, or of the list of the files' SHA-256. Reads them all. */
enum tw_status cli_weight_files_digest(const struct cli_weight_files *files, struct tw_id *digest,
                                       struct tw_error *err);

#endif
