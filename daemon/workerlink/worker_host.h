/* worker_host.h - the daemon's side of the worker link. Actions of the core become messages to the
 * worker, and answers of the worker become events for the core. Payloads lie in shared memory.
 *
 *   nobody --HELLO--> verifying snapshots --WELCOME--> starting --READY--> ready --close--> nobody
 *
 * Invariants:
 *   1. Every request is one row of `calls` from its action to its event. Until then the row holds
 *      the payloads that it reads and owns the room for its outputs. An answer that has no row, or
 *      that exceeds the limits of its row, closes the worker.
 *   2. The core gets WORKER_UP once per READY, and WORKER_DOWN once per end after that. Requests
 *      that are open when the worker ends are dropped without an event. The core asks again after
 *      the next WORKER_UP.
 *   3. The daemon computes the SHA-256 of all bytes that the worker wrote, on a thread if there are
 *      many.
 *   4. A value from the page or from a packet is compared with the daemon's own limits before it is
 *      used as an index or size.
 *   5. While frozen, requests that change (phi, u) are kept, in order, until the thaw. A checkpoint
 *      thus copies a state that belongs to the core's position. */
#ifndef TW_DAEMON_WORKERLINK_WORKER_HOST_H
#define TW_DAEMON_WORKERLINK_WORKER_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "compress/codec_auto.h"
#include "daemon/workerlink/payloads.h"
#include "daemon/workerlink/worker_link.h"
#include "daemon/workerlink/worker_memory.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "sync/node.h"

enum { TW_CALLS_MAX = 256, TW_DEFERRED_MAX = 2 * TW_FRAGMENTS_MAX };

/* Contribution of this node to one round. */
struct tw_encoded {
    uint64_t round;
    uint32_t parts_count; /* number of parts; in pairs 1, because phi does not count */
    struct {
        uint32_t bytes;
        uint64_t elements;
        uint64_t
            rungs[TW_AUTO_RUNGS]; /* sync.codec = auto: elements per codec of its ladder; else 0 */
    } parts[TW_PARTS_MAX];
};

struct tw_worker_host_events {
    /* An event for the core. May be called inside tw_worker_host_act, so the receiver must queue
     * it. */
    void (*event)(void *user, const struct tw_event *event);

    /* The next callbacks are for people and the supervisor. They are called only from the event
     * loop, and any may be NULL. */
    void (*attached)(void *user, pid_t pid, const char *device);
    void (*welcomed)(void *user, pid_t pid);
    void (*ready)(void *user, const struct tw_wmsg_ready *ready);
    void (*stepped)(void *user, const struct tw_wmsg_step *step);
    void (*encoded)(void *user, const struct tw_encoded *encoded);
    void (*evaluated)(void *user, const struct tw_wmsg_evaluated *evaluated);
    /* Prompt and text end in a zero. */
    void (*sampled)(void *user, const struct tw_wmsg_sample *sample);
    /* A request was answered between two steps. The state of a large model takes minutes. */
    void (*worked)(void *user);
    void (*snapshot)(void *user, uint32_t slot, uint64_t step);
    void (*gone)(void *user, const char *sentence);
    void (*refused)(void *user, const char *sentence);
    /* (phi, u) is frozen now; follows a tw_worker_host_freeze that returned false. */
    void (*frozen)(void *user);
};

