/* Tests of worker/files/hf_write.c: an exported folder leaves its reader nothing to guess. With the
 * expected texts, transformers 4.57.6 and 5.24.0 give the right tokens (tests/interop). */
#include "worker/files/hf_write.h"
#include "worker/tokenizer/byte_tokenizer.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/worker/files/model_folder.h"
#include "worker/tokenizer/tokenizer_text.h"

static struct tw_error err;
static struct tw_run run;
static struct tw_hf_texts texts;
static char folder[FOLDER_PATH_BYTES], path[FOLDER_PATH_BYTES];
static char json[TW_BYTE_TOKENIZER_BYTES + 256];

static int start(void **state) {
    folder_make(folder);
    tw_run_defaults(&run);
    run.model.context = 64;
    return 0;
}

static int stop(void **state) {
    tw_hf_texts_free(&texts);
    folder_remove(folder);
    return 0;
}

#define FACT(name) TEST_IN(start, stop, name)

static void write_in(const char *name, const char *text) {
    folder_path(path, folder, name);
    file_write(path, text, strlen(text));
}

/* Returns the named text of the result, or NULL if there is none. */
static const char *text_of(const char *name) {
    static char text[1024];
    for (uint32_t i = 0; i < texts.count; i++) {
        if (strcmp(texts.list[i].name, name) != 0) continue;
        (void)snprintf(text, sizeof(text), "%.*s", (int)texts.list[i].bytes, texts.list[i].text);
        return text;
    }
    return NULL;
}

/* Makes the texts of a model whose tokenizer has the 256 bytes and <|end|>. `eos` is the user's end
 * token. */
static void make(const char *eos) {
    static const char EMPTY[] = "\"added_tokens\": []";
    static char text[TW_BYTE_TOKENIZER_BYTES + 1], file[FOLDER_PATH_BYTES];
    struct tw_tokenizer *tokenizer = NULL;
    struct tw_text_ends ends;
    text[tw_byte_tokenizer_json(text)] = 0;
    const char *const at = strstr(text, EMPTY);
    assert_non_null(at);
    (void)snprintf(json, sizeof(json),
                   "%.*s\"added_tokens\": [{\"id\": 256, \"content\": \"<|\\\"end|>\", "
                   "\"special\": true}]%s",
                   (int)(at - text), text, at + strlen(EMPTY));
    write_in("tokenizer.json", json);
    folder_path(file, folder, "tokenizer.json");
    run.model.vocab = 257;
    run.data.tokenizer = TW_TOKENIZER_IDS;
    assert_int_equal(tw_tokenizer_create_file(&tokenizer, file, &err), TW_OK);
    const struct tw_text_ends_source said = {
        .model = folder, .tokenizer_path = file, .tokenizer = tokenizer, .vocab = 257, .eos = eos};
    assert_int_equal(tw_text_ends_read(&ends, &said, &err), TW_OK);
    const struct tw_hf_texts_source source = {.model = folder,
                                              .tokenizer_path = file,
                                              .tokenizer_text = json,
                                              .tokenizer_bytes = strlen(json),
                                              .tokenizer = tokenizer,
                                              .ends = &ends,
                                              .is_eos_chosen = eos != NULL};
    assert_int_equal(tw_hf_texts_make(&texts, &run, &source, &err), TW_OK);
    tw_tokenizer_destroy(tokenizer);
}

/* With an "eos_token", transformers would add a 257th token or treat the text of a byte as special.
 */
FACT(a_model_on_bytes_names_no_token_that_it_lacks) {
    struct tw_tokenizer *tokenizer = NULL;
    struct tw_text_ends ends;
    run.data.tokenizer = TW_TOKENIZER_BYTES;
    assert_int_equal(tw_tokenizer_create_bytes(&tokenizer, &err), TW_OK);
    const struct tw_text_ends_source said = {.tokenizer = tokenizer, .vocab = 256};
    assert_int_equal(tw_text_ends_read(&ends, &said, &err), TW_OK);
    const struct tw_hf_texts_source source = {.tokenizer = tokenizer, .ends = &ends};
    assert_int_equal(tw_hf_texts_make(&texts, &run, &source, &err), TW_OK);
    tw_tokenizer_destroy(tokenizer);
    assert_int_equal(texts.count, 3);
    assert_non_null(text_of("tokenizer.json"));
    assert_string_equal(text_of("tokenizer_config.json"),
                        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                        "  \"clean_up_tokenization_spaces\": false,\n"
                        "  \"model_max_length\": 64,\n"
                        "  \"bos_token\": null,\n  \"eos_token\": null,\n"
                        "  \"pad_token\": null,\n  \"unk_token\": null\n}\n");
    assert_string_equal(text_of("generation_config.json"), "{\n  \"eos_token_id\": 0\n}\n");
}

