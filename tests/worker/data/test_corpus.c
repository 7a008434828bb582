/* test_corpus.c - kinds of training data, and their errors: complete, growing and damaged datasets,
 * shards of llm.c, pairs of Megatron-LM files. */
#include "worker/data/corpus.h"

#include "tests/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "kernels/ops.h"
#include "tests/worker/data/dataset_folder.h"
#include "worker/data/data.h"

static const char *written_by_others; /* path of tests/data */

enum { CONTEXT = 8, WINDOW = CONTEXT + 1, SHARD_TOKENS = 1000 };

struct fixture {
    char folder[64];
    struct tw_run run;
    struct tw_data data;
    struct tw_error err;
    struct dataset_plan plan;
};

/* The token encodes its source, whether it is held out, its shard, and its place modulo 1000. */
static uint32_t token(uint32_t source, bool is_heldout, uint32_t shard, uint32_t i) {
    return 10000 * (1 + source) + (is_heldout ? 5000 : 0) + 1000 * shard + i % 1000;
}

static int set_up(void **state) {
    struct fixture *const f = calloc(1, sizeof(*f));
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/tw-test-corpus-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    tw_run_defaults(&f->run);
    f->run.model.context = CONTEXT;
    f->run.model.vocab = 50000;
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    f->plan = (struct dataset_plan){.vocab = 50000,
                                    .separator = 3,
                                    .tokenizer = {{1}},
                                    .heldout_millionths = 50000,
                                    .sources_count = 1,
                                    .train_shards = 3,
                                    .heldout_shards = 1,
                                    .shard_tokens = SHARD_TOKENS,
                                    .document_tokens = 100,
                                    .token = token};
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *const f = *state;
    tw_data_close(&f->data);
    dataset_folder_remove(f->folder);
    free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static const char *path_of(const struct fixture *f, const char *name) {
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    return path;
}

static enum tw_status open_data(struct fixture *f, const char *path) {
    tw_data_close(&f->data);
    return tw_data_open(&f->data, path, &f->run, &f->err);
}

static void expect(struct fixture *f, const char *path, enum tw_status status, const char *words) {
    const enum tw_status found = open_data(f, path);
    if (found != status || strstr(f->err.message, words) == NULL) {
        fail_msg("%d: %s", found, f->err.message);
    }
    assert_null(f->data.inner);
}

static void write_dataset(struct fixture *f) {
    f->run.data.form = TW_FORM_DATASET;
    f->run.data.sha256 = dataset_folder_write(f->folder, &f->plan);
}

static void write_at(const char *path, const void *bytes, size_t size, off_t at) {
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, at), size);
    (void)close(fd);
}

/* Draws n windows and counts them by token / 1000. */
static void count_draws(struct fixture *f, uint64_t *cursor, unsigned n, unsigned hits[64]) {
    uint32_t tokens[WINDOW];
    memset(hits, 0, 64 * sizeof(hits[0]));
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(tw_data_draw(&f->data, 7, cursor, 1, tokens, &f->err), TW_OK);
        for (unsigned k = 1; k < WINDOW; k++) assert_int_equal(tokens[k], tokens[0] + k);
        hits[tokens[0] / 1000]++;
    }
}

/* ---- datasets -------------------------------------------------------------------------------- */

