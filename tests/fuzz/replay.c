/* replay.c - runs every file of the named folders through a fuzz target, for any compiler. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    enum { INPUT_BYTES_MAX = 1 << 20 };
    uint8_t *data = malloc(INPUT_BYTES_MAX);
    TW_ASSERT(data != NULL);
    const size_t size = fread(data, 1, INPUT_BYTES_MAX, file);
    (void)fclose(file);
    /* An exact copy, so that a sanitizer reports any read past the end. */
    uint8_t *exact = malloc(size > 0 ? size : 1);
    TW_ASSERT(exact != NULL);
    for (size_t i = 0; i < size; i++) exact[i] = data[i];
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    free(data);
    return 1;
}

int main(int argc, char **argv) {
    int files_count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            (void)fprintf(stderr, "replay: no corpus at %s\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            (void)snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            files_count += replay_file(path);
        }
        (void)closedir(folder);
    }
    (void)printf("%d inputs replayed\n", files_count);
    return files_count == 0;
}
