/* config.c - reads, checks and prints a whole configuration. config_table.c holds the keys. */
#include "daemon/config/config.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "daemon/config/config_table.h"

enum {
    KEYS_MAX = 64,
    LINE_MAX_BYTES = 198,  /* inih's INI_MAX_LINE, less the two bytes that inih itself needs */
    SOCKET_PATH_MAX = 107, /* size of sun_path, without its NUL */
    NODES_LISTED = 16,     /* most nodes of this machine that an error names */
};

#define DEFAULT_INSTANCE "thinwire"

struct reader {
    struct tw_config *config;
    const char *text, *end; /* text not read yet */
    const char *path;
    char folder[TW_PATH_BYTES];
    unsigned line; /* number of the last line given to inih */
    unsigned seen_line[KEYS_MAX];
    struct tw_error *err;
    bool is_failed;
};

/* Reports a failure, unless an earlier one was reported: inih goes on to the later lines. */
static int TW_PRINTF(2, 3) fail_line(struct reader *reader, const char *fmt, ...) {
    char sentence[200];
    if (reader->is_failed) return 0;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    (void)tw_fail(reader->err, TW_CONFIG, "%s:%u: %s", reader->path, reader->line, sentence);
    reader->is_failed = true;
    return 0;
}

static bool is_section(const char *name) {
    for (const char *const *section = tw_config_sections(); *section != NULL; section++) {
        if (strcmp(*section, name) == 0) return true;
    }
    return false;
}

static void check_section(struct reader *reader, const char *line) {
    char name[64];
    const size_t size = strcspn(line + 1, "]\n");
    (void)snprintf(name, sizeof(name), "%.*s", (int)(size < 63 ? size : 63), line + 1);
    if (is_section(name)) return;
    size_t count = 0;
    while (tw_config_sections()[count] != NULL) count++;
    const char *const near = tw_nearest(name, tw_config_sections(), count);
    (void)fail_line(reader, "there is no section [%s]; %s%s%s", name,
                    near != NULL ? "did you mean ["
                                 : "sections are [node], [worker], [network], [api",
                    near != NULL ? near : "", near != NULL ? "]?" : "]");
}

/* Replaces inih's fgets: counts lines and refuses those that inih would silently truncate or
 * misread. */
static char *read_line(char *to, int capacity, void *user) {
    struct reader *const reader = user;
    if (reader->text == reader->end || reader->is_failed) return NULL;
    const char *const newline = memchr(reader->text, '\n', (size_t)(reader->end - reader->text));
    const size_t size = (size_t)((newline != NULL ? newline + 1 : reader->end) - reader->text);
    const char *const line = reader->text;
    reader->line++;
    reader->text += size;
    if (size > LINE_MAX_BYTES || size + 1 > (size_t)capacity) {
        (void)fail_line(reader,
                        "the line is longer than %d bytes; give a list on several lines "
                        "`key = value`",
                        LINE_MAX_BYTES);
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)line[i];
        if (c >= 32 || c == '\t' || c == '\n' || c == '\r') continue;
        (void)fail_line(reader, "a control character (byte %u); this must be a text file", c);
        return NULL;
    }
    memcpy(to, line, size);
    to[size] = 0;
    const char *const start = to + strspn(to, " \t");
    if (*start == '[') check_section(reader, start);
    return to;
}

static int unknown_key(struct reader *reader, const char *section, const char *name) {
    const char *names[KEYS_MAX];
    size_t count, found = 0;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return fail_line(reader, "`%s` belongs into section [%s], not [%s]", name,
                             keys[i].section, section);
        }
        if (strcmp(keys[i].section, section) == 0) names[found++] = keys[i].name;
    }
    const char *const near = tw_nearest(name, names, found);
    if (near != NULL) {
        return fail_line(reader, "there is no key `%s` in [%s]; did you mean `%s`?", name, section,
                         near);
    }
    return fail_line(reader, "there is no key `%s` in [%s]; `thinwire config example` lists them",
                     name, section);
}

static int take_key(void *user, const char *section, const char *name, const char *raw) {
    struct reader *const reader = user;
    size_t count;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    if (reader->is_failed) return 0;
    if (*section == 0 && strcmp(name, "run.name") == 0)
        return fail_line(reader, "this is the manifest of a run, not the configuration of a node, "
                                 "which `thinwire init` writes");
    if (*section == 0) {
        return fail_line(reader, "`%s` stands before the first section, such as [node]", name);
    }
    if (!is_section(section))
        return 0; /* an unknown section was already reported at its own line */
    const struct tw_config_key *const key = tw_config_key_find(section, name);
    if (key == NULL) return unknown_key(reader, section, name);

    char value[LINE_MAX_BYTES + 2];
    (void)snprintf(value, sizeof(value), "%s", raw);
    char *const comment = strstr(value, " #");
    if (comment != NULL) *comment = 0;
    for (size_t n = strlen(value); n > 0 && strchr(" \t\r", value[n - 1]) != NULL; n--) {
        value[n - 1] = 0;
    }

    unsigned *const seen = &reader->seen_line[key - keys];
    if (*seen != 0 && !tw_config_is_list(key)) {
        return fail_line(reader, "`%s` is given twice, first in line %u", name, *seen);
    }
    if (*seen == 0) tw_config_clear(reader->config, key);
    *seen = reader->line;
    struct tw_error err;
    if (tw_config_set(reader->config, key, reader->folder, value, &err) != TW_OK) {
        return fail_line(reader, "%s: %s", name, err.message);
    }
    return 1;
}

