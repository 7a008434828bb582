/* worker_host.h - the daemon's side of the worker link. Actions of the core become messages to the
 * worker, and answers of the worker become events for the core. Payloads are in shared memory.
 *
 *   nobody --HELLO--> verifying snapshots --WELCOME--> starting --READY--> ready --close--> nobody
 *
 * Invariants:
 *   1. Every request is one row of `calls` from its action to its event. Until then the row holds
 *      its input payloads and owns the space for its outputs. An answer that has no row, or exceeds
 *      the limits of its row, disconnects the worker.
 *   2. The core gets WORKER_UP once per READY, and WORKER_DOWN once per end after that. Requests
 *      that are open when the worker ends are dropped without an event. The core asks again after
 *      the next WORKER_UP.
 *   3. The daemon computes the SHA-256 of all bytes that the worker wrote, on a thread if there are
 *      many.
 *   4. A value from shared memory or from a packet is compared with the daemon's own limits before
 *      it is used as an index or size.
 *   5. While frozen, requests that change (phi, u) are queued, in order, until the thaw. A
 * checkpoint thus copies a state that matches the core's position. */
#ifndef TW_DAEMON_WORKERLINK_WORKER_HOST_H
#define TW_DAEMON_WORKERLINK_WORKER_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "compress/codec_auto.h"
#include "daemon/workerlink/pool.h"
#include "daemon/workerlink/worker_link.h"
#include "daemon/workerlink/worker_memory.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "sync/node.h"

enum { TW_CALLS_MAX = 256, TW_DEFERRED_MAX = 2 * TW_FRAGMENTS_MAX };

/* This node's contribution to one round. */
struct tw_encoded {
    uint64_t round;
    uint32_t parts_count; /* number of parts; 1 in pairs, where phi is not counted */
    struct {
        uint32_t bytes;
        uint64_t elements;
        uint64_t rungs[TW_AUTO_RUNGS]; /* with sync.codec = auto: elements encoded with each codec
                                          of the ladder; else 0 */
    } parts[TW_PARTS_MAX];
};

struct tw_worker_host_events {
    /* An event for the core. May be called inside tw_worker_host_act, so the receiver must queue
     * it. */
    void (*event)(void *user, const struct tw_event *event);

    /* The next callbacks are for the status and the supervisor. They are called only from the event
     * loop, and any of them may be NULL. */
    void (*attached)(void *user, pid_t pid, const char *device);
    void (*welcomed)(void *user, pid_t pid);
    void (*ready)(void *user, const struct tw_wmsg_ready *ready);
    void (*stepped)(void *user, const struct tw_wmsg_step *step);
    void (*encoded)(void *user, const struct tw_encoded *encoded);
    void (*evaluated)(void *user, const struct tw_wmsg_evaluated *evaluated);
    /* Prompt and text are NUL-terminated. */
    void (*sampled)(void *user, const struct tw_wmsg_sample *sample);
    /* The worker has answered a request between two steps. This counts as a sign of life, because
     * such a request takes minutes in a large model. */
    void (*worked)(void *user);
    void (*snapshot)(void *user, uint32_t slot, uint64_t step);
    void (*gone)(void *user, const char *sentence);
    void (*refused)(void *user, const char *sentence);
    /* Called once (phi, u) is frozen, if tw_worker_host_freeze returned false. */
    void (*frozen)(void *user);
};

struct tw_worker_host_config {
    uv_loop_t *loop;
    const struct tw_run *run;       /* borrowed */
    const struct tw_layout *layout; /* borrowed */
    const char *socket_path;
    uint32_t worker_uid; /* second user that may run the worker; 0: none */
    const char *data_path;
    struct tw_compute_config compute;
    uint32_t snapshot_steps, eval_steps, sample_bytes;
    bool follows; /* the node follows: the worker takes no steps, and its parameters equal the
                     anchor */
    enum tw_snapshot_mode snapshot_mode;
    uint64_t stop_step, data_seed;
    uint64_t history;          /* `history` of WELCOME */
    uint64_t pool_bytes;       /* size of the payload pool; 0: tw_worker_pool_bytes */
    const char *memory_folder; /* folder of the file used as shared memory; NULL: a memfd */
    struct tw_worker_host_events events;
    void *user;
};

enum tw_host_state {
    TW_HOST_NOBODY,
    TW_HOST_VERIFYING, /* HELLO was received, snapshots are being read */
    TW_HOST_STARTING,  /* WELCOME was sent */
    TW_HOST_READY,
};

enum tw_call_stage { TW_CALL_FREE, TW_CALL_AT_WORKER, TW_CALL_HASHING, TW_CALL_DEFERRED };

