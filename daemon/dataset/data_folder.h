/* data_folder.h - the files of a dataset on disk (proto/dataset.h): whole files, their chunks, and
 * arriving files.
 *
 *      dataset                         the index: its SHA-256 is data.sha256 of the manifest
 *      tokenizer.json                  if there is one
 *      prose-train-00000.shard ...     whole: complete, durable, every byte checked
 *      prose-train-00007.shard.part    arriving: every chunk at its place
 *
 * A file gets its final name by a rename, so name and size show that it is whole. No file records
 * which chunks of a .part file are correct: they are hashed when the folder is opened. A kill or a
 * power cut thus costs only the bytes that were not on disk.
 *
 * All these functions block on the disk. Only one thread at a time may change the folder or a part.
 * tw_data_folder_read may run in parallel, because it reads only fields that do not change once the
 * index is known. */
#ifndef TW_DAEMON_DATASET_DATA_FOLDER_H
#define TW_DAEMON_DATASET_DATA_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "daemon/store/file.h"
#include "proto/dataset.h"
#include "sync/fetch/fetch.h"

enum {
    TW_DATA_INDEX = 0, /* number of the index among the files */
    TW_DATA_NO_SHARD = -1,
    TW_DATA_PATH_BYTES = 4096,
};

enum tw_data_state {
    TW_DATA_ABSENT,
    TW_DATA_PARTLY, /* arriving: its .part file exists */
    TW_DATA_WHOLE,
};

struct tw_data_row {
    int32_t shard; /* number of the shard in the index; TW_DATA_NO_SHARD: index or tokenizer */
    enum tw_data_state state;
    bool is_bad; /* the file in a user's folder has other contents; it is not checked again */
};

/* Head of one shard, which holds the digests of its chunks. All zero: none. */
struct tw_data_head {
    uint32_t file;  /* number of the shard's file + 1 */
    uint8_t *bytes; /* TW_CHUNK_BYTES_MAX bytes of the caller's memory */
};

struct tw_data_folder {
    const struct tw_file_ops *ops; /* borrowed */
    char path[TW_DATA_PATH_BYTES];
    int dir;                /* -1: not open */
    struct tw_id hash;      /* hash of the index, from the manifest */
    bool is_ours;           /* the daemon may change the folder; false: it belongs to the user */
    uint64_t reserve_bytes; /* bytes that must stay free on the disk, for checkpoints */

    bool has_index;
    struct tw_dataset index;     /* owns its shards */
    uint32_t files_count;        /* 1 until the index is known */
    struct tw_fetch_file *files; /* owned: index, tokenizer if there is one, shards in the index's
                                    order */
    struct tw_data_row *rows;    /* one row per file, owned */
    uint32_t *by_hash;           /* numbers of the files in the order of their hashes; owned */
};

/* Opens the folder. Returns TW_IO if it is missing or unreadable. */
enum tw_status tw_data_folder_open(struct tw_data_folder *folder, const struct tw_file_ops *ops,
                                   const char *path, const struct tw_id *hash, bool is_ours,
                                   struct tw_error *err);
void tw_data_folder_close(struct tw_data_folder *folder);

/* Reads the index in the folder and finds which files exist. Failures:
 *
 * - TW_AGAIN: there is no index
 * - TW_CORRUPT: it is not the run's index; if is_ours, the file is removed
 * - TW_DATA, TW_VERSION, TW_LIMIT: it is the run's index, but unusable
 * - TW_IO, TW_NOMEM */
enum tw_status tw_data_folder_load(struct tw_data_folder *folder, struct tw_error *err);

/* Stores text[size] durably as the index, if it is the run's. Failures:
 *
 * - TW_CORRUPT: it is not the run's index
 * - TW_DATA, TW_VERSION, TW_LIMIT: it is the run's index, but unusable
 * - TW_IO: disk error; may be repeated
 * - TW_NOMEM */
enum tw_status tw_data_folder_put_index(struct tw_data_folder *folder, const char *text,
                                        size_t size, struct tw_error *err);

