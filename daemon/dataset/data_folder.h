/* data_folder.h - the files of a dataset on disk (proto/dataset.h): which are whole, their chunks,
 * and those that are arriving.
 *
 *      dataset                         the index: its SHA-256 is data.sha256 of the manifest
 *      tokenizer.json                  if there is one
 *      prose-train-00000.shard ...     whole: complete, durable, every byte checked
 *      prose-train-00007.shard.part    arriving: every chunk at its place
 *
 * A file comes into being under its name by a rename, so a name and a size mean whole. What of a
 * .part file is right is not written down anywhere: it is hashed when the folder is opened, so a
 * kill or a power cut at any moment costs what was not on the disk and nothing else.
 *
 * All of these calls block on the disk. One thread at a time may change the folder or a part;
 * tw_data_folder_read only reads what does not change once the index is known, and may run beside.
 */
#ifndef TW_DAEMON_DATASET_DATA_FOLDER_H
#define TW_DAEMON_DATASET_DATA_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "daemon/store/file.h"
#include "proto/dataset.h"
#include "proto/shard.h"
#include "sync/fetch.h"

enum {
    TW_DATA_INDEX = 0, /* number of the index among the files */
    TW_DATA_NO_SHARD = -1,
    TW_DATA_PATH_BYTES = 4096,
};

enum tw_data_state {
    TW_DATA_ABSENT,
    TW_DATA_PARTLY, /* its .part file is there */
    TW_DATA_WHOLE,
};

struct tw_data_row {
    int32_t shard; /* in the index; TW_DATA_NO_SHARD: index or tokenizer */
    enum tw_data_state state;
    bool is_bad; /* a file of the user that holds something else: not looked at again */
};

/* The head of a shard, for checking chunks of it. Zeroed: of none. */
struct tw_data_head {
    uint32_t file;  /* + 1 */
    uint8_t *bytes; /* TW_CHUNK_BYTES_MAX, the user's */
};

struct tw_data_folder {
    const struct tw_file_ops *ops; /* borrowed */
    char path[TW_DATA_PATH_BYTES];
    int dir;                /* -1: not open */
    struct tw_id hash;      /* of the index, from the manifest */
    bool is_ours;           /* may be changed; else it belongs to the user */
    uint64_t reserve_bytes; /* that stay free on the disk */

    bool has_index;
    struct tw_dataset index;     /* its shards are owned */
    uint32_t files_count;        /* 1 until the index is known */
    struct tw_fetch_file *files; /* owned: index, tokenizer if there is one, shards in order */
    struct tw_data_row *rows;    /* (files_count), owned */
    uint32_t *by_hash;           /* files in the order of their hashes; owned */
};

/* Opens the folder. TW_IO: it is not there or may not be read. */
enum tw_status tw_data_folder_open(struct tw_data_folder *folder, const struct tw_file_ops *ops,
                                   const char *path, const struct tw_id *hash, bool is_ours,
                                   struct tw_error *err);
void tw_data_folder_close(struct tw_data_folder *folder);

/* Reads the index that lies in the folder, and looks which files are there. TW_AGAIN: there is
 * none. TW_CORRUPT: it is not the one of the run; of a folder that is ours it is taken away.
 * TW_DATA, TW_VERSION, TW_LIMIT: it is, and cannot be used. TW_IO, TW_NOMEM. */
enum tw_status tw_data_folder_load(struct tw_data_folder *folder, struct tw_error *err);

/* The index has arrived: text (size) becomes it, durably, if it is the one of the run. TW_CORRUPT:
 * it is not. TW_DATA, TW_VERSION, TW_LIMIT: it is, and cannot be used. TW_IO: the disk; may be
 * tried again. TW_NOMEM. */
enum tw_status tw_data_folder_put_index(struct tw_data_folder *folder, const char *text,
                                        size_t size, struct tw_error *err);

