/* test_data.c - windows of tokens: drawn, held out and refused. */
#include "worker/data/data.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "tests/test.h"

enum { CONTEXT = 8, WINDOW = CONTEXT + 1 };

struct fixture {
    char path[64];
    struct tw_run run;
    struct tw_data data;
};

/* Writes a file of `bytes` bytes; byte i is 1 + i mod 127. */
static void write_file(struct fixture *f, size_t bytes) {
    (void)snprintf(f->path, sizeof(f->path), "/tmp/tw-test-data-XXXXXX");
    const int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    uint8_t *text = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) text[i] = (uint8_t)(1 + i % 127);
    assert_int_equal(write(fd, text, bytes), bytes);
    free(text);
    (void)close(fd);
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    tw_run_defaults(&f->run);
    f->run.model.context = CONTEXT;
    f->run.data.heldout_millionths = 100000;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    tw_data_close(&f->data);
    if (f->path[0] != '\0') (void)unlink(f->path);
    free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

FACT(data_opened_whole_are_measured_from_the_first_token) {
    struct fixture *f = *state;
    write_file(f, 120);
    assert_int_equal(tw_data_open_whole(&f->data, f->path, &f->run, NULL), TW_OK);
    assert_int_equal(f->data.train_count, 0);
    assert_int_equal(f->data.heldout_count, 120);
    const uint64_t windows = tw_data_heldout_count(&f->data);
    assert_int_equal(windows, (120 - 1) / CONTEXT);
    uint32_t tokens[WINDOW];
    for (uint64_t i = 0; i < windows; i++) {
        assert_int_equal(tw_data_heldout(&f->data, i, windows, tokens, NULL), TW_OK);
        for (uint32_t k = 0; k < WINDOW; k++) assert_int_equal(tokens[k], 1 + i * CONTEXT + k);
    }
}

FACT(data_shorter_than_a_window_cannot_be_measured) {
    struct fixture *f = *state;
    struct tw_error err;
    write_file(f, CONTEXT);
    assert_int_equal(tw_data_open_whole(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "8 tokens, too few for one window of 9: measure a longer"));
}

FACT(the_end_is_held_out_and_never_drawn) {
    struct fixture *f = *state;
    write_file(f, 120); /* no value repeats: a byte identifies its place */
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
    assert_int_equal(f->data.train_count, 108);
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    bool is_seen[120] = {false};
    for (unsigned i = 0; i < 20000; i++) {
        assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 1, tokens, NULL), TW_OK);
        for (unsigned j = 0; j < WINDOW; j++) {
            assert_true(tokens[j] == tokens[0] + j);
            is_seen[tokens[j] - 1] = true;
        }
    }
    for (unsigned i = 0; i < 120; i++) assert_int_equal(is_seen[i], i < 108);
    assert_int_equal(cursor, 20000 * CONTEXT);
}

FACT(the_cursor_resumes_exactly) {
    struct fixture *f = *state;
    write_file(f, 5000);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
    uint32_t whole[6 * WINDOW], resumed[3 * WINDOW], other[6 * WINDOW];
    uint64_t cursor = 0, saved = 0;
    assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 6, whole, NULL), TW_OK);
    assert_int_equal(tw_data_draw(&f->data, 7, &saved, 3, resumed, NULL), TW_OK);
    assert_memory_equal(whole, resumed, sizeof(resumed));
    assert_int_equal(tw_data_draw(&f->data, 7, &saved, 3, resumed, NULL), TW_OK);
    assert_memory_equal(whole + 3 * WINDOW, resumed, sizeof(resumed));
    assert_int_equal(saved, cursor);
    saved = 0;
    /* the seed of another node gives another order */
    assert_int_equal(tw_data_draw(&f->data, 8, &saved, 6, other, NULL), TW_OK);
    assert_memory_not_equal(whole, other, sizeof(whole));
}

FACT(held_out_windows_cover_the_end_without_overlap) {
    struct fixture *f = *state;
    write_file(f, 250);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
    const uint64_t count = tw_data_heldout_count(&f->data);
    /* 25 bytes: 3 windows of 8 targets, and the byte before the first */
    assert_int_equal(count, 3);
    uint32_t tokens[WINDOW];
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(tw_data_heldout(&f->data, i, count, tokens, NULL), TW_OK);
        assert_int_equal(tokens[0], 99 + i * CONTEXT);
        assert_int_equal(tokens[CONTEXT], 99 + (i + 1) * CONTEXT);
    }
    assert_int_equal(tw_data_heldout(&f->data, 1, 2, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 99 + CONTEXT);
}

