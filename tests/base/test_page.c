/* Tests of base/page.h: where the lines of a page are broken. */
#include "tests/test.h"

#include "base/page.h"
#include "base/rng.h"

static char printed[1 << 16];

static const char *print(unsigned width, const char *text) {
    FILE *const to = fmemopen(printed, sizeof(printed), "w");
    assert_non_null(to);
    tw_page_print(to, width, text);
    assert_int_equal(fclose(to), 0);
    return printed;
}

TEST(short_lines_stay_as_they_are) {
    const char *const text = "run try\n\n  Model     gpt2\n            of width 8\n\n";
    assert_string_equal(print(80, text), text);
    assert_string_equal(print(80, "no newline"), "no newline\n");
    assert_string_equal(print(80, "\n"), "\n");
}

TEST(text_behind_a_label_is_broken_below_itself) {
    assert_string_equal(print(60, "  Label     one two three four five six seven eight nine ten "
                                  "eleven twelve\n"),
                        "  Label     one two three four five six seven eight nine ten\n"
                        "            eleven twelve\n");
    assert_string_equal(print(60, "            one two three four five six seven eight nine ten "
                                  "eleven\n"),
                        "            one two three four five six seven eight nine ten\n"
                        "            eleven\n");
    assert_string_equal(print(60, "OK    disk.room       one two three four five six seven eight "
                                  "nine\n"),
                        "OK    disk.room       one two three four five six seven\n"
                        "                      eight nine\n");
}

TEST(columns_are_characters_without_escapes) {
    assert_string_equal(print(60, "\033[32mOK\033[0m    disk.room       öne two three four five "
                                  "six seven \033[1meight\033[0m nine\n"),
                        "\033[32mOK\033[0m    disk.room       öne two three four five six seven\n"
                        "                      \033[1meight\033[0m nine\n");
}

TEST(commands_are_never_broken) {
    const char *const line = "    thinwire run new NAME --set sync.nodes=8 --preset sparseloco "
                             "--set sync.period=10 --set sync.codec=topk256\n";
    assert_string_equal(print(60, line), line);
}

TEST(quoted_words_stay_together) {
    assert_string_equal(print(60, "Written to r.manifest, which every node has to have; "
                                  "`thinwire run show r.manifest` explains it\n"),
                        "Written to r.manifest, which every node has to have;\n"
                        "`thinwire run show r.manifest` explains it\n");
    assert_string_equal(print(60, "a lone ` mark does not glue the rest of a paragraph together, "
                                  "however long\n"),
                        "a lone ` mark does not glue the rest of a paragraph\n"
                        "together, however long\n");
    assert_string_equal(print(60, "`words between two marks that are longer than a whole line of "
                                  "the terminal` are broken\n"),
                        "`words between two marks that are longer than a whole line\n"
                        "of the terminal` are broken\n");
}

TEST(a_word_wider_than_the_line_has_a_line_of_its_own) {
    char text[200], want[200];
    char id[81];
    memset(id, 'a', 80);
    id[80] = '\0';
    (void)snprintf(text, sizeof(text), "node %s is here\n", id);
    (void)snprintf(want, sizeof(want), "node\n%s\nis here\n", id);
    assert_string_equal(print(60, text), want);
}

/* Words of any lengths and spaces come out in order, and no line with a space in its text is wider
 * than allowed. */
TEST(no_word_is_lost_and_no_line_too_wide) {
    char text[600], words[600], again[1200];
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    for (unsigned round = 0; round < 20000; round++) {
        const unsigned width = 60 + (unsigned)tw_rng_below(&rng, 100);
        const unsigned size = (unsigned)tw_rng_below(&rng, 590);
        for (unsigned i = 0; i < size; i++) text[i] = " ab`-"[tw_rng_below(&rng, 5)];
        text[0] = 'x'; /* not a command */
        text[size == 0 ? 1 : size] = '\0';
        (void)print(width, text);
        strcpy(again, printed);
        strcpy(words, text);
        char *left = NULL, *right = NULL, *a = strtok_r(words, " \n", &left),
             *b = strtok_r(again, " \n", &right);
        for (; a != NULL && b != NULL;
             a = strtok_r(NULL, " \n", &left), b = strtok_r(NULL, " \n", &right))
            assert_string_equal(a, b);
        assert_ptr_equal(a, b);
        for (const char *line = printed; *line != '\0';) {
            const size_t columns = strcspn(line, "\n"), indent = strspn(line, " ");
            if (columns > width) assert_null(memchr(line + indent, ' ', columns - indent));
            line += columns + 1;
        }
    }
}

TEST(a_page_is_as_wide_as_the_environment_says) {
    assert_int_equal(setenv("COLUMNS", "70", 1), 0);
    char *bytes = NULL;
    size_t size = 0;
    FILE *const to = tmpfile();
    struct tw_page page;
    assert_non_null(to);
    assert_int_equal(tw_page_width(fileno(to), 90), 70);
    FILE *const text = tw_page_begin(&page, to);
    for (int i = 0; i < 20; i++) (void)fprintf(text, "%d words ", i);
    (void)fprintf(text, "\n");
    tw_page_end(&page);
    rewind(to);
    ssize_t length = getline(&bytes, &size, to);
    assert_in_range(length, 60, 71);
    free(bytes);
    (void)fclose(to);
    assert_int_equal(setenv("COLUMNS", "20", 1), 0);
    assert_int_equal(tw_page_width(-1, 90), 90);
    assert_int_equal(setenv("COLUMNS", "1000", 1), 0);
    assert_int_equal(tw_page_width(-1, 90), 160);
    assert_int_equal(unsetenv("COLUMNS"), 0);
    assert_int_equal(tw_page_width(-1, 90), 90);
}