FACT(a_dataset_is_drawn_once_an_epoch) {
    struct fixture *const f = *state;
    unsigned hits[64];
    uint64_t cursor = 0;
    uint32_t tokens[WINDOW];
    write_dataset(f);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    assert_int_equal(f->data.train_count, 3 * SHARD_TOKENS);
    assert_int_equal(f->data.heldout_count, SHARD_TOKENS);
    assert_int_equal(f->data.files_here, 4);
    const unsigned windows = SHARD_TOKENS / CONTEXT - 1;
    count_draws(f, &cursor, 3 * windows, hits);
    assert_int_equal(hits[10], windows);
    assert_int_equal(hits[11], windows);
    assert_int_equal(hits[12], windows);
    assert_int_equal(tw_data_heldout_count(&f->data), (SHARD_TOKENS - 1) / CONTEXT);
    assert_int_equal(tw_data_heldout(&f->data, 1, 124, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 15008);
}

FACT(sources_come_by_weight) {
    struct fixture *const f = *state;
    unsigned hits[64];
    uint64_t cursor = 0;
    f->plan.sources_count = 2;
    f->plan.train_shards = 1;
    f->plan.weights_millionths[0] = 900000;
    f->plan.weights_millionths[1] = 100000;
    write_dataset(f);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    count_draws(f, &cursor, 10000, hits);
    assert_int_equal(hits[10], 9000);
    assert_int_equal(hits[20], 1000);
    assert_int_equal(tw_data_heldout_count(&f->data), 2 * ((SHARD_TOKENS - 1) / CONTEXT));
}

FACT(a_growing_dataset_starts_with_one_shard) {
    struct fixture *const f = *state;
    unsigned hits[64];
    uint64_t cursor = 0;
    const char *const names[] = {"prose-train-00000.shard", "prose-train-00002.shard",
                                 "prose-heldout-00000.shard", "prose-train-00001.shard"};
    write_dataset(f);
    for (unsigned i = 0; i < 4; i++) {
        char hidden[256];
        (void)snprintf(hidden, sizeof(hidden), "%s/%u.part", f->folder, i);
        assert_int_equal(rename(path_of(f, names[i]), hidden), 0);
    }
    expect(f, f->folder, TW_AGAIN, "no whole shard for training yet");
    for (unsigned i = 0; i < 4; i++) {
        char hidden[256];
        (void)snprintf(hidden, sizeof(hidden), "%s/%u.part", f->folder, i);
        assert_int_equal(rename(hidden, path_of(f, names[i])), 0);
        if (i == 0) assert_int_equal(open_data(f, f->folder), TW_OK);
        tw_data_refresh(&f->data);
        assert_int_equal(f->data.files_here, i + 1);
        count_draws(f, &cursor, 372, hits);
        assert_int_equal(hits[10] + hits[11] + hits[12], 372);
        assert_int_equal(hits[11] > 0, i >= 3);
        assert_int_equal(hits[12] > 0, i >= 1);
        assert_int_equal(tw_data_heldout_count(&f->data) > 0, i >= 2);
    }
    cursor = 0;
    /* the data are complete now, so windows are drawn in the final order */
    count_draws(f, &cursor, 372, hits);
    assert_int_equal(hits[11], 124);
}

FACT(wrong_bytes_are_never_drawn) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    f->plan.train_shards = 1;
    f->plan.shard_tokens = 400000; /* four pieces */
    write_dataset(f);
    write_at(path_of(f, "prose-train-00000.shard"), "\x7f", 1, 4096 + 2 * TW_SHARD_PIECE_BYTES + 9);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    unsigned refused = 0;
    for (unsigned i = 0; i < 400; i++) {
        const uint64_t before = cursor;
        const enum tw_status status = tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err);
        if (status == TW_OK) continue;
        assert_int_equal(status, TW_DATA);
        assert_int_equal(cursor, before);
        assert_non_null(strstr(f->err.message, "is damaged within bytes 528384 to 790527"));
        refused++;
        cursor += CONTEXT;
    }
    assert_in_range(refused, 80, 180); /* the damaged piece has a third of the tokens */
}

FACT(a_shard_that_shrinks_is_a_sentence) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    f->plan.train_shards = 1;
    write_dataset(f);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    assert_int_equal(truncate(path_of(f, "prose-train-00000.shard"), 5000), 0);
    assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err), TW_DATA);
    assert_non_null(strstr(f->err.message, "it was cut off"));
    assert_int_equal(cursor, 0);
    write_at(path_of(f, "prose-train-00000.shard"), "x", 1, 4000);
    assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err), TW_DATA);
    assert_non_null(strstr(f->err.message, "is not the shard that the index names"));
}

FACT(another_shard_under_the_name_is_refused) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    char other[256];
    f->plan.train_shards = 2;
    write_dataset(f);
    (void)snprintf(other, sizeof(other), "%s", path_of(f, "prose-train-00001.shard"));
    assert_int_equal(unlink(path_of(f, "prose-train-00000.shard")), 0);
    assert_int_equal(link(other, path_of(f, "prose-train-00000.shard")), 0);
    /* accepted: the wrong shard has the expected size */
    assert_int_equal(open_data(f, f->folder), TW_OK);
    enum tw_status status = TW_OK;
    for (unsigned i = 0; i < 50 && status == TW_OK; i++) {
        status = tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err);
        if (status == TW_OK) assert_int_equal(tokens[0] / 1000, 11);
    }
    assert_int_equal(status, TW_DATA);
    assert_non_null(strstr(f->err.message, "00000.shard is not the shard that the index names"));
}

