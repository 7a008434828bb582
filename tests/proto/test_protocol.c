/* test_protocol.c - the tables of PROTOCOL.md match the code. */
#include "tests/test.h"

#include "proto/frame.h"
#include "proto/message.h"
#include "proto/record.h"

static const char *path;
static char text[1 << 17];

static int load(void **state) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return -1;
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    return size > 0 && size < sizeof(text) - 1 ? 0 : -1;
}

/* Finds `row` at or after `from`. If it is missing, the test fails with the row's text. */
static const char *expect_row(const char *from, const char *row) {
    const char *found = strstr(from, row);
    if (found == NULL) fail_msg("PROTOCOL.md lacks, or has out of order: %s", row);
    return found;
}

TEST(message_table_has_every_kind) {
    const char *at = expect_row(text, "## 5.");
    char row[64];
#define X(name, value, member)                                                                     \
    (void)snprintf(row, sizeof(row), "\n| %d | %s | ", value, #name);                              \
    at = expect_row(at, row);
    TW_MESSAGE_LIST(X)
#undef X
}

TEST(sizes_are_those_of_the_code) {
    char row[128];
    (void)snprintf(row, sizeof(row), "| 0x%x | CHUNK, section 7 | bulk | %u |", TW_FRAME_CHUNK,
                   tw_frame_body_max(TW_FRAME_CHUNK));
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "| 0x%x | HELLO, section 3 | both | %u |", TW_FRAME_HELLO,
                   tw_frame_body_max(TW_FRAME_HELLO));
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "| 0x%x | GOODBYE, section 3 | both | %u |", TW_FRAME_GOODBYE,
                   tw_frame_body_max(TW_FRAME_GOODBYE));
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "| 0x%x | WELCOME, section 3 | guest | %u |", TW_FRAME_WELCOME,
                   tw_frame_body_max(TW_FRAME_WELCOME));
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "| others | skipped | both | %u |", tw_frame_body_max(0x4242));
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "at most %d bytes.", TW_RECORD_BYTES_MAX);
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "at most %d bytes: the line", TW_MANIFEST_BYTES_MAX);
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "i x %d on", TW_CHUNK_BYTES_MAX);
    (void)expect_row(text, row);
    (void)snprintf(row, sizeof(row), "chunk index, below %d |", TW_CHUNKS_MAX);
    (void)expect_row(text, row);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        print_error("usage: %s proto/PROTOCOL.md\n", argv[0]);
        return 2;
    }
    path = argv[1];
    return test_run(load, NULL);
}
