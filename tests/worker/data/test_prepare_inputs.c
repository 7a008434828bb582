/* Inputs of `prepare` are recognised by their content. Files written by other programs yield the
 * texts that those programs were given; any unsupported file is refused by name. The argument is
 * the path of tests/data. */
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bytes.h"
#include "prepare_fixture.h"
#include "tests/test.h"
#include "worker/data/prepare/prepare.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_text.h"

enum { HEAD_BYTES = 4096 };

static const char *written_by_others;

/* The texts that the other programs were given. */
static const char THREE[] = "\0First \xE2\x82\xAC text,\nwith \"quotes\" and a tab\t."
                            "\0Second: \xF0\x9F\x98\x80 \\ / end"
                            "\0Third";

static int begin_test(void **state) {
    struct prepare_fixture *const at = prepare_fixture_create();
    *state = at;
    at->options.heldout_millionths = 0;
    at->options.is_restart = true;
    return 0;
}

static int end_test(void **state) {
    return prepare_fixture_destroy(*state);
}

#define FACT(name) TEST_IN(begin_test, end_test, name)

/* Checks that the documents of the only shard, each after a zero byte, are `want`. */
static void expect(struct prepare_fixture *at, const char *path, const char *want, size_t bytes) {
    struct tw_error err = {.message = ""};
    size_t size = 0;
    at->options.sources[0].inputs = &path;
    if (tw_prepare(&at->options, &at->summary, &err) != TW_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    assert_int_equal(at->summary.counts.tokens, bytes);
    uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
    assert_memory_equal(file + HEAD_BYTES, want, bytes);
    free(file);
}

static void refuse(struct prepare_fixture *at, const char *path, const char *why) {
    struct tw_error err = {.message = ""};
    at->options.sources[0].inputs = &path;
    const enum tw_status status = tw_prepare(&at->options, &at->summary, &err);
    if (status != TW_DATA || strstr(err.message, why) == NULL) {
        fail_msg("%s: %s: %s, not %s", path, tw_status_name(status), err.message, why);
    }
    assert_true(at->summary.can_skip);
}

static void refuse_bytes(struct prepare_fixture *at, const char *name, const void *bytes,
                         size_t size, const char *why) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", at->in, name);
    prepare_fixture_write(at, name, bytes, size);
    refuse(at, path, why);
    assert_int_equal(unlink(path), 0);
}

static void refuse_text(struct prepare_fixture *at, const char *name, const char *text,
                        const char *why) {
    refuse_bytes(at, name, text, strlen(text), why);
}

static void expect_text(struct prepare_fixture *at, const char *name, const char *text,
                        const char *want, size_t bytes) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", at->in, name);
    prepare_fixture_write(at, name, text, strlen(text));
    expect(at, path, want, bytes);
    assert_int_equal(unlink(path), 0);
}

static const char *path_of(const char *name) {
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", written_by_others, name);
    return path;
}

/* ---- files of other programs ----------------------------------------------------------------- */

FACT(json_of_other_programs_gives_its_texts) {
    struct prepare_fixture *const at = *state;
    static const struct {
        const char *file;
        enum tw_input_kind kind;
    } FILES[] = {
        {"json/pandas-lines.txt", TW_INPUT_LINES},
        {"json/pandas-records.json", TW_INPUT_ARRAY},
        {"json/pandas-records-indent.json", TW_INPUT_ARRAY},
        {"json/dump-array.json", TW_INPUT_ARRAY},
        {"json/dump-strings.json", TW_INPUT_ARRAY},
        {"json/dump-indent.json", TW_INPUT_OBJECTS},
        {"json/datasets-lines.jsonl", TW_INPUT_LINES},
        {"json/datasets-array.json", TW_INPUT_ARRAY},
    };
    for (unsigned i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        expect(at, path_of(FILES[i].file), THREE, sizeof(THREE) - 1);
        assert_int_equal(at->summary.counts.kinds[FILES[i].kind], 1);
    }
}

/* Other layouts of pandas' JSON have no record per document, so they are refused; the text field is
 * not guessed. */
