#include "base/file_kind.h"

#include <string.h>

/* Advice for table formats: pandas can convert them to JSON Lines. */
#define PANDAS(reader)                                                                             \
    "python3 -c \"import pandas as p; p." reader                                                   \
    "('IN').to_json('OUT.jsonl', orient='records', lines=True)\""

#define ARROW_STREAM                                                                               \
    "python3 -c \"import datasets as d; d.Dataset.from_file('IN').to_json('OUT.jsonl')\""

static const char unpack[] = "unpack it, and name the files in it";
static const char jsonl[] = "write its texts as JSON Lines";
static const char numbers[] =
    "write its token numbers alone: numpy.load('IN').astype('<u2').tofile('OUT.bin')";
static const char shard[] = "name the texts that it was made of, or train on its folder";
static const char llmc[] = "a run reads it with data.tokenizer=ids, `data prepare` as a .bin";
static const char ast[] =
    "python3 -c \"import ast,json; [print(json.dumps(ast.literal_eval(x))) for x in open('IN')]\"";
static const char pandoc[] = "pandoc -t plain IN -o OUT.txt";
static const char wiki[] = "wikiextractor --json writes JSON Lines";
static const char none[] = "it holds no text";
static const char utf16[] = "make it UTF-8: iconv -f UTF-16 -t UTF-8 IN >OUT";
static const char utf32[] = "make it UTF-8: iconv -f UTF-32 -t UTF-8 IN >OUT";

struct magic {
    size_t at, size;
    const char *bytes;
    struct tw_file_kind kind;
};

