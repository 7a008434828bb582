/* lineages_file.h - the lineages that this node refuses since a rollback. The text file `refused`
 * in the run's state folder lists them, one id in hex per line. People can read the file and remove
 * it. */
#ifndef TW_DAEMON_STORE_LINEAGES_FILE_H
#define TW_DAEMON_STORE_LINEAGES_FILE_H

#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "daemon/store/file.h"
#include "sync/core/config.h"

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

#endif