FACT(other_shapes_of_pandas_are_refused) {
    struct prepare_fixture *const at = *state;
    refuse(at, path_of("json/pandas-columns.json"),
           "pandas-columns.json:1: the field \"text\" is an object, not a string; pandas writes a "
           "record per line with to_json(orient='records', lines=True)");
    refuse(at, path_of("json/pandas-split.json"), "there are: columns, index, data; name one");
    refuse(at, path_of("json/pandas-index.json"), "no field \"text\"; there are: 0, 1, 2;");
    refuse(at, path_of("json/pandas-table.json"), "no field \"text\"; there are: schema, data;");
    refuse(at, path_of("json/pandas-values.json"),
           "pandas-values.json:1, record at byte 1: the record is an array, not an object with a "
           "field \"text\"");
    refuse(at, path_of("json/datasets.parquet"),
           "is a Parquet file, which is not read: python3 -c \"import pandas as p; "
           "p.read_parquet('IN').to_json('OUT.jsonl', orient='records', lines=True)\"");
}

FACT(archives_give_the_texts_of_their_members) {
    struct prepare_fixture *const at = *state;
    static const char LONG[] = "\0long name\0plain";
    expect(at, path_of("tar/webdataset-text.tar"), THREE, sizeof(THREE) - 1);
    assert_int_equal(at->summary.counts.passed_members, 6);
    assert_int_equal(at->summary.counts.kinds[TW_INPUT_TAR], 1);
    expect(at, path_of("tar/webdataset-json.tar"), THREE, sizeof(THREE) - 1);
    assert_int_equal(at->summary.counts.passed_members, 3);
    expect(at, path_of("tar/gnu.tar"), LONG, sizeof(LONG) - 1);
    expect(at, path_of("tar/pax.tar"), LONG, sizeof(LONG) - 1);
    expect(at, path_of("tar/v7.tar"), "\0first\0second", 13);
    refuse(at, path_of("tar/pandas.tar"),
           "pandas.tar: x.jsonl: it is JSON Lines: unpack the archive");
    refuse(at, path_of("tar/packed.tar"), "packed.tar: a.txt.gz: it is compressed twice: unpack");
    at->options.field = "body";
    refuse(at, path_of("tar/webdataset-json.tar"),
           "webdataset-json.tar: 000000.json: no field \"body\"; there are: text;");
}

FACT(archives_that_are_cut_are_refused) {
    struct prepare_fixture *const at = *state;
    uint8_t bytes[3600];
    FILE *const file = fopen(path_of("tar/webdataset-text.tar"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof(bytes), file), sizeof(bytes));
    assert_int_equal(fclose(file), 0);
    refuse_bytes(at, "a.tar", bytes, 3500, "a.tar: after byte 3072: it ends within a header");
    bytes[3080] ^= 1;
    refuse_bytes(at, "a.tar", bytes, sizeof(bytes), "a.tar: after byte 3072: no member begins");
}

/* ---- names do not decide --------------------------------------------------------------------- */

