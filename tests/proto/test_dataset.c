/* Tests of proto/dataset.c. */
#include "proto/dataset.h"

#include "tests/test.h"

enum { ROOM = 8 };

static struct tw_dataset_shard shards[ROOM], shards_back[ROOM];
static struct tw_dataset dataset, back;
static char text[4096];
static size_t size;
static struct tw_error err;

static void add_shard(uint32_t source, bool is_heldout, uint32_t number, uint64_t tokens) {
    struct tw_dataset_shard *shard = &shards[dataset.shards_count++];
    struct tw_shard head = {.token_bytes = 2, .tokens_count = tokens, .documents_count = 5};
    assert_int_equal(tw_shard_plan(&head, NULL), TW_OK);
    *shard = (struct tw_dataset_shard){.source = source,
                                       .is_heldout = is_heldout,
                                       .number = number,
                                       .head_bytes = head.head_bytes,
                                       .file_bytes = head.head_bytes + head.body_bytes,
                                       .tokens_count = tokens,
                                       .documents_count = 5};
    memset(&shard->name, (int)(0xa0 + dataset.shards_count), sizeof(shard->name));
}

static int setup(void **state) {
    dataset = (struct tw_dataset){.tokenizer_bytes = 2201041,
                                  .vocab = 50257,
                                  .separator = 50256,
                                  .heldout_millionths = 50000,
                                  .sources_count = 2,
                                  .sources = {{"prose", 700000}, {"code-2", 300000}},
                                  .shards_capacity = ROOM,
                                  .shards = shards};
    memset(&dataset.tokenizer, 0x5f, sizeof(dataset.tokenizer));
    add_shard(0, false, 0, 8388608);
    add_shard(0, false, 1, 100);
    add_shard(0, true, 0, 4096);
    add_shard(1, false, 0, 77);
    assert_int_equal(tw_dataset_encode(&dataset, text, sizeof(text), &size, &err), TW_OK);
    text[size] = '\0';
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static enum tw_status decode(void) {
    return tw_dataset_decode(text, size, shards_back, ROOM, &back, &err);
}

/* Replaces the first `from` in the text with `to`, and corrects the text's size line. */
static void change(const char *from, const char *to) {
    static char changed[sizeof(text)];
    char *const at = strstr(text, from);
    assert_non_null(at);
    const int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to,
                                at + strlen(from));
    size = (size_t)length;
    memcpy(text, changed, size + 1);
    char *const line = strstr(text, "bytes 0");
    if (line == NULL || strncmp(from, "bytes 0", 7) == 0) return;
    char number[16];
    (void)snprintf(number, sizeof(number), "%010zu", size);
    memcpy(line + 6, number, 10);
}

static void refused(const char *from, const char *to, enum tw_status status, const char *says) {
    assert_int_equal(setup(NULL), 0);
    change(from, to);
    const enum tw_status found = decode();
    if (found != status || strstr(err.message, says) == NULL) {
        fail_msg("'%s' to '%s': %s, said '%s'", from, to, tw_status_name(found), err.message);
    }
}

FACT(an_index_comes_back_as_it_was) {
    uint32_t bytes = 0;
    assert_int_equal(tw_dataset_size(text, 64, &bytes, &err), TW_OK);
    assert_int_equal(bytes, size);
    assert_true(tw_dataset_lines(text, size) >= dataset.shards_count);
    assert_int_equal(decode(), TW_OK);
    assert_int_equal(back.tokenizer_bytes, dataset.tokenizer_bytes);
    assert_memory_equal(&back.tokenizer, &dataset.tokenizer, sizeof(back.tokenizer));
    assert_int_equal(back.vocab, 50257);
    assert_int_equal(back.separator, 50256);
    assert_int_equal(back.heldout_millionths, 50000);
    assert_memory_equal(back.sources, dataset.sources, sizeof(back.sources));
    assert_int_equal(back.shards_count, 4);
    assert_memory_equal(shards_back, shards, 4 * sizeof(shards[0]));
    assert_int_equal(tw_dataset_tokens(&back, false), 8388608 + 100 + 77);
    assert_int_equal(tw_dataset_tokens(&back, true), 4096);
}

FACT(the_text_is_one_a_person_can_read) {
    assert_non_null(strstr(text, "thinwire-dataset 1\nbytes 0000000"));
    assert_non_null(strstr(text, "\nvocab 50257\nseparator 50256\nheldout 0.05\n"
                                 "source prose 0.7\nsource code-2 0.3\nshard 0 train a1a1"));
}

TEST(weights_become_shares_of_a_million) {
    uint32_t shares[3];
    assert_int_equal(tw_dataset_shares((const uint64_t[]){1, 1, 1}, 3, shares), 3);
    assert_memory_equal(shares, ((const uint32_t[]){333334, 333333, 333333}), sizeof(shares));
    assert_int_equal(tw_dataset_shares((const uint64_t[]){2, 7, 2}, 3, shares), 3);
    assert_memory_equal(shares, ((const uint32_t[]){181818, 636364, 181818}), sizeof(shares));
    assert_int_equal(tw_dataset_shares((const uint64_t[]){99, 999901}, 2, shares), 0);
    assert_int_equal(tw_dataset_shares((const uint64_t[]){999900, 100}, 2, shares), 2);
    const uint64_t most[] = {1000000000000, 1000000000000, 1000000000000};
    assert_int_equal(tw_dataset_shares(most, 3, shares), 3);
    assert_int_equal(shares[0], 333334);
}

