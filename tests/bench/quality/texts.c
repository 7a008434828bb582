/* texts.c - reads, names and hashes the texts of a bench. */
#include "tests/bench/quality/texts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum tw_status texts_add(struct texts *texts, const char *path, struct tw_error *err) {
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const size_t size = strcspn(base, ".");
    if (texts->count == TEXTS_MAX) {
        return tw_fail(err, TW_CONFIG, "more than %d texts: one kind more is %s", TEXTS_MAX, path);
    }
    for (size_t i = 0; i < size; i++) {
        if (isalnum((unsigned char)base[i]) || base[i] == '-' || base[i] == '_') continue;
        return tw_fail(err, TW_CONFIG, "%s: write the kind in letters, digits, - and _", path);
    }
    (void)snprintf(texts->names[texts->count], TEXTS_NAME_BYTES, "%.*s", (int)size, base);
    texts->paths[texts->count++] = path;
    return TW_OK;
}

enum tw_status texts_read_file(const char *path, char **bytes, size_t *size, struct tw_error *err) {
    FILE *file = fopen(path, "rb");
    *bytes = NULL;
    *size = 0;
    if (file == NULL) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    for (size_t room = 1 << 16, got = 1; got > 0; room *= 2) {
        char *larger = realloc(*bytes, room + 1);
        if (larger == NULL) break;
        *bytes = larger;
        got = fread(*bytes + *size, 1, room - *size, file);
        *size += got;
        if (*size < room) break;
    }
    const bool is_good = *bytes != NULL && feof(file) && !ferror(file);
    (void)fclose(file);
    if (!is_good) return tw_fail(err, TW_IO, "%s could not be read", path);
    (*bytes)[*size] = 0;
    return TW_OK;
}

enum tw_status texts_hash_file(const char *path, struct tw_id *id, size_t *size,
                               struct tw_error *err) {
    char *bytes = NULL;
    const enum tw_status status = texts_read_file(path, &bytes, size, err);
    if (status == TW_OK) *id = tw_sha256(bytes, *size);
    free(bytes);
    return status;
}

enum tw_status texts_hash(struct texts *texts, struct tw_error *err) {
    struct tw_id ids[TEXTS_MAX];
    for (uint32_t i = 0; i < texts->count; i++) {
        TW_TRY(texts_hash_file(texts->paths[i], &ids[i], &texts->bytes[i], err));
    }
    texts->id = texts->count == 1 ? ids[0] : tw_sha256(ids, texts->count * sizeof(ids[0]));
    return TW_OK;
}
