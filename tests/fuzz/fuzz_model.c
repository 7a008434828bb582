/* fuzz_model.c - arbitrary bytes as a model: the first two are the length of config.json, the rest
 * is model.safetensors. Refused with a sentence, or every tensor has finite values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/files/model_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ELEMENTS_MAX = 1 << 16 };

static char folder[64];

static void write_file(const char *name, const uint8_t *bytes, size_t size) {
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    TW_ASSERT(file != NULL);
    TW_ASSERT(fwrite(bytes, 1, size, file) == size);
    TW_ASSERT(fclose(file) == 0);
}

/* Uses a folder in memory if there is one, because each input makes two files. */
static void make_folder(void) {
    static const char *const PLACES[] = {"/dev/shm", "/tmp"};
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(folder, sizeof(folder), "%s/tw_fuzz_model_XXXXXX", PLACES[i]);
        if (mkdtemp(folder) != NULL) return;
    }
    TW_ASSERT(folder[0] == 0);
}

static void remove_folder(void) {
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static enum tw_status read_all(struct tw_model_source *source, struct tw_error *err) {
    static struct tw_run run;
    static struct tw_layout layout;
    static float values[ELEMENTS_MAX];
    TW_TRY(tw_engine_manifest_make(source, "fuzz", 0, &run, NULL, err));
    TW_TRY(tw_layout_init(&layout, &run, err));
    TW_TRY(tw_model_source_bind(source, &layout, "live", err));
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const uint64_t count = (uint64_t)layout.tensors[i].rows * layout.tensors[i].cols;
        TW_ASSERT(count <= ELEMENTS_MAX); /* bounded by the input's size */
        TW_TRY(tw_model_source_read(source, i, 0, count, values, err));
    }
    return TW_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int is_made;
    struct tw_model_source source;
    struct tw_error err = {TW_OK, ""};
    if (size < 2 || size > ELEMENTS_MAX) return 0;
    const size_t config = (size_t)(data[0] | data[1] << 8);
    if (config > size - 2) return 0;
    if (is_made == 0) {
        make_folder();
        TW_ASSERT(atexit(remove_folder) == 0);
        is_made = 1;
    }
    write_file("config.json", data + 2, config);
    write_file("model.safetensors", data + 2 + config, size - 2 - config);
    enum tw_status status = tw_model_source_open(&source, folder, &err);
    if (status == TW_OK) {
        status = read_all(&source, &err);
        tw_model_source_close(&source);
    }
    TW_ASSERT((status == TW_OK) == (err.message[0] == 0));
    return 0;
}