static enum tw_status join_path(char out[TW_PATH_BYTES], const char *folder, const char *file,
                                struct tw_error *err) {
    const int n = snprintf(out, TW_PATH_BYTES, "%s/%s", folder, file);
    if (n >= 0 && n < TW_PATH_BYTES) return TW_OK;
    return tw_fail(err, TW_CONFIG, "the path %.60s.../%s is too long", folder, file);
}

/* Checks and defaults that depend on several keys, once all of them are read. */
static enum tw_status derive_values(struct tw_config *config, struct tw_error *err) {
    if (config->node.name[0] == 0 &&
        gethostname(config->node.name, sizeof(config->node.name) - 1) != 0) {
        memcpy(config->node.name, "node", 5);
    }
    if (config->node.run[0] == 0) {
        TW_TRY(join_path(config->node.run, config->node.state_dir, "run.manifest", err));
    }
    if (config->network.secret_file[0] == 0) {
        TW_TRY(join_path(config->network.secret_file, config->node.state_dir, "run.secret", err));
    }
    if (config->api.socket[0] == 0) {
        TW_TRY(join_path(config->api.socket, config->node.run_dir, "thinwired.sock", err));
    }
    if (strlen(config->api.socket) > SOCKET_PATH_MAX ||
        strlen(config->node.run_dir) + sizeof("/worker.sock") > SOCKET_PATH_MAX) {
        return tw_fail(err, TW_CONFIG,
                       "%s: sockets in %.80s would have a name longer than %d bytes; choose a "
                       "shorter run_dir",
                       config->path, config->node.run_dir, SOCKET_PATH_MAX);
    }
    return TW_OK;
}

/* Programs that a command starts count as use by others unless they have a nice value
 * (process/cpu_use.h): the node would pause for its own trainer, again and again. */
static enum tw_status check_yield(const struct tw_config *config, struct tw_error *err) {
    const bool has_command = config->node.worker_command[0] != 0;
    if (!has_command || config->manners.yield_percent == 0 || config->manners.nice > 0)
        return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%s: with worker.nice = 0, worker.yield would count the programs of "
                   "worker.command as those of others; set nice to 1 or more, or yield = off",
                   config->path);
}

static void set_presets(struct tw_config *config, const char *instance) {
    size_t count;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    TW_ASSERT(count <= KEYS_MAX);
    _Static_assert(sizeof(enum tw_snapshot_wish) == sizeof(int), "choices are stored as int");
    _Static_assert(sizeof(enum tw_anchor_place) == sizeof(int), "choices are stored as int");
    memset(config, 0, sizeof(*config));
    (void)snprintf(config->instance, sizeof(config->instance), "%s", instance);
    for (size_t i = 0; i < count; i++) {
        struct tw_error err;
        const char *const preset = keys[i].preset;
        if (*preset == 0 && keys[i].type == TW_CONFIG_PATH) continue;
        TW_ASSERT(tw_config_set(config, &keys[i], "", preset, &err) == TW_OK);
    }
}

void tw_config_defaults(struct tw_config *config, const char *instance) {
    set_presets(config, instance);
    TW_ASSERT(derive_values(config, NULL) == TW_OK);
}

/* Splits "/etc/thinwire/garage.conf" into folder "/etc/thinwire" and instance "garage". */
static enum tw_status split_path(const char *path, char folder[TW_PATH_BYTES],
                                 char instance[TW_CONFIG_NAME_BYTES], struct tw_error *err) {
    const char *const slash = strrchr(path, '/');
    const char *const file = slash != NULL ? slash + 1 : path;
    size_t size = strlen(file);
    if (size > 5 && strcmp(file + size - 5, ".conf") == 0) size -= 5;
    if (strlen(path) >= TW_PATH_BYTES || size >= TW_CONFIG_NAME_BYTES) {
        return tw_fail(err, TW_CONFIG, "the name of the configuration file %.60s... is too long",
                       path);
    }
    (void)snprintf(instance, TW_CONFIG_NAME_BYTES, "%.*s", (int)size, file);
    if (slash != NULL && slash > path) {
        (void)snprintf(folder, TW_PATH_BYTES, "%.*s", (int)(slash - path), path);
    } else {
        (void)snprintf(folder, TW_PATH_BYTES, "%s", slash != NULL ? "" : ".");
    }
    return TW_OK;
}

