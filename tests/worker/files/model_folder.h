/* model_folder.h - folders with models for tests: copies of the golden models, and damaged files.
 */
#ifndef TW_TESTS_WORKER_FILES_MODEL_FOLDER_H
#define TW_TESTS_WORKER_FILES_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"

enum { FOLDER_PATH_BYTES = 512, FOLDER_FILE_BYTES = 64 * 1024 };

/* The golden models, saved by transformers: tests/golden/make_hf.py. Ends with NULL. */
extern const char *const GOLDEN_MODELS[];

/* Makes a new folder under /tmp. remove deletes it with its content, two levels deep. */
void folder_make(char path[FOLDER_PATH_BYTES]);
void folder_remove(const char *path);

/* Writes "folder/name" to path. */
void folder_path(char path[FOLDER_PATH_BYTES], const char *folder, const char *name);

/* Copies every file of a golden model in the folder `golden` to `to`. */
void folder_copy(const char *golden, const char *model, const char *to);

/* Read and write whole small files; assert on failure. */
size_t file_read(const char *path, uint8_t bytes[FOLDER_FILE_BYTES]);
void file_write(const char *path, const void *bytes, size_t size);

/* Number of files and folders in `path`. */
unsigned folder_count(const char *path);

/* Opens, checks and reads a whole model (folder or file) as `thinwire import` does, with a manifest
 * made from its config.json. */
enum tw_status folder_read(const char *path, struct tw_error *err);

#endif
