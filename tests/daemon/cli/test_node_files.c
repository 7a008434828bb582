/* Tests of daemon/cli/node/node_files.c. The configuration that `init` and `join` write is
 * complete and durable, or does not exist. This file replaces fsync to observe which files are
 * durable. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/node/node_files.h"
#include "tests/test.h"

enum { SYNCS_MAX = 16 };

static char folder[TW_PATH_BYTES];
static struct stat synced[SYNCS_MAX];
/* failing_sync: number of the fsync call that fails, counted from 1; 0: none */
static uint32_t syncs_count, failing_sync;
static struct node_files files;

int fsync(int fd) {
    assert_true(syncs_count < SYNCS_MAX);
    assert_int_equal(fstat(fd, &synced[syncs_count++]), 0);
    if (syncs_count != failing_sync) return 0;
    errno = EIO;
    return -1;
}

/* Returns true if the file's present contents are durable. */
static bool is_synced(const char *path) {
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    for (uint32_t i = 0; i < syncs_count; i++) {
        if (synced[i].st_ino == about.st_ino && synced[i].st_dev == about.st_dev &&
            synced[i].st_size == about.st_size)
            return true;
    }
    return false;
}

static int setup(void **state) {
    (void)snprintf(folder, sizeof(folder), "/tmp/thinwire-node-files-XXXXXX");
    memset(&files, 0, sizeof(files));
    syncs_count = failing_sync = 0;
    if (mkdtemp(folder) == NULL) return -1;
    (void)snprintf(files.config_path, sizeof(files.config_path), "%.900s/a/b/node.conf", folder);
    node_files_put(&files, "state_dir", "state");
    node_files_put(&files, "run_dir", "sockets");
    node_files_put(&files, "name", "attic");
    assert_int_equal(node_files_plan(&files), TW_EXIT_OK);
    return 0;
}

static int teardown(void **state) {
    char command[TW_PATH_BYTES + 16];
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

#define FACT(name) TEST_IN(setup, teardown, name)

static bool is_there(const char *suffix) {
    char path[TW_PATH_BYTES + 8];
    (void)snprintf(path, sizeof(path), "%s%s", files.config_path, suffix);
    return access(path, F_OK) == 0;
}

FACT(configuration_is_synced_to_disk) {
    static struct tw_config config;
    char above[TW_PATH_BYTES + 8];
    struct tw_error err;
    struct stat about;
    assert_int_equal(node_files_folders(&files), TW_EXIT_OK);
    /* a, b and state: each is made durable by a sync of its parent folder */
    assert_true(syncs_count >= 3);
    syncs_count = 0;
    assert_int_equal(node_files_write_config(&files), TW_EXIT_OK);
    assert_true(is_synced(files.config_path));
    (void)snprintf(above, sizeof(above), "%.900s/a/b", folder);
    assert_true(is_synced(above));
    assert_false(is_there(".new"));
    assert_int_equal(stat(files.config_path, &about), 0);
    assert_int_equal(about.st_mode & 0600, 0600);
    assert_int_equal(about.st_nlink, 1);
    assert_int_equal(tw_config_load(&config, files.config_path, &err), TW_OK);
    assert_string_equal(config.node.name, "attic");
}

FACT(disk_that_fails_leaves_no_half_a_configuration) {
    assert_int_equal(node_files_folders(&files), TW_EXIT_OK);
    syncs_count = 0;
    failing_sync = 1; /* the file */
    assert_int_equal(node_files_write_config(&files), TW_EXIT_USAGE);
    assert_false(is_there(""));
    assert_false(is_there(".new"));
    syncs_count = 0;
    /* The sync of the file's folder fails: the file may or may not exist, and no success is
     * reported. */
    failing_sync = 2;
    assert_int_equal(node_files_write_config(&files), TW_EXIT_USAGE);
    assert_false(is_there(".new"));
}

FACT(existing_files_stay) {
    char text[8] = "", half[TW_PATH_BYTES + 8];
    assert_int_equal(node_files_folders(&files), TW_EXIT_OK);
    FILE *file = fopen(files.config_path, "w");
    assert_non_null(file);
    (void)fputs("mine\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(node_files_write_config(&files), TW_EXIT_USAGE);
    file = fopen(files.config_path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "mine\n");
    /* A half-written file of an interrupted command does not prevent a new write. */
    assert_int_equal(unlink(files.config_path), 0);
    (void)snprintf(half, sizeof(half), "%s.new", files.config_path);
    const int fd = open(half, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(node_files_write_config(&files), TW_EXIT_OK);
    assert_false(is_there(".new"));
}

/* Reads a key of the configuration as it is on disk. */
static void is_data(const char *text) {
    static struct tw_config config;
    struct tw_error err;
    assert_int_equal(tw_config_load(&config, files.config_path, &err), TW_OK);
    assert_string_equal(config.node.data, text);
}

FACT(a_key_takes_the_place_of_its_example) {
    struct stat before, after;
    assert_int_equal(node_files_folders(&files), TW_EXIT_OK);
    assert_int_equal(node_files_write_config(&files), TW_EXIT_OK);
    assert_int_equal(chmod(files.config_path, 0640), 0);
    assert_int_equal(stat(files.config_path, &before), 0);
    syncs_count = 0;
    assert_int_equal(node_files_add_value(&files, "data", "/srv/text"), TW_EXIT_OK);
    assert_true(is_synced(files.config_path));
    assert_false(is_there(".new"));
    is_data("/srv/text");
    assert_int_equal(stat(files.config_path, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    /* A disk that fails changes nothing. */
    failing_sync = syncs_count + 1;
    assert_int_equal(node_files_add_value(&files, "data", "/srv/other"), TW_EXIT_USAGE);
    assert_false(is_there(".new"));
    is_data("/srv/text");
}

FACT(a_key_without_an_example_goes_into_its_section) {
    static const char *const TEXTS[] = {"[network]\nupload = 5mbit\n[node]\nname = attic\n",
                                        "[network]\nupload = 5mbit\n"};
    assert_int_equal(node_files_folders(&files), TW_EXIT_OK);
    for (unsigned i = 0; i < 2; i++) {
        FILE *const file = fopen(files.config_path, "w");
        assert_non_null(file);
        (void)fputs(TEXTS[i], file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(node_files_add_value(&files, "data", "/srv/text"), TW_EXIT_OK);
        is_data("/srv/text");
    }
}
