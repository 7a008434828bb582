#include "daemon/workerlink/worker_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "compress/codec.h"
#include "compress/lattice.h"
#include "compress/pack.h"

enum { PATH_BYTES = 4096 };

static enum tw_status memory_seal(struct tw_worker_memory *memory, unsigned long long bytes,
                                  struct tw_error *err) {
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    memory->fd = memfd_create("thinwire", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0) return tw_fail(err, TW_IO, "memfd_create: %s", strerror(errno));
    if (ftruncate(memory->fd, (off_t)bytes) == 0 && fcntl(memory->fd, F_ADD_SEALS, seals) == 0)
        return TW_OK;
    return tw_fail(err, TW_IO, "shared memory of %llu bytes: %s", bytes, strerror(errno));
}

/* Creates a nameless file. On a file system without nameless files, creates a named one and unlinks
 * it. */
static int file_create(const char *folder) {
    char path[PATH_BYTES];
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    if ((size_t)snprintf(path, sizeof(path), "%s/anchors.XXXXXX", folder) >= sizeof(path))
        return -1;
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) (void)unlink(path);
    return named;
}

static enum tw_status memory_reserve(struct tw_worker_memory *memory, const char *folder,
                                     unsigned long long bytes, struct tw_error *err) {
    memory->is_file = true;
    memory->fd = file_create(folder);
    if (memory->fd < 0)
        return tw_fail(err, TW_IO, "a file for the anchor in %.150s: %s", folder, strerror(errno));
    /* Some file systems allocate all their free space before they report that it is not enough. */
    struct statvfs info;
    const bool has_room = fstatvfs(memory->fd, &info) != 0 ||
                          (double)info.f_bavail * (double)info.f_frsize >= (double)bytes;
    const int code = has_room ? posix_fallocate(memory->fd, 0, (off_t)bytes) : ENOSPC;
    if (code == 0) return TW_OK;
    return tw_fail(err, TW_IO,
                   "no room for the anchor in %.100s: its file takes %llu bytes: %s (free disk "
                   "space, or set node.anchors = memory)",
                   folder, bytes, strerror(code));
}

static enum tw_status memory_map(struct tw_worker_memory *memory, const char *folder,
                                 const struct tw_shm_geometry *geometry, void **base,
                                 struct tw_error *err) {
    const unsigned long long bytes = geometry->bytes;
    TW_TRY(folder != NULL ? memory_reserve(memory, folder, bytes, err)
                          : memory_seal(memory, bytes, err));
    *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (*base == MAP_FAILED) {
        return tw_fail(err, TW_IO, "mapping %llu bytes of shared memory: %s", bytes,
                       strerror(errno));
    }
    return TW_OK;
}

enum tw_status tw_worker_memory_open(struct tw_worker_memory *memory,
                                     const struct tw_worker_memory_config *config,
                                     struct tw_error *err) {
    struct tw_shm_geometry geometry;
    *memory = (struct tw_worker_memory){.fd = -1};
    TW_TRY(tw_shm_geometry_init(&geometry, config->layout, config->mode, config->pool_bytes, err));
    void *base = NULL;
    const enum tw_status status = memory_map(memory, config->folder, &geometry, &base, err);
    if (status != TW_OK) {
        tw_worker_memory_close(memory);
        return status;
    }
    tw_shm_bind(&memory->shm, base, &geometry, config->layout);
    tw_shm_format(&memory->shm);
    return TW_OK;
}

void tw_worker_memory_close(struct tw_worker_memory *memory) {
    if (memory->shm.base != NULL) {
        TW_ASSERT(munmap(memory->shm.base, memory->shm.geometry.bytes) == 0);
    }
    if (memory->fd >= 0) (void)close(memory->fd);
    *memory = (struct tw_worker_memory){.fd = -1};
}

void tw_worker_memory_trim(struct tw_worker_memory *memory) {
    struct tw_snapshot_slot meta;
    const struct tw_shm_geometry *geometry = &memory->shm.geometry;
    const int newest = tw_shm_snapshot_newest(&memory->shm, &meta);
    for (uint32_t slot = 0; newest >= 0 && slot < TW_SNAPSHOT_SLOTS; slot++) {
        if ((int)slot == newest || geometry->snapshot_bytes == 0) continue;
        tw_shm_snapshot_forget(&memory->shm, slot);
        if (memory->is_file) continue; /* a file's disk space stays reserved */
        /* If the system refuses, the pages simply stay in use. */
        (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)geometry->snapshot[slot], (off_t)geometry->snapshot_bytes);
    }
}

void tw_worker_memory_give_back(struct tw_worker_memory *memory, uint64_t offset, uint64_t bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t begin = (memory->shm.geometry.pool + offset + page - 1) / page * page;
    const uint64_t end = (memory->shm.geometry.pool + offset + bytes) / page * page;
    if (memory->is_file || end <= begin) return; /* a file's disk space stays reserved */
    /* If the system refuses, the pages simply stay in use. */
    (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                    (off_t)(end - begin));
}

uint64_t tw_worker_bytes_max(const void *run, enum tw_content content, uint64_t elements) {
    const struct tw_run *of = run;
    if (elements == 0) return 0;
    switch (content) {
    case TW_CONTENT_OPAQUE: return tw_pack_bound((size_t)elements);
    case TW_CONTENT_DELTA: return tw_codec_get(of->sync.codec)->bound((size_t)elements);
    case TW_CONTENT_RESULT: return tw_codec_get(of->sync.result)->bound((size_t)elements);
    case TW_CONTENT_PHI: return tw_lattice_bound((size_t)elements);
    }
    return 0;
}

uint64_t tw_worker_pool_bytes(const struct tw_run *run, const struct tw_layout *layout) {
    enum { FRAGMENTS_KEPT = 32, ANCHORS_KEPT = 6, FLOOR_BYTES = 16 << 20 };
    uint64_t largest = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++) {
        const uint64_t elements = layout->fragment_begin[p + 1] - layout->fragment_begin[p];
        if (elements > largest) largest = elements;
    }
    const uint64_t sent = tw_worker_bytes_max(run, TW_CONTENT_DELTA, largest);
    const uint64_t merged = tw_worker_bytes_max(run, TW_CONTENT_RESULT, largest);
    const uint64_t packed = tw_worker_bytes_max(run, TW_CONTENT_OPAQUE, largest);
    /* In pairs, each exchange has an anchor in each direction. Peers may still pull those of the
     * last exchanges. */
    const bool is_pair = run->sync.topology == TW_TOPOLOGY_PAIR;
    const uint64_t anchors =
        is_pair ? ANCHORS_KEPT * tw_worker_bytes_max(run, TW_CONTENT_PHI, largest) : 0;
    return FLOOR_BYTES + FRAGMENTS_KEPT * (sent > merged ? sent : merged) +
           TW_STATES_KEPT * packed + anchors;
}
