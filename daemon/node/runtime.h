/* runtime.h - struct tw_daemon: the loop, the core with its event queue, and the few values that
 * several files of this folder share. A *concern* is one of these files, with its own struct.
 *
 *     transport   worker_host   vote store   timers
 *           \          |            |        /
 *            concerns: links.c workers.c checkpoints.c ...
 *                        |                  ^
 *          tw_daemon_event --> tw_node --> life.c (actions)
 *
 * All decisions about the run are made in sync/. README.md lists the concerns, their levels and the
 * functions that each has.
 *
 * Threads: all functions below run on the loop. */
#ifndef TW_DAEMON_NODE_RUNTIME_H
#define TW_DAEMON_NODE_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "daemon/process/service.h"
#include "daemon/setup/setup.h"
#include "sync/node.h"

/* RUNNING --signal or `leave`--> LEAVING --saved, worker ended--> CLOSING (life.h) */
enum tw_daemon_stage { TW_DAEMON_RUNNING, TW_DAEMON_LEAVING, TW_DAEMON_CLOSING };

struct tw_daemon_peer {
    bool is_up;
    bool is_event;   /* /v1/events has the peer's peer_up, so peer_down is added there too */
    bool has_left;   /* the peer sent LEAVE, so that its goodbye follows */
    bool lacks_vote; /* the peer's certificate gives no vote */
    struct tw_id id;
    uint64_t chunks_asked;   /* chunks that were requested by PULL and have not arrived, even if no
                                longer needed */
    uint64_t gives_none_us;  /* until then it gives no more: it said so in MISSING; 0: never */
    uint64_t gets_none_us;   /* until then it gets no more: a budget has no room; 0: never */
    uint32_t chunks_unasked; /* chunks that arrived without a request */
};

/* Totals that more than one concern reads. Only one concern writes each of them. */
struct tw_daemon_counts {
    uint64_t step, tokens;        /* training progress, counted on from the loaded checkpoint */
    uint64_t steps_made;          /* successful steps since the daemon's start */
    uint64_t step_us, sync_us;    /* time in inner steps; time in merges between steps */
    uint64_t payload_in_bytes;    /* payload chunks received, in bytes */
    uint64_t payload_out_bytes;   /* payload chunks sent */
    uint64_t payload_again_bytes; /* payload chunks received a second time */
    uint64_t stale_addresses;     /* addresses that were dropped, as other nodes have them now */
    uint64_t states_taken;        /* states of fragments fetched from other nodes */
    uint64_t data_in_bytes;       /* dataset chunks received, including refused ones */
    uint64_t asked_in_bytes;      /* requested chunks received, charged when requested */
    uint64_t data_taken_bytes;    /* dataset chunks received and written */
};

/* Local measurements that the core uses (TW_EV_MEASURED). */
struct tw_daemon_measured {
    uint32_t upload_kib_s; /* links.c */
    /* bit set of peers whose links are far worse than all others; links.c */
    uint64_t outliers;
    bool is_short; /* pairs: the budget has no room for a contribution; budget.c */
    bool is_relay; /* this node relays for other nodes */
};

struct tw_daemon {
    uv_loop_t loop;
    struct tw_setup *setup; /* borrowed */
    enum tw_daemon_stage stage;
    enum tw_exit exit_code;
    uint64_t started_us, started_unix_us;
    struct tw_loop_lag lag;
    struct tw_event_ring *event_ring;   /* owned; rows of /v1/events */
    struct tw_history *history;         /* owned; workers.c adds losses, reports.c adds rounds */
    struct tw_api *api;                 /* owned by life.c */
    struct tw_run_log *run_log;         /* owned by life.c */
    struct tw_ledger_file *ledger;      /* owned by life.c; reports.c adds rounds */
    struct tw_alerts *alerts;           /* owned by life.c */
    struct tw_evaluations *evaluations; /* owned by life.c */

    /* the core */
    struct tw_node *node;         /* owned */
    struct tw_recorder *recorder; /* flight recorder of the core's events (life.c); NULL if off */
    bool has_recorder_failed;     /* a failure of the recorder was logged */
    struct tw_rate *download;     /* download cap from which the core's requests are charged;
                                     borrowed */
    struct tw_node_view view;     /* scratch: filled by tw_node_view before each use */
    struct tw_id lineage;         /* lineage of the last report, or of the loaded checkpoint */
    struct tw_daemon_measured measured;
    void (*act)(struct tw_daemon *daemon, struct tw_action *action); /* life.c */
    uv_timer_t core_timer;
    bool is_pumping;
    uint32_t events_first, events_count;
    struct tw_event *events; /* ring, owned */

