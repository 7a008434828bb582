/* Tests of proto/safetensors.c. */
#include "proto/safetensors.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "tests/test.h"

enum { ROOM = 8 };

static struct tw_safetensors_tensor tensors[ROOM];
static struct tw_safetensors st;
static struct tw_error err;

static enum tw_status parse(const char *json, uint64_t data_bytes) {
    st = (struct tw_safetensors){.tensors = tensors, .tensors_capacity = ROOM};
    return tw_safetensors_parse(&st, json, strlen(json), data_bytes, &err);
}

static void refused(const char *json, uint64_t data_bytes, const char *because) {
    assert_int_equal(parse(json, data_bytes), TW_CORRUPT);
    if (strstr(err.message, because) == NULL) fail_msg("%s: said '%s'", because, err.message);
}

TEST(a_file_of_other_programs_is_read) {
    assert_int_equal(parse("{}", 0), TW_OK);
    assert_int_equal(
        parse("{ \"b\" : {\"shape\":[2, 3],\n\"data_offsets\":[0,12],\"dtype\":\"BF16\"},"
              "\"__metadata__\":{\"format\":\"pt\",\"note\":\"a \\\"b\\u00e9\\n\"},"
              "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
              "\"none\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[12,12]}}   ",
              16),
        TW_OK);
    assert_int_equal(st.tensors_count, 3);
    const struct tw_safetensors_tensor *b = tw_safetensors_find(&st, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, TW_DTYPE_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->end, 12);
    assert_non_null(tw_safetensors_find(&st, "none"));
    assert_null(tw_safetensors_find(&st, "c"));
    const struct tw_safetensors_text *format = tw_safetensors_metadata(&st, "format");
    assert_non_null(format);
    assert_memory_equal(format->bytes, "pt", format->size);
    assert_null(tw_safetensors_metadata(&st, "form"));
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

TEST(places_that_do_not_tile_the_data_are_refused) {
    refused("{" A "}", 12, "cover 8 of 12");
    refused("{" A "}", 4, "within the file");
    refused("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8, "overlap");
    refused("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[9,13]}}", 13, "hole");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
            "within the file");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "needs 12");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808,2],\"data_offsets\":[0,8]}}",
            8, "overflows");
}

TEST(fields_come_once) {
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "one __metadata__");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
            "every field");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "dtype, shape and data_offsets");
}

TEST(other_formats_are_refused) {
    refused("", 0, "'{'");
    refused("[]", 0, "'{'");
    refused("{} x", 0, "nothing but space");
    refused("{" A ",}", 8, "a string");
    refused("{" A, 8, "'}'");
    refused("{\"a", 8, "the end of a string");
    refused("{\"a\":{\"shape\":[-1]}}", 0, "without sign");
    refused("{\"a\":{\"shape\":[01]}}", 0, "without sign");
    refused("{\"a\":{\"shape\":[1.5]}}", 0, "']'");
    refused("{\"a\":{\"shape\":[18446744073709551616]}}", 0, "2^64");
    refused("{\"__metadata__\":nul}", 0, "'{'");
    refused("{\"__metadata__\":[]}", 0, "'{'");
    refused("{\"a\":null}", 0, "'{'");
    refused("{\"a\":{\"x\":[1,{\"y\":2]}", 0, "closing bracket");
    refused("{\"a\":{\"x\":{1:2}}", 0, "a string");
    refused("{\"a\":{\"x\":,", 0, "a value");
    refused("{\"a\":{\"x\":[", 0, "a value");
    char deep[2 * TW_SAFETENSORS_DEPTH_MAX + 32] = "{\"a\":{\"x\":";
    memset(deep + strlen(deep), '[', TW_SAFETENSORS_DEPTH_MAX + 1);
    refused(deep, 0, "fewer open brackets");
    refused("{\"a\":{\"other\":1}}", 0, "dtype, shape and data_offsets");
    refused("{\"__metadata__\":{\"k\":1}}", 0, "a string");
    refused("{\"__metadata__\":{\"k\":\"\\x\"}}", 0, "an escape");
    refused("{\"__metadata__\":{\"k\":\"\\u12g4\"}}", 0, "an escape");
    refused("{\"__metadata__\":{\"k\":\"\n\"}}", 0, "control character");
}

