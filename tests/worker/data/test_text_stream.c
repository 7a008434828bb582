/* Compressed and plain files give the same bytes; damaged files give an error message. */
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file_kind.h"
#include "base/rng.h"
#include "tests/test.h"
#include "worker/data/text_stream.h"

enum { TEXT_BYTES = 700000 };

static const char *written_by_others; /* path of tests/data */
static uint64_t free_bytes;

/* Replaces tw_machine_memory of base/machine.h. */
uint64_t __wrap_tw_machine_memory(void);
uint64_t __wrap_tw_machine_memory(void) {
    return free_bytes;
}
static char folder[] = "/tmp/tw-text-stream-XXXXXX";
static uint8_t text[TEXT_BYTES], packed[2 * TEXT_BYTES];

static int make_text(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 5);
    for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = (uint8_t)(' ' + tw_rng_below(&rng, 40));
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    return rmdir(folder);
}

static const char *write_file(const char *name, const void *bytes, size_t size) {
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static size_t pack_gzip(uint8_t *to, size_t room, const uint8_t *from, size_t size) {
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (uint8_t *)(uintptr_t)from;
    stream.avail_in = (uInt)size;
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    const size_t used = room - stream.avail_out;
    (void)deflateEnd(&stream);
    return used;
}

/* Packs the text into two concatenated gzip members or zstd frames. */
static size_t pack(enum tw_packing packing) {
    const size_t half = TEXT_BYTES / 2;
    if (packing == TW_PACKING_NONE) {
        memcpy(packed, text, TEXT_BYTES);
        return TEXT_BYTES;
    }
    if (packing == TW_PACKING_GZIP) {
        const size_t used = pack_gzip(packed, sizeof(packed), text, half);
        return used + pack_gzip(packed + used, sizeof(packed) - used, text + half, half);
    }
    const size_t used = ZSTD_compress(packed, sizeof(packed), text, half, 3);
    return used + ZSTD_compress(packed + used, sizeof(packed) - used, text + half, half, 3);
}

/* The name does not decide how a file is read. */
static const char *const NAMES[] = {"a.gz", "a.txt", "a.txt.zst"};

/* Reads to the end in pieces of `step` bytes; *got is the total. */
static enum tw_status read_all(struct tw_text_stream *stream, size_t step, uint8_t *to, size_t *got,
                               struct tw_error *err) {
    enum tw_status status = TW_OK;
    size_t n = step;
    for (*got = 0; status == TW_OK && n == step; *got += n) {
        status = tw_text_stream_read(stream, to + *got, step, &n, err);
    }
    return status;
}

TEST(packed_text_comes_out_whole) {
    static const size_t STEPS[] = {1, 4096, 100001, TEXT_BYTES};
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_NONE; packing <= TW_PACKING_ZSTD; packing++) {
        const size_t size = pack(packing);
        const char *const path = write_file(NAMES[packing], packed, size);
        for (unsigned i = packing == TW_PACKING_NONE ? 1 : 0; i < 4; i++) {
            struct tw_text_stream *stream;
            struct tw_error err;
            size_t got = 0;
            assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_OK);
            assert_int_equal(read_all(stream, STEPS[i], out, &got, &err), TW_OK);
            assert_int_equal(got, TEXT_BYTES);
            assert_memory_equal(out, text, TEXT_BYTES);
            assert_int_equal(tw_text_stream_taken(stream), size);
            tw_text_stream_close(stream);
        }
        assert_int_equal(unlink(path), 0);
    }
    free(out);
}

TEST(skipping_is_reading) {
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_NONE; packing <= TW_PACKING_ZSTD; packing++) {
        struct tw_text_stream *stream;
        struct tw_error err;
        size_t got = 0;
        const char *const path = write_file(NAMES[packing], packed, pack(packing));
        assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_OK);
        assert_int_equal(tw_text_stream_skip(stream, 600000, &err), TW_OK);
        assert_int_equal(read_all(stream, 65536, out, &got, &err), TW_OK);
        assert_int_equal(got, TEXT_BYTES - 600000);
        assert_memory_equal(out, text + 600000, got);
        if (packing != TW_PACKING_NONE) {
            assert_int_equal(tw_text_stream_skip(stream, 1, &err), TW_DATA);
            assert_non_null(strstr(err.message, "has become shorter"));
        }
        tw_text_stream_close(stream);
        assert_int_equal(unlink(path), 0);
    }
    free(out);
}

