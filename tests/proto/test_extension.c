/* Tests of proto/hello.c: the list at the end of HELLO, valid and hostile. */
#include "base/bytes.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "proto/message.h"
#include "tests/test.h"

static struct tw_error err;
static struct tw_extensions list;
static uint8_t bytes[2048];
static uint32_t size;

static void sample(void) {
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_FEATURES, "\x03\0\0\0\0\0\0\0", 8);
    tw_extensions_add(&list, TW_EXTENSION_SOFTWARE, "thinwire 0.1.0", 14);
    tw_extensions_add(&list, 77, "new", 3);
    size = tw_extensions_encode(&list, bytes);
}

static int setup(void **state) {
    sample();
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void refused(const char *word) {
    struct tw_extensions read = {.count = 42};
    assert_int_equal(tw_extensions_decode(bytes, size, &read, &err), TW_PROTO);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' lacks '%s'", err.message, word);
    assert_int_equal(read.count, 42); /* nothing half read */
}

FACT(added_extensions_survive_the_wire) {
    struct tw_extensions back;
    char software[TW_SOFTWARE_BYTES];
    uint32_t count = 9;
    assert_int_equal(tw_extensions_decode(bytes, size, &back, NULL), TW_OK);
    assert_memory_equal(&back, &list, sizeof(back));
    assert_int_equal(tw_extensions_features(&back), 3);
    tw_extensions_software(&back, software);
    assert_string_equal(software, "thinwire 0.1.0");
    const uint8_t *found = tw_extensions_find(&back, 77, &count);
    assert_int_equal(count, 3);
    assert_memory_equal(found, "new", 3);
    assert_null(tw_extensions_find(&back, TW_EXTENSION_TICKET, &count));
    assert_int_equal(count, 0);
}

FACT(a_node_may_say_nothing) {
    struct tw_extensions back, none = {0};
    char software[TW_SOFTWARE_BYTES];
    size = tw_extensions_encode(&none, bytes);
    assert_int_equal(size, 4);
    assert_int_equal(tw_extensions_decode(bytes, size, &back, NULL), TW_OK);
    assert_int_equal(tw_extensions_features(&back), 0);
    tw_extensions_software(&back, software);
    assert_string_equal(software, "");
}

FACT(every_cut_is_refused) {
    const uint32_t whole = size;
    for (size = 0; size < whole; size++) refused("ends");
    size = whole + 1;
    refused("after the last");
}

FACT(types_ascend_and_come_once) {
    /* A second FEATURES field, which holds the software's bytes. */
    tw_put_u16(bytes + 4 + 12, TW_EXTENSION_FEATURES);
    refused("field 1 after 1");
    sample();
    tw_put_u16(bytes + 4, 0);
    refused("field 0 after 0");
}

FACT(numbers_and_lengths_have_bounds) {
    tw_put_u32(bytes, TW_HELLO_EXTENSIONS_MAX + 1);
    refused("at most 8");
    tw_put_u32(bytes, 0xffffffff);
    refused("at most 8");
    sample();
    tw_put_u16(bytes + 6, 0xffff);
    refused("ends within field 0");
    memset(bytes, 0, sizeof(bytes));
    tw_put_u32(bytes, 1);
    tw_put_u16(bytes + 4, 99);
    tw_put_u16(bytes + 6, TW_HELLO_EXTENSIONS_BYTES - 4);
    size = 4 + TW_HELLO_EXTENSIONS_BYTES;
    assert_int_equal(tw_extensions_decode(bytes, size, &list, &err), TW_OK);
    tw_put_u16(bytes + 6, TW_HELLO_EXTENSIONS_BYTES - 3);
    size++;
    refused("extensions of");
}

FACT(known_types_have_their_form) {
    bytes[4 + 12 + 4 + 2] = '\n';
    refused("not printable");
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_FEATURES, "1234567", 7);
    size = tw_extensions_encode(&list, bytes);
    refused("features of 7");
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_SOFTWARE, "a name of 24 characters.", 24);
    size = tw_extensions_encode(&list, bytes);
    refused("name of 24");
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_RELAY, "a token of 17 chars", 17);
    size = tw_extensions_encode(&list, bytes);
    refused("call of 17");
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_PROCESS, "\0\0\0\0\0\0\0", 8);
    size = tw_extensions_encode(&list, bytes);
    refused("process number");
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_PROCESS, "1234", 4);
    size = tw_extensions_encode(&list, bytes);
    refused("process number");
    tw_extensions_add(&list, TW_EXTENSION_ASK_SEEN, "1234567", 7);
    size = tw_extensions_encode(&list, bytes);
    refused("token of 7");
}

