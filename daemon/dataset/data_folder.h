/* data_folder.h - the files of a dataset on disk (proto/dataset.h): whole files, their chunks, and
 * arriving files.
 *
 *      dataset                         the index: its SHA-256 is data.sha256 of the manifest
 *      tokenizer.json                  if there is one
 *      prose-train-00000.shard ...     whole: complete, durable, every byte checked
 *      prose-train-00007.shard.part    arriving: every chunk at its place
 *
 * A file gets its name by a rename, so a name and a size mean that it is whole. No file records
 * which chunks of a .part file are correct. When the folder is opened, the chunks are hashed. A
 * kill or a power cut thus costs only the bytes that were not on disk.
 *
 * All these calls block on the disk. Only one thread at a time may change the folder or a part.
 * tw_data_folder_read reads only data that do not change once the index is known, and may run in
 * parallel. */
#ifndef TW_DAEMON_DATASET_DATA_FOLDER_H
#define TW_DAEMON_DATASET_DATA_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "daemon/store/file.h"
#include "proto/dataset.h"
#include "proto/shard.h"
#include "sync/fetch/fetch.h"

enum {
    TW_DATA_INDEX = 0, /* number of the index among the files */
    TW_DATA_NO_SHARD = -1,
    TW_DATA_PATH_BYTES = 4096,
};

enum tw_data_state {
    TW_DATA_ABSENT,
    TW_DATA_PARTLY, /* its .part file exists */
    TW_DATA_WHOLE,
};

struct tw_data_row {
    int32_t shard; /* number in the index; TW_DATA_NO_SHARD: index or tokenizer */
    enum tw_data_state state;
    bool is_bad; /* a user's file with other contents: not checked again */
};

/* Head of a shard, for checking its chunks. Zeroed: none. */
struct tw_data_head {
    uint32_t file;  /* number of the file + 1 */
    uint8_t *bytes; /* TW_CHUNK_BYTES_MAX, memory of the caller */
};

struct tw_data_folder {
    const struct tw_file_ops *ops; /* borrowed */
    char path[TW_DATA_PATH_BYTES];
    int dir;                /* -1: not open */
    struct tw_id hash;      /* hash of the index, from the manifest */
    bool is_ours;           /* the folder may be changed; false: it belongs to the user */
    uint64_t reserve_bytes; /* bytes that must stay free on the disk, for checkpoints */

    bool has_index;
    struct tw_dataset index;     /* its shards are owned */
    uint32_t files_count;        /* 1 until the index is known */
    struct tw_fetch_file *files; /* owned: index, tokenizer if there is one, shards in order */
    struct tw_data_row *rows;    /* (files_count), owned */
    uint32_t *by_hash;           /* numbers of the files, sorted by hash; owned */
};

/* Opens the folder. TW_IO: missing or not readable. */
enum tw_status tw_data_folder_open(struct tw_data_folder *folder, const struct tw_file_ops *ops,
                                   const char *path, const struct tw_id *hash, bool is_ours,
                                   struct tw_error *err);
void tw_data_folder_close(struct tw_data_folder *folder);

/* Reads the index in the folder and finds which files exist. TW_AGAIN: no index. TW_CORRUPT: not
 * the run's index; if is_ours, the file is removed. TW_DATA, TW_VERSION, TW_LIMIT: the run's index,
 * but unusable. TW_IO, TW_NOMEM. */
enum tw_status tw_data_folder_load(struct tw_data_folder *folder, struct tw_error *err);

/* Stores text (size) durably as the index, if it is the run's. TW_CORRUPT: it is not. TW_DATA,
 * TW_VERSION, TW_LIMIT: the run's index, but unusable. TW_IO: disk error; may be repeated.
 * TW_NOMEM. */
enum tw_status tw_data_folder_put_index(struct tw_data_folder *folder, const char *text,
                                        size_t size, struct tw_error *err);

