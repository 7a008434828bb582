/* Datasets made from text: their content, which depends only on inputs and options; resuming; and
 * the error for every unusable input. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "prepare_fixture.h"
#include "proto/dataset.h"
#include "tests/test.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_inputs.h"
#include "worker/tokenizer/tokenizer_text.h"

static const char *tokenizers; /* path of tests/golden/tokenizers */

static int begin_test(void **state) {
    *state = prepare_fixture_create();
    return *state == NULL;
}

static int end_test(void **state) {
    return prepare_fixture_destroy(*state);
}

#define FACT(name) TEST_IN(begin_test, end_test, name)

static void succeed(struct prepare_fixture *at) {
    struct tw_error err = {.message = ""};
    if (tw_prepare(&at->options, &at->summary, &err) != TW_OK) fail_msg("%s", err.message);
}

static void refuse(struct prepare_fixture *at, enum tw_status status, const char *why) {
    struct tw_error err = {.message = ""};
    const enum tw_status got = tw_prepare(&at->options, &at->summary, &err);
    if (got != status || strstr(err.message, why) == NULL) {
        fail_msg("%s: %s, not %s", tw_status_name(got), err.message, why);
    }
}

/* ---- content of a dataset ----------------------------------------------------------------------
 */

/* All documents of all shards of byte tokens, in the order of the index. */
struct seen {
    struct tw_dataset_shard shards[256];
    struct tw_dataset dataset;
    uint64_t documents, tokens, heldout;
    char text[1 << 20]; /* concatenated documents, each after its separator */
    size_t text_bytes;
};

static void see_shard(struct prepare_fixture *at, struct seen *seen, uint32_t i) {
    const struct tw_dataset_shard *const entry = &seen->dataset.shards[i];
    char name[TW_DATASET_FILE_BYTES];
    struct tw_shard shard;
    struct tw_error err;
    size_t size = 0;
    tw_dataset_file(&seen->dataset, entry, name);
    uint8_t *const file = prepare_fixture_read(at, name, &size);
    assert_int_equal(size, entry->file_bytes);
    assert_int_equal(tw_shard_decode(file, entry->head_bytes, &shard, &err), TW_OK);
    const struct tw_id id = tw_sha256(file, entry->head_bytes);
    assert_true(tw_id_equal(&id, &entry->name));
    assert_int_equal(shard.tokens_count, entry->tokens_count);
    assert_int_equal(shard.is_heldout, entry->is_heldout);
    assert_int_equal(shard.number, entry->number);
    assert_int_equal(shard.separator, seen->dataset.separator);
    const uint8_t *const body = file + shard.head_bytes;
    for (uint32_t p = 0; p < shard.pieces_count; p++) {
        const struct tw_id digest =
            tw_sha256(body + (size_t)p * TW_SHARD_PIECE_BYTES, tw_shard_piece_bytes(&shard, p));
        const struct tw_id want = tw_shard_digest(file, p);
        assert_true(tw_id_equal(&digest, &want));
    }
    for (uint64_t d = 0; d < shard.documents_count; d++) {
        const uint32_t begin = tw_get_u32(body + shard.documents_begin + 4 * d);
        const uint32_t next = d + 1 < shard.documents_count
                                  ? tw_get_u32(body + shard.documents_begin + 4 * (d + 1))
                                  : (uint32_t)shard.tokens_count;
        assert_true(begin < next);
        if (shard.token_bytes > 1) continue;
        assert_int_equal(body[begin], 0);
        const struct tw_id content = tw_sha256(body + begin + 1, next - begin - 1);
        assert_int_equal(tw_get_u64(content.bytes) % 1000000 < seen->dataset.heldout_millionths,
                         entry->is_heldout);
        assert_true(seen->text_bytes + next - begin <= sizeof(seen->text));
        memcpy(seen->text + seen->text_bytes, body + begin, next - begin);
        seen->text_bytes += next - begin;
    }
    seen->documents += shard.documents_count;
    seen->tokens += shard.tokens_count;
    if (entry->is_heldout) seen->heldout += shard.documents_count;
    free(file);
}

static struct seen *see(struct prepare_fixture *at) {
    struct seen *const seen = calloc(1, sizeof(*seen));
    struct tw_error err;
    size_t size = 0;
    char *const index = (char *)prepare_fixture_read(at, TW_DATASET_INDEX_FILE, &size);
    assert_non_null(seen);
    assert_int_equal(tw_dataset_decode(index, size, seen->shards, 256, &seen->dataset, &err),
                     TW_OK);
    for (uint32_t i = 0; i < seen->dataset.shards_count; i++) see_shard(at, seen, i);
    const struct tw_id id = tw_sha256(index, size);
    assert_true(tw_id_equal(&id, &at->summary.dataset));
    assert_int_equal(seen->documents, at->summary.counts.documents);
    assert_int_equal(seen->tokens, at->summary.counts.tokens);
    assert_int_equal(seen->heldout, at->summary.counts.heldout_documents);
    free(index);
    return seen;
}

