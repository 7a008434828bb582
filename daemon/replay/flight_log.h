/* flight_log.h - reads the files of a flight recorder (daemon/recorder/recorder.h) record by
 * record. The bytes are untrusted. */
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
    const uint8_t *bytes; /* content after the tag and the size; borrowed until the next call */
    size_t size;
    uint64_t now_us; /* time of an EVENT record */
};

struct flight_log;

/* Opens one file, or all files of a folder in their order. The sentence of TW_DATA names the path.
 * The caller frees with tw_flight_log_close. */
enum tw_status tw_flight_log_open(struct flight_log **log, const char *path, struct tw_error *err);
void tw_flight_log_close(struct flight_log *log); /* NULL is allowed */

/* Reads the next record. At the end, record->tag is 0. A file that ends within a block was cut
 * short by a crash: the next file follows. The sentence of TW_CORRUPT names the file and the place.
 */
enum tw_status tw_flight_log_next(struct flight_log *log, struct flight_record *record,
                                  struct tw_error *err);

uint32_t tw_flight_log_files(const struct flight_log *log);

#endif