    /* leaving */
    uv_async_t leave_wake; /* calls life.c on the next iteration of the loop */
    bool is_leave_wanted;
    enum tw_exit leave_code;
    bool has_leave_request; /* an API client waits for the last checkpoint */
    uint32_t leave_request; /* number of that client's request */
    _Atomic uint64_t moved; /* progress of leaving, by any thread: bytes hashed, copied, read or
                               written, plus syncs */

    /* objects that one concern opens and others use */
    struct tw_transport *transport; /* links.c; NULL with links = off */
    struct tw_members *members;     /* links.c; owned */
    struct tw_known_peers *known;   /* links.c; owned */
    struct tw_worker_host *host;    /* workers.c */
    struct tw_daemon_peer peers[TW_PEERS_MAX];
    struct tw_daemon_counts counts;
    enum tw_node_wait waits; /* data.c: told to other nodes in STATUS */
    bool is_data_awaited;    /* data.c: no training shard is complete yet, so no worker runs */
    bool is_resting; /* workers.c: training is paused, and the worker's memory is given back */
    uint8_t *body;   /* buffer for the control message being encoded, owned */

    /* concerns, owned; only the concern's own file knows its struct */
    struct tw_daemon_admission *admission;
    struct tw_daemon_archive *archive; /* NULL: off */
    struct tw_daemon_budget *budget;
    struct tw_daemon_caps *caps;
    struct tw_daemon_checkpoints *checkpoints;
    struct tw_daemon_data *data;
    struct tw_daemon_health *health;
    struct tw_daemon_invites *invites;
    struct tw_daemon_life *life;
    struct tw_daemon_link_qualities *link_qualities;
    struct tw_daemon_links *links;
    struct tw_daemon_ports *ports;
    struct tw_daemon_probes *probes;
    struct tw_daemon_punches *punches;
    struct tw_daemon_reached *reached;
    struct tw_daemon_refusals *refusals;
    struct tw_daemon_relays *relays;
    struct tw_daemon_reports *reports;
    struct tw_daemon_samples *samples;
    struct tw_daemon_votes *votes;
    struct tw_daemon_workers *workers;
};

/* Creates the loop, the event queue and the ring of events. Free with tw_daemon_destroy. */
enum tw_status tw_daemon_create(struct tw_daemon **daemon, struct tw_setup *setup,
                                struct tw_error *err);
/* Closes the runtime's own handles, in the stage CLOSING. */
void tw_daemon_close(struct tw_daemon *daemon);
/* Frees the daemon. The loop must have ended, and every concern must be freed. */
void tw_daemon_destroy(struct tw_daemon *daemon);

/* Returns zeroed memory for the struct of a concern, or NULL with TW_NOMEM in `err`. The caller
 * frees it. */
void *tw_daemon_alloc(size_t bytes, struct tw_error *err);

uint64_t tw_daemon_now_us(void);
/* Returns the wall clock: microseconds since 1970. */
uint64_t tw_daemon_unix_us(void);

/* Writes one line to the log and one row to /v1/events. */
void tw_daemon_note(struct tw_daemon *daemon, enum tw_log_level level, const char *name,
                    const char *fmt, ...) TW_PRINTF(4, 5);

/* Gives an event to the core and performs the actions that follow. May be called from anywhere on
 * the loop. During an action the event is queued. If the queue is full, the worker's link is
 * closed. */
void tw_daemon_event(struct tw_daemon *daemon, const struct tw_event *event);

/* Reports `measured` to the core. */
void tw_daemon_event_measured(struct tw_daemon *daemon);

/* Arms the timer for the core's next deadline. tw_daemon_event also calls it. */
void tw_daemon_arm(struct tw_daemon *daemon);

/* Sends a control message to a linked peer, and counts the chunks that a PULL requests. Does
 * nothing with links = off. */
void tw_daemon_send(struct tw_daemon *daemon, uint16_t peer, const struct tw_message *message);

/* In a run of pairs, which has no roster: returns true if work of this node was merged here. */
bool tw_daemon_is_partner(const struct tw_daemon *daemon, const struct tw_id *id);

/* Begins to leave on the next iteration of the loop. The process will exit with `code`. Later calls
 * change nothing. */
void tw_daemon_leave(struct tw_daemon *daemon, enum tw_exit code);

/* Call this when work that leaving waits for has ended. On the next iteration of the loop, life.c
 * checks whether more is left. */
void tw_daemon_leave_step(struct tw_daemon *daemon);

#endif