FACT(every_document_is_there_once_in_order) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "b.txt", "third\n\n  \nfourth", 16);
    prepare_fixture_write(at, "a.txt",
                          "\xEF\xBB\xBF"
                          "first\r\nsecond\n",
                          17);
    static const char LINES[] = "{\"text\":\"fifth\\n\"}\n\n{\"text\":\"\"}\n";
    prepare_fixture_write(at, "c.jsonl", LINES, sizeof(LINES) - 1);
    at->options.unit = TW_TEXT_LINES;
    at->options.heldout_millionths = 0;
    succeed(at);
    struct seen *const seen = see(at);
    static const char WANT[] = "\0first\0second\0third\0fourth\0fifth\n";
    assert_int_equal(seen->text_bytes, sizeof(WANT) - 1);
    assert_memory_equal(seen->text, WANT, sizeof(WANT) - 1);
    assert_int_equal(at->summary.counts.files, 3);
    free(seen);
}

FACT(held_out_documents_are_apart) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 300000, 1);
    at->options.unit = TW_TEXT_LINES;
    at->options.heldout_millionths = 100000;
    at->options.shard_tokens = 20000;
    succeed(at);
    struct seen *const seen = see(at);
    assert_true(at->summary.train_shards > 5);
    assert_true(at->summary.heldout_shards > 1);
    assert_in_range(seen->heldout * 1000 / seen->documents, 70, 130);
    free(seen);
}

FACT(whole_files_are_one_document_each) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "a\n\nb\n", 5);
    prepare_fixture_write(at, "b", "c", 1);
    at->options.unit = TW_TEXT_WHOLE;
    at->options.heldout_millionths = 0;
    succeed(at);
    struct seen *const seen = see(at);
    assert_int_equal(seen->documents, 2);
    assert_memory_equal(seen->text, "\0a\n\nb\n\0c", 8);
    free(seen);
}

FACT(sources_have_shards_of_their_own) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 60000, 1);
    const char *const prose = prepare_fixture_path(at, "in/text-0");
    const char *const code = prepare_fixture_path(at, "in/text-1");
    at->options.unit = TW_TEXT_LINES;
    at->options.heldout_millionths = 200000;
    at->options.shard_tokens = 8000;
    at->options.sources_count = 2;
    at->options.sources[0] = (struct tw_prepare_source){"prose", 700000, &prose, 1};
    at->options.sources[1] = (struct tw_prepare_source){"code", 300000, &code, 1};
    succeed(at);
    struct seen *const seen = see(at);
    assert_int_equal(seen->dataset.sources_count, 2);
    assert_string_equal(seen->dataset.sources[1].name, "code");
    assert_int_equal(seen->dataset.sources[1].weight_millionths, 300000);
    assert_int_equal(seen->dataset.shards[0].source, 0);
    assert_int_equal(seen->dataset.shards[seen->dataset.shards_count - 1].source, 1);
    free(seen);
    free((void *)(uintptr_t)prose);
    free((void *)(uintptr_t)code);
}

/* The template's first token separates documents. Where the template only opens a text (llama3),
 * the end token closes each document. */
FACT(separator_is_the_first_token_of_the_template) {
    struct prepare_fixture *const at = *state;
    static const struct {
        const char *name, *first, *last;
    } LAYOUTS[] = {{"llama3", "<|begin_of_text|>", "<|end_of_text|>"},
                   {"gpt2", "<|endoftext|>", NULL}};
    prepare_fixture_write(at, "a.txt", "In the beginning <|endoftext|>\n", 31);
    at->options.heldout_millionths = 0;
    at->options.is_restart = true;
    for (unsigned i = 0; i < 2; i++) {
        char path[512];
        struct tw_tokenizer *tokenizer;
        struct tw_error err;
        size_t size = 0;
        (void)snprintf(path, sizeof(path), "%s/%s.json", tokenizers, LAYOUTS[i].name);
        at->options.tokenizer = path;
        succeed(at);
        free(see(at));
        assert_int_equal(tw_tokenizer_create_file(&tokenizer, path, &err), TW_OK);
        uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
        const size_t tokens = (size_t)at->summary.counts.tokens;
        const uint32_t first = tw_get_u16(file + 4096),
                       last = tw_get_u16(file + 4096 + 2 * tokens - 2);
        assert_int_equal(first, tw_tokenizer_find(tokenizer, LAYOUTS[i].first));
        if (LAYOUTS[i].last != NULL) {
            assert_int_equal(last, tw_tokenizer_find(tokenizer, LAYOUTS[i].last));
        }
        /* Untrusted text stays text: the special token occurs only once. */
        for (size_t k = 1; k + 1 < tokens; k++) {
            const uint32_t token = tw_get_u16(file + 4096 + 2 * k);
            assert_int_not_equal(tw_tokenizer_kind(tokenizer, token), TW_TOKEN_CONTROL);
        }
        free(file);
        uint8_t *const copy = prepare_fixture_read(at, "tokenizer.json", &size);
        struct seen *const seen = see(at);
        const struct tw_id id = tw_sha256(copy, size);
        assert_true(tw_id_equal(&id, &seen->dataset.tokenizer));
        free(seen);
        free(copy);
        tw_tokenizer_destroy(tokenizer);
    }
}

/* ---- chats ----------------------------------------------------------------------------------- */

#define NAME(text) "\\ufdd0" text "\\ufdd1"
#define ANSWER(text) "\\ufdd2" text "\\ufdd3"

static struct tw_tokenizer *use_tokenizer(struct prepare_fixture *at, const char *name) {
    static char path[512];
    struct tw_tokenizer *tokenizer;
    (void)snprintf(path, sizeof(path), "%s/%s.json", tokenizers, name);
    at->options.tokenizer = path;
    at->options.is_chat = true;
    at->options.field = "chat";
    at->options.heldout_millionths = 0;
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, path, NULL), TW_OK);
    return tokenizer;
}

