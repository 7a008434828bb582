/* Tests of daemon/cli/run/tensors.c, which folds a list of tensors into the text of
 * model.tensors. */
#include "tests/test.h"

#include "base/rng.h"
#include "daemon/cli/run/tensors.h"

enum { ROOM = 5000 };

static struct cli_tensor tensors[ROOM];
static uint32_t count;
static char text[TW_TENSORS_TEXT_BYTES];
static struct tw_error err;

/* "name 2x3" */
static void add(const char *name, uint32_t rows, uint32_t cols) {
    struct cli_tensor *tensor = &tensors[count++];
    memset(tensor, 0, sizeof(*tensor));
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->shape = (struct tw_tensor_shape){.rank = cols > 0 ? 2 : 1, .sides = {rows, cols}};
}

static void shuffle(uint64_t seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t k = (uint32_t)tw_rng_below(&rng, i);
        const struct cli_tensor other = tensors[k];
        tensors[k] = tensors[i - 1];
        tensors[i - 1] = other;
    }
}

/* Checks that the tensors fold to this text, in whichever order they are listed. */
static void check(const char *expected) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        shuffle(seed);
        if (cli_tensors_fold(tensors, count, text, &err) != TW_OK) fail_msg("%s", err.message);
        assert_string_equal(text, expected);
    }
    count = 0;
}

/* Adds tensors with consecutive numbers in their names, such as "h.0.w" to "h.11.w". `before`
 * and `after` are the texts around the number. */
static void add_layers(const char *before, const char *after, uint32_t first, uint32_t last,
                       uint32_t rows) {
    for (uint32_t i = first; i <= last; i++) {
        char name[TW_TENSOR_NAME_BYTES];
        (void)snprintf(name, sizeof(name), "%s%u%s", before, i, after);
        add(name, rows, 4);
    }
}

TEST(names_without_numbers_stay) {
    add("wte", 5, 4);
    add("b2", 3, 0);
    add("2nd.x", 3, 0);
    add("h.02.x", 1, 0);
    add("h.1234567.x", 1, 0);
    check("2nd.x:3 b2:3 h.02.x:1 h.1234567.x:1 wte:5x4");
}

TEST(equal_layers_become_one_entry) {
    add("wte", 5, 4);
    add_layers("h.", ".w", 0, 11, 3);
    add_layers("h.", ".b", 0, 11, 2);
    check("h.{0-11}.b:2x4 h.{0-11}.w:3x4 wte:5x4");
}

TEST(unequal_layers_become_several) {
    add_layers("h.", ".w", 0, 3, 3);
    add_layers("h.", ".w", 5, 5, 3);
    add_layers("h.", ".w", 4, 4, 7); /* another shape */
    add_layers("h.", ".b", 2, 2, 1); /* one more tensor */
    check("h.{0-1,3,5}.w:3x4 h.2.b:1x4 h.2.w:3x4 h.4.w:7x4");
}

TEST(experts_fold_within_layers) {
    for (uint32_t layer = 0; layer < 4; layer++) {
        for (uint32_t expert = 0; expert < 3 + layer / 3; expert++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "h.%u.e.%u.w", layer, expert);
            add(name, 2, 2);
            (void)snprintf(name, sizeof(name), "h.%u.e.%u.x.9.w", layer, expert);
            add(name, 2, 0);
        }
    }
    check("h.{0-2}.e.{0-2}.w:2x2 h.{0-2}.e.{0-2}.x.9.w:2 h.3.e.{0-3}.w:2x2 h.3.e.{0-3}.x.9.w:2");
}

TEST(numbers_may_end_a_name) {
    add_layers("", "", 0, 2, 1);
    add_layers("x.", "", 8, 10, 1);
    add_layers("x.", ".y", 8, 10, 2);
    check("{0-2}:1x4 x.{8-10}:1x4 x.{8-10}.y:2x4");
}

/* At most two numbers of a name fold. Each value of a third number is written out. */
TEST(two_numbers_of_a_name_fold) {
    for (uint32_t i = 0; i < 8; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "a.%u.b.%u.c.%u", i / 4, i / 2 % 2, i % 2);
        add(name, 1, 0);
    }
    check("a.{0-1}.b.{0-1}.c.0:1 a.{0-1}.b.{0-1}.c.1:1");
}

TEST(lists_without_room_are_refused) {
    for (uint32_t i = 0; i < 900; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "x%u.weight", i);
        add(name, 1 + i, 3);
    }
    assert_int_equal(cli_tensors_fold(tensors, count, text, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "train fewer of them (--train PATTERN)"));
    count = 0;
    add("a/b", 1, 1);
    assert_int_equal(cli_tensors_fold(tensors, count, text, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "other characters"));
    count = 0;
}

/* tensors found by expanding the folded text of a random list of names */
static struct cli_tensor found[ROOM];
static uint32_t found_count;

static void note(void *self, const char *name, const struct tw_tensor_shape *shape) {
    struct cli_tensor *tensor = &found[found_count++];
    memset(tensor, 0, sizeof(*tensor));
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->shape = *shape;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cli_tensor *)a)->name, ((const struct cli_tensor *)b)->name);
}

TEST(random_lists_expand_to_themselves) {
    struct tw_rng rng;
    uint32_t lists = 0;
    tw_rng_seed(&rng, 20261126);
    for (unsigned trial = 0; trial < 400; trial++) {
        count = found_count = 0;
        for (uint32_t i = 0; i < 40; i++) {
            char name[TW_TENSOR_NAME_BYTES];
            (void)snprintf(name, sizeof(name), "%c.%u%s.%u.%c", 'a' + (char)tw_rng_below(&rng, 2),
                           (unsigned)tw_rng_below(&rng, 12), tw_rng_below(&rng, 9) == 0 ? "a" : "",
                           (unsigned)tw_rng_below(&rng, 3), 'a' + (char)tw_rng_below(&rng, 2));
            bool is_new = true;
            for (uint32_t k = 0; k < count; k++)
                is_new = is_new && strcmp(tensors[k].name, name) != 0;
            if (is_new) add(name, 1 + (uint32_t)tw_rng_below(&rng, 2), 0);
        }
        if (cli_tensors_fold(tensors, count, text, &err) != TW_OK) fail_msg("%s", err.message);
        tw_tensor_list_expand(text, note, NULL);
        for (uint32_t i = 0; i < count; i++) tensors[i].is_folded = false;
        qsort(tensors, count, sizeof(tensors[0]), by_name);
        qsort(found, found_count, sizeof(found[0]), by_name);
        assert_int_equal(count, found_count);
        assert_memory_equal(tensors, found, count * sizeof(tensors[0]));
        lists++;
    }
    assert_int_equal(lists, 400);
    count = 0;
}
