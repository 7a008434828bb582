/* Tests of worker/tokenizer/bpe.c: the fast merge algorithm gives the same tokens as the reference.
 */
#include "worker/tokenizer/bpe.h"

#include "base/rng.h"
#include "tests/test.h"

static struct tw_error err;

/* Makes a vocabulary of the letters 0 to 3 and of random merges of tokens. Every sequence of
 * letters has at most one token. The ranks are in another order than the tokens were made. */
static void fill(struct tw_bpe *bpe, struct tw_rng *rng, uint32_t merges) {
    assert_int_equal(tw_bpe_init(bpe, merges, &err), TW_OK);
    for (uint32_t i = 0; i < merges; i++) {
        const uint32_t left = (uint32_t)tw_rng_below(rng, 4 + i);
        const uint32_t right = (uint32_t)tw_rng_below(rng, 4 + i);
        tw_bpe_put(bpe, (struct tw_bpe_merge){left, right, i * 7919 % 10007, 4 + i});
    }
}

static void assert_same(const struct tw_bpe *bpe, struct tw_bpe_scratch *scratch,
                        const uint32_t *letters, size_t count) {
    uint32_t *const fast = malloc((count + 1) * sizeof(*fast));
    uint32_t *const slow = malloc((count + 1) * sizeof(*slow));
    assert_non_null(fast);
    assert_non_null(slow);
    for (size_t i = 0; i < count; i++) fast[i] = slow[i] = letters[i];
    size_t left = count;
    assert_int_equal(tw_bpe_apply(bpe, scratch, fast, &left, &err), TW_OK);
    assert_int_equal(left, tw_bpe_apply_ref(bpe, slow, count));
    assert_memory_equal(fast, slow, left * sizeof(*fast));
    free(fast);
    free(slow);
}

TEST(words_of_all_lengths_merge_as_defined) {
    const uint64_t seed = 20261121;
    struct tw_bpe_scratch scratch = {.links = NULL};
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t round = 0; round < 400; round++) {
        struct tw_bpe bpe;
        uint32_t letters[600];
        const size_t count = (size_t)tw_rng_below(&rng, round % 10 == 0 ? 600 : 100);
        fill(&bpe, &rng, 1 + (uint32_t)tw_rng_below(&rng, 300));
        for (size_t i = 0; i < count; i++) {
            letters[i] = (uint32_t)tw_rng_below(&rng, round % 3 == 0 ? 1 : 4);
        }
        assert_same(&bpe, &scratch, letters, count);
        tw_bpe_deinit(&bpe);
    }
    tw_bpe_scratch_deinit(&scratch);
}

TEST(of_equal_pairs_the_leftmost_is_merged) {
    struct tw_bpe bpe;
    struct tw_bpe_scratch scratch = {.links = NULL};
    uint32_t tokens[101];
    assert_int_equal(tw_bpe_init(&bpe, 1, &err), TW_OK);
    tw_bpe_put(&bpe, (struct tw_bpe_merge){1, 1, 0, 2});
    for (size_t length = 3; length <= 101; length += 98) { /* short and long words */
        size_t count = length;
        for (size_t i = 0; i < length; i++) tokens[i] = 1;
        assert_int_equal(tw_bpe_apply(&bpe, &scratch, tokens, &count, &err), TW_OK);
        assert_int_equal(count, length / 2 + 1);
        assert_int_equal(tokens[0], 2);
        assert_int_equal(tokens[count - 1], 1);
    }
    tw_bpe_deinit(&bpe);
    tw_bpe_scratch_deinit(&scratch);
}

TEST(a_pair_put_twice_keeps_the_last) {
    struct tw_bpe bpe;
    struct tw_bpe_scratch scratch = {.links = NULL};
    uint32_t tokens[] = {1, 2, 3};
    size_t count = 3;
    assert_int_equal(tw_bpe_init(&bpe, 3, &err), TW_OK);
    tw_bpe_put(&bpe, (struct tw_bpe_merge){1, 2, 0, 9});
    tw_bpe_put(&bpe, (struct tw_bpe_merge){2, 3, 1, 8});
    tw_bpe_put(&bpe, (struct tw_bpe_merge){1, 2, 2, 7});
    assert_int_equal(tw_bpe_apply(&bpe, &scratch, tokens, &count, &err), TW_OK);
    assert_int_equal(count, 2);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], 8);
    tw_bpe_deinit(&bpe);
    tw_bpe_scratch_deinit(&scratch);
}

TEST(no_merges_leave_a_word_alone) {
    struct tw_bpe bpe = {.table = NULL};
    struct tw_bpe_scratch scratch = {.links = NULL};
    uint32_t tokens[] = {5, 5};
    size_t count = 2;
    assert_int_equal(tw_bpe_apply(&bpe, &scratch, tokens, &count, &err), TW_OK);
    assert_int_equal(count, 2);
    count = 0;
    assert_int_equal(tw_bpe_init(&bpe, 0, &err), TW_OK);
    assert_int_equal(tw_bpe_apply(&bpe, &scratch, tokens, &count, &err), TW_OK);
    assert_int_equal(count, 0);
    tw_bpe_deinit(&bpe);
}