static void write_chat(struct prepare_fixture *at, const char *chat) {
    char line[2048];
    const int size = snprintf(line, sizeof(line), "{\"chat\": \"%s\"}\n", chat);
    prepare_fixture_write(at, "a.jsonl", line, (size_t)size);
}

/* Reads the only shard: its tokens, and which of them are answers. Returns their number. */
static size_t read_answers(struct prepare_fixture *at, uint32_t tokens[512], bool answers[512]) {
    size_t size = 0;
    uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
    const size_t count = (size_t)at->summary.counts.tokens;
    assert_true(count < 512);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = tw_get_u16(file + 4096 + 2 * i) >> 1;
        answers[i] = (tw_get_u16(file + 4096 + 2 * i) & 1) != 0;
    }
    free(file);
    return count;
}

FACT(a_chat_has_its_markers_as_tokens_and_its_answers_marked) {
    struct prepare_fixture *const at = *state;
    struct tw_tokenizer *const tokenizer = use_tokenizer(at, "llama3");
    const uint32_t bos = tw_tokenizer_find(tokenizer, "<|begin_of_text|>");
    uint32_t tokens[512];
    bool answers[512];
    char answer[64];
    write_chat(at,
               NAME("<|begin_of_text|>") NAME("<|start_header_id|>") "user" NAME(
                   "<|end_header_id|>") "\\n\\nthe river<|eot_id|>" NAME("<|eot_id|>")
                   NAME("<|start_header_id|>") "assistant" NAME(
                       "<|end_header_id|>") "\\n\\n" ANSWER("a stone \xC3\xA9" NAME("<|eot_id|>")));
    at->options.eos = "<|begin_of_text|>";
    succeed(at);
    const size_t count = read_answers(at, tokens, answers);
    size_t said = 0, specials = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        specials += tw_tokenizer_kind(tokenizer, tokens[i]) == TW_TOKEN_CONTROL;
        if (answers[i] && said++ == 0) first = i;
        if (said > 0) assert_true(answers[i]);
    }
    assert_int_equal(tokens[0], bos); /* once: the separator, and the chat's own */
    assert_int_not_equal(tokens[1], bos);
    assert_int_equal(specials, 7); /* the name in the words of the user is none of them */
    assert_int_equal(at->summary.counts.names, 1);
    assert_int_equal(at->summary.counts.answer_tokens, said);
    assert_int_equal(tokens[count - 1], tw_tokenizer_find(tokenizer, "<|eot_id|>"));
    const size_t size =
        tw_tokenizer_join(tokenizer, tokens + first, said - 1, (uint8_t *)answer, sizeof(answer));
    assert_int_equal(size, 10);
    assert_memory_equal(answer, "a stone \xC3\xA9", 10);
    struct tw_tokens whole = {.count = 0};
    struct tw_encoder *encoder;
    assert_int_equal(tw_encoder_create(&encoder, tokenizer, NULL), TW_OK);
    /* text that a mark divides is encoded as a whole */
    static const char TEXT[] = "\n\na stone \xC3\xA9";
    assert_int_equal(tw_encoder_append(encoder, (const uint8_t *)TEXT, sizeof(TEXT) - 1,
                                       TW_ENCODE_PLAIN, &whole, NULL),
                     TW_OK);
    assert_memory_equal(tokens + count - 1 - whole.count, whole.tokens, 4 * whole.count);
    tw_encoder_destroy(encoder);
    tw_tokens_deinit(&whole);
    tw_tokenizer_destroy(tokenizer);
}

/* A tokenizer that composes characters: where the tokens lie in the text is unknown, so none goes
 * over a mark. */
FACT(marks_hold_where_the_tokenizer_changes_the_text) {
    struct prepare_fixture *const at = *state;
    struct tw_tokenizer *const tokenizer = use_tokenizer(at, "qwen2");
    uint32_t tokens[512];
    bool answers[512];
    uint8_t text[64];
    size_t said = 0, first = 0;
    write_chat(at, "cafe\xCC\x81 " ANSWER("olé") " no");
    succeed(at);
    const size_t count = read_answers(at, tokens, answers);
    for (size_t i = count; i-- > 0;) {
        said += answers[i] ? 1 : 0;
        if (answers[i]) first = i;
    }
    const size_t size = tw_tokenizer_join(tokenizer, tokens + first, said, text, sizeof(text));
    assert_int_equal(size, 4);
    assert_memory_equal(text, "ol\xC3\xA9", 4);
    tw_tokenizer_destroy(tokenizer);
}

FACT(a_chat_of_no_use_is_refused) {
    struct prepare_fixture *const at = *state;
    struct tw_tokenizer *const tokenizer = use_tokenizer(at, "llama3");
    write_chat(at, "hello \\ufdd0<|eot_id|> there");
    refuse(at, TW_DATA, "a.jsonl:1: a chat whose marks do not pair");
    write_chat(at, "hello " NAME("<|im_end|>"));
    refuse(at, TW_DATA, "no special token <|im_end|>");
    write_chat(at, "hello " NAME("<|eot_id|>") " there");
    at->options.eos = "<|eot_id|>";
    refuse(at, TW_DATA, "is within a chat");
    at->options.tokenizer = NULL;
    at->options.eos = NULL;
    refuse(at, TW_CONFIG, "--chat needs --tokenizer");
    tw_tokenizer_destroy(tokenizer);
}

