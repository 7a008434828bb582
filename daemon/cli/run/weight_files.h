/* weight_files.h - the safetensors files of a model: one file, or those in a folder. */
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
    json_t *map; /* weight_map of the index, from tensor to file; owned; NULL: there is no index */
    char paths[CLI_WEIGHT_FILES_MAX][TW_PATH_BYTES]; /* sorted by name */
};

/* Lists the file, or the files in the folder that transformers would load: model.safetensors, or
 * those that model.safetensors.index.json names. Without either, lists all files named
 * *.safetensors. The caller frees the list, also after a failure. Returns TW_DATA on failure, with
 * the remedy. */
enum tw_status cli_weight_files_find(const char *path, struct cli_weight_files *files,
                                     struct tw_error *err);
void cli_weight_files_free(struct cli_weight_files *files);

/* Computes model.base: the SHA-256 of the file, or of the list of the files' SHA-256. Reads them
 * all. */
enum tw_status cli_weight_files_digest(const struct cli_weight_files *files, struct tw_id *digest,
                                       struct tw_error *err);

#endif
