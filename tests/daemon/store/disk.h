/* disk.h - a simulated disk behind struct tw_file_ops: one folder that loses what was not synced.
 *
 * Each file is a durable image and a list of pending writes; the folder is a durable list of names
 * and a list of pending changes of names. Programs see everything at once; `sync` and `dir_sync`
 * make it durable. A crash keeps any subset of the pending units: sectors of 512 bytes, changes of
 * a file's size, changes of a name (a rename is one). After a failed sync the pending writes of the
 * file are gone from the disk although reads still show them until the crash.
 *
 * Faults are set by the number of the call: every call through the table counts one. */
#ifndef TW_TESTS_DAEMON_STORE_DISK_H
#define TW_TESTS_DAEMON_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "daemon/store/file.h"

enum { TW_DISK_SECTOR_BYTES = 512 };

struct tw_disk;

/* An empty disk. Its folder opens under any path. */
struct tw_disk *tw_disk_create(void);
void tw_disk_destroy(struct tw_disk *disk);

/* The same disk again, pending units and all; open handles are not taken over. */
struct tw_disk *tw_disk_copy(const struct tw_disk *disk);

/* The table; valid as long as the disk. */
const struct tw_file_ops *tw_disk_ops(struct tw_disk *disk);

/* Calls so far. */
uint64_t tw_disk_calls(const struct tw_disk *disk);
/* Call number `call` (counted from 0) returns -error without effect. Sync: see above. */
void tw_disk_fail_at(struct tw_disk *disk, uint64_t call, int error);
/* Every read of the file fails, as with a bad sector. */
void tw_disk_set_bad(struct tw_disk *disk, const char *name);
/* Writes and reads transfer at most this much at a time; 0 = all. */
void tw_disk_set_transfer_max(struct tw_disk *disk, size_t bytes);
/* Bytes the disk holds; 0 = unbounded. allocate and write return -ENOSPC beyond it. */
void tw_disk_set_capacity(struct tw_disk *disk, uint64_t bytes);
/* From call number `call` on nothing has any effect: the process is dead. */
void tw_disk_stop_at(struct tw_disk *disk, uint64_t call);
/* Without create_nameless, as on old file systems. */
void tw_disk_set_named_only(struct tw_disk *disk, bool named_only);

/* Units a crash would decide about now. */
size_t tw_disk_pending(const struct tw_disk *disk);
/* Power cut: unit i survives iff keep[i]. Handles die, faults and stop are cleared. */
void tw_disk_crash(struct tw_disk *disk, const bool *keep);
/* The same with every unit drawn. */
void tw_disk_crash_random(struct tw_disk *disk, struct tw_rng *rng);

/* Direct access to what a program would read: bit rot, and what lies where. */
bool tw_disk_exists(const struct tw_disk *disk, const char *name);
const uint8_t *tw_disk_bytes(struct tw_disk *disk, const char *name, size_t *size); /* or NULL */
/* Bit rot: the bits of `mask` change in byte `at`, for good. */
void tw_disk_flip(struct tw_disk *disk, const char *name, size_t at, uint8_t mask);
void tw_disk_remove(struct tw_disk *disk, const char *name);

#endif