FACT(parts_of_spark_are_known_by_content) {
    struct prepare_fixture *const at = *state;
    static const char TEXT[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
    static const char *const NAMES[] = {"part-00000-a1b2.c000.json", "part-00000", "x.txt",
                                        "x.JSONL", "x.gz"};
    for (unsigned i = 0; i < 5; i++) expect_text(at, NAMES[i], TEXT, "\0a\0b", 4);
    char *const path = prepare_fixture_path(at, "in/part-00000-c000.json.gz");
    const gzFile gz = gzopen(path, "wb");
    assert_int_equal(gzputs(gz, TEXT), (int)sizeof(TEXT) - 1);
    assert_int_equal(gzclose(gz), Z_OK);
    expect(at, path, "\0a\0b", 4);
    free(path);
}

/* A model that has learned line ends of Windows writes them. JSON says its line ends itself. */
FACT(line_ends_of_windows_are_line_ends_in_every_unit) {
    struct prepare_fixture *const at = *state;
    static const enum tw_text_unit UNITS[] = {TW_TEXT_PASSAGES, TW_TEXT_WHOLE};
    for (unsigned i = 0; i < 2; i++) {
        at->options.unit = UNITS[i];
        expect_text(at, "a.txt", "a\r\nb\r\r\nc\rd\n\r\n", "\0a\nb\r\nc\rd\n\n", 11);
        expect_text(at, "a.jsonl", "{\"text\": \"a\\r\\nb\"}\r\n", "\0a\r\nb", 5);
    }
    at->options.unit = TW_TEXT_LINES;
    expect_text(at, "a.txt", "a\r\nb\r\n", "\0a\0b", 4);
}

FACT(names_that_claim_json_are_no_text) {
    struct prepare_fixture *const at = *state;
    refuse_text(at, "a.json", "// a comment\n{}\n", "a.json:1: invalid JSON: no { of an object");
    refuse_text(at, "a.json", "{\"name\": \"x\",\n \"version\": 1}",
                "a.json:1, record at byte 0: no field \"text\"; there are: name, version;");
    refuse_text(at, "a.json", "[1]\n[2]\n", "a.json:1: the record is an array, not an object with");
    at->options.is_plain = true;
    expect_text(at, "a.json", "{\"a\": 1}", "\0{\"a\": 1}", 9);
    expect_text(at, "a.csv", "a,b\n", "\0a,b\n", 5);
    expect_text(at, "a.html", "<html>x", "\0<html>x", 8);
}

FACT(other_kinds_are_refused_by_name) {
    struct prepare_fixture *const at = *state;
    refuse_text(at, "a", "<!doctype html>\n<p>x",
                "in/a is an HTML page, which is not read: extract");
    refuse_text(at, "a.csv", "text,b\nx,1\n",
                "a.csv is a table (CSV), which is not read: python3 -c");
    refuse_bytes(at, "a", "\xFF\xFE\0\0a\0\0\0", 8,
                 "in/a is UTF-32, which is not read: make it UTF-8");
    refuse_bytes(at, "a", "a\0b\0c\0d\0", 8, "UTF-16 without a mark");
    refuse_text(at, "a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n",
                "chat data (\"messages\") need the chat template of their model: python3 -m");
    at->options.field = "conversations";
    refuse_text(at, "a.jsonl", "{\"conversations\": []}\n", "chat data (\"conversations\")");
}

/* The command suggested in each message converts the file into one that is read. */
FACT(the_way_out_fits_the_file) {
    struct prepare_fixture *const at = *state;
    refuse_text(at, "a.csv", "a;b;text\n1;2;x, y\n", "p.read_csv('IN', sep=';').to_json(");
    refuse_text(at, "a.tsv", "a\ttext\n1\tx, y\n", "p.read_csv('IN', sep='\\t').to_json(");
    refuse_text(at, "a", "one\rtwo\r", "in/a ends its lines with CR alone: tr '\\r' '\\n' <IN");
    refuse_bytes(at, "a.npy", "\x80\x81\0\x90\x80\x81\0\x90\x80\x81\0\x90\x80\x81\0\x90", 16,
                 "a.npy is not text: byte 3 of it is NUL");
    refuse_text(at, "a.jsonl", "{\"text\": [\"a\"]}\n",
                "the field \"text\" is an array, not a string; jq writes an element per line: "
                "jq -c '.text[]' IN >OUT.jsonl");
    refuse_text(at, "a.jsonl", "\n{'text': 'a'}\n",
                "is a text in Python's notation, which is not read: python3 -c \"import ast,json");
    refuse_text(at, "a.jsonl", "{\"text\": \"a\"}\n{'text': 'a'}\n",
                ":2: invalid JSON: single quotes, as Python's str() writes");
    expect_text(at, "a", "\"a\\n\"\n\"b\"\n", "\0a\n\0b", 5);
    refuse_text(at, "a.jsonl", "\"a\"\n\"b\" c\n", ":2: invalid JSON: text after the string");
    at->options.field = "meta.text";
    refuse_text(at, "a.jsonl", "{\"meta\": {\"text\": \"a\"}}\n", "jq '.meta.text' IN >OUT.jsonl");
    expect_text(at, "a.jsonl", "{\"meta.text\": \"a\"}\n", "\0a", 2);
}

FACT(copies_of_a_document_are_not_called_too_few) {
    struct prepare_fixture *const at = *state;
    struct tw_error err = {.message = ""};
    prepare_fixture_write(at, "a.jsonl", "\"One\"\n\"One\"\n\"One\"\n", 18);
    at->options.heldout_millionths = 10000;
    assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_DATA);
    assert_non_null(strstr(
        err.message,
        "is held out to measure the loss: they are too few, or copies of one another; give"));
}

/* A folder with a README and unsupported Parquet files is refused: otherwise only the README would
 * be read. */
