/* Tests of base/nearest.c. */

#include "base/nearest.h"
#include "tests/test.h"

static const char *const WORDS[] = {"status", "peers", "train", "run", "checkpoint"};
enum { WORDS_COUNT = sizeof(WORDS) / sizeof(WORDS[0]) };

TEST(each_kind_of_edit_costs_one) {
    assert_int_equal(tw_edit_distance("peers", "peers"), 0);
    assert_int_equal(tw_edit_distance("peers", "peer"), 1);
    assert_int_equal(tw_edit_distance("pers", "peers"), 1);
    assert_int_equal(tw_edit_distance("pears", "peers"), 1);
    assert_int_equal(tw_edit_distance("epers", "peers"), 1);
    assert_int_equal(tw_edit_distance("", "run"), 3);
    assert_int_equal(tw_edit_distance("kitten", "sitting"), 3);
}

TEST(a_slip_finds_the_word_that_was_meant) {
    assert_string_equal(tw_nearest("stauts", WORDS, WORDS_COUNT), "status");
    assert_string_equal(tw_nearest("peer", WORDS, WORDS_COUNT), "peers");
    assert_string_equal(tw_nearest("chekpont", WORDS, WORDS_COUNT), "checkpoint");
}

TEST(a_different_word_is_not_guessed) {
    assert_null(tw_nearest("banana", WORDS, WORDS_COUNT));
    assert_null(tw_nearest("", WORDS, WORDS_COUNT));
    assert_null(tw_nearest("x", WORDS, WORDS_COUNT));
}

TEST(an_endless_word_is_far_from_everything) {
    char word[200];
    for (unsigned i = 0; i < 199; i++) word[i] = 'a';
    word[199] = 0;
    assert_null(tw_nearest(word, WORDS, WORDS_COUNT));
}
