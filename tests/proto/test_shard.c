/* Tests of proto/dataset.c. */
#include "proto/dataset.h"

#include "base/bytes.h"
#include "tests/test.h"

enum { VOCAB = 50257, TOKENS = 300001, DOCUMENTS = 70 };

struct fixture {
    struct tw_shard shard;
    struct tw_id digests[8];
    uint8_t head[2 * 4096]; /* second page: the rest of a longer head */
    struct tw_error err;
};

static int setup(void **state) {
    static struct fixture fixture;
    memset(&fixture, 0, sizeof(fixture));
    fixture.shard = (struct tw_shard){.token_bytes = 2,
                                      .vocab = VOCAB,
                                      .separator = VOCAB - 1,
                                      .tokens_count = TOKENS,
                                      .documents_count = DOCUMENTS,
                                      .is_heldout = true,
                                      .source = 3,
                                      .number = 12};
    memset(&fixture.shard.tokenizer, 7, sizeof(fixture.shard.tokenizer));
    for (unsigned i = 0; i < 8; i++) memset(&fixture.digests[i], (int)(i + 1), 32);
    assert_int_equal(tw_shard_plan(&fixture.shard, &fixture.err), TW_OK);
    tw_shard_encode(&fixture.shard, fixture.digests, fixture.head);
    *state = &fixture;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

FACT(sizes_follow_from_the_counts) {
    const struct fixture *f = *state;
    assert_int_equal(f->shard.documents_begin, 600004); /* 600002 rounded up to 4 */
    assert_int_equal(f->shard.body_bytes, 600004 + 4 * DOCUMENTS);
    assert_int_equal(f->shard.pieces_count, 3);
    assert_int_equal(f->shard.head_bytes, 4096);
    assert_int_equal(tw_shard_piece_bytes(&f->shard, 0), TW_SHARD_PIECE_BYTES);
    assert_int_equal(tw_shard_piece_bytes(&f->shard, 2),
                     f->shard.body_bytes - 2 * TW_SHARD_PIECE_BYTES);
    assert_int_equal(tw_shard_token_bytes(256, false), 1);
    assert_int_equal(tw_shard_token_bytes(257, false), 2);
    assert_int_equal(tw_shard_token_bytes(65536, false), 2);
    assert_int_equal(tw_shard_token_bytes(65537, false), 4);
    assert_int_equal(tw_shard_token_bytes(128, true), 1);
    assert_int_equal(tw_shard_token_bytes(256, true), 2);
    assert_int_equal(tw_shard_token_bytes(32769, true), 4);
    assert_int_equal(tw_shard_token_bytes(1u << 31, true), 4);
}

FACT(a_head_comes_back_as_it_was) {
    struct fixture *f = *state;
    struct tw_shard back;
    uint32_t head_bytes = 0;
    assert_int_equal(tw_shard_head_bytes(f->head, &head_bytes, &f->err), TW_OK);
    assert_int_equal(head_bytes, 4096);
    assert_int_equal(tw_shard_decode(f->head, head_bytes, &back, &f->err), TW_OK);
    assert_int_equal(back.tokens_count, TOKENS);
    assert_int_equal(back.documents_count, DOCUMENTS);
    assert_int_equal(back.vocab, VOCAB);
    assert_int_equal(back.separator, VOCAB - 1);
    assert_true(back.is_heldout);
    assert_int_equal(back.source, 3);
    assert_int_equal(back.number, 12);
    assert_memory_equal(&back.tokenizer, &f->shard.tokenizer, 32);
    assert_int_equal(back.body_bytes, f->shard.body_bytes);
    const struct tw_id digest = tw_shard_digest(f->head, 2);
    assert_memory_equal(&digest, &f->digests[2], 32);
}

FACT(no_separator_differs_from_every_token) {
    struct fixture *f = *state;
    struct tw_shard back;
    f->shard.separator = TW_SHARD_NO_SEPARATOR;
    tw_shard_encode(&f->shard, f->digests, f->head);
    assert_int_equal(tw_shard_decode(f->head, 4096, &back, &f->err), TW_OK);
    assert_int_equal(back.separator, TW_SHARD_NO_SEPARATOR);
}

FACT(marks_of_answers_widen_the_numbers) {
    struct fixture *f = *state;
    struct tw_shard back;
    f->shard.vocab = 40000;
    f->shard.separator = 3;
    f->shard.has_answers = true;
    tw_shard_encode(&f->shard, f->digests, f->head);
    assert_int_equal(tw_shard_decode(f->head, 4096, &back, &f->err), TW_CORRUPT);
    f->shard.vocab = 32768;
    tw_shard_encode(&f->shard, f->digests, f->head);
    assert_int_equal(tw_shard_decode(f->head, 4096, &back, &f->err), TW_OK);
    assert_true(back.has_answers);
    assert_true(back.is_heldout);
}

/* Offset in the head, value written there, expected status and message. */
FACT(any_number_that_does_not_fit_is_refused) {
    static const struct {
        uint32_t at, value;
        enum tw_status status;
        const char *says;
    } cases[] = {
        {0, 0x41414141, TW_CORRUPT, "does not begin with TWSHARD"},
        {4, 0x39445241, TW_VERSION, "version"},
        {8, 0, TW_CORRUPT, "head of 0 bytes"},
        {8, 4097, TW_CORRUPT, "head of 4097 bytes"},
        {8, UINT32_MAX, TW_CORRUPT, "head of"},
        {8, 8192, TW_CORRUPT, "does not add up"},
        {12, 0, TW_CORRUPT, "0-byte tokens"},
        {12, 3, TW_CORRUPT, "3-byte tokens"},
        {12, 4, TW_CORRUPT, "4-byte tokens"},
        {16, 0, TW_CORRUPT, "without tokens"},
        {16, TW_SHARD_TOKENS_MAX + 1, TW_LIMIT, "at most"},
        {20, UINT32_MAX, TW_LIMIT, "at most"},
        {16, 50000000, TW_CORRUPT, "does not add up"},
        {24, 0, TW_CORRUPT, "without tokens"},
        {24, TOKENS + 1, TW_LIMIT, "at least one"},
        {32, 0, TW_CORRUPT, "tokens of 0"},
        {32, 70000, TW_CORRUPT, "tokens of 70000"},
        {36, 4, TW_CORRUPT, "does not add up"},
        {72, VOCAB, TW_CORRUPT, "separator"},
        {84, 1, TW_CORRUPT, "does not add up"},
        {124, 1, TW_CORRUPT, "does not add up"},
        {128 + 3 * 32, 1, TW_CORRUPT, "does not add up"},
        {4092, 1, TW_CORRUPT, "does not add up"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tw_shard back;
        assert_int_equal(setup(state), 0);
        tw_put_u32(f->head + cases[i].at, cases[i].value);
        assert_int_equal(tw_shard_decode(f->head, 4096, &back, &f->err), cases[i].status);
        if (strstr(f->err.message, cases[i].says) == NULL) {
            fail_msg("case %zu: said '%s'", i, f->err.message);
        }
    }
}

FACT(a_cut_head_is_refused) {
    struct fixture *f = *state;
    struct tw_shard back;
    for (size_t size = 0; size < 4096; size += 37) {
        assert_int_equal(tw_shard_decode(f->head, size, &back, &f->err), TW_CORRUPT);
    }
    assert_int_equal(tw_shard_decode(f->head, 8192, &back, &f->err), TW_CORRUPT);
}

FACT(the_largest_shard_fits_a_chunked_transfer) {
    struct fixture *f = *state;
    struct tw_shard shard = {
        .token_bytes = 4, .tokens_count = TW_SHARD_TOKENS_MAX, .documents_count = 1};
    assert_int_equal(tw_shard_plan(&shard, &f->err), TW_LIMIT); /* 1 GiB and a document */
    shard.tokens_count = (uint64_t)TW_SHARD_PIECES_MAX * TW_SHARD_PIECE_BYTES / 4 - 1;
    assert_int_equal(tw_shard_plan(&shard, &f->err), TW_OK);
    assert_int_equal(shard.pieces_count, TW_SHARD_PIECES_MAX);
    assert_true(shard.head_bytes <= TW_SHARD_HEAD_BYTES_MAX);
    shard.tokens_count = UINT64_MAX;
    shard.documents_count = UINT64_MAX;
    assert_int_equal(tw_shard_plan(&shard, &f->err), TW_LIMIT);
}
