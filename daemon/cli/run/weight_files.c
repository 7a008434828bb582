#include "daemon/cli/run/weight_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

static const char single_name[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json";

static bool ends_with(const char *text, const char *end) {
    const size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Adds a file of the folder, unless it is listed already. */
static enum tw_status add_file(struct cli_weight_files *files, const char *folder, const char *name,
                               struct tw_error *err) {
    char path[TW_PATH_BYTES];
    const int size = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (size < 0 || (size_t)size >= sizeof(path))
        return tw_fail(err, TW_DATA, "%.100s/%.100s: the path is too long", folder, name);
    for (uint32_t i = 0; i < files->count; i++) {
        if (strcmp(files->paths[i], path) == 0) return TW_OK;
    }
    if (files->count == CLI_WEIGHT_FILES_MAX)
        return tw_fail(err, TW_DATA, "%.150s has more than %d weight files", folder,
                       CLI_WEIGHT_FILES_MAX);
    memcpy(files->paths[files->count++], path, (size_t)size + 1);
    return TW_OK;
}

static enum tw_status add_indexed(struct cli_weight_files *files, const char *folder,
                                  const json_t *index, struct tw_error *err) {
    const char *tensor;
    json_t *file;
    json_t *const map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return tw_fail(err, TW_DATA, "%.150s/%s has no weight_map", folder, index_name);
    json_object_foreach(map, tensor, file) {
        const char *const name = json_string_value(file);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)
            return tw_fail(err, TW_DATA, "%.150s/%s names no file of the folder for %.60s", folder,
                           index_name, tensor);
        TW_TRY(add_file(files, folder, name, err));
        if (access(files->paths[files->count - 1], F_OK) != 0)
            return tw_fail(err, TW_DATA, "%.80s lacks %.80s, which its %s names: copy it too",
                           folder, name, index_name);
    }
    files->map = json_incref(map);
    return TW_OK;
}

static enum tw_status add_all(struct cli_weight_files *files, const char *folder,
                              struct tw_error *err) {
    DIR *const dir = opendir(folder);
    enum tw_status status = TW_OK;
    if (dir == NULL) return tw_fail(err, TW_DATA, "%.200s: %s", folder, strerror(errno));
    for (const struct dirent *row = readdir(dir); row != NULL && status == TW_OK;
         row = readdir(dir)) {
        if (ends_with(row->d_name, ".safetensors"))
            status = add_file(files, folder, row->d_name, err);
    }
    (void)closedir(dir);
    return status;
}

static enum tw_status add_folder(struct cli_weight_files *files, const char *folder,
                                 struct tw_error *err) {
    char path[TW_PATH_BYTES + sizeof(index_name)];
    json_error_t why;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, single_name);
    if (access(path, F_OK) == 0) return add_file(files, folder, single_name, err);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, index_name);
    if (access(path, F_OK) != 0) return add_all(files, folder, err);
    json_t *const index = json_load_file(path, 0, &why);
    if (index == NULL) return tw_fail(err, TW_DATA, "%.150s: %.100s", path, why.text);
    const enum tw_status status = add_indexed(files, folder, index, err);
    json_decref(index);
    return status;
}

enum tw_status cli_weight_files_find(const char *path, struct cli_weight_files *files,
                                     struct tw_error *err) {
    struct stat info;
    files->count = 0;
    files->map = NULL;
    if (stat(path, &info) != 0) return tw_fail(err, TW_DATA, "%.200s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        if (strlen(path) >= TW_PATH_BYTES) return tw_fail(err, TW_DATA, "the path is too long");
        files->count = 1;
        memcpy(files->paths[0], path, strlen(path) + 1);
        return TW_OK;
    }
    TW_TRY(add_folder(files, path, err));
    if (files->count == 0)
        return tw_fail(err, TW_DATA,
                       "%.200s has no safetensors file: `model.save_pretrained(FOLDER)` or "
                       "safetensors.torch.save_file write one",
                       path);
    qsort(files->paths, files->count, sizeof(files->paths[0]), compare_paths);
    return TW_OK;
}

void cli_weight_files_free(struct cli_weight_files *files) {
    json_decref(files->map);
    files->map = NULL;
}

static enum tw_status hash_file(const char *path, struct tw_id *digest, struct tw_error *err) {
    enum { BLOCK = 1 << 20 };
    static uint8_t block[BLOCK];
    struct tw_sha256_parts parts;
    FILE *const file = fopen(path, "re");
    if (file == NULL) return tw_fail(err, TW_DATA, "%.200s: %s", path, strerror(errno));
    tw_sha256_begin(&parts);
    for (size_t size = BLOCK; size == BLOCK;) {
        size = fread(block, 1, BLOCK, file);
        tw_sha256_add(&parts, block, size);
    }
    const bool is_bad = ferror(file) != 0;
    (void)fclose(file);
    *digest = tw_sha256_end(&parts);
    return is_bad ? tw_fail(err, TW_DATA, "%.200s: cannot be read", path) : TW_OK;
}

enum tw_status cli_weight_files_digest(const struct cli_weight_files *files, struct tw_id *digest,
                                       struct tw_error *err) {
    struct tw_sha256_parts parts;
    if (files->count == 1) return hash_file(files->paths[0], digest, err);
    tw_sha256_begin(&parts);
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; i < files->count; i++) {
        char hex[TW_ID_HEX_BYTES];
        if (status == TW_OK) status = hash_file(files->paths[i], digest, err);
        tw_id_hex(digest, hex);
        tw_sha256_add(&parts, hex, sizeof(hex) - 1);
        tw_sha256_add(&parts, "\n", 1);
    }
    *digest = tw_sha256_end(&parts);
    return status;
}
