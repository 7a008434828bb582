/* replay.c - runs a fuzz target over inputs, for any compiler: `fuzz_codec_replay FILE...`. A file
 * named *.tar is a corpus (tests/fuzz/keep), whose members are the inputs; any other is one input.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { BLOCK_BYTES = 512, SIZE_AT = 124, TYPE_AT = 156, INPUT_BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs one input of `size` bytes at the file's position. The copy is exact, so that a sanitizer
 * reports any read past the end. */
static void replay_input(FILE *file, size_t size) {
    uint8_t *const data = malloc(size > 0 ? size : 1);
    TW_ASSERT(data != NULL);
    TW_ASSERT(fread(data, 1, size, file) == size);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
}

/* Reads the headers of POSIX ustar. Returns the number of inputs. */
static unsigned replay_archive(FILE *file) {
    char header[BLOCK_BYTES];
    unsigned count = 0;
    while (fread(header, 1, BLOCK_BYTES, file) == BLOCK_BYTES && header[0] != '\0') {
        TW_ASSERT(memcmp(header + 257, "ustar", 5) == 0);
        const size_t size = strtoul(header + SIZE_AT, NULL, 8);
        TW_ASSERT(header[TYPE_AT] == '0');
        TW_ASSERT(size <= INPUT_BYTES_MAX);
        replay_input(file, size);
        TW_ASSERT(fseek(file, (long)((BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES), SEEK_CUR) ==
                  0);
        count++;
    }
    return count;
}

static unsigned replay_file(FILE *file, const char *path) {
    const char *const end = strrchr(path, '.');
    if (end != NULL && strcmp(end, ".tar") == 0) return replay_archive(file);
    TW_ASSERT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    TW_ASSERT(size >= 0);
    rewind(file);
    replay_input(file, (size_t)size);
    return 1;
}

int main(int argc, char **argv) {
    unsigned count = 0;
    for (int i = 1; i < argc; i++) {
        FILE *const file = fopen(argv[i], "rb");
        if (file == NULL) {
            (void)fprintf(stderr, "replay: no inputs at %s\n", argv[i]);
            return 1;
        }
        count += replay_file(file, argv[i]);
        (void)fclose(file);
    }
    (void)printf("%u inputs replayed\n", count);
    return count == 0;
}
