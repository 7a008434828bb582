/* disk.h - a simulated disk behind struct tw_file_ops: one folder that loses unsynced data.
 *
 * Each file is a durable image and a list of pending writes. The folder is a durable list of names
 * and a list of pending name changes. Programs see everything at once; `sync` and `dir_sync` make
 * it durable. A crash keeps any subset of the pending units: sectors of 512 bytes, changes of a
 * file's size, changes of a name (a rename is one). After a failed sync the file's pending writes
 * are lost on the disk, although reads still show them until the crash.
 *
 * Faults are set by call number: every call through the table counts as one. */
#ifndef TW_TESTS_DAEMON_STORE_DISK_H
#define TW_TESTS_DAEMON_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "daemon/store/file.h"

enum { TW_DISK_SECTOR_BYTES = 512 };

struct tw_disk;

/* Makes an empty disk, whose folder opens under any path. */
struct tw_disk *tw_disk_create(void);
void tw_disk_destroy(struct tw_disk *disk);

/* Returns a copy of the disk with its pending units, but without open handles. */
struct tw_disk *tw_disk_copy(const struct tw_disk *disk);

/* Returns the disk's table of functions, which is valid as long as the disk. */
const struct tw_file_ops *tw_disk_ops(struct tw_disk *disk);

/* Calls so far. */
uint64_t tw_disk_calls(const struct tw_disk *disk);
/* Call number `call` (counted from 0) returns -error without effect, except sync (above). */
void tw_disk_fail_at(struct tw_disk *disk, uint64_t call, int error);
/* Every read of the file fails, as with a bad sector. */
void tw_disk_set_bad(struct tw_disk *disk, const char *name);
/* Largest transfer of one write or read; 0 = unlimited. */
void tw_disk_set_transfer_max(struct tw_disk *disk, size_t bytes);
/* Bytes the disk holds; 0 = unbounded. allocate and write return -ENOSPC beyond it. */
void tw_disk_set_capacity(struct tw_disk *disk, uint64_t bytes);
/* From call number `call` on, no call has an effect: the process is dead. */
void tw_disk_stop_at(struct tw_disk *disk, uint64_t call);
/* create_nameless fails, as on old file systems. */
void tw_disk_set_named_only(struct tw_disk *disk, bool named_only);

/* Number of pending units, each of which a crash would keep or lose. */
size_t tw_disk_pending(const struct tw_disk *disk);
/* Power cut: unit i survives iff keep[i]. Handles die, faults and stop are cleared. */
void tw_disk_crash(struct tw_disk *disk, const bool *keep);
/* Power cut at which a random subset of the unsynced units survives. */
void tw_disk_crash_random(struct tw_disk *disk, struct tw_rng *rng);

/* Direct access to the contents that a program would read. */
bool tw_disk_exists(const struct tw_disk *disk, const char *name);
const uint8_t *tw_disk_bytes(struct tw_disk *disk, const char *name, size_t *size); /* or NULL */
/* Bit rot: the bits of `mask` change in byte `at`, for good. */
void tw_disk_flip(struct tw_disk *disk, const char *name, size_t at, uint8_t mask);
void tw_disk_remove(struct tw_disk *disk, const char *name);

#endif