FACT(blank_documents_are_counted) {
    struct prepare_fixture *const at = *state;
    static const char LINES[] = "{\"text\":\"fifth\"}\n{\"text\":\" \\n\"}\n{\"text\":\"\"}\n";
    prepare_fixture_write(at, "c.jsonl", LINES, sizeof(LINES) - 1);
    at->options.heldout_millionths = 0;
    succeed(at);
    assert_int_equal(at->summary.counts.documents, 1);
    assert_int_equal(at->summary.counts.blank, 2);
}

/* ---- token files as inputs --------------------------------------------------------------------
 */

static void put_words(uint8_t *to, size_t count, const uint16_t *words) {
    for (size_t i = 0; i < count; i++) tw_put_u16(to + 2 * i, words[i]);
}

/* Writes a shard of llm.c: a header of 256 words, then 16-bit tokens. */
static void write_llmc(struct prepare_fixture *at, const char *name, const uint16_t *tokens,
                       uint32_t count) {
    uint8_t *const file = calloc(1, 1024 + 2 * (size_t)count);
    tw_put_u32(file, 20240520);
    tw_put_u32(file + 4, 1);
    tw_put_u32(file + 8, count);
    put_words(file + 1024, count, tokens);
    prepare_fixture_write(at, name, file, 1024 + 2 * (size_t)count);
    free(file);
}

/* Writes a Megatron-LM pair of 16-bit tokens: header, lengths and offsets of sequences, first
 * sequences of documents. Each document is one sequence. */
static void write_megatron(struct prepare_fixture *at, const uint16_t *tokens,
                           const uint32_t *lengths, uint32_t documents) {
    uint8_t index[1024] = "MMIDIDX\0\0", bin[1024];
    uint32_t all = 0;
    size_t used = 9;
    tw_put_u64(index + used, 1);
    index[used + 8] = 8; /* 16-bit, unsigned */
    tw_put_u64(index + used + 9, documents);
    tw_put_u64(index + used + 17, documents + 1);
    used += 25;
    for (uint32_t i = 0; i < documents; i++, used += 4) tw_put_u32(index + used, lengths[i]);
    for (uint32_t i = 0; i < documents; i++, used += 8) {
        tw_put_u64(index + used, 2 * (uint64_t)all);
        all += lengths[i];
    }
    for (uint32_t i = 0; i <= documents; i++, used += 8) tw_put_u64(index + used, i);
    put_words(bin, all, tokens);
    prepare_fixture_write(at, "m.bin", bin, 2 * (size_t)all);
    prepare_fixture_write(at, "m.idx", index, used);
}

FACT(token_files_of_others_are_taken_as_they_are) {
    struct prepare_fixture *const at = *state;
    char path[512];
    struct tw_tokenizer *tokenizer;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/gpt2.json", tokenizers);
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, path, NULL), TW_OK);
    const uint16_t eot = (uint16_t)tw_tokenizer_eos(tokenizer);
    tw_tokenizer_destroy(tokenizer);
    const uint16_t llmc[] = {eot, 5, 6, 7, eot, 8, eot, eot, 9, 10};
    const uint16_t megatron[] = {11, 12, eot, 13, 14};
    const uint32_t lengths[] = {3, 1, 1};
    at->options.heldout_millionths = 0;
    write_llmc(at, "a_train_0.bin", llmc, 10);
    refuse(at, TW_DATA, "holds token numbers: name their tokenizer with --tokenizer");
    write_megatron(at, megatron, lengths, 3);
    at->options.tokenizer = path;
    succeed(at);
    assert_int_equal(at->summary.counts.files, 2);
    assert_int_equal(at->summary.counts.documents, 6);
    const uint16_t want[] = {eot, 5, 6, 7, eot, 8, eot, 9, 10, eot, 11, 12, eot, 13, eot, 14};
    uint8_t bytes[sizeof(want)];
    put_words(bytes, 16, want);
    assert_int_equal(at->summary.counts.tokens, 16);
    uint8_t *const file = prepare_fixture_read(at, "text-train-00000.shard", &size);
    assert_memory_equal(file + 4096, bytes, sizeof(bytes));
    free(file);
    const uint16_t wrong[] = {eot, 5, 60000};
    write_llmc(at, "a_train_0.bin", wrong, 3);
    at->options.is_restart = true;
    refuse(at, TW_DATA, "a_train_0.bin");
    write_llmc(at, "a_train_0.bin", llmc, 10);
    char *const cut = prepare_fixture_path(at, "in/a_train_0.bin");
    assert_int_equal(truncate(cut, 1030), 0);
    refuse(at, TW_DATA, "cut off or damaged");
    free(cut);
}

/* A .bin and .idx pair is read once, in any order of names and with other files sorted between the
 * two. */
