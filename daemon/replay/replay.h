/* replay.h - repeats a recorded core: the same memory, events and times give the same actions. */
#ifndef TW_DAEMON_REPLAY_REPLAY_H
#define TW_DAEMON_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "sync/node.h"

/* The recording node, from the head of the newest file that was read. */
struct replay_about {
    char version[32], node[64], id[72], run[72];
    uint64_t events;          /* events that the core had handled before the file begins */
    uint64_t now_us, unix_us; /* the wall clock at one reading of the events' clock */
};

struct replay;

/* Calls of the replay; any may be NULL. `event` and `action` are borrowed for the call. */
struct replay_eyes {
    void *self;
    /* As in struct tw_signing; NULL: Ed25519. */
    bool (*is_signed)(const struct tw_id *id, const void *text, size_t size,
                      const uint8_t signature[TW_SIGNATURE_BYTES]);
    void (*event)(void *self, const struct replay *replay, const struct tw_event *event);
    void (*action)(void *self, const struct replay *replay, const struct tw_action *action);
    /* After the actions of an event. False ends the replay. */
    bool (*done)(void *self, const struct replay *replay);
};

/* The first event whose actions are not as recorded. */
struct replay_difference {
    uint64_t event, now_us; /* number of the event since its daemon started; 0: none */
    uint32_t actions, recorded_actions;
};

struct replay_counts {
    uint64_t events, actions;
    uint64_t starts, gaps;      /* starts of the daemon; places where events are missing */
    uint64_t first_us, last_us; /* times of the first and last event, microseconds since 1970 */
    uint32_t files;
    bool is_cut; /* the log ends within an event */
};

struct replay {
    struct replay_about about;
    struct replay_counts counts;
    struct replay_difference difference;
    uint64_t number, now_us; /* present event: its number (the daemon's first is 1), its time */
    struct tw_node *node;
};

/* Replays the files at `path` from the first to the last event. TW_DATA, TW_CORRUPT: a sentence.
 * TW_VERSION: recorded by another version. *replay is the caller's, and lives until
 * tw_replay_free. */
enum tw_status tw_replay_run(struct replay *replay, const char *path,
                             const struct replay_eyes *eyes, struct tw_error *err);
void tw_replay_free(struct replay *replay);

/* The wall clock of a reading of the events' clock, in microseconds since 1970. */
uint64_t tw_replay_unix_us(const struct replay *replay, uint64_t now_us);

#endif