/* Headers that the safetensors library 0.8.0 reads are accepted. */
TEST(what_the_library_skips_is_skipped) {
    static const char *const HEADERS[] = {
        " \n{" A "}",
        "{\"__metadata__\":null," A "}",
        "{\"__metadata__\": null }",
        "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," A "}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}",
        "{\"a\":{\"x\":\"y\",\"dtype\":\"F32\",\"x\":null,\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"x\": { \"y\" : [ 1, -2.5e+3, null , true, \"}]\", [], {} ], \"z\":{\"w\":[]}} ,"
        "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    };
    for (unsigned i = 0; i < sizeof(HEADERS) / sizeof(HEADERS[0]); i++) {
        const uint64_t bytes = strstr(HEADERS[i], "dtype") != NULL ? 8 : 0;
        if (parse(HEADERS[i], bytes) != TW_OK) fail_msg("%s: %s", HEADERS[i], err.message);
        assert_int_equal(st.tensors_count, bytes / 8);
    }
    assert_int_equal(parse(HEADERS[3], 8), TW_OK);
    assert_memory_equal(tw_safetensors_metadata(&st, "k")->bytes, "2", 1);
}

/* The error for an unsupported feature says that it is not supported, not that the file is damaged.
 */
TEST(features_that_are_not_read_are_named) {
    static const struct {
        const char *json, *because;
    } CASES[] = {
        {"{\"\":{}}", "not 1 to 159 characters of plain ASCII"},
        {"{\"a\\u0062\":{}}", "plain ASCII"},
        {"{\"\xC3\xA9\":{}}", "plain ASCII"},
        {"{\"a\":{\"dt\\u0079pe\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
         "without escapes"},
        {"{\"a\":{\"dtype\":\"F33\"}}", "type F33, which is not known"},
        {"{\"a\":{\"dtype\":\"F8_E8M0\"}}", "type F8_E8M0, which is not known"},
        {"{\"a\":{\"shape\":[1,1,1,1,1,1,1]}}", "tensor a has 7 dimensions"},
        {"{\"a\":[\"F32\",[2],[0,8]]}", "tensor a is described by a list"},
        {"{" A "," A "}", "tensor a is listed twice"},
        {"{" A ",\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}",
         "tensor a is listed twice"},
    };
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        refused(CASES[i].json, 8, CASES[i].because);
        assert_true(st.is_unsupported);
    }
}

