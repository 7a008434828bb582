/* fuzz_megatron.c - a pair of Megatron's files through the reader, with every document and
 * boundary.
 *
 * Input: a byte of options, u16 size of the index, the index, the tokens. */
#include <fcntl.h>
#include <stddef.h>

#include "base/bytes.h"
#include "tests/fuzz/data_file.h"
#include "worker/data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int folder_file(const char *folder, const char *name, char path[64]) {
    (void)snprintf(path, 64, "%s/%s", folder, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    TW_ASSERT(fd >= 0);
    return fd;
}

static char folder[] = "/tmp/tw-fuzz-megatron-XXXXXX";
static char index_path[64], tokens_path[64];

static void remove_folder(void) {
    (void)unlink(index_path);
    (void)unlink(tokens_path);
    (void)rmdir(folder);
}

static void use_documents(void) {
    struct tw_megatron pair;
    struct tw_error err;
    if (tw_megatron_open(&pair, index_path, &err) != TW_OK) return;
    for (uint64_t i = 0; i <= pair.documents_count && i < 64; i++) {
        uint64_t first = 0;
        if (tw_megatron_document(&pair, i, &first, &err) != TW_OK) continue;
        TW_ASSERT(first <= pair.tokens_count);
        if (tw_megatron_boundary(&pair, first, &first, &err) != TW_OK) continue;
        TW_ASSERT(first <= pair.tokens_count);
    }
    tw_megatron_close(&pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct data_file index = {.fd = -1}, tokens = {.fd = -1};
    struct tw_run run;
    if (index.fd < 0) {
        TW_ASSERT(mkdtemp(folder) != NULL);
        index.fd = folder_file(folder, "x.idx", index_path);
        tokens.fd = folder_file(folder, "x.bin", tokens_path);
        TW_ASSERT(atexit(remove_folder) == 0);
    }
    if (size < 3) return 0;
    const size_t told = tw_get_u16(data + 1), left = size - 3;
    const size_t index_bytes = told < left ? told : left;
    data_file_set(&index, data + 3, index_bytes);
    data_file_set(&tokens, data + 3 + index_bytes, left - index_bytes);
    data_run(&run, data[0]);
    data_use(index_path, &run);
    use_documents();
    return 0;
}
