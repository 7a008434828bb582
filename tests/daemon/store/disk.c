/* disk.c - the simulated disk of disk.h, in plain arrays with small bounds: it holds only a few
 * files. */
#include "tests/daemon/store/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { FILES_MAX = 64, NAMES_MAX = 16, NAME_BYTES = 64, HANDLES_MAX = 64, DIR_HANDLE = 1000 };

/* `seen`: contents that programs read; `kept`: durable contents. */
struct image {
    uint8_t *bytes;
    size_t size;
};

struct change {
    bool is_size;
    /* place of the write within one sector; if is_size: `size` is the new size of the file */
    size_t offset, size;
    uint8_t bytes[TW_DISK_SECTOR_BYTES];
};

struct file {
    bool is_used, is_bad;
    struct image seen, kept;
    struct change *pending;
    size_t pending_count;
};

struct entry {
    char name[NAME_BYTES]; /* "" = free */
    int file;
};

/* A pending change of names: the name `gone` is removed, and `name` now refers to `file`. If
 * file < 0, there is no such `name`. A rename has both effects. */
struct move {
    char gone[NAME_BYTES], name[NAME_BYTES];
    int file;
};

struct tw_disk {
    struct tw_file_ops ops;
    struct file files[FILES_MAX];
    struct entry seen[NAMES_MAX], kept[NAMES_MAX];
    struct move *moves;
    size_t moves_count;
    int handles[HANDLES_MAX]; /* file + 1; 0 = free */
    uint64_t calls, fail_at, stop_at, capacity;
    size_t transfer_max;
    int error;
    bool named_only;
};

static void *grow(void *memory, size_t bytes) {
    void *grown = realloc(memory, bytes > 0 ? bytes : 1);
    TW_ASSERT(grown != NULL);
    return grown;
}

static void image_resize(struct image *image, size_t size) {
    image->bytes = grow(image->bytes, size);
    if (size > image->size) memset(image->bytes + image->size, 0, size - image->size);
    image->size = size;
}

static void image_copy(struct image *to, const struct image *from) {
    image_resize(to, from->size);
    if (from->size > 0) memcpy(to->bytes, from->bytes, from->size);
}

/* ---- names --------------------------------------------------------------------------------- */

static struct entry *entry_find(struct entry *entries, const char *name) {
    for (int i = 0; i < NAMES_MAX; i++) {
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    }
    return NULL;
}

static void entry_set(struct entry *entries, const char *name, int file) {
    struct entry *entry = entry_find(entries, name);
    if (entry == NULL) entry = entry_find(entries, "");
    TW_ASSERT(entry != NULL && strlen(name) < NAME_BYTES);
    strcpy(entry->name, name);
    entry->file = file;
}

static void move_apply(struct entry *entries, const struct move *move) {
    struct entry *gone = move->gone[0] != '\0' ? entry_find(entries, move->gone) : NULL;
    if (gone != NULL) gone->name[0] = '\0';
    if (move->file >= 0) entry_set(entries, move->name, move->file);
}

static void move_add(struct tw_disk *disk, const char *gone, const char *name, int file) {
    disk->moves = grow(disk->moves, (disk->moves_count + 1) * sizeof(*disk->moves));
    struct move *move = &disk->moves[disk->moves_count++];
    memset(move, 0, sizeof(*move));
    strcpy(move->gone, gone);
    strcpy(move->name, name);
    move->file = file;
    move_apply(disk->seen, move);
}

/* Frees files that have neither a name nor a pending move nor a handle. */
static void sweep(struct tw_disk *disk) {
    bool is_live[FILES_MAX] = {false};
    for (int i = 0; i < NAMES_MAX; i++) {
        if (disk->seen[i].name[0] != '\0') is_live[disk->seen[i].file] = true;
        if (disk->kept[i].name[0] != '\0') is_live[disk->kept[i].file] = true;
    }
    for (size_t i = 0; i < disk->moves_count; i++) {
        if (disk->moves[i].file >= 0) is_live[disk->moves[i].file] = true;
    }
    for (int i = 0; i < HANDLES_MAX; i++) {
        if (disk->handles[i] > 0) is_live[disk->handles[i] - 1] = true;
    }
    for (int i = 0; i < FILES_MAX; i++) {
        struct file *file = &disk->files[i];
        if (!file->is_used || is_live[i]) continue;
        free(file->seen.bytes);
        free(file->kept.bytes);
        free(file->pending);
        memset(file, 0, sizeof(*file));
    }
}

/* ---- contents ------------------------------------------------------------------------------ */

