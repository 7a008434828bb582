#include "daemon/cli/common/json_path.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const json_t *json_at(const json_t *json, const char *path) {
    while (json != NULL && *path != 0) {
        char key[64];
        const size_t size = strcspn(path, ".");
        (void)snprintf(key, sizeof(key), "%.*s", (int)size, path);
        json = json_object_get(json, key);
        path += size + (path[size] == '.');
    }
    return json;
}

double json_num(const json_t *json, const char *path) {
    const json_t *const value = json_at(json, path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *json_str(const json_t *json, const char *path) {
    const char *const text = json_string_value(json_at(json, path));
    return text != NULL ? text : "";
}

bool json_yes(const json_t *json, const char *path) {
    return json_is_true(json_at(json, path));
}

enum tw_exit json_print(json_t *json) {
    const int rc = json_dumpf(json, stdout, JSON_INDENT(1));
    const bool is_written = rc == 0 && fputc('\n', stdout) != EOF;
    json_decref(json);
    return is_written ? TW_EXIT_OK : TW_EXIT_FAILURE;
}