FACT(files_in_folders_are_not_passed_over_in_silence) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "README.md", "# Data\n", 7);
    prepare_fixture_write(at, "a.png", "\x89PNG\r\n\x1A\n", 8);
    expect(at, at->in, "\0# Data\n", 8);
    assert_int_equal(at->summary.counts.binary_files, 1);
    prepare_fixture_write(at, "data.parquet", "PAR1\x15\x04", 6);
    refuse(at, at->in, "data.parquet is a Parquet file");
    at->options.skip_bad = true;
    expect(at, at->in, "\0# Data\n", 8);
    assert_int_equal(at->summary.counts.bad, 1);
}

/* ---- places ---------------------------------------------------------------------------------- */

FACT(bad_records_are_named_by_place) {
    struct prepare_fixture *const at = *state;
    refuse_text(at, "a", "[{\"text\":\"a\"},\n {\"text\":7}]",
                "in/a:2, record at byte 16: the field \"text\" is a number, not a string");
    refuse_text(at, "a", "[{\"text\":\"a\"},\n {\"text\":\"b\"",
                "in/a: after byte 13: it ends within");
    refuse_text(at, "a", "{\n\"text\":\"a\"}\n{\n\"text\":null}",
                "in/a:3, record at byte 14: the field \"text\" is null");
    at->options.skip_bad = true;
    expect_text(at, "a", "[{\"text\":\"a\"},\n {\"text\":7}, \"c\", [1]]", "\0a\0c", 4);
    assert_int_equal(at->summary.counts.bad, 2);
    expect_text(at, "a", "[\"a\", \"b\"", "\0a", 2);
    assert_int_equal(at->summary.counts.bad, 1);
}

/* Writes the records as a JSON array (is_array) or as JSON objects over several lines. The last
 * record but one is bad. */
static void write_records(struct prepare_fixture *at, bool is_array) {
    enum { COUNT = 2000, ROOM = COUNT * 100 };
    char *const text = malloc(ROOM);
    size_t used = 0;
    assert_non_null(text);
    for (int i = 0; i < COUNT; i++) {
        const char *const before = !is_array ? "" : i == 0 ? "[" : ",\n ";
        used += (size_t)snprintf(text + used, ROOM - used,
                                 "%s{\"id\": %d,\n\"%s\": \"text %d of some\"}\n", before, i,
                                 i == COUNT - 2 ? "no" : "text", i);
    }
    if (is_array) text[used++] = ']';
    prepare_fixture_write(at, "a", text, used);
    free(text);
}

/* A shard may end between any two records, and the next call begins with the next record. */
FACT(records_continue_where_they_stopped) {
    struct prepare_fixture *const at = *state;
    at->options.shard_tokens = 5000;
    for (int is_array = 0; is_array < 2; is_array++) {
        struct tw_error err;
        write_records(at, is_array != 0);
        at->options.is_restart = true;
        at->options.skip_bad = false;
        refuse(at, at->in, "no field \"text\"; there are: id, no;");
        at->options.is_restart = false;
        at->options.skip_bad = true;
        at->options.sources[0].inputs = at->inputs;
        assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_OK);
        const struct tw_id continued = at->summary.dataset;
        at->options.is_restart = true;
        assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_OK);
        assert_true(tw_id_equal(&continued, &at->summary.dataset));
        assert_int_equal(at->summary.counts.documents, 1999);
        assert_true(at->summary.train_shards > 5);
    }
}

FACT(the_token_that_ends_a_document_can_be_named) {
    struct prepare_fixture *const at = *state;
    struct tw_error err;
    char path[512];
    size_t size = 0;
    prepare_fixture_write(at, "a.txt", "One.\n", 5);
    at->options.eos = "5";
    assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "--eos needs --tokenizer"));
    (void)snprintf(path, sizeof(path), "%s/../golden/tokenizers/gpt2.json", written_by_others);
    at->options.tokenizer = path;
    assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_OK);
    uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
    assert_int_equal(tw_get_u16(file + HEAD_BYTES), 5);
    free(file);
    at->options.eos = "<|no_such_token|>";
    assert_int_equal(tw_prepare(&at->options, &at->summary, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "it is neither the text of a token"));
}