FACT(pair_of_files_is_taken_once) {
    struct prepare_fixture *const at = *state;
    char path[512];
    const uint16_t tokens[] = {11, 12, 13, 14};
    const uint32_t lengths[] = {3, 1};
    (void)snprintf(path, sizeof(path), "%s/gpt2.json", tokenizers);
    at->options.tokenizer = path;
    at->options.heldout_millionths = 0;
    write_megatron(at, tokens, lengths, 2);
    prepare_fixture_write(at, "m.cs", "a,b\n", 4);
    prepare_fixture_write(at, "n.idx", "\0 of something else", 20);
    succeed(at);
    assert_int_equal(at->summary.counts.files, 2);
    assert_int_equal(at->summary.counts.documents, 3);
    assert_int_equal(at->summary.counts.binary_files, 1);
    char *const index = prepare_fixture_path(at, "in/m.idx");
    char *const bin = prepare_fixture_path(at, "in/m.bin");
    const char *const both[] = {index, bin, index};
    const char *const bin_only = bin;
    at->options.is_restart = true;
    at->options.sources[0].inputs_count = 2;
    for (int i = 0; i < 2; i++) {
        at->options.sources[0].inputs = both + i;
        succeed(at);
        assert_int_equal(at->summary.counts.documents, 2);
    }
    const char *const apart[] = {index, at->in_a, bin};
    at->options.sources[0].inputs = apart;
    at->options.sources[0].inputs_count = 3;
    prepare_fixture_write(at, "a", "a text\n", 7);
    refuse(at, TW_CONFIG, "are one file: name it once");
    at->options.sources[0].inputs = &bin_only;
    at->options.sources[0].inputs_count = 1;
    succeed(at);
    at->options.is_restart = false;
    succeed(at);
    assert_true(at->summary.was_done);
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 4102444800}};
    assert_int_equal(utimensat(AT_FDCWD, index, times, 0), 0);
    refuse(at, TW_CONFIG, "in/m.bin; start over with --restart");
    at->options.is_restart = true;
    assert_int_equal(unlink(index), 0);
    assert_int_equal(mkfifo(index, 0600), 0); /* must not block */
    at->options.sources[0].inputs_count = 1;
    refuse(at, TW_DATA, "m.bin is not text");
    free(bin);
    free(index);
}

/* The tokens span more than one block, and one document is so long that it is cut. */
FACT(many_tokens_are_taken_whatever_the_threads) {
    struct prepare_fixture *const at = *state;
    enum { COUNT = 2500000 };
    uint16_t *const tokens = malloc(COUNT * sizeof(*tokens));
    struct tw_rng rng;
    char path[512];
    struct tw_id first = {{0}};
    tw_rng_seed(&rng, 3);
    for (uint32_t i = 0; i < COUNT; i++) {
        tokens[i] = (uint16_t)(1 + tw_rng_below(&rng, 500));
        /* Token 0 of this vocabulary ends a text. */
        if (i < COUNT / 2 && tw_rng_below(&rng, 300) == 0) tokens[i] = 0;
    }
    write_llmc(at, "a.bin", tokens, COUNT);
    (void)snprintf(path, sizeof(path), "%s/gpt2.json", tokenizers);
    at->options.tokenizer = path;
    at->options.is_restart = true;
    at->options.shard_tokens = 300000;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        at->options.threads = threads;
        succeed(at);
        if (threads == 1) first = at->summary.dataset;
        assert_true(tw_id_equal(&first, &at->summary.dataset));
    }
    free(see(at));
    free(tokens);
}

/* ---- the same bytes -------------------------------------------------------------------------- */

FACT(threads_change_nothing) {
    struct prepare_fixture *const at = *state;
    struct tw_id first = {{0}};
    prepare_fixture_fill(at, 3000000, 2);
    at->options.is_restart = true;
    for (uint32_t threads = 1; threads <= 8; threads *= 2) {
        at->options.threads = threads;
        at->options.shard_tokens = 100000;
        succeed(at);
        if (threads == 1) first = at->summary.dataset;
        assert_true(tw_id_equal(&first, &at->summary.dataset));
    }
}

FACT(packed_inputs_give_what_plain_ones_do) {
    struct prepare_fixture *const at = *state;
    size_t size = 0;
    prepare_fixture_fill(at, 200000, 3);
    at->options.unit = TW_TEXT_LINES;
    succeed(at);
    const struct tw_id first = at->summary.dataset;
    char *const plain = prepare_fixture_path(at, "in/text-1");
    char *const packed = prepare_fixture_path(at, "in/text-1.gz");
    uint8_t *const text = prepare_fixture_read(at, "../in/text-1", &size);
    const gzFile gz = gzopen(packed, "wb");
    assert_int_equal(gzwrite(gz, text, (unsigned)size), (int)size);
    assert_int_equal(gzclose(gz), Z_OK);
    assert_int_equal(unlink(plain), 0);
    at->options.is_restart = true;
    succeed(at);
    assert_true(tw_id_equal(&first, &at->summary.dataset));
    free(text);
    free(plain);
    free(packed);
}