FACT(tokens_outside_answers_are_marked_if_the_loss_asks) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    f->plan.has_answers = true;
    write_dataset(f);
    for (unsigned loss = 0; loss < 2; loss++) {
        uint64_t cursor = 0;
        f->run.data.loss = loss == 0 ? TW_LOSS_ALL : TW_LOSS_ANSWERS;
        assert_int_equal(open_data(f, f->folder), TW_OK);
        for (unsigned n = 0; n < 50; n++) {
            assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err), TW_OK);
            for (unsigned k = 0; k < WINDOW; k++) {
                const uint32_t token = tokens[k] & ~TW_TOKEN_UNSCORED;
                const bool is_answer = token % 1000 / f->plan.document_tokens % 2 == 1;
                assert_int_equal(token, (tokens[0] & ~TW_TOKEN_UNSCORED) + k);
                assert_int_equal(tokens[k] == token, loss == 0 || is_answer);
            }
        }
    }
    f->plan.has_answers = false;
    write_dataset(f);
    expect(f, f->folder, TW_DATA, "marks no answers");
}

FACT(a_dataset_must_suit_the_run) {
    struct fixture *const f = *state;
    write_dataset(f);
    f->run.data.heldout_millionths = 60000;
    expect(f, f->folder, TW_DATA, "holds out a share of 0.05, and data.heldout of the run is 0.06");
    f->run.data.heldout_millionths = 50000;
    f->run.data.documents = TW_DOCUMENTS_MASKED;
    expect(f, f->folder, TW_DATA, "another token than 0");
    f->run.data.separator = 3;
    assert_int_equal(open_data(f, f->folder), TW_OK);
    f->run.model.vocab = 49999;
    expect(f, f->folder, TW_DATA, "go up to 49999, and model.vocab of the run is 49999");
    f->run.model.vocab = 256;
    f->run.data.tokenizer = TW_TOKENIZER_BYTES;
    expect(f, f->folder, TW_DATA, "data.tokenizer of the run is bytes");
    f->run.model.vocab = 50000;
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    f->run.data.sha256.bytes[0] ^= 1;
    expect(f, f->folder, TW_DATA, "is not the dataset of this run");
    f->run.data.form = TW_FORM_FILE;
    expect(f, f->folder, TW_DATA, "is a folder, and the manifest names one file");
    f->run.data.sha256 = (struct tw_id){
        {0}}; /* the manifest pins no data: data.heldout of the node's own config applies */
    f->run.data.heldout_millionths = 60000;
    assert_int_equal(open_data(f, f->folder), TW_OK);
}

static uint32_t a_byte(uint32_t source, bool is_heldout, uint32_t shard, uint32_t i) {
    return token(source, is_heldout, shard, i) % 200;
}

/* Bytes are valid token ids in any vocabulary, so the dataset's tokenizer must be checked. */
FACT(bytes_do_not_suit_a_model_on_tokens) {
    struct fixture *const f = *state;
    f->plan.token = a_byte;
    f->plan.vocab = 256;
    f->plan.tokenizer = (struct tw_id){{0}};
    write_dataset(f);
    expect(f, f->folder, TW_DATA, "its tokens are bytes, and data.tokenizer of the run is ids");
}

FACT(an_index_is_read_with_its_name) {
    struct fixture *const f = *state;
    struct tw_dataset *const dataset = calloc(1, sizeof(*dataset));
    struct tw_id digest;
    write_dataset(f);
    assert_int_equal(tw_dataset_read(f->folder, dataset, &digest, &f->err), TW_OK);
    assert_true(tw_id_equal(&digest, &f->run.data.sha256));
    assert_int_equal(dataset->shards_count, 4);
    free(dataset->shards);
    free(dataset);
}