FACT(what_config_json_says_is_written_for_other_readers) {
    write_in("config.json", "{\"eos_token_id\": [256, 7], \"pad_token_id\": 256}");
    make(NULL);
    assert_int_equal(texts.count, 3);
    assert_string_equal(text_of("tokenizer_config.json"),
                        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                        "  \"clean_up_tokenization_spaces\": false,\n"
                        "  \"model_max_length\": 64,\n"
                        "  \"bos_token\": null,\n"
                        "  \"eos_token\": \"<|\\u0022end|>\",\n"
                        "  \"pad_token\": \"<|\\u0022end|>\",\n"
                        "  \"unk_token\": null\n}\n");
    assert_string_equal(text_of("generation_config.json"),
                        "{\n  \"pad_token_id\": 256,\n  \"eos_token_id\": [256, 7]\n}\n");
}

FACT(files_of_the_source_are_copied) {
    static const char GENERATION[] = "{\"eos_token_id\": 256, \"temperature\": 0.6}";
    static const char TOKENIZER[] = "{\"eos_token\": \"<|\\\"end|>\", \"chat_template\": \"x\"}";
    write_in("generation_config.json", GENERATION);
    write_in("tokenizer_config.json", TOKENIZER);
    write_in("special_tokens_map.json", "{}");
    write_in("chat_template.jinja", "{{ x }}");
    write_in("tokenizer.model", "\x0A\x0B");
    write_in("vocab.json", "{\"a\": 0}");
    write_in("merges.txt", "#version: 0.2\n");
    write_in("added_tokens.json", "{}");
    make(NULL);
    assert_int_equal(texts.count, 9);
    assert_string_equal(text_of("tokenizer.model"), "\x0A\x0B");
    assert_string_equal(text_of("merges.txt"), "#version: 0.2\n");
    assert_string_equal(text_of("generation_config.json"), GENERATION);
    assert_string_equal(text_of("tokenizer_config.json"), TOKENIZER);
    assert_string_equal(text_of("special_tokens_map.json"), "{}");
    assert_string_equal(text_of("chat_template.jinja"), "{{ x }}");
    tw_hf_texts_free(&texts);
    make("7"); /* the user's end token replaces the file's */
    assert_string_equal(text_of("generation_config.json"), "{\n  \"eos_token_id\": 7\n}\n");
    assert_string_equal(text_of("tokenizer_config.json"), TOKENIZER);
}

/* If an ordinary token were named as special, transformers would cut it out of every text. */
FACT(a_token_of_text_is_not_named_as_special) {
    make("7");
    assert_non_null(strstr(text_of("tokenizer_config.json"), "\"eos_token\": null"));
    assert_string_equal(text_of("generation_config.json"), "{\n  \"eos_token_id\": 7\n}\n");
}

/* Returns the chat template of the folder, "" if it has none. */
static const char *template_here(void) {
    static char copy[64];
    char *text = NULL;
    assert_int_equal(tw_hf_chat_template(folder, &text, &err), TW_OK);
    (void)snprintf(copy, sizeof(copy), "%s", text != NULL ? text : "");
    free(text);
    return copy;
}

FACT(a_chat_template_is_found_in_either_file) {
    assert_string_equal(template_here(), "");
    write_in("tokenizer_config.json", "{\"eos_token\": \"x\"}");
    assert_string_equal(template_here(), "");
    folder_path(path, folder, "tokenizer_config.json");
    assert_int_equal(unlink(path), 0);
    write_in("tokenizer_config.json", "{\"chat_template\": \"{{ one }}\"}");
    assert_string_equal(template_here(), "{{ one }}");
    assert_int_equal(unlink(path), 0);
    write_in("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, "
             "{\"name\": \"default\", \"template\": \"{{ two }}\"}]}");
    assert_string_equal(template_here(), "{{ two }}");
    write_in("chat_template.jinja", "{{ three }}");
    assert_string_equal(template_here(), "{{ three }}");
}