/* One request and its state. */
struct tw_call {
    struct tw_worker_host *host;
    enum tw_call_stage stage;
    enum tw_action_kind kind;
    uint64_t session; /* serial number of the worker that got the request */
    uint64_t order;   /* serial number of the request */
    /* Keys by which an answer names its request: one or two of these; the others are 0. For VERIFY,
     * `round` is a tag. */
    uint64_t round;
    uint32_t fragment, part;
    uint32_t ins_count, outs_count;
    uint32_t ins[TW_MEMBERS_MAX]; /* rows of inputs, held until the end */
    uint32_t outs[TW_PARTS_MAX];  /* reserved rows; TW_PAYLOADS_MAX = an empty part */
    uint32_t out_bytes[TW_PARTS_MAX];
    uint64_t out_elements[TW_PARTS_MAX]; /* elements of each part (only of outer gradients) */
    /* hashes of the outputs; for VERIFY, [0] is the hash of the checked payload */
    struct tw_id hashes[TW_PARTS_MAX];
    struct tw_wmsg_check check; /* for VERIFY: request for the trial decode */
    struct tw_event event;      /* event for the core at the end of the call, filled as its values
                                   become known */
    uv_work_t work;
};

struct tw_worker_host {
    struct tw_worker_host_config config;
    struct tw_worker_memory memory;
    struct tw_payloads payloads;
    struct tw_worker_link link;
    enum tw_host_state state;
    uint64_t session;     /* counts workers */
    uint64_t calls_order; /* counts requests */
    bool has_anchor;      /* (phi, u) in the shared memory are valid */
    bool is_frozen, is_freeze_told;
    bool is_closing;
    bool is_held;                /* no WELCOME is sent */
    bool is_theta_held;          /* set by the caller: merges change (phi, u) but not theta */
    bool is_settled;             /* the core has merged the run's last rounds */
    bool is_finished, is_paused; /* modes that every worker gets after READY */
    struct tw_wmsg_clock clock;  /* newest clock; every worker gets it after READY */
    uint64_t step;               /* step in the newest STEP or READY */
    uint64_t batches_to_skip;    /* batches that the next worker must skip */
    bool is_anchor_wanted;       /* the next worker must ignore the snapshots */
    struct tw_worker_state told; /* worker state in the last WORKER_UP, which borrows it */
    char last_words[256];        /* sentence in the attached worker's FATAL */
    uint32_t last_status;        /* enum tw_status of the FATAL */
    bool has_left;               /* the FATAL said that the worker ends in order */
    uv_work_t start_work;        /* verifies snapshots on a thread */
    int start_slot;
    uint64_t start_session;
    bool is_start_running;
    uv_work_t trim_work; /* frees the memory of old snapshots on a thread */
    bool is_trim_running;
    float partner_distance; /* distance to the partner's phi in the newest pair step; 0: none yet */
    struct tw_call calls[TW_CALLS_MAX];
    uint32_t deferred_count;
    struct tw_worker_msg *deferred; /* TW_DEFERRED_MAX messages, owned */
};

/* Creates the shared memory and listens. Allocates the host and its queues; no later call
 * allocates. Returns TW_IO, TW_CONFIG or TW_LIMIT on failure. */
enum tw_status tw_worker_host_create(struct tw_worker_host **host,
                                     const struct tw_worker_host_config *config,
                                     struct tw_error *err);

/* Stops listening and disconnects the worker; no callback follows. Run the event loop until handles
 * and threads are done, then call destroy. */
void tw_worker_host_close(struct tw_worker_host *host);
void tw_worker_host_destroy(struct tw_worker_host *host);

/* Executes one of EXPECT VERIFY DROP ENCODE REDUCE APPLY SOLO PAIR_ENCODE PAIR_APPLY EXPORT LOAD
 * CLOCK FINISH. Without a ready worker, actions that need one are dropped. An action for which
 * there is no space is answered by an event of its kind that reports failure. */
void tw_worker_host_act(struct tw_worker_host *host, const struct tw_action *action);

/* Tells the present and all later workers whether the core has merged the run's last rounds. */
void tw_worker_host_set_settled(struct tw_worker_host *host, bool is_settled);

/* Sends SNAPSHOT, PAUSE, RESUME or EXIT. A PAUSE also applies to later workers; the other messages
 * need a ready worker. */
void tw_worker_host_say(struct tw_worker_host *host, enum tw_worker_msg_kind kind);

/* Frees, on a thread, the memory of snapshots that the next worker does not need. No worker may be
 * attached. A worker that attaches meanwhile gets its WELCOME afterwards. */
void tw_worker_host_trim(struct tw_worker_host *host);

/* While held, HELLO is not answered: there is no training data yet, or the restart is not due.
 * `false` sends WELCOME to a worker that waits. */
void tw_worker_host_set_held(struct tw_worker_host *host, bool is_held);

/* From now on no change of (phi, u) is started. Returns true if none is in progress. Otherwise
 * `frozen` is called when the last one is done. */
bool tw_worker_host_freeze(struct tw_worker_host *host);
void tw_worker_host_thaw(struct tw_worker_host *host);

bool tw_worker_host_is_ready(const struct tw_worker_host *host);

/* ---- worker_host.c: the table of requests -------------------------------------------------- */

/* Returns the number of requests at the worker that change (phi, u). */
uint32_t tw_calls_changes(const struct tw_worker_host *host);

#endif
