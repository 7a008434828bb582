#include "worker/tokenizer/text_ends.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/support/hf_json.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/tokenizer_inner.h"

bool tw_text_ends_at(const struct tw_text_ends *ends, uint32_t token) {
    for (uint32_t i = 0; i < ends->generation.eos_count; i++) {
        if (ends->generation.eos[i] == token) return true;
    }
    return false;
}

struct reading {
    const struct tw_text_ends_source *source;
    /* folders of the model and of the tokenizer; empty if there is none */
    char folders[2][PATH_MAX];
    uint32_t ignored;
    bool begins_otherwise, ends_otherwise;
    struct tw_error *err;
};

/* ---- one file -------------------------------------------------------------------------------- */

static void name_folder(const char *path, bool is_file, char folder[PATH_MAX]) {
    const char *const slash = is_file ? strrchr(path, '/') : NULL;
    if (is_file && slash == NULL) path = ".";
    const size_t size = slash != NULL ? (size_t)(slash - path) + 1 : strlen(path);
    if (size >= PATH_MAX) return;
    memcpy(folder, path, size);
    folder[size] = 0;
}

/* Sets *root_out to the JSON object in a file of the folder, or to NULL if there is no such
 * file. */
static enum tw_status open_json(const struct reading *reading, const char *folder, const char *name,
                                json_t **root_out) {
    struct tw_error why;
    char path[PATH_MAX], *json = NULL;
    size_t size = 0;
    *root_out = NULL;
    const int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (folder[0] == 0 || n >= (int)sizeof(path) || access(path, F_OK) != 0) return TW_OK;
    TW_TRY(tw_in_read_whole(path, TW_TEXT_ENDS_BYTES_MAX, &json, &size, reading->err));
    const enum tw_status status =
        tw_hf_json_parse(root_out, json, size, TW_TEXT_ENDS_BYTES_MAX, &why);
    free(json);
    if (status == TW_OK) return TW_OK;
    return tw_fail(reading->err, status, "%.120s: %.160s", path, why.message);
}

/* ---- ids: config.json, generation_config.json ------------------------------------------------ */

/* Returns the id, or TW_TOKEN_NONE if it is outside the vocabulary. Configurations of small models
 * often keep ids of a large model, which the small vocabulary does not have. */
static uint32_t id_of(struct reading *reading, const json_t *value, bool is_eos) {
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0) return TW_TOKEN_NONE;
    if (id < (json_int_t)reading->source->vocab) return (uint32_t)id;
    if (is_eos) reading->ignored = id < (json_int_t)UINT32_MAX ? (uint32_t)id : UINT32_MAX - 1;
    return TW_TOKEN_NONE;
}

static void take_ids(struct reading *reading, const json_t *root, struct tw_end_ids *said) {
    const json_t *const eos = json_object_get(root, "eos_token_id");
    const size_t count = json_is_array(eos) ? json_array_size(eos) : 1;
    for (size_t i = 0; i < count && said->eos_count < TW_STOPS_MAX; i++) {
        const json_t *const one = json_is_array(eos) ? json_array_get(eos, i) : eos;
        const uint32_t id = id_of(reading, one, true);
        if (id != TW_TOKEN_NONE) said->eos[said->eos_count++] = id;
    }
    said->bos = id_of(reading, json_object_get(root, "bos_token_id"), false);
    said->pad = id_of(reading, json_object_get(root, "pad_token_id"), false);
}

/* ---- names: tokenizer_config.json, special_tokens_map.json ----------------------------------- */

/* Looks up a token given as "</s>" or as {"content": "</s>", ...}. */
static uint32_t named_id(const struct reading *reading, const json_t *root, const char *key) {
    const json_t *const value = json_object_get(root, key);
    const char *const name =
        json_is_object(value) ? tw_hf_word(value, "content") : tw_hf_word(root, key);
    const uint32_t id =
        name[0] != 0 ? tw_tokenizer_find_any(reading->source->tokenizer, name) : TW_TOKEN_NONE;
    return id < reading->source->vocab ? id : TW_TOKEN_NONE;
}

static void take_names(struct reading *reading, const json_t *root, struct tw_end_ids *said) {
    if (reading->source->tokenizer == NULL) return;
    said->eos[0] = named_id(reading, root, "eos_token");
    said->eos_count = said->eos[0] != TW_TOKEN_NONE;
    said->bos = named_id(reading, root, "bos_token");
    said->pad = named_id(reading, root, "pad_token");
}

/* Compares the template with the one that transformers 4.57 derives from this file. It derives one
 * only for Llama's tokenizer class, which it also assumes for llama and mistral models that name no
 * class. */
static void compare_template(struct reading *reading, const json_t *root) {
    const struct tw_tokenizer *const tokenizer = reading->source->tokenizer;
    const char *const class = tw_hf_word(root, "tokenizer_class");
    const bool is_llama = strncmp(class, "LlamaTokenizer", strlen("LlamaTokenizer")) == 0;
    if (root == NULL || tokenizer == NULL || (!is_llama && class[0] != 0)) return;
    const bool begins = tokenizer->before_count > 0, ends = tokenizer->after_count > 0;
    reading->begins_otherwise =
        tw_hf_flag(root, "add_bos_token", is_llama ? true : begins) != begins;
    reading->ends_otherwise = tw_hf_flag(root, "add_eos_token", is_llama ? false : ends) != ends;
}

