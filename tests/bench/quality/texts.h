/* texts.h - the texts of a bench: one, or one of each kind for nodes with unlike data. */
#ifndef TW_TESTS_QUALITY_TEXTS_H
#define TW_TESTS_QUALITY_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"

enum { TEXTS_MAX = 8, TEXTS_NAME_BYTES = 24 };

struct texts {
    uint32_t count;
    const char *paths[TEXTS_MAX];            /* borrowed */
    char names[TEXTS_MAX][TEXTS_NAME_BYTES]; /* kinds: file names without folder and suffix */
    size_t bytes[TEXTS_MAX];
    struct tw_id id; /* SHA-256 of the text; of several texts, the hash of their hashes */
};

/* Adds the text at `path`, whose size and hash texts_hash finds. TW_CONFIG: there are TEXTS_MAX
 * texts already, or its kind cannot stand in a line of JSON. */
enum tw_status texts_add(struct texts *texts, const char *path, struct tw_error *err);

/* Reads all texts and sets their sizes and the id. Fails with TW_IO. */
enum tw_status texts_hash(struct texts *texts, struct tw_error *err);

/* Reads a whole file and appends a NUL. The caller frees *bytes. Fails with TW_IO. */
enum tw_status texts_read_file(const char *path, char **bytes, size_t *size, struct tw_error *err);

/* Computes the SHA-256 and the size of a file. Fails with TW_IO. */
enum tw_status texts_hash_file(const char *path, struct tw_id *id, size_t *size,
                               struct tw_error *err);

#endif
