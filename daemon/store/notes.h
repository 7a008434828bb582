/* notes.h - two small text files of the run's state folder that survive a power cut: refused
 * lineages, and the farthest round. */
#ifndef TW_DAEMON_STORE_NOTES_H
#define TW_DAEMON_STORE_NOTES_H

#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/store/file.h"
#include "sync/core/interface.h"

/* ==== refused lineages ======================================================================== */

/* The lineages that this node refuses since a rollback. The text file `refused` in the run's state
 * folder lists them, one id in hex per line. People can read the file and remove it. */

struct tw_lineages {
    uint32_t count;
    struct tw_id ids[TW_REFUSED_MAX];
};

/* Reads the file in the open folder `dir`. A missing file gives an empty list. Returns TW_CORRUPT
 * if a line is not an id, or if there are too many. */
enum tw_status tw_lineages_read(const struct tw_file_ops *ops, int dir, struct tw_lineages *list,
                                struct tw_error *err);

/* Adds an id unless it is listed already. A full list drops its oldest id. */
void tw_lineages_add(struct tw_lineages *list, const struct tw_id *id);

/* Replaces the file, durably. */
enum tw_status tw_lineages_write(const struct tw_file_ops *ops, int dir,
                                 const struct tw_lineages *list, struct tw_error *err);

/* ==== the farthest round ====================================================================== */

/* The farthest point of the run that this node took part in. The text file `reached` in the run's
 * state folder survives a power cut, and is far newer than a checkpoint. A node that starts behind
 * it can say so, instead of training the run again in silence. */

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
