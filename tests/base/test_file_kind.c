/* Files of other programs are recognised by their first bytes; texts are not. The argument is the
 * path of tests/data. */
#include "base/file_kind.h"

#include "tests/test.h"

static const char *written_by_others;

static size_t read_head(const char *name, uint8_t bytes[TW_FILE_KIND_BYTES]) {
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/heads/%s", written_by_others, name);
    FILE *const file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s is not there", path);
    const size_t size = fread(bytes, 1, TW_FILE_KIND_BYTES, file);
    (void)fclose(file);
    return size;
}

TEST(files_of_other_programs_are_named) {
    static const struct {
        const char *file, *name;
        enum tw_file_holds holds;
    } FILES[] = {
        {"pyarrow.parquet", "a Parquet file", TW_HOLDS_TEXT},
        {"pyarrow.feather", "an Arrow file", TW_HOLDS_TEXT},
        {"pyarrow-file.arrow", "an Arrow file", TW_HOLDS_TEXT},
        {"pyarrow-stream.arrow", "an Arrow stream", TW_HOLDS_TEXT},
        {"datasets-save_to_disk.arrow", "an Arrow stream", TW_HOLDS_TEXT},
        {"pyarrow.orc", "an ORC file", TW_HOLDS_TEXT},
        {"numpy.npy", "a NumPy array", TW_HOLDS_TEXT},
        {"numpy.npz", "a zip archive", TW_HOLDS_TEXT},
        {"zipfile.zip", "a zip archive", TW_HOLDS_TEXT},
        {"pickle-2.pkl", "a Python pickle", TW_HOLDS_TEXT},
        {"pickle-3.pkl", "a Python pickle", TW_HOLDS_TEXT},
        {"pickle-4.pkl", "a Python pickle", TW_HOLDS_TEXT},
        {"pickle-5.pkl", "a Python pickle", TW_HOLDS_TEXT},
        {"python-docx.docx", "an Office document (docx, xlsx)", TW_HOLDS_TEXT},
        {"openpyxl.xlsx", "an Office document (docx, xlsx)", TW_HOLDS_TEXT},
        {"fpdf2.pdf", "a PDF", TW_HOLDS_TEXT},
        {"sqlite3.db", "an SQLite database", TW_HOLDS_TEXT},
        {"bz2.bz2", "packed by bzip2", TW_HOLDS_TEXT},
        {"lzma.xz", "packed by xz", TW_HOLDS_TEXT},
        {"lzma.lzma", "packed by lzma", TW_HOLDS_TEXT},
        {"lz4.lz4", "packed by lz4", TW_HOLDS_TEXT},
        {"zlib.zz", "zlib data without a gzip header", TW_HOLDS_TEXT},
        {"pillow.png", "a PNG picture", TW_HOLDS_NOTHING},
        {"pillow.jpeg", "a JPEG picture", TW_HOLDS_NOTHING},
        {"pillow.gif", "a GIF picture", TW_HOLDS_NOTHING},
        {"pillow.webp", "a WebP picture", TW_HOLDS_NOTHING},
        {"pillow.tiff", "a TIFF picture", TW_HOLDS_NOTHING},
        {"python-utf-16.txt", "UTF-16", TW_HOLDS_TEXT},
        {"python-utf-16-le.txt", "UTF-16 without a mark", TW_HOLDS_TEXT},
        {"python-utf-16-be.txt", "UTF-16 without a mark", TW_HOLDS_TEXT},
        {"python-utf-32.txt", "UTF-32", TW_HOLDS_TEXT},
        {"python-utf-32-be-mark.txt", "UTF-32", TW_HOLDS_TEXT},
    };
    uint8_t bytes[TW_FILE_KIND_BYTES];
    for (unsigned i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        const size_t size = read_head(FILES[i].file, bytes);
        const struct tw_file_kind *const kind = tw_file_kind_of(bytes, size);
        if (kind == NULL) fail_msg("%s has no name", FILES[i].file);
        assert_string_equal(kind->name, FILES[i].name);
        assert_int_equal(kind->holds, FILES[i].holds);
        assert_true(strlen(kind->name) + strlen(kind->remedy) < 150); /* fits a message */
    }
}

TEST(markup_is_named_after_marks_and_blanks) {
    static const char *const PAGES[] = {
        "<!DOCTYPE html><p>",  "\xEF\xBB\xBF\r\n <HTML lang=en>", "\n<?xml version='1.0'?>",
        "<mediawiki xmlns=x>", "<doc id=\"1\" url=\"\">",         "{'text': 'a'}",
        "[{'text': 'a'}]"};
    for (unsigned i = 0; i < sizeof(PAGES) / sizeof(PAGES[0]); i++) {
        const struct tw_file_kind *const kind =
            tw_file_kind_of((const uint8_t *)PAGES[i], strlen(PAGES[i]));
        assert_non_null(kind);
        assert_int_equal(kind->holds, TW_HOLDS_MARKUP);
    }
}

/* The header's length, 640, is stored as bytes that also begin a pickle. */
TEST(safetensors_are_named_whatever_their_length) {
    const struct tw_file_kind *const kind =
        tw_file_kind_of((const uint8_t *)"\x80\x02\0\0\0\0\0\0{\"a\":", 13);
    assert_string_equal(kind->name, "a safetensors model");
}

TEST(packing_is_known_by_its_first_bytes) {
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x1F\x8B", 2), TW_PACKING_GZIP);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x28\xB5\x2F\xFD", 4), TW_PACKING_ZSTD);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x5A\x2A\x4D\x18", 4), TW_PACKING_ZSTD);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"\x28\xB5\x2F", 3), TW_PACKING_NONE);
    assert_int_equal(tw_packing_of_bytes((const uint8_t *)"text", 4), TW_PACKING_NONE);
}

/* Texts that begin like a magic number. */
TEST(texts_have_no_kind) {
    static const char *const TEXTS[] = {
        "",
        "a",
        "PAR1 is a part",
        "ARROW1 points up",
        "ID3 tags",
        "GGUF is a format",
        "BZh9 day",
        "RIFFs",
        "x = 1",
        "PK",
        "II and MM",
        "<htmx>",
        "{\\rt",
        "%PD",
        "Obj of desire",
        "WARC, the file",
        "\xC3\xA9t\xC3\xA9",
        "GIF of a cat",
        "fLaC",
        "OggS",
    };
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        const uint8_t *const bytes = (const uint8_t *)TEXTS[i];
        if (tw_file_kind_of(bytes, strlen(TEXTS[i])) != NULL) fail_msg("%s", TEXTS[i]);
    }
}

int main(int argc, char **argv) {
    assert_int_equal(argc, 2);
    written_by_others = argv[1];
    return test_run(NULL, NULL);
}