static struct change *change_add(struct file *file) {
    /* The capacity is a power of two: growing by one would be slow, as a sanitizer's realloc
     * always copies. */
    const size_t count = file->pending_count;
    if ((count & (count - 1)) == 0)
        file->pending = grow(file->pending, (count > 0 ? 2 * count : 1) * sizeof(*file->pending));
    struct change *change = &file->pending[file->pending_count++];
    memset(change, 0, sizeof(*change));
    return change;
}

/* If the change of the file's size was lost, a write beyond the durable size still extends the
 * file. */
static void change_apply(struct image *image, const struct change *change) {
    if (change->is_size) {
        if (change->size > image->size) image_resize(image, change->size);
        return;
    }
    const size_t end = change->offset + change->size;
    if (end > image->size) image_resize(image, end);
    memcpy(image->bytes + change->offset, change->bytes, change->size);
}

static void file_write(struct file *file, const uint8_t *bytes, size_t size, size_t offset) {
    while (size > 0) {
        size_t piece = TW_DISK_SECTOR_BYTES - offset % TW_DISK_SECTOR_BYTES;
        if (piece > size) piece = size;
        struct change *change = change_add(file);
        change->offset = offset;
        change->size = piece;
        memcpy(change->bytes, bytes, piece);
        change_apply(&file->seen, change);
        bytes += piece;
        offset += piece;
        size -= piece;
    }
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Counts a call. Returns a negative error if the call must have no effect. */
static int enter(struct tw_disk *disk) {
    const uint64_t call = disk->calls++;
    if (call >= disk->stop_at) return -ESHUTDOWN;
    return call == disk->fail_at ? -disk->error : 0;
}

static struct file *file_of(struct tw_disk *disk, int handle) {
    TW_ASSERT(handle >= 0 && handle < HANDLES_MAX && disk->handles[handle] > 0);
    return &disk->files[disk->handles[handle] - 1];
}

static int handle_new(struct tw_disk *disk, int file) {
    for (int i = 0; i < HANDLES_MAX; i++) {
        if (disk->handles[i] != 0) continue;
        disk->handles[i] = file + 1;
        return i;
    }
    return -EMFILE;
}

static int file_new(struct tw_disk *disk) {
    int free_file = 0;
    sweep(disk);
    while (free_file < FILES_MAX && disk->files[free_file].is_used) free_file++;
    TW_ASSERT(free_file < FILES_MAX);
    disk->files[free_file].is_used = true;
    return free_file;
}

static int disk_dir_open(void *ctx, const char *path) {
    (void)path;
    const int fault = enter(ctx);
    return fault < 0 ? fault : DIR_HANDLE;
}

static int disk_dir_sync(void *ctx, int dir) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    memcpy(disk->kept, disk->seen, sizeof(disk->kept));
    disk->moves_count = 0;
    sweep(disk);
    return 0;
}

static int disk_create_nameless(void *ctx, int dir) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    return disk->named_only ? -EOPNOTSUPP : handle_new(disk, file_new(disk));
}

static int disk_create(void *ctx, int dir, const char *name) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    if (entry_find(disk->seen, name) != NULL) return -EEXIST;
    const int file = file_new(disk);
    move_add(disk, "", name, file);
    return handle_new(disk, file);
}

static int disk_open(void *ctx, int dir, const char *name) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    const struct entry *entry = entry_find(disk->seen, name);
    return entry != NULL ? handle_new(disk, entry->file) : -ENOENT;
}

static uint64_t bytes_used(const struct tw_disk *disk) {
    uint64_t bytes = 0;
    for (int i = 0; i < FILES_MAX; i++) bytes += disk->files[i].seen.size;
    return bytes;
}

static bool has_room(const struct tw_disk *disk, const struct file *file, size_t end) {
    return disk->capacity == 0 || end <= file->seen.size ||
           bytes_used(disk) - file->seen.size + end <= disk->capacity;
}

static int disk_allocate(void *ctx, int handle, uint64_t size) {
    struct tw_disk *disk = ctx;
    struct file *file = file_of(disk, handle);
    const int fault = enter(disk);
    if (fault < 0) return fault;
    if (!has_room(disk, file, size)) return -ENOSPC;
    if (size <= file->seen.size) return 0;
    struct change *change = change_add(file);
    change->is_size = true;
    change->size = size;
    change_apply(&file->seen, change);
    return 0;
}

static int64_t disk_write(void *ctx, int handle, const void *bytes, size_t size, uint64_t offset) {
    struct tw_disk *disk = ctx;
    struct file *file = file_of(disk, handle);
    const int fault = enter(disk);
    if (fault < 0) return fault;
    if (disk->transfer_max > 0 && size > disk->transfer_max) size = disk->transfer_max;
    if (!has_room(disk, file, offset + size)) return -ENOSPC;
    file_write(file, bytes, size, offset);
    return (int64_t)size;
}