FACT(damaged_indexes_are_refused) {
    struct fixture *const f = *state;
    write_dataset(f);
    write_at(path_of(f, "dataset"), "X", 1, 0);
    expect(f, f->folder, TW_DATA, "dataset");
    assert_int_equal(truncate(path_of(f, "dataset"), 0), 0);
    expect(f, f->folder, TW_DATA, "is not the index of a dataset");
    assert_int_equal(unlink(path_of(f, "dataset")), 0);
    expect(f, f->folder, TW_DATA, "a folder without a dataset");
    write_at(path_of(f, "plain.txt"), "\1\0\2\0", 4, 0);
    expect(f, path_of(f, "plain.txt"), TW_DATA, "is not a dataset, but the manifest names one");
}

FACT(one_shard_is_read_alone) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    (void)dataset_folder_write(f->folder, &f->plan);
    assert_int_equal(open_data(f, path_of(f, "prose-train-00001.shard")), TW_OK);
    assert_int_equal(f->data.heldout_count, 50);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 11950);
    assert_int_equal(truncate(path_of(f, "prose-train-00001.shard"), 6000), 0);
    expect(f, path_of(f, "prose-train-00001.shard"), TW_DATA, "it is cut off or damaged");
    assert_int_equal(truncate(path_of(f, "prose-train-00001.shard"), 3000), 0);
    expect(f, path_of(f, "prose-train-00001.shard"), TW_DATA, "it was cut off");
}

/* ---- documents ------------------------------------------------------------------------------- */

FACT(documents_are_found_by_number) {
    struct fixture *const f = *state;
    struct tw_corpus corpus;
    struct tw_token_reader reader;
    uint64_t first = 0, count = 0;
    const struct tw_corpus_hint hint = {.is_ids = true};
    (void)dataset_folder_write(f->folder, &f->plan);
    assert_int_equal(tw_corpus_open(&corpus, f->folder, &hint, &f->err), TW_OK);
    assert_int_equal(tw_token_reader_init(&reader, 50000, &f->err), TW_OK);
    struct tw_token_file *const file = &corpus.files[0].tokens;
    assert_int_equal(file->documents_count, 10);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(tw_token_document(&reader, file, i, &first, &count, &f->err), TW_OK);
        assert_int_equal(first, 100 * i);
        assert_int_equal(count, 100);
    }
    tw_token_reader_deinit(&reader);
    tw_corpus_close(&corpus);
}

/* ---- curriculum ------------------------------------------------------------------------------ */

/* Two thirds of the shard are one token, the others are all different. */
static uint32_t easy_then_hard(uint32_t source, bool is_heldout, uint32_t shard, uint32_t i) {
    return token(source, is_heldout, shard, i < 400 || i >= 600 ? 0 : i);
}

FACT(a_curriculum_begins_with_common_tokens) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    uint64_t cursor = 0;
    unsigned hard[2] = {0};
    f->plan.token = easy_then_hard;
    f->run.train.tokens = 16000 * 4;
    f->run.data.curriculum_millionths = 500000; /* 8000 of this node's 16000 tokens */
    write_dataset(f);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    for (unsigned i = 0; i < 2000; i++) {
        const unsigned phase = cursor < 4000 ? 0 : 1; /* competence 0.1 to 0.71, then to 1 */
        assert_int_equal(tw_data_draw(&f->data, 7, &cursor, 1, tokens, &f->err), TW_OK);
        hard[phase] += tokens[4] % 1000 != 0;
    }
    assert_int_equal(hard[0], 0);
    assert_in_range(hard[1], 200, 450); /* a fifth of the tokens are rare */
}

/* ---- llm.c ----------------------------------------------------------------------------------- */

static void write_llmc(const struct fixture *f, const char *name, uint32_t first, uint32_t count) {
    uint8_t *const file = calloc(1, 1024 + 2 * (size_t)count);
    tw_put_u32(file, 20240520);
    tw_put_u32(file + 4, 1);
    tw_put_u32(file + 8, count);
    for (uint32_t i = 0; i < count; i++) tw_put_u16(file + 1024 + 2 * i, (uint16_t)(first + i));
    write_at(path_of(f, name), file, 1024 + 2 * (size_t)count, 0);
    free(file);
}

