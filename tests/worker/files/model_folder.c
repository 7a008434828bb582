#include "tests/worker/files/model_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"
#include "worker/files/model_source.h"

const char *const GOLDEN_MODELS[] = {"gpt2", "llama", "llama-untied", "qwen2", "qwen3", NULL};

void folder_path(char path[FOLDER_PATH_BYTES], const char *folder, const char *name) {
    assert_true(snprintf(path, FOLDER_PATH_BYTES, "%s/%s", folder, name) < FOLDER_PATH_BYTES);
}

void folder_make(char path[FOLDER_PATH_BYTES]) {
    memcpy(path, "/tmp/tw_model_XXXXXX", 21);
    assert_non_null(mkdtemp(path));
}

/* Calls `visit` for every entry and returns their number. */
static unsigned each(const char *folder, void (*visit)(const char *path)) {
    unsigned count = 0;
    DIR *const dir = opendir(folder);
    if (dir == NULL) return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[FOLDER_PATH_BYTES];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        folder_path(path, folder, entry->d_name);
        if (visit != NULL) visit(path);
        count++;
    }
    (void)closedir(dir);
    return count;
}

static void remove_file(const char *path) {
    (void)remove(path);
}

static void remove_inner(const char *path) {
    (void)each(path, remove_file);
    (void)remove(path);
}

void folder_remove(const char *path) {
    (void)each(path, remove_inner);
    assert_int_equal(rmdir(path), 0);
}

unsigned folder_count(const char *path) {
    return each(path, NULL);
}

size_t file_read(const char *path, uint8_t bytes[FOLDER_FILE_BYTES]) {
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, FOLDER_FILE_BYTES, file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(size, 1, FOLDER_FILE_BYTES - 1);
    return size;
}

void file_write(const char *path, const void *bytes, size_t size) {
    (void)unlink(path); /* faster: some file systems flush a file that is truncated and rewritten */
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void folder_copy(const char *golden, const char *model, const char *to) {
    static uint8_t bytes[FOLDER_FILE_BYTES];
    char from[FOLDER_PATH_BYTES];
    folder_path(from, golden, model);
    DIR *const dir = opendir(from);
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char source[FOLDER_PATH_BYTES], target[FOLDER_PATH_BYTES];
        if (entry->d_name[0] == '.') continue;
        folder_path(source, from, entry->d_name);
        folder_path(target, to, entry->d_name);
        file_write(target, bytes, file_read(source, bytes));
    }
    assert_int_equal(closedir(dir), 0);
}

static enum tw_status read_all(struct tw_model_source *source, struct tw_error *err) {
    static struct tw_run run;
    static struct tw_layout layout;
    TW_TRY(tw_engine_manifest_make(source, "test", 0, &run, NULL, err));
    TW_TRY(tw_layout_init(&layout, &run, err));
    TW_TRY(tw_model_source_bind(source, &layout, "live", err));
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const uint64_t count = (uint64_t)layout.tensors[i].rows * layout.tensors[i].cols;
        float *const values = malloc(count * sizeof(*values));
        if (values == NULL) return tw_fail(err, TW_NOMEM, "no memory for a tensor");
        const enum tw_status status = tw_model_source_read(source, i, 0, count, values, err);
        free(values);
        TW_TRY(status);
    }
    return TW_OK;
}

enum tw_status folder_read(const char *path, struct tw_error *err) {
    struct tw_model_source source;
    TW_TRY(tw_model_source_open(&source, path, err));
    const enum tw_status status = read_all(&source, err);
    tw_model_source_close(&source);
    return status;
}