FACT(the_shortest_text_that_fits_is_taken) {
    struct fixture *f = *state;
    write_file(f, WINDOW);
    f->run.data.heldout_millionths = 0;
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
    uint32_t tokens[WINDOW];
    uint64_t cursor = 12345;
    assert_int_equal(tw_data_draw(&f->data, 1, &cursor, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tw_data_heldout_count(&f->data), 0);
}

FACT(unusable_files_are_refused_by_name) {
    struct fixture *f = *state;
    struct tw_error err;
    assert_int_equal(tw_data_open(&f->data, "/nonexistent/text", &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "/nonexistent/text"));
    assert_int_equal(tw_data_open(&f->data, "/tmp", &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "without a dataset"));
    write_file(f, 0);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "empty"));
    (void)unlink(f->path);
    write_file(f, 89); /* a tenth is 8 bytes: one too few */
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "too few"));
    assert_null(f->data.inner);
}

FACT(the_text_of_a_run_is_known_by_its_hash) {
    struct fixture *f = *state;
    struct tw_error err;
    static uint8_t text[600000]; /* more than one block of the hash */
    write_file(f, sizeof(text));
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (uint8_t)(1 + i % 127);
    f->run.data.sha256 = tw_sha256(text, sizeof(text));
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_OK);
    tw_data_close(&f->data);
    f->run.data.sha256.bytes[31] ^= 1;
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "is not the text of this run"));
}

/* The file is truncated to half while it is read. Reading the lost half gives an error message. */
FACT(a_text_that_shrinks_is_a_sentence) {
    struct fixture *f = *state;
    struct tw_error err;
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    unsigned good = 0, cut = 0;
    write_file(f, 20000);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_OK);
    assert_int_equal(truncate(f->path, 10000), 0);
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t before = cursor;
        if (tw_data_draw(&f->data, 7, &cursor, 1, tokens, &err) == TW_OK) {
            good++;
            continue;
        }
        assert_non_null(strstr(err.message, "it was cut off"));
        assert_int_equal(cursor, before);
        cursor += CONTEXT;
        cut++;
    }
    assert_true(good > 400 && cut > 300);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, &err), TW_DATA);
}

/* Writes `count` tokens 1000 + i as little-endian words of `size` bytes, after `head` bytes. */
static void write_ids(struct fixture *f, const uint8_t *head, size_t head_bytes, size_t count,
                      size_t size) {
    (void)snprintf(f->path, sizeof(f->path), "/tmp/tw-test-data-XXXXXX");
    const int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, head, head_bytes), head_bytes);
    for (size_t i = 0; i < count; i++) {
        uint8_t word[4];
        tw_put_u32(word, 1000 + (uint32_t)i);
        assert_int_equal(write(fd, word, size), size);
    }
    (void)close(fd);
}

FACT(token_numbers_are_read_by_the_size_of_the_vocabulary) {
    struct fixture *f = *state;
    uint32_t tokens[WINDOW];
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    for (unsigned i = 0; i < 2; i++) {
        f->run.model.vocab = i == 0 ? 50257 : 128256;
        write_ids(f, NULL, 0, 200, i == 0 ? 2 : 4);
        assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
        assert_int_equal(f->data.tokens_count, 200);
        assert_int_equal(f->data.train_count, 180);
        assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
        for (unsigned k = 0; k < WINDOW; k++) assert_int_equal(tokens[k], 1180 + k);
        tw_data_close(&f->data);
        (void)unlink(f->path);
    }
}

FACT(a_token_shard_is_known_by_its_header) {
    struct fixture *f = *state;
    struct tw_error err;
    uint8_t head[1024] = {0};
    uint32_t tokens[WINDOW];
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    f->run.model.vocab = 128256; /* too large for 16 bits, but the header says 16-bit tokens */
    tw_put_u32(head, 20240520);
    tw_put_u32(head + 4, 1);
    tw_put_u32(head + 8, 200);
    write_ids(f, head, sizeof(head), 200, 2);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, NULL), TW_OK);
    assert_int_equal(f->data.tokens_count, 200);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 1180);
    tw_data_close(&f->data);
    assert_int_equal(truncate(f->path, 1024 + 398), 0);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "cut off"));
}

FACT(token_numbers_that_cannot_be_are_refused) {
    struct fixture *f = *state;
    struct tw_error err;
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    f->run.model.vocab = 1100;
    write_ids(f, NULL, 0, 200, 2);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "token 100 is 1100, outside the vocabulary of 1100"));
    f->run.model.vocab = 1200;
    assert_int_equal(truncate(f->path, 399), 0);
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "not a whole number of 2-byte"));
    const int fd = open(f->path, O_WRONLY | O_TRUNC);
    for (unsigned i = 0; i < 50; i++) assert_int_equal(write(fd, "In the beginning", 16), 16);
    (void)close(fd);
    f->run.model.vocab = 50257; /* any two letters form a valid token */
    assert_int_equal(tw_data_open(&f->data, f->path, &f->run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "is text, but data.tokenizer is ids"));
    assert_null(f->data.inner);
}