/* Makes paths independent of the daemon's working directory. */
static enum tw_status make_absolute(char folder[TW_PATH_BYTES], struct tw_error *err) {
    char here[TW_PATH_BYTES], joined[2 * TW_PATH_BYTES];
    if (folder[0] == '/' || folder[0] == 0) return TW_OK;
    if (getcwd(here, sizeof(here)) == NULL) {
        return tw_fail(err, TW_CONFIG, "the working directory: %s", strerror(errno));
    }
    const bool is_here = strcmp(folder, ".") == 0;
    (void)snprintf(joined, sizeof(joined), "%s%s%s", here, is_here ? "" : "/",
                   is_here ? "" : folder);
    if (strlen(joined) >= TW_PATH_BYTES) return tw_fail(err, TW_CONFIG, "the path is too long");
    memcpy(folder, joined, strlen(joined) + 1);
    return TW_OK;
}

enum tw_status tw_config_parse(struct tw_config *config, const char *path, const char *text,
                               size_t size, struct tw_error *err) {
    struct reader reader = {
        .config = config, .text = text, .end = text + size, .path = path, .err = err};
    char instance[TW_CONFIG_NAME_BYTES];
    TW_TRY(split_path(path, reader.folder, instance, err));
    TW_TRY(make_absolute(reader.folder, err));
    if (size > TW_CONFIG_BYTES_MAX) {
        return tw_fail(err, TW_CONFIG, "%s: a configuration has at most %d KiB", path,
                       TW_CONFIG_BYTES_MAX / 1024);
    }
    set_presets(config, instance);
    (void)snprintf(config->path, sizeof(config->path), "%s", path);
    const int bad_line = ini_parse_stream(read_line, &reader, take_key, &reader);
    if (reader.is_failed) return TW_CONFIG;
    if (bad_line != 0) {
        return tw_fail(err, TW_CONFIG, "%s:%d: neither `key = value` nor `[section]`", path,
                       bad_line);
    }
    TW_TRY(check_yield(config, err));
    return derive_values(config, err);
}

enum tw_status tw_config_load(struct tw_config *config, const char *path, struct tw_error *err) {
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        return tw_fail(err, TW_CONFIG, "%s: %s%s", path, strerror(errno),
                       errno == ENOENT ? "; `thinwire init` writes one, --config names another"
                                       : "");
    }
    char *const text = malloc(TW_CONFIG_BYTES_MAX + 1);
    size_t size = 0;
    if (text != NULL) size = fread(text, 1, TW_CONFIG_BYTES_MAX + 1, file);
    const bool is_read = text != NULL && ferror(file) == 0;
    (void)fclose(file);
    enum tw_status status;
    if (is_read) {
        status = tw_config_parse(config, path, text, size, err);
    } else {
        status = tw_fail(err, TW_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
    }
    free(text);
    return status;
}

static bool is_set(const char *text) {
    return text != NULL && *text != 0;
}

enum tw_status tw_config_place(const char *option, char path[TW_PATH_BYTES], struct tw_error *err) {
    const char *name = option != NULL ? option : getenv("THINWIRE_CONFIG");
    if (!is_set(name)) name = DEFAULT_INSTANCE;
    const size_t size = strlen(name);
    const bool is_file =
        strchr(name, '/') != NULL || (size > 5 && strcmp(name + size - 5, ".conf") == 0);
    const int n = is_file ? snprintf(path, TW_PATH_BYTES, "%s", name)
                          : snprintf(path, TW_PATH_BYTES, TW_CONFIG_FOLDER "/%s.conf", name);
    if (n >= 0 && n < TW_PATH_BYTES) return TW_OK;
    return tw_fail(err, TW_CONFIG, "the name of the configuration file is too long");
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Reads the names of the nodes in TW_CONFIG_FOLDER, sorted. Returns their number. */
static size_t list_nodes(char names[NODES_LISTED][TW_CONFIG_NAME_BYTES]) {
    DIR *const dir = opendir(TW_CONFIG_FOLDER);
    size_t count = 0;
    if (dir == NULL) return 0;
    for (const struct dirent *at; count < NODES_LISTED && (at = readdir(dir)) != NULL;) {
        const size_t size = strlen(at->d_name);
        if (size <= 5 || size - 5 >= TW_CONFIG_NAME_BYTES || at->d_name[0] == '.' ||
            strcmp(at->d_name + size - 5, ".conf") != 0)
            continue;
        (void)snprintf(names[count++], TW_CONFIG_NAME_BYTES, "%.*s", (int)(size - 5), at->d_name);
    }
    (void)closedir(dir);
    qsort(names, count, TW_CONFIG_NAME_BYTES, by_name);
    return count;
}

/* Replaces a path that names no file by that of the node that is meant: the folder of `init --dir`,
 * or a file of TW_CONFIG_FOLDER. */
static void find_meant(const char *option, char path[TW_PATH_BYTES]) {
    struct stat info;
    char meant[TW_PATH_BYTES];
    const bool has_slash = strchr(option, '/') != NULL;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) return;
    int n = snprintf(meant, sizeof(meant), "%s/node.conf", option);
    if (n > 0 && n < TW_PATH_BYTES && access(meant, F_OK) == 0) {
        memcpy(path, meant, (size_t)n + 1);
        return;
    }
    n = snprintf(meant, sizeof(meant), TW_CONFIG_FOLDER "/%s", option);
    if (!has_slash && n > 0 && n < TW_PATH_BYTES && access(meant, F_OK) == 0)
        memcpy(path, meant, (size_t)n + 1);
}