/* Truncation anywhere except between members is reported, after the text before it is returned. */
TEST(truncated_file_is_reported) {
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_GZIP; packing <= TW_PACKING_ZSTD; packing++) {
        const size_t size = pack(packing);
        const size_t CUTS[] = {5, 1000, size / 4, size - 9, size - 1};
        for (unsigned i = 0; i < 5; i++) {
            struct tw_text_stream *stream;
            struct tw_error err;
            size_t got = 0;
            const char *const path = write_file(NAMES[packing], packed, CUTS[i]);
            assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_OK);
            assert_int_equal(read_all(stream, 65536, out, &got, &err), TW_DATA);
            assert_non_null(strstr(err.message, "ends in the middle"));
            assert_true(got <= TEXT_BYTES);
            assert_memory_equal(out, text, got);
            tw_text_stream_close(stream);
            assert_int_equal(unlink(path), 0);
        }
    }
    free(out);
}

TEST(bytes_behind_the_end_are_reported) {
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_GZIP; packing <= TW_PACKING_ZSTD; packing++) {
        struct tw_text_stream *stream;
        struct tw_error err;
        size_t got = 0;
        size_t size = pack(packing);
        memcpy(packed + size, "rubbish behind it", 17); /* not a member */
        const char *const path = write_file(NAMES[packing], packed, size + 17);
        assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_OK);
        assert_int_equal(read_all(stream, 65536, out, &got, &err), TW_DATA);
        assert_non_null(strstr(err.message, "data end at byte"));
        assert_non_null(strstr(err.message, "and other bytes follow"));
        tw_text_stream_close(stream);
        assert_int_equal(unlink(path), 0);
    }
    free(out);
}

/* gzip ignores zero bytes after a member, and further members may follow them. */
TEST(padding_of_gzip_is_skipped) {
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    const size_t half = TEXT_BYTES / 2;
    for (unsigned zeros = 1; zeros < 300000; zeros += 149999) {
        struct tw_text_stream *stream;
        struct tw_error err = {.message = ""};
        size_t got = 0, used = pack_gzip(packed, sizeof(packed), text, half);
        memset(packed + used, 0, zeros);
        used += zeros;
        used += pack_gzip(packed + used, sizeof(packed) - used, text + half, half);
        memset(packed + used, 0, zeros);
        const char *const path = write_file("a.gz", packed, used + zeros);
        assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_OK);
        if (read_all(stream, 65536, out, &got, &err) != TW_OK) fail_msg("%s", err.message);
        assert_int_equal(got, TEXT_BYTES);
        assert_memory_equal(out, text, TEXT_BYTES);
        tw_text_stream_close(stream);
        assert_int_equal(unlink(path), 0);
    }
    free(out);
}

static enum tw_status read_others(const char *name, uint8_t *out, size_t *got,
                                  struct tw_error *err) {
    char path[512];
    struct tw_text_stream *stream;
    (void)snprintf(path, sizeof(path), "%s/zstd/%s", written_by_others, name);
    assert_int_equal(tw_text_stream_open(&stream, path, err), TW_OK);
    const enum tw_status status = read_all(stream, 65536, out, got, err);
    tw_text_stream_close(stream);
    return status;
}

/* Files made by the zstd program: large windows, dictionaries, patches, damage. */
TEST(limits_of_zstd_are_not_called_damage) {
    uint8_t *const out = malloc(8 << 20);
    struct tw_error err = {.message = ""};
    size_t got = 0;
    free_bytes = UINT64_C(5) << 30;
    if (read_others("long31.zst", out, &got, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(got, 3000);
    assert_memory_equal(out, "line 0 of", 9);
    if (read_others("long28-second-frame.zst", out, &got, &err) != TW_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(got, 3000 + 3000);
    free_bytes = UINT64_C(2) << 30;
    assert_int_equal(read_others("long31.zst", out, &got, &err), TW_DATA);
    assert_non_null(strstr(err.message, "needs 2.15 GB of memory to unpack (zstd --long)"));
    assert_non_null(strstr(err.message, "half of the 2.15 GB that are free"));
    assert_int_equal(read_others("dictionary.zst", out, &got, &err), TW_DATA);
    assert_non_null(strstr(err.message, "was packed with a dictionary, which is in another file"));
    assert_int_equal(read_others("patch.zst", out, &got, &err), TW_DATA);
    assert_non_null(strstr(err.message, "or it was packed with a dictionary or --patch-from"));
    free(out);
}

TEST(unreadable_files_are_reported) {
    struct tw_text_stream *stream;
    struct tw_error err;
    const char *const path = write_file("b.gz", text, 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tw_text_stream_open(&stream, path, &err), TW_IO);
    assert_null(stream);
    assert_int_equal(tw_text_stream_open(&stream, folder, &err), TW_DATA);
    assert_non_null(strstr(err.message, "is not a plain file"));
}

int main(int argc, char **argv) {
    assert_int_equal(argc, 2);
    written_by_others = argv[1];
    return test_run(make_text, remove_folder);
}
