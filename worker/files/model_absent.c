#include "worker/files/model_absent.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/files/hf_index.h"

enum { PATH_BYTES = 1024 };

static bool has_file(const char *folder, const char *name) {
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    return n < (int)sizeof(path) && access(path, F_OK) == 0;
}

/* Finds the safetensors file whose name sorts first in the folder. */
static bool find_other(const char *folder, char name[TW_HF_FILE_BYTES]) {
    static const char END[] = ".safetensors";
    DIR *const dir = opendir(folder);
    const struct dirent *entry;
    name[0] = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t size = strlen(entry->d_name), end = sizeof(END) - 1;
        if (size <= end || size >= TW_HF_FILE_BYTES) continue;
        if (strcmp(entry->d_name + size - end, END) != 0) continue;
        if (name[0] == 0 || strcmp(entry->d_name, name) < 0) memcpy(name, entry->d_name, size + 1);
    }
    if (dir != NULL) (void)closedir(dir);
    return name[0] != 0;
}

enum tw_status tw_model_absent_weights(const char *folder, struct tw_error *err) {
    static const char *const OTHERS[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "tf_model.h5", "flax_model.msgpack",
                                         "consolidated.00.pth"};
    char name[TW_HF_FILE_BYTES];
    if (find_other(folder, name)) {
        const bool is_shard = strstr(name, "-of-") != NULL;
        return tw_fail(err, TW_CONFIG,
                       is_shard
                           ? "%.120s holds %.80s, a part of a model, but no "
                             "model.safetensors.index.json: fetch that file too"
                           : "%.120s holds %.80s, not model.safetensors: name that file itself",
                       folder, name);
    }
    for (unsigned i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!has_file(folder, OTHERS[i])) continue;
        return tw_fail(
            err, TW_CONFIG,
            "%.90s holds %s, which is not read. This makes safetensors of it: python3 -c "
            "'from transformers import AutoModelForCausalLM as M; "
            "M.from_pretrained(\"%.90s\").save_pretrained(\"OUT\")'",
            folder, OTHERS[i], folder);
    }
    return tw_fail(err, TW_IO,
                   "%s holds neither model.safetensors nor model.safetensors.index.json: fetch the "
                   "weights too",
                   folder);
}

enum tw_status tw_model_absent_adapter(const char *folder, struct tw_error *err) {
    if (!has_file(folder, "adapter_config.json") || has_file(folder, "config.json")) return TW_OK;
    return tw_fail(
        err, TW_CONFIG,
        "%.120s holds an adapter of peft (adapter_config.json), not a whole model: merge "
        "it first, by merge_and_unload() and save_pretrained()",
        folder);
}

/* Finds the subfolder with a config.json whose name sorts first, such as checkpoint-500 of a
 * Trainer. */
static bool find_below(const char *folder, char name[TW_HF_FILE_BYTES]) {
    DIR *const dir = opendir(folder);
    const struct dirent *entry;
    char path[PATH_BYTES];
    name[0] = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t size = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || size >= TW_HF_FILE_BYTES) continue;
        const int n = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (n >= (int)sizeof(path) || !has_file(path, "config.json")) continue;
        if (name[0] == 0 || strcmp(entry->d_name, name) < 0) memcpy(name, entry->d_name, size + 1);
    }
    if (dir != NULL) (void)closedir(dir);
    return name[0] != 0;
}

enum tw_status tw_model_absent_config(const char *folder, struct tw_error *err) {
    static const char *const WITHIN[] = {"", "/snapshots"}; /* subfolder in Hugging Face's cache */
    char path[PATH_BYTES], name[TW_HF_FILE_BYTES];
    for (unsigned i = 0; i < sizeof(WITHIN) / sizeof(WITHIN[0]); i++) {
        if (snprintf(path, sizeof(path), "%s%s", folder, WITHIN[i]) >= (int)sizeof(path)) continue;
        if (!find_below(path, name)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%.100s holds no model itself, but a folder in it does: %.100s/%.60s",
                       folder, path, name);
    }
    if (has_file(folder, "params.json") || has_file(folder, "consolidated.00.pth")) {
        return tw_fail(err, TW_CONFIG,
                       "%.120s holds a model in its maker's own form (params.json, consolidated): "
                       "fetch it in the form of Hugging Face, with config.json and safetensors",
                       folder);
    }
    if (find_other(folder, name)) {
        return tw_fail(err, TW_CONFIG,
                       "%.120s holds %.80s, but no config.json, which describes the model: fetch "
                       "that file too",
                       folder, name);
    }
    return tw_fail(err, TW_IO,
                   "%.100s holds no model (config.json and safetensors), and no checkpoint: a "
                   "node saves one now and then, or at once by `thinwire checkpoint`",
                   folder);
}