struct tw_worker_host_config {
    uv_loop_t *loop;
    const struct tw_run *run;       /* borrowed */
    const struct tw_layout *layout; /* borrowed */
    const char *socket_path;
    uint32_t worker_uid; /* user that may run the worker too; 0: no other user */
    const char *data_path;
    struct tw_compute_config compute;
    uint32_t snapshot_steps, eval_steps, sample_bytes;
    bool follows; /* the worker takes no steps, and its parameters are the anchor */
    enum tw_snapshot_mode snapshot_mode;
    uint64_t stop_step, data_seed;
    uint64_t pool_bytes;       /* 0 = tw_worker_pool_bytes */
    const char *memory_folder; /* folder of the file that is the shared memory; NULL: no file */
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
    uint64_t session; /* serial number of the worker to which it was given */
    uint64_t order;   /* serial number of the request */
    /* Keys by which the answer names the request: one or two of these; the others are 0. For
     * VERIFY, `round` is a tag. */
    uint64_t round;
    uint32_t fragment, part;
    uint32_t ins_count, outs_count;
    uint32_t ins[TW_MEMBERS_MAX]; /* rows on hold */
    uint32_t outs[TW_PARTS_MAX];  /* rows reserved; TW_PAYLOADS_MAX = an empty part */
    uint32_t out_bytes[TW_PARTS_MAX];
    uint64_t out_elements[TW_PARTS_MAX]; /* elements of each part (outer gradients only) */
    /* hashes of the outputs; VERIFY: [0] is that of the payload checked */
    struct tw_id hashes[TW_PARTS_MAX];
    struct tw_wmsg_check check; /* VERIFY: the trial decode to ask for */
    struct tw_event event;      /* sent at the end; filled as its members become known */
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
    bool has_anchor;      /* (phi, u) in the memory are valid */
    bool is_frozen, is_freeze_told;
    bool is_closing;
    bool is_held;                /* no WELCOME is sent */
    bool is_theta_held;          /* set by the caller: merges change (phi, u) but not theta */
    bool is_settled;             /* the core has merged the last rounds of the run */
    bool is_finished, is_paused; /* modes, which are sent to every worker after READY */
    struct tw_wmsg_clock clock;  /* the newest clock; sent after READY too */
    uint64_t step;               /* step in the newest STEP or READY */
    uint64_t batches_to_skip;    /* batches that the next worker must skip */
    bool is_anchor_wanted;       /* the next worker must start without the snapshots */
    struct tw_worker_state told; /* of the last WORKER_UP, which borrows it */
    char last_words[256];        /* sentence in the FATAL of the attached worker */
    uint32_t last_status;        /* enum tw_status of the FATAL */
    uv_work_t start_work;        /* snapshots are verified on a thread */
    int start_slot;
    uint64_t start_session;
    bool is_start_running;
    uv_work_t trim_work; /* snapshots are given back on a thread */
    bool is_trim_running;
    float partner_distance; /* distance in the newest pair step; 0: none yet */
    struct tw_call calls[TW_CALLS_MAX];
    uint32_t deferred_count;
    struct tw_worker_msg *deferred; /* TW_DEFERRED_MAX of them, owned */
};

/* Creates the shared memory and listens. TW_IO, TW_CONFIG, TW_LIMIT. Allocates the host and its
 * queues; no later call allocates. */
enum tw_status tw_worker_host_create(struct tw_worker_host **host,
                                     const struct tw_worker_host_config *config,
                                     struct tw_error *err);

/* Stops listening and closes the worker; no callback follows. Run the event loop until handles and
 * threads are done, then call destroy. */
void tw_worker_host_close(struct tw_worker_host *host);
void tw_worker_host_destroy(struct tw_worker_host *host);

/* Carries out one of EXPECT VERIFY DROP ENCODE REDUCE APPLY SOLO PAIR_ENCODE PAIR_APPLY EXPORT LOAD
 * CLOCK FINISH. Without a ready worker, actions that need a worker are dropped. An action for which
 * there is no room is answered by a failed event of its kind. */
void tw_worker_host_act(struct tw_worker_host *host, const struct tw_action *action);

/* Tells the worker, and later ones, that the core has merged the last rounds of the run, or that it
 * has not after all. */
void tw_worker_host_set_settled(struct tw_worker_host *host, bool is_settled);

/* Sends SNAPSHOT, PAUSE, RESUME or EXIT. A PAUSE also holds for later workers; the other messages
 * need a ready worker. */
void tw_worker_host_say(struct tw_worker_host *host, enum tw_worker_msg_kind kind);

/* Without a worker: gives back the memory that the next one does not need, on a thread. A worker
 * that comes meanwhile is welcomed afterwards. */
void tw_worker_host_trim(struct tw_worker_host *host);

/* While held, HELLO is not answered: there is no training data yet, or the restart is not due.
 * Setting it to false welcomes a worker that waits. */
void tw_worker_host_set_held(struct tw_worker_host *host, bool is_held);

/* From now on no change of (phi, u) is started. True: the worker has none to do. False: `frozen`
 * will be called when the last one is done. */
bool tw_worker_host_freeze(struct tw_worker_host *host);
void tw_worker_host_thaw(struct tw_worker_host *host);

bool tw_worker_host_is_ready(const struct tw_worker_host *host);

/* ---- worker_calls.c: the table of requests -------------------------------------------------- */

/* Begins a request to the ready worker, or a VERIFY. */
void tw_calls_act(struct tw_worker_host *host, const struct tw_action *action);

/* Takes an answer. False if it has no request or exceeds the request's limits: close the worker
 * then. */
bool tw_calls_answer(struct tw_worker_host *host, const struct tw_worker_msg *msg);

/* The worker has ended: drops its requests. */
void tw_calls_forget(struct tw_worker_host *host);

/* Number of requests at the worker that change (phi, u). */
uint32_t tw_calls_changes(const struct tw_worker_host *host);
void tw_calls_thaw(struct tw_worker_host *host);

#endif
