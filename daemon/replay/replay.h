/* replay.h - replays a recorded core: from the same memory, events and times it must produce the
 * same actions. */
#ifndef TW_DAEMON_REPLAY_REPLAY_H
#define TW_DAEMON_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "sync/node.h"

/* The recording node, as described at the start of the newest file read. */
struct replay_about {
    char version[32], node[64], id[72], run[72];
    uint64_t events;          /* events that the core had handled before the file begins */
    uint64_t now_us, unix_us; /* wall clock (unix_us) at the monotonic time now_us */
};

struct replay;

/* Callbacks of the replay; any may be NULL. `event` and `action` are valid during the call only. */
struct replay_eyes {
    void *self;
    /* Verifies a signature as in struct tw_signing; NULL = Ed25519. */
    bool (*is_signed)(const struct tw_id *id, const void *text, size_t size,
                      const uint8_t signature[TW_SIGNATURE_BYTES]);
    void (*event)(void *self, const struct replay *replay, const struct tw_event *event);
    void (*action)(void *self, const struct replay *replay, const struct tw_action *action);
    /* Called after an event that has no effect, with the reason. NULL: not called. */
    void (*dropped)(void *self, const struct replay *replay, enum tw_drop why);
    /* Called after the actions of an event. Returning false ends the replay. */
    bool (*done)(void *self, const struct replay *replay);
};

/* The first event whose actions differ from the recorded ones. */
struct replay_difference {
    uint64_t event, now_us; /* event: its number since the daemon's start; 0 = no difference */
    uint32_t actions, recorded_actions;
};

struct replay_counts {
    uint64_t events, actions;
    uint64_t starts, gaps;      /* starts of the daemon; gaps in the log */
    uint64_t first_us, last_us; /* times of the first and last event, microseconds since 1970 */
    uint32_t files;
    bool is_cut; /* the log ends within an event */
};

struct replay {
    struct replay_about about;
    struct replay_counts counts;
    struct replay_difference difference;
    uint64_t number, now_us; /* number (1 = the daemon's first) and time of the present event */
    struct tw_node *node;
};

/* Replays the files at `path` from the first to the last event. Returns TW_DATA or TW_CORRUPT with
 * a sentence, or TW_VERSION if another version recorded them. *replay belongs to the caller and is
 * valid until tw_replay_free. */
enum tw_status tw_replay_run(struct replay *replay, const char *path,
                             const struct replay_eyes *eyes, struct tw_error *err);
void tw_replay_free(struct replay *replay);

/* Converts a time of the recording node's monotonic clock to microseconds since 1970. */
uint64_t tw_replay_unix_us(const struct replay *replay, uint64_t now_us);

/* ==== decisions =============================================================================== */

/* The decisions and anchors in a log, and the first one that differs between two nodes. */

/* A committed round, or the anchor of a fragment after a round was applied to it. */
struct decision {
    bool is_anchor;
    uint32_t fragment, contributors;
    uint64_t round, unix_us; /* round; for an anchor, the number of rounds applied */
    struct tw_id lineage;    /* lineage of a committed round */
    struct tw_id digest;     /* digest of the record, or of (phi, u) */
};

struct decisions {
    struct replay replay;
    size_t count, capacity;
    bool is_short;         /* there was no memory for one */
    struct decision *rows; /* in the order of the log */
};

/* Replays the log at `path` and collects its decisions. Returns the errors of tw_replay_run, and
 * TW_NOMEM. The caller frees with tw_decisions_free, also after an error. */
enum tw_status tw_decisions_read(struct decisions *decisions, const char *path,
                                 struct tw_error *err);
void tw_decisions_free(struct decisions *decisions);

/* Finds the first round whose decision differs between `a` and `b`. Returns false if there is none.
 * *common gets the number of compared decisions that both logs have. Sorts the rows of both. */
bool tw_decisions_differ(struct decisions *a, struct decisions *b, struct decision *of_a,
                         struct decision *of_b, size_t *common);

#endif
