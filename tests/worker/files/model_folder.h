/* model_folder.h - folders with models for tests: copies of the golden ones, files to break. */
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

/* A new folder under /tmp; removed with all that is in it, two levels deep. */
void folder_make(char path[FOLDER_PATH_BYTES]);
void folder_remove(const char *path);

/* "a/b" into path. */
void folder_path(char path[FOLDER_PATH_BYTES], const char *folder, const char *name);

/* Copies every file of a golden model (of the folder `golden`) into `to`. */
void folder_copy(const char *golden, const char *model, const char *to);

/* Whole small files; asserts when that is not possible. */
size_t file_read(const char *path, uint8_t bytes[FOLDER_FILE_BYTES]);
void file_write(const char *path, const void *bytes, size_t size);

/* Files and folders in `path`, but "." and "..". */
unsigned folder_count(const char *path);

/* Opens, checks and reads everything in a model (folder or file) as `thinwire import` does, with
 * the manifest its config.json makes. */
enum tw_status folder_read(const char *path, struct tw_error *err);

#endif