FACT(shards_of_a_folder_are_one_text) {
    struct fixture *const f = *state;
    unsigned hits[64];
    uint64_t cursor = 0;
    uint32_t tokens[WINDOW];
    write_llmc(f, "web_train_000002.bin", 2000, 900);
    write_llmc(f, "web_train_000001.bin", 1000, 900);
    write_llmc(f, "notes.bin", 9000, 900);
    /* Without a file named val, the last tokens are held out. */
    assert_int_equal(open_data(f, f->folder), TW_OK);
    assert_int_equal(f->data.train_count, 1710);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 2810);
    write_llmc(f, "web_val_000000.bin", 5000, 400);
    assert_int_equal(open_data(f, f->folder), TW_OK);
    assert_int_equal(f->data.train_count, 1800);
    assert_int_equal(f->data.heldout_count, 400);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 5000);
    count_draws(f, &cursor, 222, hits);
    assert_int_equal(hits[1], 111);
    assert_int_equal(hits[2], 111);
    f->run.data.tokenizer = TW_TOKENIZER_BYTES;
    f->run.model.vocab = 256;
    expect(f, f->folder, TW_DATA, "is token shards of llm.c, but data.tokenizer is bytes");
}

FACT(broken_shards_of_llmc_are_refused) {
    struct fixture *const f = *state;
    uint8_t word[4];
    write_llmc(f, "a_train_0.bin", 0, 900);
    tw_put_u32(word, 7);
    write_at(path_of(f, "a_train_0.bin"), word, 4, 4);
    expect(f, f->folder, TW_DATA, "for GPT-2 of version 7; version 1 is read");
    tw_put_u32(word, 1);
    write_at(path_of(f, "a_train_0.bin"), word, 4, 4);
    tw_put_u32(word, 901);
    write_at(path_of(f, "a_train_0.bin"), word, 4, 8);
    expect(f, f->folder, TW_DATA, "of 901 tokens and holds 900");
    write_at(path_of(f, "a_train_0.bin"), "abcd", 4, 0);
    expect(f, f->folder, TW_DATA, "is not a token shard of llm.c");
    assert_int_equal(truncate(path_of(f, "a_train_0.bin"), 5), 0);
    expect(f, f->folder, TW_DATA, "it was cut off");
    assert_int_equal(unlink(path_of(f, "a_train_0.bin")), 0);
    assert_int_equal(mkfifo(path_of(f, "a_train_0.bin"), 0600), 0); /* must not block */
    expect(f, f->folder, TW_DATA, "is not a plain file");
}

FACT(each_shard_is_checked_for_the_vocabulary) {
    struct fixture *const f = *state;
    f->run.model.vocab = 3000;
    write_llmc(f, "web_train_000001.bin", 1000, 900);
    write_llmc(f, "web_train_000002.bin", 2500, 900);
    expect(f, f->folder, TW_DATA, "token 500 is 3000, outside the vocabulary of 3000");
    assert_non_null(strstr(f->err.message, "web_train_000002.bin"));
}

/* Files written by llm.c itself: both token formats, names without numbers, and a file that is not
 * training text. */
FACT(files_that_llmc_wrote_are_read) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    char path[512];
    f->run.model.vocab = 128256;
    (void)snprintf(path, sizeof(path), "%s/llmc/llama3", written_by_others);
    if (open_data(f, path) != TW_OK) fail_msg("%s", f->err.message);
    assert_int_equal(f->data.train_count, 40);
    assert_int_equal(f->data.heldout_count, 20);
    assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
    assert_int_equal(tokens[0], 128100);
    f->run.data.heldout_millionths = 300000;
    (void)snprintf(path, sizeof(path), "%s/llmc/gpt2_train_000001.bin", written_by_others);
    if (open_data(f, path) != TW_OK) fail_msg("%s", f->err.message);
    assert_int_equal(f->data.tokens_count, 40);
    (void)snprintf(path, sizeof(path), "%s/llmc/hellaswag_val.bin", written_by_others);
    expect(f, path, TW_DATA, "multiple-choice questions of llm.c");
}

/* ---- bare numbers and bytes ------------------------------------------------------------------ */