/* ---- all files ------------------------------------------------------------------------------- */

enum { GENERATION, CONFIG, TOKENIZER, SPECIALS, FILES };

/* Reads each file from the folder that has it. For files with ids the model's folder is tried
 * first, for files with names the tokenizer's. */
static enum tw_status read_files(struct reading *reading, struct tw_end_ids said[FILES]) {
    static const char *const NAMES[FILES] = {"generation_config.json", "config.json",
                                             "tokenizer_config.json", "special_tokens_map.json"};
    for (unsigned i = 0; i < FILES; i++) {
        const bool is_id = i < TOKENIZER;
        json_t *root = NULL;
        said[i] = (struct tw_end_ids){.bos = TW_TOKEN_NONE, .pad = TW_TOKEN_NONE};
        for (unsigned k = 0; k < 2 && root == NULL; k++) {
            TW_TRY(open_json(reading, reading->folders[is_id ? k : 1 - k], NAMES[i], &root));
        }
        if (is_id) {
            take_ids(reading, root, &said[i]);
        } else {
            take_names(reading, root, &said[i]);
        }
        if (i == TOKENIZER) compare_template(reading, root);
        json_decref(root);
    }
    return TW_OK;
}

bool tw_tokenizer_is_text(const struct tw_tokenizer *tokenizer, uint32_t token) {
    if (tw_tokenizer_kind(tokenizer, token) != TW_TOKEN_NORMAL) return false;
    const struct tw_bpe_token *const one = &tokenizer->vocab.tokens[token];
    const struct tw_bpe *const bpe = &tokenizer->bpe;
    if (one->bytes == 1) return true;
    for (uint64_t i = 0; bpe->table != NULL && i <= bpe->mask; i++) {
        if (bpe->table[i].rank != TW_BPE_NONE && bpe->table[i].token == token) return true;
    }
    return false;
}

static void set_eos(struct tw_end_ids *ids, uint32_t token) {
    ids->eos[0] = token;
    ids->eos_count = token != TW_TOKEN_NONE;
}

/* Copies to `ids` the fields of `from` that `ids` lacks. */
static void fill_ids(struct tw_end_ids *ids, const struct tw_end_ids *from) {
    if (ids->eos_count == 0) {
        ids->eos_count = from->eos_count;
        memcpy(ids->eos, from->eos, sizeof(ids->eos));
    }
    if (ids->bos == TW_TOKEN_NONE) ids->bos = from->bos;
    if (ids->pad == TW_TOKEN_NONE) ids->pad = from->pad;
}

/* Returns the first token of each kind that is not ordinary text. */
static struct tw_end_ids without_text(const struct tw_tokenizer *tokenizer,
                                      const struct tw_end_ids *ids) {
    struct tw_end_ids found = {.bos = ids->bos, .pad = ids->pad};
    for (uint32_t i = 0; i < ids->eos_count && found.eos_count == 0; i++) {
        if (!tw_tokenizer_is_text(tokenizer, ids->eos[i])) set_eos(&found, ids->eos[i]);
    }
    if (found.bos != TW_TOKEN_NONE && tw_tokenizer_is_text(tokenizer, found.bos))
        found.bos = TW_TOKEN_NONE;
    if (found.pad != TW_TOKEN_NONE && tw_tokenizer_is_text(tokenizer, found.pad))
        found.pad = TW_TOKEN_NONE;
    return found;
}

static void combine_tokenizer(const struct tw_tokenizer *tokenizer,
                              const struct tw_end_ids said[FILES], struct tw_text_ends *ends) {
    struct tw_end_ids *const ids = &ends->tokenizer;
    const struct tw_end_ids own = {.eos = {tw_tokenizer_eos(tokenizer)},
                                   .eos_count = tw_tokenizer_eos(tokenizer) != TW_TOKEN_NONE,
                                   .bos = tw_tokenizer_bos(tokenizer),
                                   .pad = TW_TOKEN_NONE};
    *ids = said[TOKENIZER];
    fill_ids(ids, &said[SPECIALS]);
    for (unsigned i = 0; i < 2; i++) {
        const struct tw_end_ids found =
            without_text(tokenizer, &said[i == 0 ? CONFIG : GENERATION]);
        fill_ids(ids, &found);
    }
    ends->is_guessed = ids->eos_count == 0 && own.eos_count > 0 && tokenizer->after_count == 0;
    fill_ids(ids, &own);
    if (tokenizer->before_count > 0) ids->bos = own.bos;
}