static int64_t disk_read(void *ctx, int handle, void *bytes, size_t size, uint64_t offset) {
    struct tw_disk *disk = ctx;
    const struct file *file = file_of(disk, handle);
    const int fault = enter(disk);
    if (fault < 0) return fault;
    if (file->is_bad) return -EIO;
    if (offset >= file->seen.size) return 0;
    if (disk->transfer_max > 0 && size > disk->transfer_max) size = disk->transfer_max;
    if (size > file->seen.size - offset) size = file->seen.size - offset;
    memcpy(bytes, file->seen.bytes + offset, size);
    return (int64_t)size;
}

static int64_t disk_size(void *ctx, int handle) {
    const struct file *file = file_of(ctx, handle);
    const int fault = enter(ctx);
    return fault < 0 ? fault : (int64_t)file->seen.size;
}

static int64_t disk_room(void *ctx, int dir) {
    const struct tw_disk *disk = ctx;
    const int fault = enter(ctx);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    if (disk->capacity == 0) return INT64_MAX;
    const uint64_t used = bytes_used(disk);
    return disk->capacity > used ? (int64_t)(disk->capacity - used) : 0;
}

static int disk_sync_start(void *ctx, int handle) {
    (void)file_of(ctx, handle);
    return enter(ctx);
}

static int disk_sync(void *ctx, int handle) {
    struct tw_disk *disk = ctx;
    struct file *file = file_of(disk, handle);
    const int fault = enter(disk);
    if (fault == -ESHUTDOWN) return fault;
    for (size_t i = 0; i < file->pending_count && fault == 0; i++) {
        change_apply(&file->kept, &file->pending[i]);
    }
    file->pending_count = 0;
    return fault;
}

static int disk_link(void *ctx, int handle, int dir, const char *name) {
    struct tw_disk *disk = ctx;
    (void)file_of(disk, handle);
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    if (entry_find(disk->seen, name) != NULL) return -EEXIST;
    move_add(disk, "", name, disk->handles[handle] - 1);
    return 0;
}

static int disk_rename(void *ctx, int dir, const char *from, const char *to) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    const struct entry *entry = entry_find(disk->seen, from);
    if (entry == NULL) return -ENOENT;
    const struct entry *before = entry_find(disk->seen, to);
    /* POSIX: two names of one file both stay */
    if (before != NULL && before->file == entry->file) return 0;
    move_add(disk, from, to, entry->file);
    return 0;
}

static int disk_unlink(void *ctx, int dir, const char *name) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    TW_ASSERT(dir == DIR_HANDLE);
    if (fault < 0) return fault;
    if (entry_find(disk->seen, name) == NULL) return -ENOENT;
    move_add(disk, name, "", -1);
    return 0;
}

static int disk_close(void *ctx, int handle) {
    struct tw_disk *disk = ctx;
    const int fault = enter(disk);
    if (handle == DIR_HANDLE) return fault;
    (void)file_of(disk, handle);
    disk->handles[handle] = 0; /* even when close fails, as in Linux */
    return fault;
}

/* ---- for tests ----------------------------------------------------------------------------- */

static void clear_faults(struct tw_disk *disk) {
    disk->fail_at = UINT64_MAX;
    disk->stop_at = UINT64_MAX;
    disk->transfer_max = 0;
    disk->capacity = 0;
    memset(disk->handles, 0, sizeof(disk->handles));
}

struct tw_disk *tw_disk_create(void) {
    struct tw_disk *disk = calloc(1, sizeof(*disk));
    TW_ASSERT(disk != NULL);
    clear_faults(disk);
    disk->ops = (struct tw_file_ops){
        .ctx = disk,
        .dir_open = disk_dir_open,
        .dir_sync = disk_dir_sync,
        .create_nameless = disk_create_nameless,
        .create = disk_create,
        .open = disk_open,
        .open_write = disk_open,
        .allocate = disk_allocate,
        .write = disk_write,
        .read = disk_read,
        .size = disk_size,
        .room = disk_room,
        .sync_start = disk_sync_start,
        .sync = disk_sync,
        .link = disk_link,
        .rename = disk_rename,
        .unlink = disk_unlink,
        .close = disk_close,
    };
    return disk;
}

void tw_disk_destroy(struct tw_disk *disk) {
    memset(disk->handles, 0, sizeof(disk->handles));
    memset(disk->seen, 0, sizeof(disk->seen));
    memset(disk->kept, 0, sizeof(disk->kept));
    disk->moves_count = 0;
    sweep(disk);
    free(disk->moves);
    free(disk);
}

