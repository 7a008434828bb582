/* Tests of worker/tokenizer/text_ends.c: the tokens that begin, end and pad a text, according to
 * the files of a model. The expected values are those of transformers 4.57.6 and 5.24.0. */
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/text_ends.h"

#include <unistd.h>

#include "tests/test.h"
#include "worker/tokenizer/tokenizer_text.h"

/* The added tokens of the tests, with ids from 256 on. DeepSeek uses U+FF5C where others use a bar.
 */
#define BEGIN_DEEPSEEK                                                                             \
    "<\xEF\xBD\x9C"                                                                                \
    "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"
#define END_DEEPSEEK                                                                               \
    "<\xEF\xBD\x9C"                                                                                \
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"
enum { FIRST = 256, SECOND, THIRD, VOCAB };

static char folder[64], path[128];
static struct tw_error err;
static struct tw_tokenizer *tokenizer;
static struct tw_text_ends ends;

static void write_in(const char *name, const char *text) {
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int start(void **state) {
    (void)snprintf(folder, sizeof(folder), "/tmp/tw-text-ends-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int stop(void **state) {
    static const char *const NAMES[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "special_tokens_map.json",
                                        "tokenizer.json"};
    tw_tokenizer_destroy(tokenizer);
    tokenizer = NULL;
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, NAMES[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

#define FACT(name) TEST_IN(start, stop, name)

/* Makes a tokenizer with the 256 bytes and three added tokens. */
static void make_tokenizer(const char *first, const char *second, const char *third) {
    static char text[TW_BYTE_TOKENIZER_BYTES + 1], json[TW_BYTE_TOKENIZER_BYTES + 1024];
    static const char EMPTY[] = "\"added_tokens\": []";
    text[tw_byte_tokenizer_json(text)] = 0;
    const char *const at = strstr(text, EMPTY);
    assert_non_null(at);
    (void)snprintf(json, sizeof(json),
                   "%.*s\"added_tokens\": [{\"id\": 256, \"content\": \"%s\", \"special\": true}, "
                   "{\"id\": 257, \"content\": \"%s\", \"special\": true}, {\"id\": 258, "
                   "\"content\": \"%s\", \"special\": true}]%s",
                   (int)(at - text), text, first, second, third, at + strlen(EMPTY));
    write_in("tokenizer.json", json);
    if (tw_tokenizer_create_file(&tokenizer, path, &err) != TW_OK) fail_msg("%s", err.message);
}

static enum tw_status read_ends(const char *eos) {
    char file[128];
    (void)snprintf(file, sizeof(file), "%s/tokenizer.json", folder);
    const struct tw_text_ends_source source = {.model = folder,
                                               .tokenizer_path = file,
                                               .tokenizer = tokenizer,
                                               .vocab = VOCAB,
                                               .eos = eos};
    return tw_text_ends_read(&ends, &source, &err);
}

static void assert_stops(uint32_t first, uint32_t second) {
    assert_int_equal(ends.generation.eos_count, second != TW_TOKEN_NONE ? 2 : 1);
    assert_int_equal(ends.generation.eos[0], first);
    if (second != TW_TOKEN_NONE) assert_int_equal(ends.generation.eos[1], second);
    assert_true(tw_text_ends_at(&ends, first));
    assert_false(tw_text_ends_at(&ends, 65));
}

FACT(generation_stops_at_every_token_of_the_list) {
    make_tokenizer("<|endoftext|>", "<|im_end|>", "<pad>");
    write_in("config.json", "{\"eos_token_id\": 257, \"pad_token_id\": 258}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(SECOND, TW_TOKEN_NONE);
    write_in("generation_config.json", "{\"eos_token_id\": [257, 256], \"do_sample\": false}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(SECOND, FIRST);
    /* An export writes these ids back into config.json. */
    assert_int_equal(ends.config.eos_count, 1);
    assert_int_equal(ends.config.eos[0], SECOND);
    assert_int_equal(ends.config.pad, THIRD);
    assert_int_equal(ends.generation.pad, THIRD);
}

FACT(documents_end_with_the_token_of_the_tokenizer) {
    make_tokenizer("[EOS]", "<|im_end|>", "[PAD]");
    write_in("config.json", "{\"eos_token_id\": 257, \"bos_token_id\": null}");
    write_in("tokenizer_config.json",
             "{\"eos_token\": {\"content\": \"[EOS]\", \"lstrip\": false}, \"pad_token\": "
             "\"[PAD]\", \"bos_token\": null}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_int_equal(ends.tokenizer.eos[0], FIRST);
    assert_int_equal(ends.tokenizer.pad, THIRD);
    assert_int_equal(ends.tokenizer.bos, TW_TOKEN_NONE);
    assert_false(ends.is_guessed);
    assert_stops(SECOND, TW_TOKEN_NONE);
    tw_tokenizer_set_ends(tokenizer, &ends);
    assert_int_equal(tw_tokenizer_eos(tokenizer), FIRST);
}

/* AutoTokenizer of transformers 4.57.6 and of 5.24.0 may put different tokens around a text. Such a
 * tokenizer is reported. */
FACT(a_template_that_transformers_4_would_replace_is_told) {
    static const struct {
        const char *config;
        bool begins, ends; /* whether the two versions differ in the first (last) tokens */
    } CASES[] = {
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": true}", true, false},
        {"{\"tokenizer_class\": \"LlamaTokenizer\"}", true, false},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false}", false, false},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false, \"add_eos_token\": "
         "true}",
         false, true},
        {"{\"add_bos_token\": true, \"add_eos_token\": true}", true, true},
        {"{\"eos_token\": \"[EOS]\"}", false, false},
        {"{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": true}", false, false},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"add_eos_token\": true}", false,
         false},
    };
    make_tokenizer("[EOS]", "[BOS]", "[PAD]");
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        write_in("tokenizer_config.json", CASES[i].config);
        assert_int_equal(read_ends(NULL), TW_OK);
        if (ends.begins_otherwise != CASES[i].begins || ends.ends_otherwise != CASES[i].ends)
            fail_msg("%s: %d %d", CASES[i].config, ends.begins_otherwise, ends.ends_otherwise);
        assert_int_equal(tw_text_ends_conflict(&ends) != NULL, CASES[i].begins || CASES[i].ends);
    }
}

FACT(old_files_name_it_in_the_map_of_special_tokens) {
    make_tokenizer("[EOS]", "[BOS]", "[PAD]");
    write_in("special_tokens_map.json", "{\"eos_token\": \"[EOS]\", \"bos_token\": \"[BOS]\"}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(FIRST, TW_TOKEN_NONE);
    assert_int_equal(ends.tokenizer.bos, SECOND);
}

FACT(usual_names_count_where_no_file_says_anything) {
    make_tokenizer(BEGIN_DEEPSEEK, END_DEEPSEEK, "<|User|>");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(SECOND, TW_TOKEN_NONE);
    assert_int_equal(ends.tokenizer.bos, FIRST);
    assert_true(ends.is_guessed);
}

/* Llama's config class writes ids 1 and 2 into config.json even if nobody has set them. */
FACT(tokens_of_text_end_no_document) {
    make_tokenizer("<|endoftext|>", "[b]", "[c]");
    write_in("config.json", "{\"bos_token_id\": 1, \"eos_token_id\": 2}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(2, TW_TOKEN_NONE);
    assert_int_equal(tw_text_ends_text(&ends, tokenizer), 2);
    assert_int_equal(ends.tokenizer.eos[0], FIRST);
    assert_int_equal(ends.tokenizer.bos, TW_TOKEN_NONE);
}

/* GPT-2's config class writes id 50256, whatever the vocabulary. */
FACT(ids_outside_the_vocabulary_are_reported) {
    make_tokenizer("one", "two", "three");
    write_in("config.json", "{\"eos_token_id\": 50256, \"bos_token_id\": 50256}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_int_equal(ends.generation.eos_count, 0);
    assert_int_equal(ends.ignored, 50256);
    assert_int_equal(ends.generation.bos, TW_TOKEN_NONE);
}

FACT(the_user_decides) {
    make_tokenizer("<|endoftext|>", "[END]", "300");
    write_in("config.json", "{\"eos_token_id\": 256}");
    assert_int_equal(read_ends("[END]"), TW_OK);
    assert_stops(SECOND, TW_TOKEN_NONE);
    assert_int_equal(ends.tokenizer.eos[0], SECOND);
    assert_int_equal(read_ends("258"), TW_OK);
    assert_stops(THIRD, TW_TOKEN_NONE);
    assert_int_equal(read_ends("a"), TW_OK);
    assert_int_equal(ends.generation.eos[0], 'a');
    assert_int_equal(read_ends("259"), TW_CONFIG);
    assert_int_equal(read_ends("[STOP]"), TW_CONFIG);
    assert_non_null(strstr(err.message, "--eos [STOP]"));
}

FACT(a_malformed_file_is_named) {
    make_tokenizer("<|endoftext|>", "[b]", "[c]");
    write_in("generation_config.json", "{\"eos_token_id\": 256");
    assert_int_equal(read_ends(NULL), TW_CORRUPT);
    assert_non_null(strstr(err.message, "generation_config.json"));
    write_in("generation_config.json", "{\"eos_token_id\": [\"x\", -1, 1e5, NaN, [256], 257]}");
    assert_int_equal(read_ends(NULL), TW_OK);
    assert_stops(SECOND, TW_TOKEN_NONE);
}

FACT(bytes_end_with_zero) {
    const struct tw_text_ends_source source = {.vocab = 256, .tokenizer = tokenizer};
    assert_int_equal(tw_text_ends_read(&ends, &source, &err), TW_OK);
    assert_int_equal(ends.generation.eos_count, 0);
    assert_int_equal(tw_tokenizer_create_bytes(&tokenizer, &err), TW_OK);
    const struct tw_text_ends_source bytes = {.vocab = 256, .tokenizer = tokenizer};
    assert_int_equal(tw_text_ends_read(&ends, &bytes, &err), TW_OK);
    assert_stops(0, TW_TOKEN_NONE);
    assert_int_equal(tw_text_ends_text(&ends, tokenizer), TW_TOKEN_NONE);
}