/* A file that is made to fill the disk is named while it is read; ordinary packed text is not. */
FACT(packed_input_that_swells_is_named) {
    struct prepare_fixture *const at = *state;
    static char line[4096];
    char *const bomb = prepare_fixture_path(at, "in/bomb.gz");
    memset(line, 'a', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\n';
    for (int blocks = 256; blocks <= 256 + 4096; blocks += 4096) {
        const gzFile gz = gzopen(bomb, "wb");
        for (int i = 0; i < blocks; i++) {
            line[snprintf(line, 16, "document %d", i)] = ' ';
            assert_int_equal(gzwrite(gz, line, sizeof(line)), sizeof(line));
        }
        assert_int_equal(gzclose(gz), Z_OK);
        at->options.unit = TW_TEXT_LINES;
        at->options.is_restart = true;
        succeed(at);
        assert_int_equal(at->summary.swollen_files, blocks > 256);
    }
    free(bomb);
}

/* ---- repeated calls ---------------------------------------------------------------------------
 */

FACT(done_is_done) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 200000, 4);
    at->options.unit = TW_TEXT_LINES;
    succeed(at);
    const struct tw_prepare_summary first = at->summary;
    assert_false(first.was_done);
    at->options.threads = 7; /* the number of threads does not affect shards */
    succeed(at);
    assert_true(at->summary.was_done);
    assert_true(tw_id_equal(&first.dataset, &at->summary.dataset));
    assert_memory_equal(&first.counts, &at->summary.counts, sizeof(first.counts));
    assert_int_equal(first.train_shards, at->summary.train_shards);
}

FACT(shard_that_is_gone_is_named) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 200000, 5);
    at->options.unit = TW_TEXT_LINES;
    succeed(at);
    char *const path = prepare_fixture_path(at, "out/text-train-00000.shard");
    assert_int_equal(truncate(path, 5000), 0);
    refuse(at, TW_CONFIG, "out/text-train-00000.shard is missing or was changed");
    assert_int_equal(unlink(path), 0);
    refuse(at, TW_CONFIG, "start over with --restart");
    free(path);
    at->options.is_restart = true;
    succeed(at);
    assert_false(at->summary.was_done);
}

static ino_t inode_of(const struct prepare_fixture *at, const char *name) {
    struct stat info;
    char *const path = prepare_fixture_path(at, name);
    assert_int_equal(stat(path, &info), 0);
    free(path);
    return info.st_ino;
}

/* The first call stops at a bad line. With skip_bad, the next call continues after the last
 * complete shard. */
FACT(complete_shards_are_not_made_again) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 200000, 7);
    static const char LINES[] = "{\"text\":\"a\"}\n{}\n{\"text\":\"b\"}\n";
    prepare_fixture_write(at, "text-2.jsonl", LINES, sizeof(LINES) - 1);
    at->options.unit = TW_TEXT_LINES;
    at->options.heldout_millionths = 100000;
    at->options.shard_tokens = 16000;
    refuse(at, TW_DATA, "in/text-2.jsonl:2: no field");
    char *const path = prepare_fixture_path(at, "out/text-train-00000.shard");
    /* a second link keeps the inode from being reused */
    char *const kept = prepare_fixture_path(at, "kept");
    assert_int_equal(link(path, kept), 0);
    free(path);
    free(kept);
    const ino_t train = inode_of(at, "out/text-train-00000.shard");
    const ino_t heldout = inode_of(at, "out/text-heldout-00000.shard");
    at->options.skip_bad = true;
    succeed(at);
    assert_int_equal(inode_of(at, "out/text-train-00000.shard"), train);
    assert_int_equal(inode_of(at, "out/text-heldout-00000.shard"), heldout);
    const struct tw_prepare_summary first = at->summary;
    assert_int_equal(first.counts.bad, 1);
    at->options.is_restart = true;
    succeed(at);
    assert_true(inode_of(at, "out/text-train-00000.shard") != train);
    assert_true(tw_id_equal(&first.dataset, &at->summary.dataset));
    assert_memory_equal(&first.counts, &at->summary.counts, sizeof(first.counts));
}

FACT(damaged_pending_file_is_reported) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 100000, 8);
    prepare_fixture_write(at, "text-2.jsonl", "{}\n", 3);
    at->options.unit = TW_TEXT_LINES;
    at->options.heldout_millionths = 20000;
    at->options.shard_tokens = 100000;
    refuse(at, TW_DATA, "no field");
    char *const path = prepare_fixture_path(at, "out/text-heldout-00000.shard.pending");
    FILE *const file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 5, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, 5, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
    refuse(at, TW_CORRUPT, "00000.shard.pending is damaged; start over");
    assert_int_equal(unlink(path), 0);
    refuse(at, TW_CORRUPT, "00000.shard.pending is damaged; start over");
    free(path);
}

FACT(other_options_or_inputs_are_refused) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 200000, 5);
    at->options.unit = TW_TEXT_LINES;
    succeed(at);
    at->options.shard_tokens = 5000;
    refuse(at, TW_CONFIG, "was begun with other options or another tokenizer");
    at->options.shard_tokens = 8000000;
    prepare_fixture_write(at, "text-1", "changed\n", 8);
    refuse(at, TW_CONFIG, "in/text-1; start over with --restart");
    at->options.is_restart = true;
    succeed(at);
    assert_false(at->summary.was_done);
}

FACT(folder_of_others_is_refused) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_fill(at, 100000, 6);
    at->options.unit = TW_TEXT_LINES;
    succeed(at);
    char *const path = prepare_fixture_path(at, "out/prepare.state");
    assert_int_equal(truncate(path, 300), 0);
    refuse(at, TW_CORRUPT, "it is damaged; start over with --restart");
    assert_int_equal(unlink(path), 0);
    refuse(at, TW_CONFIG, "holds a dataset already");
    free(path);
}