struct tw_disk *tw_disk_copy(const struct tw_disk *disk) {
    struct tw_disk *copy = tw_disk_create();
    memcpy(copy->seen, disk->seen, sizeof(copy->seen));
    memcpy(copy->kept, disk->kept, sizeof(copy->kept));
    copy->named_only = disk->named_only;
    copy->moves = grow(NULL, disk->moves_count * sizeof(*disk->moves));
    copy->moves_count = disk->moves_count;
    if (disk->moves_count > 0) {
        memcpy(copy->moves, disk->moves, disk->moves_count * sizeof(*disk->moves));
    }
    for (int i = 0; i < FILES_MAX; i++) {
        const struct file *from = &disk->files[i];
        struct file *to = &copy->files[i];
        to->is_used = from->is_used;
        to->is_bad = from->is_bad;
        if (!from->is_used) continue;
        image_copy(&to->seen, &from->seen);
        image_copy(&to->kept, &from->kept);
        to->pending_count = from->pending_count;
        size_t room = 1;
        while (room < from->pending_count) room *= 2;
        to->pending = grow(NULL, room * sizeof(*from->pending));
        if (from->pending_count > 0) {
            memcpy(to->pending, from->pending, from->pending_count * sizeof(*from->pending));
        }
    }
    return copy;
}

const struct tw_file_ops *tw_disk_ops(struct tw_disk *disk) {
    return &disk->ops;
}

uint64_t tw_disk_calls(const struct tw_disk *disk) {
    return disk->calls;
}

void tw_disk_fail_at(struct tw_disk *disk, uint64_t call, int error) {
    disk->fail_at = call;
    disk->error = error;
}

void tw_disk_set_bad(struct tw_disk *disk, const char *name) {
    const struct entry *entry = entry_find(disk->seen, name);
    TW_ASSERT(entry != NULL);
    disk->files[entry->file].is_bad = true;
}

void tw_disk_set_transfer_max(struct tw_disk *disk, size_t bytes) {
    disk->transfer_max = bytes;
}

void tw_disk_set_capacity(struct tw_disk *disk, uint64_t bytes) {
    disk->capacity = bytes;
}

void tw_disk_stop_at(struct tw_disk *disk, uint64_t call) {
    disk->stop_at = call;
}

void tw_disk_set_named_only(struct tw_disk *disk, bool named_only) {
    disk->named_only = named_only;
}

size_t tw_disk_pending(const struct tw_disk *disk) {
    size_t count = disk->moves_count;
    for (int i = 0; i < FILES_MAX; i++) count += disk->files[i].pending_count;
    return count;
}

void tw_disk_crash(struct tw_disk *disk, const bool *keep) {
    for (size_t i = 0; i < disk->moves_count; i++) {
        if (*keep++) move_apply(disk->kept, &disk->moves[i]);
    }
    disk->moves_count = 0;
    for (int i = 0; i < FILES_MAX; i++) {
        struct file *file = &disk->files[i];
        for (size_t k = 0; k < file->pending_count; k++) {
            if (*keep++) change_apply(&file->kept, &file->pending[k]);
        }
        file->pending_count = 0;
        if (file->is_used) image_copy(&file->seen, &file->kept);
    }
    memcpy(disk->seen, disk->kept, sizeof(disk->seen));
    clear_faults(disk);
    sweep(disk);
}

void tw_disk_crash_random(struct tw_disk *disk, struct tw_rng *rng) {
    const size_t count = tw_disk_pending(disk);
    bool *keep = grow(NULL, count * sizeof(*keep));
    for (size_t i = 0; i < count; i++) keep[i] = tw_rng_below(rng, 2) == 1;
    tw_disk_crash(disk, keep);
    free(keep);
}

bool tw_disk_exists(const struct tw_disk *disk, const char *name) {
    for (int i = 0; i < NAMES_MAX; i++) {
        if (strcmp(disk->seen[i].name, name) == 0) return true;
    }
    return false;
}

const uint8_t *tw_disk_bytes(struct tw_disk *disk, const char *name, size_t *size) {
    const struct entry *entry = entry_find(disk->seen, name);
    if (entry == NULL) return NULL;
    *size = disk->files[entry->file].seen.size;
    return disk->files[entry->file].seen.bytes;
}

void tw_disk_flip(struct tw_disk *disk, const char *name, size_t at, uint8_t mask) {
    const struct entry *entry = entry_find(disk->seen, name);
    TW_ASSERT(entry != NULL);
    struct file *file = &disk->files[entry->file];
    TW_ASSERT(at < file->seen.size);
    file->seen.bytes[at] ^= mask;
    if (at < file->kept.size) file->kept.bytes[at] ^= mask;
}

void tw_disk_remove(struct tw_disk *disk, const char *name) {
    struct entry *seen = entry_find(disk->seen, name), *kept = entry_find(disk->kept, name);
    if (seen != NULL) seen->name[0] = '\0';
    if (kept != NULL) kept->name[0] = '\0';
}