/* Writes a byte tokenizer whose template puts tokens 256 and 257 before a text, as GLM's does. */
static void write_two_openings(struct prepare_fixture *at) {
    enum { ROOM = TW_BYTE_TOKENIZER_BYTES + 1024 };
    static const char ADDED[] = "\"added_tokens\": [", TEMPLATE[] = "\"post_processor\": null";
    static char plain[TW_BYTE_TOKENIZER_BYTES + 1], json[ROOM];
    plain[tw_byte_tokenizer_json(plain)] = 0;
    const char *const added = strstr(plain, ADDED), *const template = strstr(plain, TEMPLATE);
    assert_true(added != NULL && template != NULL);
    const char *const rest = added + strlen(ADDED);
    const int n = snprintf(
        json, ROOM,
        "%.*s{\"id\": 256, \"content\": \"[g]\", \"special\": true}, "
        "{\"id\": 257, \"content\": \"<s>\", \"special\": true}%.*s"
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
        "[{\"SpecialToken\": {\"id\": \"[g]\", \"type_id\": 0}}, "
        "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": "
        "{\"[g]\": {\"id\": \"[g]\", \"ids\": [256], \"tokens\": [\"[g]\"]}, "
        "\"<s>\": {\"id\": \"<s>\", \"ids\": [257], \"tokens\": [\"<s>\"]}}}%s",
        (int)(rest - plain), plain, (int)(template - rest), rest, template + strlen(TEMPLATE));
    assert_true(n < ROOM);
    prepare_fixture_write(at, "tokenizer.json", json, (size_t)n);
}

FACT(all_tokens_before_a_text_are_put) {
    struct prepare_fixture *const at = *state;
    static const uint16_t WANT[] = {256, 257, 'O', 'n', 'e', 256, 257, 'T', 'w', 'o'};
    const char *const input = prepare_fixture_path(at, "in/a.jsonl");
    struct tw_error err = {.message = ""};
    size_t size = 0;
    write_two_openings(at);
    char *const path = prepare_fixture_path(at, "in/tokenizer.json");
    prepare_fixture_write(at, "a.jsonl", "\"One\"\n\"Two\"\n", 12);
    at->options.tokenizer = path;
    at->options.sources[0].inputs = &input;
    if (tw_prepare(&at->options, &at->summary, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(at->summary.counts.tokens, sizeof(WANT) / sizeof(WANT[0]));
    uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
    for (unsigned i = 0; i < sizeof(WANT) / sizeof(WANT[0]); i++) {
        assert_int_equal(tw_get_u16(file + HEAD_BYTES + 2 * (size_t)i), WANT[i]);
    }
    free(file);
    free(path);
    free((char *)input);
}

/* Makes the tar header of a regular file, with its checksum. */
static void put_header(uint8_t header[512], const char *name, size_t size) {
    unsigned sum = 0;
    memset(header, 0, 512);
    (void)snprintf((char *)header, 101, "%s", name);
    (void)snprintf((char *)header + 124, 12, "%011zo", size);
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    header[156] = '0';
    memset(header + 148, ' ', 8);
    for (unsigned i = 0; i < 512; i++) sum += header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

/* In a WebDataset archive, a 17 MiB video precedes a text whose name is short or long. */
FACT(large_members_without_text_are_passed) {
    struct prepare_fixture *const at = *state;
    enum { FILM = 17 << 20, TEXT_AT = 512 + FILM, SIZE = TEXT_AT + 1024 + 1024 };
    static uint8_t bytes[SIZE];
    for (int is_long = 0; is_long < 2; is_long++) {
        char name[101] = "0.txt";
        /* GNU and pax store the rest of a long name elsewhere */
        if (is_long) memset(name, 'n', 100);
        memset(bytes, 0, sizeof(bytes));
        /* The first sample decides which members hold texts, so its text is put first. */
        put_header(bytes, "0.txt", 3);
        memcpy(bytes + 512, "one", 3);
        put_header(bytes + 1024, "0.mp4", 0);
        put_header(bytes + 1536, "1.mp4", FILM - 2048);
        put_header(bytes + TEXT_AT, is_long ? name : "1.txt", 3);
        memcpy(bytes + TEXT_AT + 512, "two", 3);
        prepare_fixture_write(at, "a.tar", bytes, sizeof(bytes));
        struct tw_error err = {.message = ""};
        if (tw_prepare(&at->options, &at->summary, &err) != TW_OK) fail_msg("%s", err.message);
        assert_int_equal(at->summary.counts.documents, 2);
    }
}

int main(int argc, char **argv) {
    assert_int_equal(argc, 2);
    written_by_others = argv[1];
    return test_run(NULL, NULL);
}