FACT(numbers_of_another_width_are_refused) {
    struct fixture *const f = *state;
    uint8_t bytes[8 * 1000];
    for (uint32_t i = 0; i < 1000; i++) tw_put_u32(bytes + 4 * i, 100 + i);
    write_at(path_of(f, "u32.bin"), bytes, 4000, 0);
    expect(f, path_of(f, "u32.bin"), TW_DATA,
           "every second 2-byte number is 0 at its beginning, so its numbers are larger than the "
           "run's vocabulary needs: write them as numpy uint16");
    for (uint32_t i = 0; i < 1000; i++) tw_put_u64(bytes + 8 * i, 70000 + i);
    write_at(path_of(f, "i64.bin"), bytes, 8000, 0);
    f->run.model.vocab = 100000;
    expect(f, path_of(f, "i64.bin"), TW_DATA, "every second 4-byte number is 0");
    for (uint32_t i = 0; i < 1000; i++) tw_put_u64(bytes + 8 * i, i);
    write_at(path_of(f, "i64.bin"), bytes, 8000, 0);
    f->run.model.vocab = 50000;
    expect(f, path_of(f, "i64.bin"), TW_DATA, "every second 2-byte number is 0");
    f->run.model.vocab = 100000;
    assert_int_equal(open_data(f, path_of(f, "u32.bin")), TW_OK);
}

/* A run on bytes could train on any file, so known binary formats are refused. */
FACT(files_that_are_no_text_are_not_trained_on) {
    struct fixture *const f = *state;
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/heads/numpy.npy", written_by_others);
    expect(f, path, TW_DATA, "numpy.npy is a NumPy array, which is not read: write its token");
    f->run.data.tokenizer = TW_TOKENIZER_BYTES;
    f->run.model.vocab = 256;
    (void)snprintf(path, sizeof(path), "%s/json/datasets.parquet", written_by_others);
    expect(f, path, TW_DATA, "is a Parquet file, which is not read");
    (void)snprintf(path, sizeof(path), "%s/json/datasets-lines.jsonl", written_by_others);
    expect(f, path, TW_DATA,
           "is JSON, and a run would train on its bytes: `thinwire data prepare`");
    (void)snprintf(path, sizeof(path), "%s/tar/gnu.tar", written_by_others);
    expect(f, path, TW_DATA, "is a tar archive, and a run would train on its bytes");
    char page[2000];
    memset(page, 'a', sizeof(page));
    memcpy(page, "<mediawiki xmlns=", 17); /* the first bytes of enwik8 */
    write_at(path_of(f, "page"), page, sizeof(page), 0);
    assert_int_equal(open_data(f, path_of(f, "page")), TW_OK);
}

/* ---- Megatron -------------------------------------------------------------------------------- */

/* 40 sequences of 25 tokens, two per document. Type 8 is u16, 4 is i32. */
static void write_megatron(const struct fixture *f, uint8_t type) {
    enum { SEQUENCES = 40, TOKENS = 1000, INDEX = 34 + 12 * SEQUENCES + 8 * 21 };
    const uint32_t size = type == 8 ? 2 : 4;
    uint8_t index[INDEX] = "MMIDIDX", tokens[4 * TOKENS];
    index[9] = 1;
    index[17] = type;
    tw_put_u64(index + 18, SEQUENCES);
    tw_put_u64(index + 26, 21);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        tw_put_u32(index + 34 + 4 * i, 25);
        tw_put_u64(index + 34 + 4 * SEQUENCES + 8 * i, 25 * i * size);
    }
    for (uint32_t i = 0; i < 21; i++) tw_put_u64(index + 34 + 12 * SEQUENCES + 8 * i, 2 * i);
    for (uint32_t i = 0; i < TOKENS; i++) {
        if (size == 2) tw_put_u16(tokens + 2 * i, (uint16_t)(1000 + i));
        if (size == 4) tw_put_u32(tokens + 4 * i, 1000 + i);
    }
    write_at(path_of(f, "x.idx"), index, sizeof(index), 0);
    write_at(path_of(f, "x.bin"), tokens, (size_t)size * TOKENS, 0);
    assert_int_equal(truncate(path_of(f, "x.bin"), (off_t)size * TOKENS), 0);
}

FACT(a_pair_is_held_out_from_a_document_on) {
    struct fixture *const f = *state;
    uint32_t tokens[WINDOW];
    for (unsigned i = 0; i < 2; i++) {
        write_megatron(f, i == 0 ? 8 : 4);
        const char *const names[] = {"x.idx", "x.bin", "x"};
        for (unsigned k = 0; k < 3; k++) {
            /* 12 % held out would begin at token 880; the next document begins at 900 */
            f->run.data.heldout_millionths = 120000;
            assert_int_equal(open_data(f, path_of(f, names[k])), TW_OK);
            assert_int_equal(f->data.train_count, 900);
            assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
            assert_int_equal(tokens[0], 1900);
        }
    }
    f->run.data.heldout_millionths = 1000;
    /* less than a document: one whole document is held out */
    assert_int_equal(open_data(f, path_of(f, "x")), TW_OK);
    assert_int_equal(f->data.train_count, 950);
}

