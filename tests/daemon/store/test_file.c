/* Tests of daemon/store/file.c and daemon/store/file.c on the real disk. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/file.h"

static char folder[64];
static const struct tw_file_ops *ops;
static int dir;
static struct tw_error err;

static int open_folder(void **state) {
    (void)strcpy(folder, "test_file.XXXXXX");
    ops = tw_file_system();
    if (mkdtemp(folder) == NULL) return 1;
    dir = ops->dir_open(ops->ctx, folder);
    return dir < 0;
}

static int remove_folder(void **state) {
    (void)ops->unlink(ops->ctx, dir, "one");
    (void)ops->unlink(ops->ctx, dir, "one.tmp");
    (void)ops->close(ops->ctx, dir);
    return rmdir(folder);
}

#define FACT(name) TEST_IN(open_folder, remove_folder, name)

static void replace(const char *text) {
    struct tw_durable durable;
    assert_int_equal(tw_durable_begin(&durable, ops, dir, "one", strlen(text), &err), TW_OK);
    assert_int_equal(tw_durable_write(&durable, text, strlen(text), 0, &err), TW_OK);
    assert_int_equal(tw_durable_commit(&durable, &err), TW_OK);
}

static void holds(const char *text) {
    char bytes[64];
    const int file = ops->open(ops->ctx, dir, "one");
    assert_true(file >= 0);
    assert_int_equal(ops->size(ops->ctx, file), strlen(text));
    assert_int_equal(tw_durable_read(ops, file, "one", bytes, strlen(text), 0, &err), TW_OK);
    assert_memory_equal(bytes, text, strlen(text));
    /* One byte too many. */
    assert_int_equal(tw_durable_read(ops, file, "one", bytes, strlen(text) + 1, 0, &err),
                     TW_CORRUPT);
    assert_int_equal(ops->close(ops->ctx, file), 0);
}

FACT(a_file_is_replaced_whole) {
    replace("the first, which is longer");
    holds("the first, which is longer");
    replace("the second");
    holds("the second");
    assert_int_equal(ops->open(ops->ctx, dir, "one.tmp"), -ENOENT);
}

FACT(only_its_owner_may_read_it) {
    struct stat about;
    replace("secret");
    assert_int_equal(fstatat(dir, "one", &about, 0), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
}

/* The group may read shared files even with the umask of a service. Files with any other name
 * stay private. */
FACT(shared_files_are_read_by_the_group) {
    struct stat about;
    const mode_t before = umask(0077);
    ops = tw_file_system_shared();
    replace("shard");
    ops = tw_file_system();
    (void)umask(before);
    assert_int_equal(fstatat(dir, "one", &about, 0), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    const int file = tw_file_system_shared()->create(NULL, dir, "two");
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    (void)close(file);
    (void)ops->unlink(ops->ctx, dir, "two");
    only_its_owner_may_read_it(state);
}

FACT(an_abandoned_file_leaves_nothing) {
    struct tw_durable durable;
    replace("old");
    assert_int_equal(tw_durable_begin(&durable, ops, dir, "one", 3, &err), TW_OK);
    assert_int_equal(tw_durable_write(&durable, "new", 3, 0, &err), TW_OK);
    tw_durable_abort(&durable);
    holds("old");
    assert_int_equal(ops->open(ops->ctx, dir, "one.tmp"), -ENOENT);
}

static int no_nameless(void *ctx, int in) {
    return -EOPNOTSUPP;
}

FACT(old_file_systems_and_leftovers_are_fine) {
    struct tw_file_ops old = *ops;
    const struct tw_file_ops *all = ops;
    old.create_nameless = no_nameless;
    const int leftover = ops->create(ops->ctx, dir, "one.tmp");
    assert_true(leftover >= 0);
    assert_int_equal(ops->create(ops->ctx, dir, "one.tmp"), -EEXIST);
    assert_int_equal(ops->close(ops->ctx, leftover), 0);
    ops = &old;
    replace("by name");
    holds("by name");
    ops = all;
    assert_int_equal(ops->open(ops->ctx, dir, "one.tmp"), -ENOENT);
}

FACT(missing_things_are_named) {
    assert_int_equal(ops->dir_open(ops->ctx, "test_file.none"), -ENOENT);
    assert_int_equal(ops->open(ops->ctx, dir, "none"), -ENOENT);
    struct tw_durable durable;
    assert_int_equal(tw_durable_begin(&durable, ops, -1, "one", 3, &err), TW_IO);
    assert_non_null(strstr(err.message, "one.tmp"));
}

/* A FIFO in place of a file does not block the caller, and a symbolic link is not followed. */
FACT(anything_but_a_regular_file_is_refused) {
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/one", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int file = ops->open(ops->ctx, dir, "one");
    assert_true(file >= 0);
    assert_int_equal(ops->size(ops->ctx, file), -EINVAL);
    assert_int_equal(ops->close(ops->ctx, file), 0);
    assert_int_equal(ops->unlink(ops->ctx, dir, "one"), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(ops->open(ops->ctx, dir, "one"), -ELOOP);
}

/* A fake disk that accepts every call, and counts bytes and syncs. */
static struct { uint64_t unsynced, most, syncs; } counted;

static int64_t count_write(void *ctx, int file, const void *bytes, size_t size, uint64_t offset) {
    (void)ctx, (void)file, (void)bytes, (void)offset;
    counted.unsynced += size;
    if (counted.unsynced > counted.most) counted.most = counted.unsynced;
    return (int64_t)size;
}

static int count_sync(void *ctx, int file) {
    (void)ctx, (void)file;
    counted.unsynced = 0;
    return ++counted.syncs < 3 ? 0 : -EIO;
}

FACT(a_large_file_is_synced_on_its_way) {
    static char block[1 << 20];
    struct tw_file_ops counting = *ops;
    struct tw_durable durable;
    enum tw_status status = TW_OK;
    counting.write = count_write;
    counting.sync = count_sync;
    memset(&counted, 0, sizeof(counted));
    assert_int_equal(tw_durable_begin(&durable, &counting, dir, "one", 1, &err), TW_OK);
    for (uint64_t i = 0; i < 1000 && status == TW_OK; i++) {
        status = tw_durable_write(&durable, block, sizeof(block), i << 20, &err);
    }
    assert_int_equal(status, TW_IO); /* the third sync failed */
    assert_non_null(strstr(err.message, "cannot sync one"));
    assert_int_equal(counted.syncs, 3);
    assert_true(counted.most <= TW_UNSYNCED_BYTES_MAX);
    tw_durable_abort(&durable);
}