/* Writes the name of a file. */
void tw_data_folder_name(const struct tw_data_folder *folder, uint32_t file,
                         char name[TW_DATASET_FILE_BYTES]);

/* Returns the number of the file with that hash, or -1 if there is none. */
int tw_data_folder_find(const struct tw_data_folder *folder, const struct tw_id *hash);

/* Returns the number of whole training shards. */
uint32_t tw_data_folder_train_whole(const struct tw_data_folder *folder);

/* Reads a chunk of a whole file into bytes (TW_CHUNK_BYTES_MAX). Sets *size. Returns TW_IO or
 * TW_CORRUPT if the file is gone or too short. */
enum tw_status tw_data_folder_read(const struct tw_data_folder *folder, uint32_t file, uint32_t idx,
                                   uint8_t *bytes, uint32_t *size, struct tw_error *err);

/* Checks a chunk of a whole file against the index. Returns TW_CORRUPT if the disk or another
 * program has changed it. A tokenizer's chunks always pass, because it is only checked as a whole.
 * `head` keeps the shard's head between calls. */
enum tw_status tw_data_folder_check(const struct tw_data_folder *folder, uint32_t file,
                                    uint32_t idx, const uint8_t *bytes, struct tw_data_head *head,
                                    struct tw_error *err);

/* In a user's folder, looks for a few missing files, from number *next on, and marks those that
 * have appeared as whole. Returns the number of one of them, or 0. */
uint32_t tw_data_folder_look(struct tw_data_folder *folder, uint32_t *next);

/* ---- arriving files (data_folder.c) -----------------------------------------------------------
 */

struct tw_data_part {
    struct tw_data_folder *folder; /* borrowed */
    uint32_t file;
    int handle; /* -1: not open */
    bool has_head;
    uint8_t head[TW_SHARD_HEAD_BYTES_MAX]; /* head of a shard, once it has arrived */
};

/* Opens or creates the .part file of a tokenizer or a shard, with disk space for all of it
 * reserved. Loads the head if it is there and correct. Returns TW_IO if the disk is full or fails;
 * there is nothing to close then. */
enum tw_status tw_data_part_open(struct tw_data_part *part, struct tw_data_folder *folder,
                                 uint32_t file, struct tw_error *err);

/* Hashes the chunks of a shard's open part. Sets a bit in have[TW_FETCH_FILE_CHUNKS_MAX / 64] for
 * every correct chunk. Returns their number. scratch: TW_CHUNK_BYTES_MAX bytes. */
uint32_t tw_data_part_look(const struct tw_data_part *part, uint64_t *have, uint8_t *scratch);

/* Writes a chunk at its place in the file; a shard's chunks are checked first. Failures:
 *
 * - TW_CORRUPT: wrong bytes
 * - TW_AGAIN: the head must come first
 * - TW_DATA: the head has the right hash but contradicts the index, so no node can have this file
 * - TW_IO: disk error; may be repeated */
enum tw_status tw_data_part_write(struct tw_data_part *part, uint32_t idx, const uint8_t *bytes,
                                  struct tw_error *err);

/* Checks a tokenizer as a whole against the index. Returns TW_CORRUPT if it differs. After TW_IO or
 * TW_NOMEM the call may be repeated. */
enum tw_status tw_data_part_check(const struct tw_data_part *part, struct tw_error *err);

/* Finishes a part whose chunks are all stored: syncs it, reads and checks the whole file again,
 * gives it its final name and closes the part. scratch: TW_CHUNK_BYTES_MAX bytes. After TW_IO or
 * TW_NOMEM nothing is lost and the call may be repeated. TW_CORRUPT means that the disk lost
 * written bytes: the part is deleted and must be fetched again. */
enum tw_status tw_data_part_finish(struct tw_data_part *part, uint8_t *scratch,
                                   struct tw_error *err);

/* Closes the part but keeps its file. */
void tw_data_part_close(struct tw_data_part *part);

/* Deletes the .part file. */
void tw_data_part_remove(const struct tw_data_folder *folder, uint32_t file);

#endif