FACT(files_of_others_in_the_folder_stay) {
    struct prepare_fixture *const at = *state;
    char path[512];
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/gpt2.json", tokenizers);
    at->options.tokenizer = path;
    at->options.unit = TW_TEXT_LINES;
    prepare_fixture_fill(at, 100000, 7);
    assert_int_equal(mkdir(at->out, 0777), 0);
    prepare_fixture_write(at, "../out/tokenizer.json", "{}", 2);
    refuse(at, TW_CONFIG, "holds another tokenizer.json; choose another --out");
    uint8_t *const there = prepare_fixture_read(at, "tokenizer.json", &size);
    assert_int_equal(size, 2);
    free(there);
    at->options.is_restart = true;
    succeed(at);
    at->options.out = at->in;
    refuse(at, TW_CONFIG, "is an input and --out");
}

FACT(failed_start_does_not_block_a_later_one) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "", 0);
    at->options.sources[0].inputs = (const char *const[]){at->in_a};
    refuse(at, TW_DATA, "is empty");
    prepare_fixture_write(at, "a", "now there is some\nthing\n", 24);
    at->options.heldout_millionths = 0;
    succeed(at);
}

/* ---- unusable inputs --------------------------------------------------------------------------
 */

static void refuse_file(struct prepare_fixture *at, const char *name, const void *bytes,
                        size_t size, const char *why) {
    char *const path = prepare_fixture_path(at, name);
    const char *const input = path;
    prepare_fixture_write(at, name + 3, bytes, size);
    at->options.sources[0].inputs = &input;
    refuse(at, TW_DATA, why);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* One file is named twice: directly and through its folder, or through a link. */
FACT(file_that_is_named_twice_is_refused) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "some text\n", 10);
    const char *const both[] = {at->in, at->in_a};
    at->options.sources[0].inputs = both;
    at->options.sources[0].inputs_count = 2;
    refuse(at, TW_CONFIG, "are one file: name it once; a --source with a larger weight");
    at->options.sources[0].inputs_count = 1;
    char *const other = prepare_fixture_path(at, "in/b");
    assert_int_equal(symlink("a", other), 0);
    refuse(at, TW_CONFIG, "in/b are one file");
    free(other);
}

FACT(files_that_are_no_text_are_named) {
    struct prepare_fixture *const at = *state;
    char latin[4000];
    for (size_t i = 0; i < sizeof(latin); i++) latin[i] = i % 3 == 0 ? '\xE4' : 'a';
    refuse_file(at, "in/a", "", 0, "in/a is empty");
    refuse_file(at, "in/a",
                "\x7F"
                "ELF\0\0",
                6, "in/a is a program (ELF), which is not read: it holds no text");
    refuse_file(at, "in/a", "text\0", 5, "in/a is not text: byte 5 of it is NUL");
    refuse_file(at, "in/a",
                "\xFF\xFE"
                "a\0",
                4, "in/a is UTF-16");
    refuse_file(at, "in/a", "\xFE\xFF\0a", 4, "in/a is UTF-16");
    refuse_file(at, "in/a", latin, sizeof(latin),
                "in/a is not UTF-8: make it so, `iconv -f WINDOWS-1252 -t UTF-8 IN >OUT`");
    /* Invalid bytes are found even if the file begins with valid UTF-8. */
    for (size_t i = 0; i < 2000; i += 2) memcpy(latin + i, "\xC3\xA9", 2);
    refuse_file(at, "in/a", latin, sizeof(latin),
                "in/a:1: 667 of the 4000 bytes from here on are not UTF-8");
    refuse_file(at, "in/a", "\x1F\x8B\x08\0\0\0", 6, "in/a ends in the middle");
    refuse_file(at, "in/a", " \n\n\t\n", 5, "the source text has no text");
    at->options.sources[0].inputs = (const char *const[]){"/nowhere/at/all"};
    refuse(at, TW_DATA, "/nowhere/at/all: No such file or directory");
    at->options.sources[0].inputs = (const char *const[]){"/dev/null"};
    refuse(at, TW_DATA, "/dev/null is not a plain file");
}

/* A folder of token numbers, as nanoGPT leaves it, is neither empty nor blank. */
FACT(folder_of_numbers_is_named) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "train.bin", "\x10\x01\0\x02", 4);
    refuse(at, TW_DATA, "in/train.bin is binary. Token numbers need no dataset: `thinwire run new");
    prepare_fixture_write(at, "val.bin", "\x10\x01\0\x02", 4);
    at->options.is_restart = true;
    refuse(at, TW_DATA, "in/train.bin and others are binary");
}

FACT(file_that_changes_is_reported) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "some text\n", 10);
    struct tw_prepare_file file = {.path = at->in_a, .bytes = 11}; /* its size when it was listed */
    const struct tw_prepare_inputs inputs = {.files = &file, .count = 1};
    struct tw_blocks blocks;
    struct tw_prepare_reader reader = {
        .inputs = &inputs, .blocks = &blocks, .unit = TW_TEXT_PASSAGES, .skip_bad = true};
    assert_int_equal(tw_blocks_init(&blocks, 1 << 20, NULL), TW_OK);
    assert_int_equal(tw_blocks_create(&blocks, &reader.first, NULL), TW_OK);
    tw_prepare_read(&reader);
    assert_int_equal(blocks.put, 1);
    assert_int_equal(blocks.ring[0]->failure.status, TW_DATA);
    assert_non_null(strstr(blocks.ring[0]->failure.message, "was changed while it was read"));
    tw_blocks_deinit(&blocks);
}