FACT(addresses_that_a_relay_sees_survive_the_wire) {
    static const char longest[] = "[2001:0db8:1111:2222:3333:4444:5555:6666]:65535";
    struct tw_extensions back;
    char own[TW_ADDR_BYTES], other[TW_ADDR_BYTES];
    assert_false(tw_extensions_seen(&list, own, other));
    list = (struct tw_extensions){0};
    tw_extensions_add_seen(&list, longest, "11.0.0.3:4747");
    size = tw_extensions_encode(&list, bytes);
    assert_int_equal(tw_extensions_decode(bytes, size, &back, NULL), TW_OK);
    assert_true(tw_extensions_seen(&back, own, other));
    assert_string_equal(own, longest);
    assert_string_equal(other, "11.0.0.3:4747");
}

FACT(malformed_addresses_of_a_relay_are_refused) {
    static const struct {
        const char *bytes;
        uint32_t size;
    } rows[] = {{"", 0},
                {"\3a:1", 4},
                {"\3a:1\0", 5},
                {"\3a:1\3b:", 7},
                {"\3a:1\3b:2c", 9},
                {"\3a:1\3b\n2", 8},
                {"\3a:1\3b 2", 8},
                {"\xff"
                 "a:1\3b:2",
                 8}};
    char own[TW_ADDR_BYTES], other[TW_ADDR_BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        list = (struct tw_extensions){0};
        tw_extensions_add(&list, TW_EXTENSION_SEEN, rows[i].bytes, rows[i].size);
        assert_false(tw_extensions_seen(&list, own, other));
        size = tw_extensions_encode(&list, bytes);
        refused("not two addresses");
    }
    uint8_t large[100] = {TW_SEEN_BYTES_MAX + 1};
    memset(large + 1, 'a', TW_SEEN_BYTES_MAX + 1);
    large[TW_SEEN_BYTES_MAX + 2] = 1;
    large[TW_SEEN_BYTES_MAX + 3] = 'a';
    list = (struct tw_extensions){0};
    tw_extensions_add(&list, TW_EXTENSION_SEEN, large, TW_SEEN_BYTES_MAX + 4);
    size = tw_extensions_encode(&list, bytes);
    refused("not two addresses");
}

/* Every feature bit of this program but that of roles is needed by some frame kind, and a kind
 * needs at most one bit. */
FACT(kinds_belong_to_features) {
    uint64_t seen = 0;
    for (uint32_t kind = 0; kind <= UINT16_MAX; kind++) {
        const uint64_t feature = tw_feature_of((uint16_t)kind);
        assert_true((feature & (feature - 1)) == 0);
        assert_true((feature & ~TW_FEATURES) == 0);
        seen |= feature;
    }
    assert_true((seen | TW_FEATURE_ROLES) == TW_FEATURES);
    assert_true((seen & TW_FEATURE_ROLES) == 0);
    assert_true(tw_feature_of(TW_MSG_STATUS) == 0);
    assert_true(tw_feature_of(TW_MSG_PROBE) == TW_FEATURE_DIAL_BACK);
    assert_true(tw_feature_of(TW_FRAME_REVOKE) == TW_FEATURE_OWNER);
}

FACT(a_name_is_cleaned_before_it_is_sent) {
    static const struct {
        const char *said, *sent;
    } rows[] = {
        {"attic", "attic"},
        {"node-1.example_net", "node-1.example_net"},
        {"Anna's laptop", "Anna-s-laptop"},
        {"B\xc3\xbcro 2", "B-ro-2"},
        {"\x1b[31m<b>red</b>\n", "-31m-b-red-b-"},
        {"", ""},
        {"\xe6\x9d\xb1\xe4\xba\xac", ""},
        {"a-name-that-is-longer-than-a-node-may-say", "a-name-that-is-longer-than-a-nod"},
    };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[TW_NODE_NAME_BYTES] = "?";
        struct tw_extensions back;
        list = (struct tw_extensions){0};
        tw_extensions_add_name(&list, rows[i].said);
        assert_int_equal(list.count, rows[i].sent[0] != '\0');
        size = tw_extensions_encode(&list, bytes);
        assert_int_equal(tw_extensions_decode(bytes, size, &back, NULL), TW_OK);
        tw_extensions_name(&back, name);
        assert_string_equal(name, rows[i].sent);
    }
}

FACT(a_name_that_needs_escapes_is_refused) {
    static const char *const names[] = {
        "a b", "<b>", "a\x1b[2J", "", "caf\xc3\xa9", "a\"b", "a-name-of-33-bytes-is-one-too-lon"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        list = (struct tw_extensions){0};
        tw_extensions_add(&list, TW_EXTENSION_NAME, names[i], (uint32_t)strlen(names[i]));
        size = tw_extensions_encode(&list, bytes);
        refused("no name of a node");
    }
}