/* Name of a file. */
void tw_data_folder_name(const struct tw_data_folder *folder, uint32_t file,
                         char name[TW_DATASET_FILE_BYTES]);

/* The file of that hash; -1: none. */
int tw_data_folder_find(const struct tw_data_folder *folder, const struct tw_id *hash);

/* Training shards that are whole. */
uint32_t tw_data_folder_train_whole(const struct tw_data_folder *folder);

/* A chunk of a whole file into bytes (TW_CHUNK_BYTES_MAX); its size. TW_IO, TW_CORRUPT: the file is
 * not there any more, or is shorter. */
enum tw_status tw_data_folder_read(const struct tw_data_folder *folder, uint32_t file, uint32_t idx,
                                   uint8_t *bytes, uint32_t *size, struct tw_error *err);

/* Is this chunk of a whole file still what the index says? TW_CORRUPT: no, the disk or somebody has
 * changed it. Of a file that is checked whole, a tokenizer, nothing can be said. `head` is kept
 * from one call to the next. */
enum tw_status tw_data_folder_check(const struct tw_data_folder *folder, uint32_t file,
                                    uint32_t idx, const uint8_t *bytes, struct tw_data_head *head,
                                    struct tw_error *err);

/* In a folder of the user: looks whether some of the files that were not there have come, from
 * number *next on, a few at a time; those are whole now. Returns one that is, else 0. */
uint32_t tw_data_folder_look(struct tw_data_folder *folder, uint32_t *next);

/* ---- arriving files (data_part.c) ----------------------------------------------------------- */

struct tw_data_part {
    struct tw_data_folder *folder; /* borrowed */
    uint32_t file;
    int handle; /* -1: not open */
    bool has_head;
    uint8_t head[TW_SHARD_HEAD_BYTES_MAX]; /* of a shard, once it is here */
};

/* Opens the .part file of a tokenizer or a shard, or makes one with room for all of it, and reads
 * the head if it is there and right. TW_IO: the disk is full or refuses; nothing to close then. */
enum tw_status tw_data_part_open(struct tw_data_part *part, struct tw_data_folder *folder,
                                 uint32_t file, struct tw_error *err);

/* Hashes what an open part holds of a shard: a bit in have (TW_FETCH_FILE_CHUNKS_MAX / 64 words)
 * for every right chunk; returns how many. scratch: TW_CHUNK_BYTES_MAX. */
uint32_t tw_data_part_look(const struct tw_data_part *part, uint64_t *have, uint8_t *scratch);

/* Puts a chunk at its place. Of a shard it is checked before: TW_CORRUPT, not the right bytes;
 * TW_AGAIN: the head must be there first; TW_DATA: the head has its name and is not what the index
 * says, so nobody can have this file. TW_IO: the disk; may be tried again. */
enum tw_status tw_data_part_write(struct tw_data_part *part, uint32_t idx, const uint8_t *bytes,
                                  struct tw_error *err);

/* Is a file that is checked whole, a tokenizer, the one of the index? TW_CORRUPT: no. TW_IO,
 * TW_NOMEM: may be tried again. */
enum tw_status tw_data_part_check(const struct tw_data_part *part, struct tw_error *err);

/* Every chunk is here: makes what was written durable, reads and checks all of it once more as it
 * lies there, gives the file its name and closes the part. scratch: TW_CHUNK_BYTES_MAX. TW_IO,
 * TW_NOMEM: nothing was lost, may be tried again. TW_CORRUPT: it is not there any more as it was
 * written; the part is gone, and all of it is wanted again. */
enum tw_status tw_data_part_finish(struct tw_data_part *part, uint8_t *scratch,
                                   struct tw_error *err);

/* Ends the use of the part; its file stays. */
void tw_data_part_close(struct tw_data_part *part);

/* Takes the .part file away. */
void tw_data_part_remove(const struct tw_data_folder *folder, uint32_t file);

#endif