FACT(bad_lines_are_named_by_number) {
    struct prepare_fixture *const at = *state;
    static const char OTHER[] = "{\"text\":\"a\"}\n\n{\"body\":\"b\"}\n";
    static const char CUT[] = "{\"text\":\"a\"}\n{\"text\":\"b";
    static const char NUL[] = "{\"text\":\"a\"}\n{\"text\":\"\\u0000\"}";
    refuse_file(at, "in/a.jsonl", OTHER, sizeof(OTHER) - 1,
                "in/a.jsonl:3: no field \"text\"; there are: body; name one with --field");
    refuse_file(at, "in/a.jsonl", CUT, sizeof(CUT) - 1,
                "in/a.jsonl:2: invalid JSON: a string without");
    refuse_file(at, "in/a.ndjson", NUL, sizeof(NUL) - 1, "in/a.ndjson:2: a NUL character");
    at->options.field = "body";
    refuse_file(at, "in/a.jsonl", OTHER, sizeof(OTHER) - 1, "in/a.jsonl:1: no field \"body\"");
}

FACT(huge_lines_are_named_and_skipped) {
    struct prepare_fixture *const at = *state;
    const size_t huge = TW_RECORD_TEXT_BYTES_MAX + 100, size = huge + 40;
    char *const text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    memcpy(text, "one\n\n", 5);
    memcpy(text + huge, "\ntwo\n", 5);
    refuse_file(at, "in/a.jsonl", text + 4, size - 4, "in/a.jsonl:2: more than 16 MiB in one line");
    at->options.unit = TW_TEXT_LINES;
    refuse_file(at, "in/a", text, size, "in/a:3: more than 8 MiB in one line");
    at->options.unit = TW_TEXT_WHOLE;
    refuse_file(at, "in/a", text, size, "in/a:1: more than 8 MiB in one document");
    at->options.unit = TW_TEXT_LINES;
    at->options.skip_bad = true;
    at->options.heldout_millionths = 0;
    prepare_fixture_write(at, "a", text, size);
    at->options.sources[0].inputs = (const char *const[]){at->in_a};
    succeed(at);
    struct seen *const seen = see(at);
    assert_int_equal(seen->documents, 3);
    assert_memory_equal(seen->text, "\0one\0two\0xxx", 12);
    assert_int_equal(at->summary.counts.bad, 1);
    assert_non_null(strstr(at->summary.first_bad, "in/a:3: more than 8 MiB in one line"));
    free(seen);
    free(text);
}

FACT(bad_documents_are_skipped_and_counted) {
    struct prepare_fixture *const at = *state;
    static const char LINES[] =
        "{\"text\":\"a\"}\n[]\n{\"text\":\"b\"}\n{\"text\":7}\n{\"text\":\"c\"}";
    prepare_fixture_write(at, "a.jsonl", LINES, sizeof(LINES) - 1);
    prepare_fixture_write(at, "b.gz", "\x1F\x8B no gzip", 10);
    prepare_fixture_write(at, "c", "bin\0ary", 7);
    prepare_fixture_write(at, "d", "", 0);
    prepare_fixture_write(at, ".e", "hidden", 6);
    at->options.skip_bad = true;
    at->options.heldout_millionths = 0;
    succeed(at);
    struct seen *const seen = see(at);
    assert_int_equal(seen->documents, 3);
    assert_memory_equal(seen->text, "\0a\0b\0c", 6);
    assert_int_equal(at->summary.counts.bad, 3);
    assert_int_equal(at->summary.counts.binary_files, 1);
    assert_int_equal(at->summary.counts.empty_files, 1);
    assert_int_equal(at->summary.hidden_files, 1);
    assert_non_null(strstr(at->summary.first_bad, "in/a.jsonl:2: the record is an array, not an"));
    free(seen);
}

FACT(too_few_documents_are_reported) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "one document\n", 13);
    refuse(at, TW_DATA, "none of the documents of the source text is held out");
    at->options.is_restart = true;
    at->options.heldout_millionths = 500000;
    prepare_fixture_write(at, "a", "doc 7\n", 6);
    /* The only document is either held out or not, so one side is empty. */
    refuse(at, TW_DATA, "none of the documents of the source text is ");
}

FACT(bytes_that_are_no_utf8_are_kept_and_counted) {
    struct prepare_fixture *const at = *state;
    prepare_fixture_write(at, "a", "caf\xE9 and more text here\n", 24);
    at->options.heldout_millionths = 0;
    succeed(at);
    struct seen *const seen = see(at);
    assert_int_equal(at->summary.counts.invalid_bytes, 1);
    assert_memory_equal(seen->text, "\0caf\xE9 and", 9);
    free(seen);
}

/* Python writes half a surrogate pair like this. It is not a character, so its bytes are counted as
 * invalid. */
FACT(halves_of_pairs_are_counted) {
    struct prepare_fixture *const at = *state;
    static const char LINE[] = "{\"text\": \"a\\ud83d b\"}\n";
    prepare_fixture_write(at, "a", LINE, sizeof(LINE) - 1);
    at->options.heldout_millionths = 0;
    succeed(at);
    assert_int_equal(at->summary.counts.invalid_bytes, 3);
}

int main(int argc, char **argv) {
    assert_int_equal(argc, 2);
    tokenizers = argv[1];
    return test_run(NULL, NULL);
}
