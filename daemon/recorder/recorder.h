/* recorder.h - the flight recorder: a bounded log on disk of everything that enters the core, from
 * which `thinwire replay` repeats every decision.
 *
 * The log is a ring of files; the oldest is deleted first. Each file begins with a copy of the
 * core's memory, so that it can be replayed without earlier files. A thread compresses and writes;
 * the caller only copies. A crash loses the last seconds. If the disk is too slow or full, the log
 * has a gap and continues in a new file.
 *
 * A file is "TWFLIGHT" followed by blocks. A block is its compressed size (u32), its uncompressed
 * size (u32), and one zstd frame with checksum. The uncompressed blocks are a stream of records: a
 * tag, and the fields of enum tw_flight_tag. Little-endian. */
#ifndef TW_DAEMON_RECORDER_RECORDER_H
#define TW_DAEMON_RECORDER_RECORDER_H

#include <stdint.h>

#include "base/rate.h"
#include "base/status.h"
#include "proto/cert.h"
#include "sync/node.h"

enum tw_flight_tag {
    TW_FLIGHT_ABOUT = 'A',    /* u32 size, lines "key value" from struct tw_recorder_about */
    TW_FLIGHT_MANIFEST = 'M', /* u32 size, manifest as canonical text */
    TW_FLIGHT_CORE = 'C',     /* u32 size, the core's memory */
    TW_FLIGHT_RATE = 'R',     /* four u64: the download cap's token bucket, if it changed */
    TW_FLIGHT_EVENT = 'E',    /* u64 now_us, u32 size, bytes of tw_event_encode */
    TW_FLIGHT_SIGNED = 'S',   /* 64 bytes: a signature that the core requested */
    TW_FLIGHT_DONE = 'D',     /* u32 number of actions, u64 their hash */
};

enum {
    TW_RECORDER_MAGIC_BYTES = 8,
    TW_RECORDER_FILES = 8,            /* files in the ring */
    TW_RECORDER_BLOCK_BYTES = 8 << 20 /* largest uncompressed block */
};
#define TW_RECORDER_MAGIC "TWFLIGHT"
#define TW_RECORDER_FOLDER "recorder" /* in the run's state folder */

struct tw_recorder_about {
    char node[64];        /* name of the node */
    struct tw_id id, run; /* node id, run id */
    const char *manifest; /* canonical text; borrowed while the recorder exists */
    uint64_t bytes_max;   /* limit for all files together */
};

struct tw_recorder;

/* Opens the folder, or creates it. Free with tw_recorder_destroy. Returns TW_IO or TW_NOMEM on
 * failure. */
enum tw_status tw_recorder_create(struct tw_recorder **recorder, const char *folder,
                                  const struct tw_recorder_about *about, struct tw_error *err);

/* Writes the last events, waits for the disk and frees the recorder. NULL is allowed. */
void tw_recorder_destroy(struct tw_recorder *recorder);

/* Call these around each event, in this order. `rate` is the token bucket of struct tw_node_config,
 * or NULL. Each does nothing if `recorder` is NULL. */
void tw_recorder_event(struct tw_recorder *recorder, const struct tw_node *node,
                       const struct tw_event *event, const struct tw_rate *rate, uint64_t now_us);
void tw_recorder_signed(struct tw_recorder *recorder, const uint8_t signature[TW_SIGNATURE_BYTES]);
void tw_recorder_action(struct tw_recorder *recorder, const struct tw_action *action);
void tw_recorder_done(struct tw_recorder *recorder);

/* Writes to `text` why nothing can be written to disk now. Returns false if there is no such
 * reason. */
bool tw_recorder_error(struct tw_recorder *recorder, char *text, size_t capacity);

#endif