static void combine(const struct tw_tokenizer *tokenizer, const struct tw_end_ids said[FILES],
                    struct tw_text_ends *ends) {
    ends->tokenizer = (struct tw_end_ids){.bos = TW_TOKEN_NONE, .pad = TW_TOKEN_NONE};
    ends->is_guessed = false;
    if (tokenizer != NULL && !tokenizer->is_bytes) {
        combine_tokenizer(tokenizer, said, ends);
    }
    ends->generation = said[GENERATION];
    ends->config = said[CONFIG];
    fill_ids(&ends->generation, &said[CONFIG]);
    fill_ids(&ends->generation, &ends->tokenizer);
    if (tokenizer != NULL && tokenizer->is_bytes && ends->generation.eos_count == 0) {
        /* with the byte tokenizer, byte 0 ends a text, because no text contains it */
        set_eos(&ends->generation, 0);
    }
    fill_ids(&ends->config, &ends->generation);
}

/* Applies the user's --eos, which is a number or the text of a token. */
static enum tw_status take_choice(const struct tw_text_ends_source *source,
                                  struct tw_text_ends *ends, struct tw_error *err) {
    char *end;
    if (source->eos == NULL) return TW_OK;
    uint32_t token = TW_TOKEN_NONE;
    errno = 0;
    const unsigned long number = strtoul(source->eos, &end, 10);
    if (source->eos[0] >= '0' && source->eos[0] <= '9' && *end == 0) {
        token = errno == 0 && number < source->vocab ? (uint32_t)number : TW_TOKEN_NONE;
    } else if (source->tokenizer != NULL) {
        token = tw_tokenizer_find_any(source->tokenizer, source->eos);
    }
    if (token == TW_TOKEN_NONE || token >= source->vocab) {
        return tw_fail(err, TW_CONFIG,
                       "--eos %.40s: it is neither the text of a token of the tokenizer, nor a "
                       "number below %u",
                       source->eos, source->vocab);
    }
    ends->ignored = TW_TOKEN_NONE;
    ends->is_guessed = false;
    set_eos(&ends->generation, token);
    set_eos(&ends->config, token);
    set_eos(&ends->tokenizer, token);
    return TW_OK;
}

/* Whether the file is part of a model folder, such as "model.safetensors" or
 * "model-00001-of-00002.safetensors". Files beside it then belong to the same model. Files beside
 * any other weights file may belong to another. */
static bool is_part_of_model(const char *path) {
    const char *const slash = strrchr(path, '/'), *const name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "model.", 6) == 0 || strncmp(name, "model-", 6) == 0;
}

/* ---- entry points ---------------------------------------------------------------------------- */

enum tw_status tw_text_ends_read(struct tw_text_ends *ends,
                                 const struct tw_text_ends_source *source, struct tw_error *err) {
    static const char CONFIG_NAME[] = "config.json";
    struct reading reading = {.source = source, .ignored = TW_TOKEN_NONE, .err = err};
    struct tw_end_ids said[FILES];
    char inside[PATH_MAX];
    if (source->model != NULL) {
        const int n = snprintf(inside, sizeof(inside), "%s/%s", source->model, CONFIG_NAME);
        const bool is_folder = n < (int)sizeof(inside) && access(inside, F_OK) == 0;
        if (is_folder || is_part_of_model(source->model)) {
            name_folder(source->model, !is_folder, reading.folders[0]);
        }
    }
    if (source->tokenizer_path != NULL) {
        name_folder(source->tokenizer_path, true, reading.folders[1]);
    }
    TW_TRY(read_files(&reading, said));
    combine(source->tokenizer, said, ends);
    ends->ignored = ends->generation.eos_count == 0 ? reading.ignored : TW_TOKEN_NONE;
    ends->begins_otherwise = reading.begins_otherwise;
    ends->ends_otherwise = reading.ends_otherwise;
    return take_choice(source, ends, err);
}

uint32_t tw_text_ends_text(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer) {
    for (uint32_t i = 0; i < ends->generation.eos_count && !tokenizer->is_bytes; i++) {
        if (tw_tokenizer_is_text(tokenizer, ends->generation.eos[i]))
            return ends->generation.eos[i];
    }
    return TW_TOKEN_NONE;
}

const char *tw_text_ends_conflict(const struct tw_text_ends *ends) {
    if (ends->begins_otherwise) {
        return "tokenizer.json and tokenizer_config.json (tokenizer_class, add_bos_token) disagree "
               "about a token before each text: tokenizer.json counts, as in transformers 5; "
               "transformers 4 follows the other";
    }
    return ends->ends_otherwise
               ? "tokenizer.json and tokenizer_config.json (tokenizer_class, add_eos_token) "
                 "disagree "
                 "about a token after each text: tokenizer.json counts, as in transformers 5; "
                 "transformers 4 follows the other"
               : NULL;
}

void tw_tokenizer_set_ends(struct tw_tokenizer *tokenizer, const struct tw_text_ends *ends) {
    if (tokenizer->is_bytes) return;
    if (tokenizer->before_count == 0) tokenizer->bos = ends->tokenizer.bos;
    tokenizer->eos = ends->tokenizer.eos_count > 0 ? ends->tokenizer.eos[0] : TW_TOKEN_NONE;
}