TEST(more_than_there_is_room_for_is_refused) {
    char json[4096] = "{";
    for (int i = 0; i <= ROOM; i++) {
        char one[96];
        (void)snprintf(one, sizeof(one),
                       "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                       i > 0 ? "," : "", i);
        strcat(json, one);
    }
    strcat(json, "}");
    assert_int_equal(parse(json, 0), TW_LIMIT);
    (void)strcpy(json, "{\"__metadata__\":{");
    for (int i = 0; i <= TW_SAFETENSORS_METADATA_MAX; i++) {
        char one[32];
        (void)snprintf(one, sizeof(one), "%s\"k%d\":\"\"", i > 0 ? "," : "", i);
        strcat(json, one);
    }
    strcat(json, "}}");
    assert_int_equal(parse(json, 0), TW_OK);
    assert_int_equal(st.metadata_count, TW_SAFETENSORS_METADATA_MAX);
}

TEST(the_prefix_is_bounded) {
    uint8_t prefix[8];
    uint64_t json_bytes = 0;
    tw_put_u64(prefix, 92);
    assert_int_equal(tw_safetensors_prefix(prefix, 100, 1000, &json_bytes, &err), TW_OK);
    assert_int_equal(json_bytes, 92);
    assert_int_equal(tw_safetensors_prefix(prefix, 99, 1000, &json_bytes, &err), TW_CORRUPT);
    assert_int_equal(tw_safetensors_prefix(prefix, 100, 91, &json_bytes, &err), TW_CORRUPT);
    assert_int_equal(tw_safetensors_prefix(prefix, 7, 1000, &json_bytes, &err), TW_CORRUPT);
    tw_put_u64(prefix, UINT64_MAX);
    assert_int_equal(tw_safetensors_prefix(prefix, 100, 1000, &json_bytes, &err), TW_CORRUPT);
}

static struct tw_safetensors_text text(const char *bytes) {
    return (struct tw_safetensors_text){bytes, strlen(bytes)};
}

TEST(written_headers_read_back) {
    struct tw_safetensors_tensor out[3] = {
        {.name = "z", .dtype = TW_DTYPE_F32, .rank = 2, .shape = {3, 5}},
        {.name = "a", .dtype = TW_DTYPE_BF16, .rank = 1, .shape = {7}},
        {.name = "m", .dtype = TW_DTYPE_U8, .rank = 0},
    };
    struct tw_safetensors written = {.tensors = out, .tensors_count = 3, .metadata_count = 1};
    written.metadata[0] = (struct tw_safetensors_pair){text("format"), text("pt")};
    uint8_t header[2048], again[2048];
    size_t size, size_again;
    assert_true(tw_safetensors_bound(&written) <= sizeof(header));
    assert_int_equal(tw_safetensors_encode(&written, header, sizeof(header), &size, &err), TW_OK);
    assert_int_equal(size % TW_SAFETENSORS_ALIGN, 0);
    assert_true(size <= tw_safetensors_bound(&written));
    assert_int_equal(tw_get_u64(header), size - 8);

    st = (struct tw_safetensors){.tensors = tensors, .tensors_capacity = ROOM};
    assert_int_equal(tw_safetensors_parse(&st, (char *)header + 8, size - 8, 75, &err), TW_OK);
    for (int i = 0; i < 3; i++) {
        const struct tw_safetensors_tensor *found = tw_safetensors_find(&st, out[i].name);
        assert_non_null(found);
        assert_memory_equal(found, &out[i], sizeof(*found));
    }
    /* A value of equal length leaves every other byte unchanged. */
    written.metadata[0].value = text("ab");
    assert_int_equal(tw_safetensors_encode(&written, again, sizeof(again), &size_again, &err),
                     TW_OK);
    assert_int_equal(size, size_again);
    unsigned differences = 0;
    for (size_t i = 0; i < size; i++) differences += header[i] != again[i];
    assert_int_equal(differences, 2);
    /* If the buffer is one byte too small, nothing is written past its end. */
    again[size - 1] = 0x77;
    assert_int_equal(tw_safetensors_encode(&written, again, size - 1, &size_again, &err), TW_LIMIT);
    assert_int_equal(again[size - 1], 0x77);
}

/* With any single byte changed, the header is refused, or still describes a file that tiles its
 * data. */
TEST(damaged_headers_never_escape_their_bounds) {
    const char *good = "{\"__metadata__\":{\"format\":\"pt\"}," A
                       ",\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}";
    const size_t size = strlen(good);
    unsigned accepted = 0, refusals = 0;
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            char json[256];
            memcpy(json, good, size);
            json[at] = (char)(json[at] ^ (1 << bit));
            st = (struct tw_safetensors){.tensors = tensors, .tensors_capacity = ROOM};
            if (tw_safetensors_parse(&st, json, size, 16, &err) != TW_OK) {
                refusals++;
                continue;
            }
            accepted++;
            uint64_t bytes = 0;
            for (uint32_t i = 0; i < st.tensors_count; i++) {
                assert_true(st.tensors[i].end <= 16);
                bytes += st.tensors[i].end - st.tensors[i].begin;
            }
            assert_int_equal(bytes, 16);
        }
    }
    assert_true(accepted > 0 && refusals > accepted);
}

/* The order of many tensors in the file does not matter. */
TEST(many_tensors_in_any_order_are_found) {
    enum { MANY = 1000 };
    static struct tw_safetensors_tensor many[MANY], back[MANY];
    static uint8_t header[256 * 1024];
    struct tw_rng rng;
    tw_rng_seed(&rng, 11);
    struct tw_safetensors written = {.tensors = many, .tensors_count = MANY};
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(many[i].name, sizeof(many[i].name), "t.%llx",
                       (unsigned long long)tw_rng_next(&rng));
        many[i].rank = 1;
        many[i].dtype = TW_DTYPE_U8;
        many[i].shape[0] = tw_rng_below(&rng, 3);
    }
    size_t size;
    assert_int_equal(tw_safetensors_encode(&written, header, sizeof(header), &size, &err), TW_OK);
    st = (struct tw_safetensors){.tensors = back, .tensors_capacity = MANY};
    assert_int_equal(
        tw_safetensors_parse(&st, (char *)header + 8, size - 8, many[MANY - 1].end, &err), TW_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        const struct tw_safetensors_tensor *found = tw_safetensors_find(&st, many[i].name);
        assert_non_null(found);
        assert_int_equal(found->begin, many[i].begin);
    }
}