/* Magic numbers; the first matching row decides. No text file begins with any of them. */
static const struct magic MAGICS[] = {
    /* tokens */
    {0, 8, "TWSHARD1", {"a shard of a prepared dataset", shard, TW_HOLDS_TEXT}},
    {0, 9, "MMIDIDX\0\0", {"an index of Megatron-LM", "its .bin belongs beside it", TW_HOLDS_TEXT}},
    {0, 4, "\x88\xD8\x34\x01", {"a token shard of llm.c", llmc, TW_HOLDS_TEXT}},
    {0, 4, "\xA1\xD9\x34\x01", {"a token shard of llm.c", llmc, TW_HOLDS_TEXT}},
    {0,
     8,
     "LITPKDS\0",
     {"a packed dataset of LitGPT", "name the texts that it was made of", TW_HOLDS_TEXT}},
    /* tables and arrays */
    {0, 5, "PAR1\x15", {"a Parquet file", PANDAS("read_parquet"), TW_HOLDS_TEXT}},
    {0, 8, "ARROW1\0\0", {"an Arrow file", PANDAS("read_feather"), TW_HOLDS_TEXT}},
    {0, 4, "\xFF\xFF\xFF\xFF", {"an Arrow stream", ARROW_STREAM, TW_HOLDS_TEXT}},
    {0, 4, "Obj\x01", {"an Avro file", jsonl, TW_HOLDS_TEXT}},
    {0, 6, "\x93NUMPY", {"a NumPy array", numbers, TW_HOLDS_TEXT}},
    {0, 8, "\x89HDF\r\n\x1A\n", {"an HDF5 file", PANDAS("read_hdf"), TW_HOLDS_TEXT}},
    {0, 16, "SQLite format 3", {"an SQLite database", jsonl, TW_HOLDS_TEXT}},
    {0, 2, "\x80\x02", {"a Python pickle", jsonl, TW_HOLDS_TEXT}},
    {0, 2, "\x80\x03", {"a Python pickle", jsonl, TW_HOLDS_TEXT}},
    {0, 2, "\x80\x04", {"a Python pickle", jsonl, TW_HOLDS_TEXT}},
    {0, 2, "\x80\x05", {"a Python pickle", jsonl, TW_HOLDS_TEXT}},
    /* documents */
    {0, 5, "%PDF-", {"a PDF", "pdftotext IN OUT.txt", TW_HOLDS_TEXT}},
    {0, 8, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", {"an old Office document", pandoc, TW_HOLDS_TEXT}},
    {0, 11, "%!PS-Adobe-", {"a PostScript file", "ps2ascii IN OUT.txt", TW_HOLDS_TEXT}},
    {0, 5, "{\\rtf", {"an RTF document", pandoc, TW_HOLDS_TEXT}},
    {30, 19, "[Content_Types].xml", {"an Office document (docx, xlsx)", pandoc, TW_HOLDS_TEXT}},
    {30, 9, "docProps/", {"an Office document (docx, xlsx)", pandoc, TW_HOLDS_TEXT}},
    {30, 11, "_rels/.rels", {"an Office document (docx, xlsx)", pandoc, TW_HOLDS_TEXT}},
    {30, 28, "mimetypeapplication/epub+zip", {"an EPUB", pandoc, TW_HOLDS_TEXT}},
    {0, 7, "WARC/1.", {"a web archive (WARC)", "extract its texts with warcio", TW_HOLDS_TEXT}},
    /* packed */
    {0, 4, "PK\x03\x04", {"a zip archive", unpack, TW_HOLDS_TEXT}},
    {0, 4, "PK\x05\x06", {"an empty zip archive", none, TW_HOLDS_TEXT}},
    {4, 6, "1AY&SY", {"packed by bzip2", "unpack it: bunzip2 IN", TW_HOLDS_TEXT}},
    {0, 6, "\3757zXZ", {"packed by xz", "unpack it: unxz IN", TW_HOLDS_TEXT}},
    {0, 5, "LZIP\x01", {"packed by lzip", "unpack it: lzip -d IN", TW_HOLDS_TEXT}},
    {0, 4, "\x04\x22\x4D\x18", {"packed by lz4", "unpack it: unlz4 IN", TW_HOLDS_TEXT}},
    {0, 3, "\x5D\0\0", {"packed by lzma", "unpack it: unlzma IN", TW_HOLDS_TEXT}},
    {0, 2, "\x1F\x9D", {"packed by compress", "unpack it: uncompress IN", TW_HOLDS_TEXT}},
    {0, 6, "7z\xBC\xAF\x27\x1C", {"a 7z archive", unpack, TW_HOLDS_TEXT}},
    {0, 6, "Rar!\x1A\x07", {"a RAR archive", unpack, TW_HOLDS_TEXT}},
    {0, 8, "\xFF\x06\0\0sNaP", {"packed by snappy", unpack, TW_HOLDS_TEXT}},
    {0, 2, "\x78\x9C", {"zlib data without a gzip header", unpack, TW_HOLDS_TEXT}},
    {0, 2, "\x78\xDA", {"zlib data without a gzip header", unpack, TW_HOLDS_TEXT}},
    /* models, pictures, sound, programs */
    {0, 6, "GGUF\x03\0", {"a GGUF model", none, TW_HOLDS_NOTHING}},
    {0, 6, "GGUF\x02\0", {"a GGUF model", none, TW_HOLDS_NOTHING}},
    {0, 8, "\x89PNG\r\n\x1A\n", {"a PNG picture", none, TW_HOLDS_NOTHING}},
    {0, 3, "\xFF\xD8\xFF", {"a JPEG picture", none, TW_HOLDS_NOTHING}},
    {0, 6, "GIF87a", {"a GIF picture", none, TW_HOLDS_NOTHING}},
    {0, 6, "GIF89a", {"a GIF picture", none, TW_HOLDS_NOTHING}},
    {8, 7, "WEBPVP8", {"a WebP picture", none, TW_HOLDS_NOTHING}},
    {8, 8, "WAVEfmt ", {"a WAV recording", none, TW_HOLDS_NOTHING}},
    {0, 4, "II*\0", {"a TIFF picture", none, TW_HOLDS_NOTHING}},
    {0, 4, "MM\0*", {"a TIFF picture", none, TW_HOLDS_NOTHING}},
    {0, 5, "OggS\0", {"an Ogg recording", none, TW_HOLDS_NOTHING}},
    {0, 5, "fLaC\0", {"a FLAC recording", none, TW_HOLDS_NOTHING}},
    {0, 4, "ID3\x03", {"an MP3 recording", none, TW_HOLDS_NOTHING}},
    {0, 4, "ID3\x04", {"an MP3 recording", none, TW_HOLDS_NOTHING}},
    {0, 4, "\x1A\x45\xDF\xA3", {"a Matroska film", none, TW_HOLDS_NOTHING}},
    {0, 4, "\177ELF", {"a program (ELF)", none, TW_HOLDS_NOTHING}},
    {0,
     23,
     "version https://git-lfs",
     {"a pointer of Git LFS, not the file itself", "run `git lfs pull` in its folder",
      TW_HOLDS_POINTER}},
    /* Other encodings. UTF-32 comes first, because its byte order mark begins with that of UTF-16.
     */
    {0, 4, "\xFF\xFE\0\0", {"UTF-32", utf32, TW_HOLDS_TEXT}},
    {0, 4, "\0\0\xFE\xFF", {"UTF-32", utf32, TW_HOLDS_TEXT}},
    {0, 2, "\xFF\xFE", {"UTF-16", utf16, TW_HOLDS_TEXT}},
    {0, 2, "\xFE\xFF", {"UTF-16", utf16, TW_HOLDS_TEXT}},
};

static const struct tw_file_kind utf16_unmarked[2] = {
    {"UTF-16 without a mark", "make it UTF-8: iconv -f UTF-16BE -t UTF-8 IN >OUT", TW_HOLDS_TEXT},
    {"UTF-16 without a mark", "make it UTF-8: iconv -f UTF-16LE -t UTF-8 IN >OUT", TW_HOLDS_TEXT}};
static const struct tw_file_kind orc = {"an ORC file", PANDAS("read_orc"), TW_HOLDS_TEXT};
static const struct tw_file_kind safetensors = {"a safetensors model", none, TW_HOLDS_NOTHING};

/* First bytes of markup, compared without regard to case. */
static const struct magic MARKUPS[] = {
    {0,
     14,
     "<!doctype html",
     {"an HTML page", "extract its text: lynx -dump IN >OUT.txt", TW_HOLDS_MARKUP}},
    {0, 5, "<html", {"an HTML page", "extract its text: lynx -dump IN >OUT.txt", TW_HOLDS_MARKUP}},
    {0, 9, "<doc id=\"", {"text in the markup of WikiExtractor", wiki, TW_HOLDS_MARKUP}},
    {0, 2, "{'", {"a text in Python's notation", ast, TW_HOLDS_MARKUP}},
    {0, 3, "[{'", {"a text in Python's notation", ast, TW_HOLDS_MARKUP}},
    {0, 10, "<mediawiki", {"a MediaWiki dump", wiki, TW_HOLDS_MARKUP}},
    {0,
     5,
     "<?xml",
     {"an XML file", "extract its text, as plain text or JSON Lines", TW_HOLDS_MARKUP}},
};

/* ---- first bytes ----------------------------------------------------------------------------- */

static size_t skip_blank(const uint8_t *bytes, size_t size, size_t at) {
    while (at < size && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r'))) at++;
    return at;
}

/* Returns the offset of the first character after a UTF-8 byte order mark and white space. */
static size_t skip_mark(const uint8_t *bytes, size_t size) {
    const bool has_mark = size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0;
    return skip_blank(bytes, size, has_mark ? 3 : 0);
}

static bool begins(const uint8_t *bytes, size_t size, const char *lower, size_t length) {
    if (size < length) return false;
    for (size_t i = 0; i < length; i++) {
        const uint8_t c = bytes[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != lower[i]) return false;
    }
    return true;
}

/* Detects UTF-16 without a byte order mark: in Latin scripts, every second byte is zero and the
 * others are characters. */
static const struct tw_file_kind *find_utf16(const uint8_t *bytes, size_t size) {
    size_t zeros[2] = {0, 0}, letters[2] = {0, 0};
    const size_t pairs = (size < TW_FILE_KIND_BYTES ? size : TW_FILE_KIND_BYTES) / 2;
    if (memchr(bytes, 0, 2 * pairs) == NULL) return NULL;
    for (size_t i = 0; i < 2 * pairs; i++) {
        const uint8_t c = bytes[i];
        zeros[i % 2] += c == 0;
        letters[i % 2] += c >= ' ' || c == '\n' || c == '\r' || c == '\t';
    }
    for (unsigned odd = 0; odd < 2 && pairs >= 4; odd++) {
        if (zeros[odd] > pairs * 3 / 4 && letters[1 - odd] == pairs) return &utf16_unmarked[odd];
    }
    return NULL;
}

static const struct tw_file_kind *find_magic(const uint8_t *bytes, size_t size,
                                             size_t magic_bytes_min) {
    for (size_t i = 0; i < sizeof(MAGICS) / sizeof(MAGICS[0]); i++) {
        const struct magic *const magic = &MAGICS[i];
        if (size < magic->at + magic->size || magic->size < magic_bytes_min) continue;
        if (bytes[magic->at] != (uint8_t)magic->bytes[0]) continue;
        if (memcmp(bytes + magic->at, magic->bytes, magic->size) == 0) return &magic->kind;
    }
    return NULL;
}

const struct tw_file_kind *tw_file_kind_of(const uint8_t *bytes, size_t size) {
    /* This test comes first: the length at the start of a safetensors file may look like a short
     * magic number. */
    if (size >= 10 && bytes[7] == 0 && memcmp(bytes + 8, "{\"", 2) == 0) return &safetensors;
    const struct tw_file_kind *const kind = find_magic(bytes, size, 0);
    if (kind != NULL) return kind;
    const size_t at = skip_mark(bytes, size);
    for (size_t i = 0; i < sizeof(MARKUPS) / sizeof(MARKUPS[0]); i++) {
        const struct magic *const markup = &MARKUPS[i];
        if (begins(bytes + at, size - at, markup->bytes, markup->size)) return &markup->kind;
    }
    const size_t looked = size < TW_FILE_KIND_BYTES ? size : TW_FILE_KIND_BYTES;
    /* A text may begin with these letters, too, but contains no zero byte. */
    if (begins(bytes, size, "orc\n", 4) && memchr(bytes, 0, looked) != NULL) return &orc;
    return find_utf16(bytes, size);
}

const struct tw_file_kind *tw_file_kind_of_numbers(const uint8_t *bytes, size_t size) {
    enum { LONG_MAGIC_BYTES = 6 };
    return find_magic(bytes, size, LONG_MAGIC_BYTES);
}

enum tw_packing tw_packing_of_bytes(const uint8_t *bytes, size_t size) {
    static const uint8_t FRAME[] = {0x28, 0xB5, 0x2F, 0xFD}, SKIPPED[] = {0x2A, 0x4D, 0x18};
    if (size >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B) return TW_PACKING_GZIP;
    if (size < sizeof(FRAME)) return TW_PACKING_NONE;
    const bool is_skipped = bytes[0] >> 4 == 5 && memcmp(bytes + 1, SKIPPED, 3) == 0;
    return is_skipped || memcmp(bytes, FRAME, 4) == 0 ? TW_PACKING_ZSTD : TW_PACKING_NONE;
}