enum tw_status tw_config_find(const char *option, char path[TW_PATH_BYTES], struct tw_error *err) {
    char names[NODES_LISTED][TW_CONFIG_NAME_BYTES], list[120] = "";
    TW_TRY(tw_config_place(option, path, err));
    if (option != NULL) find_meant(option, path);
    if (option != NULL || is_set(getenv("THINWIRE_CONFIG")) || access(path, F_OK) == 0)
        return TW_OK;
    const size_t count = list_nodes(names);
    if (count == 0) return TW_OK;
    if (count == 1) return tw_config_place(names[0], path, err);
    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return tw_fail(err, TW_CONFIG,
                   "there are several nodes here: %s; name one, such as by `--config %s`", list,
                   names[0]);
}

/* ---- printing ------------------------------------------------------------------------------ */

struct printer {
    char *text;
    size_t capacity, size; /* size: length of the whole text, even if it does not fit */
};

static void TW_PRINTF(2, 3) print(struct printer *to, const char *fmt, ...) {
    const size_t room = to->size < to->capacity ? to->capacity - to->size : 0;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(room > 0 ? to->text + to->size : NULL, room, fmt, args);
    va_end(args);
    if (n > 0) to->size += (size_t)n;
}

static void print_help(struct printer *to, const char *help) {
    print(to, "\n# ");
    for (; *help != 0; help++) print(to, *help == '\n' ? "%c# " : "%c", *help);
    print(to, "\n");
}

size_t tw_config_example(char *text, size_t capacity) {
    struct printer to = {text, capacity, 0};
    size_t count;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    const char *section = "";
    print(&to, "# Thinwire configuration of one node. Lines that are commented out show the "
               "default, or an\n"
               "# example if there is none. `thinwire config check` checks the file.\n");
    for (size_t i = 0; i < count; i++) {
        if (strcmp(section, keys[i].section) != 0) {
            section = keys[i].section;
            print(&to, "\n[%s]\n# %s\n", section, tw_config_section_help(section));
        }
        print_help(&to, keys[i].help);
        const char *const value = keys[i].example != NULL ? keys[i].example : keys[i].preset;
        print(&to, "#%s = %s\n", keys[i].name, value);
    }
    return to.size;
}

size_t tw_config_show(const struct tw_config *config, char *text, size_t capacity) {
    struct printer to = {text, capacity, 0};
    size_t count;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    const char *section = "";
    for (size_t i = 0; i < count; i++) {
        char value[TW_PATH_BYTES];
        if (strcmp(section, keys[i].section) != 0) {
            print(&to, "%s[%s]\n", *section != 0 ? "\n" : "", keys[i].section);
            section = keys[i].section;
        }
        if (!tw_config_get(config, &keys[i], 0, value, sizeof(value))) {
            print(&to, "%s =\n", keys[i].name);
        }
        for (uint32_t k = 0; tw_config_get(config, &keys[i], k, value, sizeof(value)); k++) {
            print(&to, "%s =%s%s\n", keys[i].name, *value != 0 ? " " : "", value);
        }
    }
    return to.size;
}

enum tw_status tw_config_check_run(const struct tw_config *config, const struct tw_run *run,
                                   struct tw_error *err) {
    const enum tw_node_role role = config->node.role;
    if (run->sync.topology == TW_TOPOLOGY_GROUP) return TW_OK;
    if (config->node.archive[0] != '\0')
        return tw_fail(err, TW_CONFIG,
                       "node.archive: the nodes of this run agree on no model that rounds could "
                       "prove (sync.topology is not group)");
    if (role == TW_NODE_ROLE_TRAIN) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "node.role = %s: the nodes of this run agree on no model that could be "
                   "followed (sync.topology is not group)",
                   role == TW_NODE_ROLE_FOLLOW ? "follow" : "reduce");
}