FACT(bytes_and_sizes_instead_of_weights_come_back) {
    memset(&dataset.tokenizer, 0, sizeof(dataset.tokenizer));
    dataset.tokenizer_bytes = 0;
    dataset.vocab = 256;
    dataset.separator = TW_SHARD_NO_SEPARATOR;
    dataset.sources_count = 1;
    dataset.sources[0].weight_millionths = 0;
    dataset.shards_count = 0;
    assert_int_equal(tw_dataset_encode(&dataset, text, sizeof(text), &size, &err), TW_OK);
    assert_int_equal(decode(), TW_OK);
    assert_true(tw_id_is_zero(&back.tokenizer));
    assert_int_equal(back.separator, TW_SHARD_NO_SEPARATOR);
    assert_int_equal(back.sources[0].weight_millionths, 0);
}

FACT(marks_of_answers_come_back) {
    static struct tw_run run;
    dataset.has_answers = true;
    dataset.vocab = 30000;
    dataset.separator = TW_SHARD_NO_SEPARATOR;
    assert_int_equal(tw_dataset_encode(&dataset, text, sizeof(text), &size, &err), TW_OK);
    text[size] = '\0';
    assert_non_null(strstr(text, "\nheldout 0.05\nanswers marked\nsource prose"));
    assert_int_equal(decode(), TW_OK);
    assert_true(back.has_answers);
    tw_dataset_set_run(&back, &(struct tw_id){{1}}, &run);
    assert_int_equal(run.data.loss, TW_LOSS_ANSWERS);
    assert_int_equal(tw_dataset_check_run(&back, &run, &err), TW_OK);
    back.has_answers = false;
    assert_int_equal(tw_dataset_check_run(&back, &run, &err), TW_DATA);
    assert_non_null(strstr(err.message, "marks no answers"));
    change("answers marked", "answers maybe");
    assert_int_equal(decode(), TW_CORRUPT);
    assert_non_null(strstr(err.message, "line 7"));
}

FACT(files_are_named_by_their_place) {
    char name[TW_DATASET_FILE_BYTES];
    tw_dataset_file(&dataset, &shards[1], name);
    assert_string_equal(name, "prose-train-00001.shard");
    tw_dataset_file(&dataset, &shards[2], name);
    assert_string_equal(name, "prose-heldout-00000.shard");
}

FACT(one_content_has_one_form) {
    refused("vocab 50257", "vocab 050257", TW_CORRUPT, "line 4");
    refused("heldout 0.05", "heldout 0.050", TW_CORRUPT, "line 6");
    refused("heldout 0.05", "heldout 0.", TW_CORRUPT, "line 6");
    refused("heldout 0.05", "heldout .05", TW_CORRUPT, "line 6");
    refused("heldout 0.05", "heldout 4294967296.05", TW_CORRUPT, "line 6"); /* 2^32 */
    refused("heldout 0.05", "heldout 9.05", TW_CORRUPT, "line 6");
    refused("tokenizer 5f", "tokenizer 5F", TW_CORRUPT, "line 3");
    refused("prose 0.7", "prose 0", TW_CORRUPT, "line 7");
    refused("prose 0.7", "prose  0.7", TW_CORRUPT, "line 7");
    refused("prose 0.7", "prose 0.7 ", TW_CORRUPT, "line 7");
    refused("vocab 50257\n", "vocab 50257\r\n", TW_CORRUPT, "line 4");
    refused("shard 0", "\nshard 0", TW_CORRUPT, "line 9");
    refused("thinwire-dataset 1", "thinwire-dataset 2", TW_VERSION, "version");
    refused("thinwire-dataset 1", "thinwire-run 1", TW_CORRUPT, "does not begin with");
    refused("bytes 0000000", "bytes 0000001", TW_CORRUPT, "cut off or damaged");
    refused("bytes 0000000", "bytes 9000000", TW_CORRUPT, "line 2");
}

FACT(inconsistent_numbers_are_refused) {
    refused("source prose", "source ../prose", TW_CORRUPT, "line 7");
    refused("source prose", "source Prose", TW_CORRUPT, "line 7");
    refused("source code-2", "source prose", TW_CORRUPT, "two sources");
    refused("source prose 0.7", "source prose size", TW_CORRUPT, "every source one");
    refused("source prose 0.7", "source prose 0.6", TW_CORRUPT, "add up to 0.9");
    refused("separator 50256", "separator 50257", TW_CORRUPT, "separator 50257");
    refused("heldout 0.05", "heldout 0.6", TW_CORRUPT, "half");
    refused("shard 0", "shard 2", TW_CORRUPT, "out of order");
    refused("shard 0 train", "shard 0 heldout", TW_CORRUPT, "out of order");
    refused(" 8388608 ", " 8388609 ", TW_CORRUPT, "do not add up");
    refused(" 8388608 ", " 99999999999999999999 ", TW_CORRUPT, "line 9");
    refused(" 8388608 ", " 9223372036854775807 ", TW_CORRUPT, "at most");
    refused(" 4096 ", " 8192 ", TW_CORRUPT, "do not add up");
    refused(" 2201041", " 0", TW_CORRUPT, "tokenizer of 0 bytes");
}

FACT(a_cut_index_is_refused_at_every_byte) {
    const size_t whole = size;
    for (size = 0; size < whole; size++) assert_int_not_equal(decode(), TW_OK);
}

FACT(more_shards_than_there_is_room_for_are_refused) {
    assert_int_equal(tw_dataset_decode(text, size, shards_back, 3, &back, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "more than 3 shards"));
    assert_int_equal(tw_dataset_encode(&dataset, text, 100, &size, &err), TW_LIMIT);
    assert_true(size > 100);
}