/* Writes the name of a file. */
void tw_data_folder_name(const struct tw_data_folder *folder, uint32_t file,
                         char name[TW_DATASET_FILE_BYTES]);

/* Number of the file with that hash; -1: none. */
int tw_data_folder_find(const struct tw_data_folder *folder, const struct tw_id *hash);

/* Number of training shards that are whole. */
uint32_t tw_data_folder_train_whole(const struct tw_data_folder *folder);

/* Reads a chunk of a whole file into bytes (TW_CHUNK_BYTES_MAX) and returns its size. TW_IO,
 * TW_CORRUPT: the file is gone, or shorter. */
enum tw_status tw_data_folder_read(const struct tw_data_folder *folder, uint32_t file, uint32_t idx,
                                   uint8_t *bytes, uint32_t *size, struct tw_error *err);

/* Checks a chunk of a whole file against the index. TW_CORRUPT: the disk or another program has
 * changed it. A tokenizer is only checked as a whole, so its chunks always pass. `head` is kept
 * from one call to the next. */
enum tw_status tw_data_folder_check(const struct tw_data_folder *folder, uint32_t file,
                                    uint32_t idx, const uint8_t *bytes, struct tw_data_head *head,
                                    struct tw_error *err);

/* In a user's folder: checks a few missing files, from number *next on, and marks those that
 * appeared as whole. Returns one of them, else 0. */
uint32_t tw_data_folder_look(struct tw_data_folder *folder, uint32_t *next);

/* ---- arriving files (data_part.c) ----------------------------------------------------------- */

struct tw_data_part {
    struct tw_data_folder *folder; /* borrowed */
    uint32_t file;
    int handle; /* -1: not open */
    bool has_head;
    uint8_t head[TW_SHARD_HEAD_BYTES_MAX]; /* head of a shard, once it arrived */
};

/* Opens or creates the .part file of a tokenizer or a shard, with space reserved for all of it.
 * Reads the head if it is there and correct. TW_IO: the disk is full or fails; nothing to close
 * then. */
enum tw_status tw_data_part_open(struct tw_data_part *part, struct tw_data_folder *folder,
                                 uint32_t file, struct tw_error *err);

/* Hashes the chunks in an open part of a shard. Sets a bit in have (TW_FETCH_FILE_CHUNKS_MAX / 64
 * words) for every correct one and returns their number. scratch: TW_CHUNK_BYTES_MAX. */
uint32_t tw_data_part_look(const struct tw_data_part *part, uint64_t *have, uint8_t *scratch);

/* Writes a chunk at its place. Chunks of a shard are checked before. TW_CORRUPT: wrong bytes.
 * TW_AGAIN: the head must come first. TW_DATA: the head has the right hash but contradicts the
 * index, so no node can have this file. TW_IO: disk error; may be repeated. */
enum tw_status tw_data_part_write(struct tw_data_part *part, uint32_t idx, const uint8_t *bytes,
                                  struct tw_error *err);

/* Checks a tokenizer as a whole against the index. TW_CORRUPT: it differs. TW_IO, TW_NOMEM: may be
 * repeated. */
enum tw_status tw_data_part_check(const struct tw_data_part *part, struct tw_error *err);

/* Finishes a part whose chunks are all stored: syncs it, reads and checks the whole file again,
 * gives it its name and closes the part. scratch: TW_CHUNK_BYTES_MAX. TW_IO, TW_NOMEM: nothing is
 * lost; may be repeated. TW_CORRUPT: the disk lost bytes that were written; the part is deleted and
 * must be fetched again. */
enum tw_status tw_data_part_finish(struct tw_data_part *part, uint8_t *scratch,
                                   struct tw_error *err);

/* Closes the part; its file stays. */
void tw_data_part_close(struct tw_data_part *part);

/* Deletes the .part file. */
void tw_data_part_remove(const struct tw_data_folder *folder, uint32_t file);

#endif