/* Three documents of two sequences each: 11, 15 and 19 tokens. */
FACT(pairs_that_megatron_wrote_are_read) {
    struct fixture *const f = *state;
    static const char *const NAMES[] = {"u16", "i32.idx"};
    char path[512];
    uint32_t tokens[WINDOW];
    f->run.data.heldout_millionths = 300000;
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/megatron/%s", written_by_others, NAMES[i]);
        if (open_data(f, path) != TW_OK) fail_msg("%s", f->err.message);
        assert_int_equal(f->data.tokens_count, 45);
        assert_int_equal(f->data.heldout_count, 19);
        assert_int_equal(tw_data_heldout(&f->data, 0, 1, tokens, NULL), TW_OK);
        assert_int_equal(tokens[0], 1400);
    }
}

FACT(broken_pairs_are_refused) {
    struct fixture *const f = *state;
    uint8_t word[8] = {0};
    write_megatron(f, 8);
    f->run.model.vocab = 1500;
    expect(f, path_of(f, "x.idx"), TW_DATA, "token 500 is 1500, outside the vocabulary of 1500");
    f->run.model.vocab = 50000;
    write_at(path_of(f, "x.bin"), "\xff\xff", 2, 10);
    expect(f, path_of(f, "x.idx"), TW_DATA, "token 5 is 65535");
    write_at(path_of(f, "x.idx"), "\3", 1, 17); /* type 3 is signed 16-bit */
    expect(f, path_of(f, "x.idx"), TW_DATA, "token 5 is -1");
    write_at(path_of(f, "x.idx"), "\6", 1, 17);
    expect(f, path_of(f, "x.idx"), TW_DATA, "numbers of type 6");
    write_megatron(f, 8);
    assert_int_equal(truncate(path_of(f, "x.bin"), 1998), 0);
    expect(f, path_of(f, "x.idx"), TW_DATA, "sequence 39 is impossible");
    assert_int_equal(truncate(path_of(f, "x.bin"), 2002), 0);
    expect(f, path_of(f, "x.idx"), TW_DATA, "they do not belong together");
    assert_int_equal(truncate(path_of(f, "x.bin"), 1999), 0);
    expect(f, path_of(f, "x.idx"), TW_DATA, "not a whole number of 2-byte tokens");
    write_megatron(f, 8);
    tw_put_u64(word, 41); /* a document begins after the last sequence */
    write_at(path_of(f, "x.idx"), word, 8, 34 + 12 * 40 + 8 * 20);
    expect(f, path_of(f, "x.idx"), TW_DATA, "the beginning of document 20 is impossible");
    tw_put_u64(word, 3);
    write_at(path_of(f, "x.idx"), word, 8, 34 + 12 * 40);
    tw_put_u64(word, 40);
    write_at(path_of(f, "x.idx"), word, 8, 34 + 12 * 40 + 8 * 20);
    expect(f, path_of(f, "x.idx"), TW_DATA, "the first document at token 75");
    tw_put_u64(word, UINT64_MAX);
    write_at(path_of(f, "x.idx"), word, 8, 18);
    expect(f, path_of(f, "x.idx"), TW_DATA, "it is cut off");
    assert_int_equal(truncate(path_of(f, "x.idx"), 20), 0);
    expect(f, path_of(f, "x.idx"), TW_DATA, "it is too short");
    assert_int_equal(unlink(path_of(f, "x.idx")), 0);
    assert_int_equal(mkfifo(path_of(f, "x.idx"), 0600), 0);
    expect(f, path_of(f, "x"), TW_DATA, "No such file");
    assert_int_equal(unlink(path_of(f, "x.idx")), 0);
    write_megatron(f, 8);
    assert_int_equal(unlink(path_of(f, "x.bin")), 0);
    expect(f, path_of(f, "x.idx"), TW_DATA, "x.bin is not a plain file");
}

int main(int argc, char **argv) {
    assert_true(argc > 1);
    written_by_others = argv[1];
    return test_run(NULL, NULL);
}
