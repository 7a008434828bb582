/* reached_file.h - the farthest point of the run that this node took part in. The text file
 * `reached` in the run's state folder survives a power cut, and is far newer than a checkpoint. A
 * node that starts behind it can say so, instead of training the run again in silence. */
#ifndef TW_DAEMON_STORE_REACHED_FILE_H
#define TW_DAEMON_STORE_REACHED_FILE_H

#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/store/file.h"

struct tw_reached {
    struct tw_id lineage;
    uint64_t rounds, clock_tokens; /* committed rounds of the lineage, and the run clock there */
    uint64_t step, tokens;         /* of this node */
    uint64_t origin; /* `origin` of STATUS (proto/message.h), once a round was merged with others;
                        0: not known */
    uint64_t unix_s; /* wall clock; 0: there is no note */
};

/* Reads the file in the open folder `dir`. A missing file leaves all zero. Returns TW_CORRUPT or
 * TW_IO, with all zero, if it cannot be read or is not such a note. */
enum tw_status tw_reached_read(const struct tw_file_ops *ops, int dir, struct tw_reached *reached,
                               struct tw_error *err);

/* Replaces the file, durably. Blocks for a disk sync or two. */
enum tw_status tw_reached_write(const struct tw_file_ops *ops, int dir,
                                const struct tw_reached *reached, struct tw_error *err);

#endif
