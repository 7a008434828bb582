/* Compressed and plain files give the same bytes, or an error message. */
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/rng.h"
#include "tests/test.h"
#include "worker/data/text_stream.h"

enum { TEXT_BYTES = 700000 };

static char folder[] = "/tmp/tw-text-stream-XXXXXX";
static uint8_t text[TEXT_BYTES], packed[2 * TEXT_BYTES];

static int make_text(void **state) {
    struct tw_rng rng;
    (void)state;
    tw_rng_seed(&rng, 5);
    for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = (uint8_t)(' ' + tw_rng_below(&rng, 40));
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
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

/* Two concatenated members or frames. */
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

static const char *const NAMES[] = {"a.txt", "a.txt.gz", "a.txt.zst"};

/* Reads to the end in pieces of `step`; *got is the total. */
static enum tw_status read_all(struct tw_text_stream *stream, size_t step, uint8_t *to, size_t *got,
                               struct tw_error *err) {
    enum tw_status status = TW_OK;
    size_t n = step;
    for (*got = 0; status == TW_OK && n == step; *got += n) {
        status = tw_text_stream_read(stream, to + *got, step, &n, err);
    }
    return status;
}

static void packed_text_comes_out_whole(void **state) {
    (void)state;
    static const size_t STEPS[] = {1, 4096, 100001, TEXT_BYTES};
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_NONE; packing <= TW_PACKING_ZSTD; packing++) {
        const size_t size = pack(packing);
        const char *const path = write_file(NAMES[packing], packed, size);
        assert_int_equal(tw_packing_of_name(path), packing);
        for (unsigned i = packing == TW_PACKING_NONE ? 1 : 0; i < 4; i++) {
            struct tw_text_stream *stream;
            struct tw_error err;
            size_t got = 0;
            assert_int_equal(tw_text_stream_open(&stream, path, packing, &err), TW_OK);
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

static void skipping_is_reading(void **state) {
    (void)state;
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_NONE; packing <= TW_PACKING_ZSTD; packing++) {
        struct tw_text_stream *stream;
        struct tw_error err;
        size_t got = 0;
        const char *const path = write_file(NAMES[packing], packed, pack(packing));
        assert_int_equal(tw_text_stream_open(&stream, path, packing, &err), TW_OK);
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

/* A cut anywhere except between members is reported, after the text before it. */
static void truncated_file_is_reported(void **state) {
    (void)state;
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_GZIP; packing <= TW_PACKING_ZSTD; packing++) {
        const size_t size = pack(packing);
        const size_t CUTS[] = {5, 1000, size / 4, size - 9, size - 1};
        for (unsigned i = 0; i < 5; i++) {
            struct tw_text_stream *stream;
            struct tw_error err;
            size_t got = 0;
            const char *const path = write_file(NAMES[packing], packed, CUTS[i]);
            assert_int_equal(tw_text_stream_open(&stream, path, packing, &err), TW_OK);
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

static void damaged_file_is_reported(void **state) {
    (void)state;
    uint8_t *const out = malloc(2 * TEXT_BYTES);
    for (enum tw_packing packing = TW_PACKING_GZIP; packing <= TW_PACKING_ZSTD; packing++) {
        struct tw_text_stream *stream;
        struct tw_error err;
        size_t got = 0;
        size_t size = pack(packing);
        memcpy(packed + size, "rubbish behind it", 17); /* not a member */
        const char *const path = write_file(NAMES[packing], packed, size + 17);
        assert_int_equal(tw_text_stream_open(&stream, path, packing, &err), TW_OK);
        assert_int_equal(read_all(stream, 65536, out, &got, &err), TW_DATA);
        assert_non_null(strstr(err.message, "is damaged"));
        tw_text_stream_close(stream);
        assert_int_equal(unlink(path), 0);
    }
    free(out);
}

static void unreadable_files_are_reported(void **state) {
    (void)state;
    struct tw_text_stream *stream;
    struct tw_error err;
    const char *path = write_file("b.gz", text, 1000);
    assert_int_equal(tw_text_stream_open(&stream, path, TW_PACKING_GZIP, &err), TW_DATA);
    assert_non_null(strstr(err.message, "does not begin as a gzip file does"));
    assert_null(stream);
    path = write_file("b.gz", text, 0);
    assert_int_equal(tw_text_stream_open(&stream, path, TW_PACKING_GZIP, &err), TW_DATA);
    assert_non_null(strstr(err.message, "is empty"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tw_text_stream_open(&stream, path, TW_PACKING_GZIP, &err), TW_IO);
    assert_int_equal(tw_text_stream_open(&stream, folder, TW_PACKING_NONE, &err), TW_DATA);
    assert_non_null(strstr(err.message, "is not a plain file"));
}

static void packing_is_known_by_its_first_bytes(void **state) {
    (void)state;
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x1F\x8B", 2), TW_PACKING_GZIP);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x28\xB5\x2F\xFD", 4), TW_PACKING_ZSTD);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x5A\x2A\x4D\x18", 4), TW_PACKING_ZSTD);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x28\xB5\x2F", 3), TW_PACKING_NONE);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"text", 4), TW_PACKING_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_text_comes_out_whole),
        cmocka_unit_test(skipping_is_reading),
        cmocka_unit_test(truncated_file_is_reported),
        cmocka_unit_test(damaged_file_is_reported),
        cmocka_unit_test(unreadable_files_are_reported),
        cmocka_unit_test(packing_is_known_by_its_first_bytes),
    };
    return cmocka_run_group_tests(tests, make_text, remove_folder);
}
