/* fuzz_text_stream.c - arbitrary bytes as a plain or packed file: refused with a sentence, or text
 * that does not depend on how it is read. Input: size of a piece, then the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/data/text_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Replaces the function of base/machine.h, so that no frame gets a window of gigabytes. */
uint64_t __wrap_tw_machine_memory(void);
uint64_t __wrap_tw_machine_memory(void) {
    return 256 << 20;
}

enum { OUT_BYTES = 1 << 16 }; /* limit of reading, because a few bytes can expand to gigabytes */

/* Reads the whole file. Returns the final status and sets *got to the number of bytes. */
static enum tw_status read_all(const char *path, size_t piece, uint8_t *out, size_t *got) {
    struct tw_text_stream *stream;
    struct tw_error err;
    *got = 0;
    enum tw_status status = tw_text_stream_open(&stream, path, &err);
    while (status == TW_OK && *got < OUT_BYTES) {
        const size_t want = piece < OUT_BYTES - *got ? piece : OUT_BYTES - *got;
        size_t n = 0;
        status = tw_text_stream_read(stream, out + *got, want, &n, &err);
        TW_ASSERT(n <= want);
        *got += n;
        if (status == TW_OK && n < want) break;
    }
    if (status != TW_OK) {
        TW_ASSERT(status == TW_DATA);
        TW_ASSERT(memchr(err.message, 0, sizeof(err.message)) != NULL);
    }
    tw_text_stream_close(stream);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t first[OUT_BYTES], second[OUT_BYTES];
    static int fd = -1;
    static char path[64];
    size_t first_got = 0, second_got = 0;
    if (size < 2) return 0;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        TW_ASSERT(fd >= 0);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    const size_t piece = 1 + (data[0] | (size_t)data[1] << 8);
    TW_ASSERT(ftruncate(fd, 0) == 0);
    TW_ASSERT(pwrite(fd, data + 2, size - 2, 0) == (ssize_t)(size - 2));
    const enum tw_status one = read_all(path, OUT_BYTES, first, &first_got);
    const enum tw_status two = read_all(path, piece, second, &second_got);
    if (one == TW_OK && two == TW_OK) TW_ASSERT(first_got == second_got);
    const size_t both = first_got < second_got ? first_got : second_got;
    TW_ASSERT(memcmp(first, second, both) == 0);
    return 0;
}
