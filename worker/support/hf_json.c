#include "worker/support/hf_json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_kind.h"
#include "worker/support/json_python.h"

/* Set if an allocation failed during a parse. The result must then be discarded, because jansson
 * silently drops a byte of a string when it runs out of memory. */
static _Thread_local bool is_out_of_memory;

static void *allocate(size_t size) {
    void *const block = malloc(size);
    if (block == NULL) is_out_of_memory = true;
    return block;
}

/* Replaces unprintable bytes, because jansson's message quotes the untrusted text near the
 * error. */
static enum tw_status fail_syntax(const json_error_t *why, struct tw_error *err) {
    char text[JSON_ERROR_TEXT_LENGTH];
    (void)snprintf(text, sizeof(text), "%s", why->text);
    for (char *at = text; *at != 0; at++) {
        if (*at < ' ' || *at > '~') *at = '?';
    }
    return tw_fail(err, TW_CORRUPT, "line %d, column %d: %s", why->line, why->column, text);
}

/* Parses strictly first, so that only files in Python's dialect need a rewritten copy. */
static enum tw_status parse(json_t **root, const char *json, size_t size, bool with_strings,
                            struct tw_error *err) {
    json_error_t why;
    char *rewritten = NULL;
    *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &why);
    if (*root == NULL && !is_out_of_memory) {
        TW_TRY(tw_json_python(json, size, with_strings, &rewritten, &size, err));
        if (rewritten == NULL) return fail_syntax(&why, err);
        *root = json_loadb(rewritten, size, JSON_REJECT_DUPLICATES, &why);
        free(rewritten);
    }
    if (is_out_of_memory) {
        json_decref(*root);
        return tw_fail(err, TW_NOMEM, "no memory for %zu bytes of JSON", size);
    }
    return *root != NULL ? TW_OK : fail_syntax(&why, err);
}

static enum tw_status parse_object(json_t **root_out, const char *json, size_t size,
                                   size_t bytes_max, bool with_strings, struct tw_error *err) {
    json_t *root;
    const struct tw_file_kind *const kind = tw_file_kind_of((const uint8_t *)json, size);
    if (size > bytes_max) {
        return tw_fail(err, TW_CORRUPT, "%zu bytes of JSON; at most %zu are read", size, bytes_max);
    }
    if (kind != NULL && kind->holds == TW_HOLDS_POINTER) {
        return tw_fail(err, TW_CONFIG, "%s: %s", kind->name, kind->remedy);
    }
    json_set_alloc_funcs(allocate, free);
    is_out_of_memory = false;
    TW_TRY(parse(&root, json, size, with_strings, err));
    if (!json_is_object(root)) {
        json_decref(root);
        return tw_fail(err, TW_CORRUPT, "an object was expected: { ... }");
    }
    *root_out = root;
    return TW_OK;
}

enum tw_status tw_hf_json_parse(json_t **root_out, const char *json, size_t size, size_t bytes_max,
                                struct tw_error *err) {
    return parse_object(root_out, json, size, bytes_max, true, err);
}

enum tw_status tw_hf_json_parse_exact(json_t **root_out, const char *json, size_t size,
                                      size_t bytes_max, struct tw_error *err) {
    return parse_object(root_out, json, size, bytes_max, false, err);
}

static int append_shown(const char *bytes, size_t size, void *context) {
    char *const shown = context;
    const size_t used = strlen(shown), room = TW_HF_SHOWN_BYTES - 1 - used;
    const size_t take = size < room ? size : room;
    memcpy(shown + used, bytes, take);
    shown[used + take] = 0;
    if (take < size) memcpy(shown + TW_HF_SHOWN_BYTES - 4, "...", 4);
    return take < size ? -1 : 0; /* -1 ends the dump once `shown` is full */
}

const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]) {
    shown[0] = 0;
    if (value == NULL) return "nothing";
    (void)json_dump_callback(value, append_shown, shown,
                             JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    return shown;
}
