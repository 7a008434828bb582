/* flight_log.h - reads the files of a flight recorder, record by record:
 * daemon/recorder/recorder.h. The bytes are not trusted. */
#ifndef TW_DAEMON_REPLAY_FLIGHT_LOG_H
#define TW_DAEMON_REPLAY_FLIGHT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/recorder/recorder.h"

enum { FLIGHT_FILES_MAX = 4096, FLIGHT_PATH_BYTES = 4096 };

struct flight_record {
    enum tw_flight_tag tag;
    const uint8_t *bytes; /* after the tag and the size; borrowed until the next call */
    size_t size;
    uint64_t now_us; /* EVENT */
};

struct flight_log;

/* Opens one file, or all files of a folder in their order. TW_DATA names the path. The caller frees
 * with tw_flight_log_close. */
enum tw_status tw_flight_log_open(struct flight_log **log, const char *path, struct tw_error *err);
void tw_flight_log_close(struct flight_log *log); /* NULL is allowed */

/* Reads the next record; record->tag is 0 at the end. A file that ends within a block is the mark
 * of a crash, and the next file follows. TW_CORRUPT names file and place. */
enum tw_status tw_flight_log_next(struct flight_log *log, struct flight_record *record,
                                  struct tw_error *err);

uint32_t tw_flight_log_files(const struct flight_log *log);

#endif
