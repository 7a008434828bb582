/* fuzz_llmc.c - a file of token numbers through the reader: llm.c's shards, bare numbers, or text.
 *
 * Input: a byte of options, the first 12 bytes of the file, then the rest. Option 8 pads llm.c's
 * header with zeros before the rest. Option 16 sets the header's token count to the actual number.
 */
#include <stddef.h>

#include "base/bytes.h"
#include "tests/fuzz/data_file.h"

enum { HEAD_BYTES = 1024, INPUT_BYTES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct data_file file = {.fd = -1};
    static uint8_t bytes[HEAD_BYTES + INPUT_BYTES_MAX];
    struct tw_run run;
    if (file.fd < 0) data_file_open(&file);
    if (size < 13 || size > INPUT_BYTES_MAX) return 0;
    const uint8_t choice = data[0];
    const size_t head = (choice & 8) != 0 ? HEAD_BYTES : 12, rest = size - 13;
    memset(bytes, 0, HEAD_BYTES);
    memcpy(bytes, data + 1, 12);
    memcpy(bytes + head, data + 13, rest);
    if ((choice & 16) != 0) {
        const uint32_t each = tw_get_u32(bytes) == 20240520 ? 2 : 4;
        tw_put_u32(bytes + 8, (uint32_t)rest / each);
    }
    data_file_set(&file, bytes, head + rest);
    data_run(&run, choice);
    if ((choice & 32) != 0) {
        run.data.tokenizer = TW_TOKENIZER_BYTES;
        run.model.vocab = 256;
    }
    data_use(file.path, &run);
    return 0;
}
