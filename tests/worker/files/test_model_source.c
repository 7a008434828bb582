/* test_model_source.c - damaged and inconsistent model folders: each gives a clear message, none
 * crashes. ARGS: the folder tests/golden/hf. */
#include "worker/files/model_source.h"
#include "worker/tokenizer/byte_tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tests/test.h"
#include "tests/worker/files/model_folder.h"
#include "worker/tokenizer/tokenizer_text.h"

static const char *golden;
static char folder[FOLDER_PATH_BYTES];
static uint8_t bytes[FOLDER_FILE_BYTES], changed[FOLDER_FILE_BYTES];
static struct tw_error err;

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json",
                  SHARD[] = "model-00002-of-00003.safetensors", CONFIG[] = "config.json";

static int start(void **state) {
    folder_make(folder);
    return 0;
}

static int stop(void **state) {
    folder_remove(folder);
    return 0;
}

#define FACT(name) TEST_IN(start, stop, name)

static size_t read_in(const char *name) {
    char path[FOLDER_PATH_BYTES];
    folder_path(path, folder, name);
    return file_read(path, bytes);
}

static void write_in(const char *name, const void *from, size_t size) {
    char path[FOLDER_PATH_BYTES];
    folder_path(path, folder, name);
    file_write(path, from, size);
}

/* Replaces the first `from` in a file of the folder by `to`, a text of the same length. */
static void patch(const char *name, const char *from, const char *to) {
    const size_t size = read_in(name), length = strlen(from);
    assert_int_equal(strlen(to), length);
    size_t at = 0;
    while (at + length <= size && memcmp(bytes + at, from, length) != 0) at++;
    assert_true(at + length <= size);
    memcpy(bytes + at, to, length);
    write_in(name, bytes, size);
}

/* Replaces `from` in config.json by `to`, a text of any length. */
static void reconfigure(const char *from, const char *to) {
    char text[FOLDER_FILE_BYTES];
    const size_t size = read_in(CONFIG);
    bytes[size] = 0;
    const char *const at = strstr((const char *)bytes, from);
    assert_non_null(at);
    const int n = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - (const char *)bytes),
                           (const char *)bytes, to, at + strlen(from));
    write_in(CONFIG, text, (size_t)n);
}

static void refused(enum tw_status status, const char *said) {
    const enum tw_status found = folder_read(folder, &err);
    if (found != status || strstr(err.message, said) == NULL) {
        fail_msg("status %d, wanted %d with \"%s\": %s", (int)found, (int)status, said,
                 found == TW_OK ? "accepted" : err.message);
    }
}

FACT(golden_models_are_read) {
    for (unsigned i = 0; GOLDEN_MODELS[i] != NULL; i++) {
        char path[FOLDER_PATH_BYTES], file[FOLDER_PATH_BYTES];
        folder_path(path, golden, GOLDEN_MODELS[i]);
        assert_int_equal(folder_read(path, &err), TW_OK);
        /* The model can also be opened by its file, if config.json is beside it. */
        folder_path(file, path, strcmp(GOLDEN_MODELS[i], "llama-untied") == 0 ? INDEX : SINGLE);
        assert_int_equal(folder_read(file, &err), TW_OK);
    }
}

/* In Hugging Face's cache, the files of a model are links to blobs. */
FACT(symbolic_links_are_followed) {
    static const char *const NAMES[] = {CONFIG, SINGLE};
    for (unsigned i = 0; i < 2; i++) {
        char from[FOLDER_PATH_BYTES], to[FOLDER_PATH_BYTES], model[FOLDER_PATH_BYTES];
        folder_path(model, golden, "qwen2");
        char *const whole = realpath(model, NULL);
        assert_non_null(whole);
        folder_path(from, whole, NAMES[i]);
        folder_path(to, folder, NAMES[i]);
        assert_int_equal(symlink(from, to), 0);
        free(whole);
    }
    assert_int_equal(folder_read(folder, &err), TW_OK);
}

FACT(missing_model_files_are_named) {
    char path[FOLDER_PATH_BYTES];
    refused(TW_IO, "holds no model (config.json and safetensors), and no checkpoint");
    write_in("notes.txt", "x", 1);
    refused(TW_IO, "holds no model (config.json and safetensors), and no checkpoint");
    write_in("adapter.safetensors", "x", 1);
    refused(TW_CONFIG, "holds adapter.safetensors, but no config.json, which describes the model");
    folder_path(path, folder, "adapter.safetensors");
    assert_int_equal(unlink(path), 0);
    write_in("params.json", "{}", 2);
    refused(TW_CONFIG, "holds a model in its maker's own form (params.json, consolidated): fetch");
    folder_path(path, folder, "checkpoint-500");
    assert_int_equal(mkdir(path, 0700), 0);
    write_in("checkpoint-500/config.json", "{}", 2);
    refused(TW_CONFIG, "holds no model itself, but a folder in it does: ");
    assert_non_null(strstr(err.message, "/checkpoint-500"));
    write_in(CONFIG, "{}", 2);
    refused(TW_IO, "holds neither model.safetensors nor model.safetensors.index.json: fetch the");
    write_in("pytorch_model.bin", "x", 1);
    refused(TW_CONFIG, "pytorch_model.bin, which is not read");
    folder_path(path, folder, SINGLE);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(TW_IO, "is not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
    refused(TW_IO, "is not a regular file");
    assert_int_equal(folder_read("/nowhere/at/all", &err), TW_IO);
    folder_copy(golden, "llama-untied", folder);
    assert_int_equal(unlink(path), 0);
    folder_path(path, folder, SHARD);
    assert_int_equal(unlink(path), 0);
    refused(TW_IO, SHARD);
}

/* A model is refused if any of its files is truncated at any byte. */
FACT(cut_files_are_refused_at_every_byte) {
    static const char *const FILES[][2] = {
        {"qwen2", SINGLE}, {"qwen2", CONFIG}, {"llama-untied", INDEX}, {"llama-untied", SHARD}};
    for (unsigned i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        char path[FOLDER_PATH_BYTES];
        folder_remove(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
        folder_copy(golden, FILES[i][0], folder);
        folder_path(path, folder, FILES[i][1]);
        size_t size = read_in(FILES[i][1]);
        while (bytes[size - 1] == '\n') size--; /* the JSON is complete without its last newline */
        while (size-- > 0) {
            assert_int_equal(truncate(path, (off_t)size), 0);
            err.message[0] = 0;
            if (folder_read(folder, &err) == TW_OK || strlen(err.message) < 10) {
                fail_msg("%s cut to %zu bytes was accepted", FILES[i][1], size);
            }
        }
    }
}

/* If any single byte of a header or of JSON changes, the model is either refused or read. */
FACT(changed_bytes_do_no_harm) {
    static const char *const FILES[][2] = {
        {"qwen2", SINGLE}, {"llama", CONFIG}, {"llama-untied", INDEX}};
    static const uint8_t MASKS[] = {0x01, 0x11, 0x80};
    for (unsigned i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        folder_remove(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
        folder_copy(golden, FILES[i][0], folder);
        const size_t size = read_in(FILES[i][1]);
        const size_t header = i == 0 ? 8 + (size_t)tw_get_u64(bytes) : size;
        for (size_t k = 0; k < header; k++) {
            memcpy(changed, bytes, size);
            changed[k] ^= MASKS[k % 3];
            write_in(FILES[i][1], changed, size);
            (void)folder_read(folder, &err);
        }
    }
}

/* Changes one tensor's entry in the header of qwen2, which has a single file. */
FACT(tensors_in_the_wrong_place_are_refused) {
    static const struct {
        const char *from, *to, *said;
    } CASES[] = {
        {"\"model.norm.weight\"", "\"model.worm.weight\"", "holds no tensor model.norm.weight"},
        {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "listed twice"},
        {"\"shape\":[256,8]", "\"shape\":[8,256]", "another shape than the model's: 8 x 256"},
        {"\"shape\":[256,8]", "\"shape\":[256,9]", "its shape needs"},
        {"\"dtype\":\"BF16\"", "\"dtype\":\"I16\" ", "is I16; F32, BF16 and F16"},
        {"\"data_offsets\":[0,", "\"data_offsets\":[2,", ""},
    };
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        folder_copy(golden, "qwen2", folder);
        patch(SINGLE, CASES[i].from, CASES[i].to);
        err.message[0] = 0;
        const enum tw_status status = folder_read(folder, &err);
        if (status == TW_OK || strstr(err.message, CASES[i].said) == NULL) {
            fail_msg("%s: %s", CASES[i].to, err.message);
        }
    }
}

FACT(a_header_larger_than_its_file_is_refused) {
    static const uint64_t CLAIMS[] = {UINT64_MAX, 1ull << 62, 1u << 30, 8000, 0};
    folder_copy(golden, "qwen2", folder);
    const size_t size = read_in(SINGLE);
    for (unsigned i = 0; i < sizeof(CLAIMS) / sizeof(CLAIMS[0]); i++) {
        tw_put_u64(bytes, CLAIMS[i]);
        write_in(SINGLE, bytes, size);
        refused(TW_CORRUPT, SINGLE);
    }
    /* A sparse file of 1 TiB costs no disk space; its 1 GiB header is refused without being read.
     */
    char path[FOLDER_PATH_BYTES];
    folder_path(path, folder, SINGLE);
    tw_put_u64(bytes, 1u << 30);
    write_in(SINGLE, bytes, size);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(TW_CORRUPT, "larger than the limit");
    folder_path(path, folder, CONFIG);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(TW_CONFIG, "at most");
}

FACT(numbers_that_are_not_finite_are_named) {
    static const struct {
        const char *model;
        uint16_t bits;
    } CASES[] = {{"qwen2", 0x7FC0}, {"qwen2", 0xFF80}, {"qwen3", 0x7E00}, {"qwen3", 0xFC00}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        folder_copy(golden, CASES[i].model, folder);
        const size_t size = read_in(SINGLE);
        tw_put_u16(bytes + size - 2, CASES[i].bits);
        write_in(SINGLE, bytes, size);
        refused(TW_CORRUPT, "is not a finite number");
        for (size_t k = 8 + (size_t)tw_get_u64(bytes); k < size; k += 2) {
            tw_put_u16(bytes + k, CASES[i].bits);
        }
        write_in(SINGLE, bytes, size);
        refused(TW_CORRUPT, "element 0 of model.embed_tokens.weight is not a finite number");
    }
    folder_copy(golden, "gpt2", folder);
    const size_t size = read_in(SINGLE);
    tw_put_u32(bytes + size - 4, 0x7FC00000);
    write_in(SINGLE, bytes, size);
    refused(TW_CORRUPT, "is not a finite number");
}

FACT(a_head_that_is_not_tied_is_reported) {
    folder_copy(golden, "llama-untied", folder);
    reconfigure("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    refused(TW_CONFIG, "lm_head.weight differs from model.embed_tokens.weight");
    folder_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    folder_copy(golden, "qwen2", folder);
    reconfigure("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    refused(TW_CONFIG, "holds no tensor lm_head.weight");
}

FACT(a_config_of_another_size_is_refused) {
    folder_copy(golden, "llama", folder);
    reconfigure("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    refused(TW_CONFIG, "holds the tensor model.layers.1.");
    reconfigure("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 3");
    refused(TW_CONFIG, "holds no tensor model.layers.2.");
    folder_copy(golden, "llama", folder);
    reconfigure("\"intermediate_size\": 20", "\"intermediate_size\": 24");
    refused(TW_CONFIG, "another shape than the model's: 20 x 16, not 24 x 16");
    folder_copy(golden, "llama", folder);
    reconfigure("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
    refused(TW_CONFIG, "kv_heads");
}

/* The index must match the files and must not refer outside the folder. */
FACT(an_index_that_lies_is_refused) {
    static const struct {
        const char *from, *to, *said;
        enum tw_status status;
    } CASES[] = {
        {"\"model-00002-of-00003.safetensors\"", "\"/mod/../el-00002-003.safetensors\"",
         "plain name", TW_CORRUPT},
        {"\"model-00002-of-00003.safetensors\"", "\"../model00002of-0003.safetensors\"",
         "plain name", TW_CORRUPT},
        {"\"model-00002-of-00003.safetensors\"", "\".model-0002-of-00003.safetensors\"",
         "plain name", TW_CORRUPT},
        {"\"model-00002-of-00003.safetensors\"", "\"model-00002-of-00003.safetensorX\"",
         "plain name", TW_CORRUPT},
        {"\"model-00002-of-00003.safetensors\"", "\"model-00002\\u0000-03.safetensors\"",
         "index.json", TW_CORRUPT},
        {"\"model-00002-of-00003.safetensors\"", "1234567890123456.123456789012345e1", "plain name",
         TW_CORRUPT},
        {"\"model-00001-of-00003.safetensors\"", "\"model-00002-of-00003.safetensors\"",
         "though the index says so", TW_CORRUPT},
        {"\"lm_head.weight\"", "\"lm_hand.weight\"", "which the index puts nowhere", TW_CORRUPT},
        {"\"lm_head.weight\"", "\"lm_head.weig t\"", "another way", TW_CORRUPT},
        {"\"weight_map\": {", "\"weight_nap\": {", "no weight_map", TW_CORRUPT},
        {"\"weight_map\": {", "\"weight_map\":0,", "", TW_CORRUPT},
    };
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        folder_copy(golden, "llama-untied", folder);
        patch(INDEX, CASES[i].from, CASES[i].to);
        refused(CASES[i].status, CASES[i].said);
    }
}

/* Old releases of transformers also saved masks and rotary frequencies: these are ignored. Any
 * other extra tensor is refused. */
FACT(buffers_are_skipped_and_strangers_refused) {
    folder_copy(golden, "qwen2", folder);
    patch(SINGLE, "model.layers.0.self_attn.k_proj.bias", "model.layers.0.rotary_emb.inv_freqqq");
    refused(TW_CONFIG, "holds no tensor model.layers.0.self_attn.k_proj.bias");
    /* If the same file is read as llama, which has no biases, these are extra tensors. */
    folder_copy(golden, "qwen2", folder);
    reconfigure("\"qwen2\"", "\"llama\"");
    reconfigure("Qwen2ForCausalLM", "LlamaForCausalLM");
    refused(TW_CONFIG, "which this model has no place for");
    patch(SINGLE, "model.layers.0.self_attn.k_proj.bias", "model.layers.0.x.rotary_emb.inv_freq");
    patch(SINGLE, "model.layers.0.self_attn.q_proj.bias", "model.layers.1.x.rotary_emb.inv_freq");
    patch(SINGLE, "model.layers.0.self_attn.v_proj.bias", "model.layers.2.x.rotary_emb.inv_freq");
    assert_int_equal(folder_read(folder, &err), TW_OK);
}

/* Of the names of tied tensors, safetensors.torch.save_model keeps only the alphabetically first.
 */
FACT(an_embedding_stored_as_the_head_is_found) {
    static const char *const MODELS[][2] = {{"qwen2", "\"model.embed_tokens.weight\""},
                                            {"gpt2", "\"transformer.wte.weight\""}};
    for (unsigned i = 0; i < 2; i++) {
        char head[64];
        folder_copy(golden, MODELS[i][0], folder);
        (void)snprintf(head, sizeof(head), "%-*s", (int)strlen(MODELS[i][1]), "\"lm_head.weight\"");
        patch(SINGLE, MODELS[i][1], head);
        if (folder_read(folder, &err) != TW_OK) fail_msg("%s: %s", MODELS[i][0], err.message);
    }
    reconfigure("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    refused(TW_CONFIG, "holds no tensor transformer.wte.weight, which this model needs");
}

/* LlamaModel.save_pretrained writes names without "model.", and AutoModelForCausalLM accepts them.
 */
FACT(names_of_a_base_model_are_found) {
    folder_copy(golden, "qwen2", folder);
    reconfigure("Qwen2ForCausalLM", "Qwen2Model");
    assert_int_equal(folder_read(folder, &err), TW_OK);
    for (unsigned count = 0; count < 14; count++) patch(SINGLE, "\"model.", "      \"");
    if (folder_read(folder, &err) != TW_OK) fail_msg("%s", err.message);
    reconfigure("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    refused(TW_CONFIG, "its head is not tied to the embedding, and was not saved");
}

FACT(quantised_weights_are_named) {
    folder_copy(golden, "qwen2", folder);
    patch(SINGLE, "\"BF16\"", "\"F4\"  ");
    refused(TW_CONFIG, "a tensor has the type F4, which is not known");
    folder_copy(golden, "qwen2", folder);
    patch(SINGLE, "down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[8,20]",
          "down_proj.qweight\":{\"dtype\":\"BF16\",\"shape\":[160]");
    refused(TW_CONFIG, "quantised weights are not read");
}

/* Files of other programs are recognised by their first bytes and named in the message. */
FACT(files_of_other_kinds_are_named) {
    static const char *const CASES[][2] = {
        {"GGUF\x03\0...................", "model.safetensors is a GGUF model, not safetensors"},
        {"PK\x03\x04.................", "a zip archive, not safetensors: fetch the model"},
        {"\x80\x02}q................", "a Python pickle"},
        {"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"},
        {"<!DOCTYPE html><html></html>", "an HTML page"},
    };
    folder_copy(golden, "qwen2", folder);
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        write_in(SINGLE, CASES[i][0], i < 3 ? 20 : strlen(CASES[i][0]));
        refused(TW_CONFIG, CASES[i][1]);
    }
    folder_copy(golden, "qwen2", folder);
    write_in(CONFIG, CASES[3][0], strlen(CASES[3][0]));
    refused(TW_CONFIG, "config.json: a pointer of Git LFS");
}

/* A header length of 640 has the same first bytes as a pickle (80 02). */
FACT(the_length_of_a_header_is_no_magic) {
    static const char HEADER[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    char file[8 + 640 + 4];
    folder_copy(golden, "qwen2", folder);
    memset(file, ' ', sizeof(file));
    tw_put_u64((uint8_t *)file, 640);
    memcpy(file + 8, HEADER, strlen(HEADER));
    write_in(SINGLE, file, sizeof(file));
    refused(TW_CONFIG, "holds no tensor");
}

FACT(models_in_other_forms_are_named) {
    char path[FOLDER_PATH_BYTES];
    write_in("adapter_config.json", "{}", 2);
    refused(TW_CONFIG, "an adapter of peft");
    folder_copy(golden, "qwen2", folder);
    folder_path(path, folder, SINGLE);
    const size_t size = read_in(SINGLE);
    assert_int_equal(unlink(path), 0);
    write_in("pytorch_model.bin", "PK", 2);
    refused(TW_CONFIG, "AutoModelForCausalLM");
    write_in("model.fp16.safetensors", bytes, size);
    refused(TW_CONFIG, "model.fp16.safetensors, not model.safetensors: name that file itself");
    write_in("model-00001-of-00002.safetensors", bytes, size);
    refused(TW_CONFIG, "a part of a model, but no model.safetensors.index.json");
}

static enum tw_tokenizer_kind kind_of_tokens(void) {
    struct tw_model_source source;
    struct tw_run run;
    tw_run_defaults(&run);
    assert_int_equal(tw_model_source_open(&source, folder, &err), TW_OK);
    assert_int_equal(tw_model_source_run(&source, &run, &err), TW_OK);
    tw_model_source_close(&source);
    assert_int_equal(run.model.vocab, 256);
    return run.data.tokenizer;
}

/* A vocabulary of 256 need not be bytes in order: the `tokenizers` library numbers them by their
 * characters, from "!" = 0. */
FACT(a_vocabulary_of_256_is_bytes_only_by_its_tokenizer) {
    static char json[TW_BYTE_TOKENIZER_BYTES];
    folder_copy(golden, "qwen2", folder);
    assert_int_equal(kind_of_tokens(), TW_TOKENIZER_IDS);
    const size_t size = tw_byte_tokenizer_json(json);
    write_in("tokenizer.json", json, size);
    assert_int_equal(kind_of_tokens(), TW_TOKENIZER_BYTES);
    patch("tokenizer.json", "\"!\": 33, \"\\\"\": 34", "\"!\": 34, \"\\\"\": 33");
    assert_int_equal(kind_of_tokens(), TW_TOKENIZER_IDS);
    write_in("tokenizer.json", "{}", 2);
    assert_int_equal(kind_of_tokens(), TW_TOKENIZER_IDS);
}

int main(int argc, char **argv) {
    golden = argc > 1 ? argv[1] : "tests/golden/hf";
    return test_run(NULL, NULL);
}
