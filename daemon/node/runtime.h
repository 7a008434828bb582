/* runtime.h - the daemon around the core: one libuv loop that turns what happens into events and
 * actions into what is done. It decides nothing about the run; everything it keeps is for doing, or
 * for showing.
 *
 *            transport   worker_host   vote store   timers
 *                 \           |            |         /
 *                  tw_daemon_event --> tw_node --> actions --> runtime.c
 *
 * Life:  open --> running --SIGTERM, SIGINT or `leave`--> leaving --> closing --> the loop is empty
 *   leaving: the core says goodbye, a snapshot and a checkpoint are made, the worker ends;
 *     It ends late when nothing of them has moved, in memory or to the disk, for TW_LEAVE_US;
 *   closing: links, API and worker socket close, in TW_CLOSE_US at most.
 *   A second signal ends the process at once.
 *
 * runtime.c        events, core, time, life        votes.c  votes, member cache
 * links.c    links, frames, dialling         checkpoints.c   checkpoints
 * workers.c worker and supervisor           status.c   what people see
 * data.c   the dataset: fetched, served    budget.c what contributions may take
 * invites.c tickets, guests, run secret     admission.c   certificates, revocations
 * caps.c   what the line may be used for   reload.c the configuration read again */
#ifndef TW_DAEMON_NODE_RUNTIME_H
#define TW_DAEMON_NODE_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "daemon/api/api.h"
#include "daemon/api/status_view.h"
#include "daemon/auth/tickets.h"
#include "daemon/config/allowance.h"
#include "daemon/config/hours.h"
#include "daemon/config/quota.h"
#include "daemon/dataset/data_serve.h"
#include "daemon/dataset/data_store.h"
#include "daemon/net/dial_history.h"
#include "daemon/net/link_quality.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport.h"
#include "daemon/node/loop_lag.h"
#include "daemon/node/setup.h"
#include "daemon/store/checkpoint.h"
#include "daemon/store/vote_store.h"
#include "daemon/workerlink/supervisor.h"
#include "daemon/workerlink/worker_host.h"
#include "sync/fetch.h"
#include "sync/members.h"
#include "sync/node.h"

enum {
    TW_EVENT_QUEUE = 256,     /* events born inside actions; full = the worker is closed */
    TW_SAVE_TICKETS_MAX = 16, /* API verbs that wait for one checkpoint */
    TW_MINUTE_SAMPLES = 61,   /* one a second */
    TW_OPENINGS_MAX = 16,     /* rounds whose start is remembered, for `took` */
    TW_CHORES_US = 250 * 1000,
    TW_GOSSIP_US = 10 * 1000 * 1000,
    TW_REFRESH_US = 2 * 1000 * 1000,
    TW_CACHE_US = 60 * 1000 * 1000,
    TW_LEAVE_US = 30 * 1000 * 1000, /* in which nothing moves */
    TW_CLOSE_US = 5 * 1000 * 1000,
    TW_EXTEND_US = 2 * TW_LEAVE_US, /* what the service manager is asked for */
    TW_SNAPSHOT_WAIT_US = 10 * 1000 * 1000,
};

struct tw_daemon_peer {
    bool is_up;
    struct tw_id id;
    struct tw_traffic control, bulk;         /* as last asked */
    char addrs[TW_ADDRS_MAX][TW_ADDR_BYTES]; /* of its HELLO; empty after the last */
    uint64_t probed_us;                      /* when it last had us dial it back; 0: never */
};

/* An address that is dialled because its node asked for it. */
struct tw_probe_job {
    bool is_used;
    struct tw_id id;
    uint64_t token;
    char address[TW_ADDR_BYTES];
};

enum { TW_PROBE_JOBS_MAX = 8 };

struct tw_daemon_link_quality {
    struct tw_link_quality quality;
    uint64_t judge_us;
    uint32_t upload_kib_s; /* as last told to the core */
    uint64_t odd;
    bool is_changed; /* who is linked */
};

struct tw_daemon_probes {
    struct tw_reachability reach;
    enum tw_reachability_state told; /* as last logged */
    struct tw_probe_job jobs[TW_PROBE_JOBS_MAX];
};

_Static_assert((int)TW_DIAL_HISTORY_CONFIGURED == (int)TW_BOOTSTRAP_MAX &&
                   (int)TW_VIEW_BOOTSTRAP_MAX == (int)TW_BOOTSTRAP_MAX,
               "every configured address is shown");

/* What was said about one host and one reason, so that it is not said again and again. */
struct tw_daemon_refusal_line {
    char host[TW_ADDR_BYTES];
    uint64_t reason; /* hash of the words of its sentence */
    struct tw_log_limit limit;
};

enum { TW_REFUSAL_LINES = 32 };

struct tw_minute_sample {
    uint64_t at_us, tokens, clock_tokens, step_us, sync_us, bytes_in, bytes_out, data_in;
};

/* A vote on its way to the disk. One is written, one waits; a newer one replaces the waiting one,
 * for STORED answers every older number too. */
struct tw_vote_job {
    bool is_used;
    uint64_t seq;
    struct tw_vote vote;
};

enum tw_save_stage {
    TW_SAVE_IDLE,
    TW_SAVE_SNAPSHOT, /* the worker was asked for a snapshot */
    TW_SAVE_FREEZE,   /* waiting until no change of (phi, u) is under way */
    TW_SAVE_COPY,     /* thread: memory to memory */
    TW_SAVE_WRITE,    /* thread: memory to disk */
};

struct tw_save {
    enum tw_save_stage stage;
    bool is_wanted_again; /* asked for while one was under way */
    uint64_t due_us;      /* of the next periodic one */
    uint64_t wait_until_us;
    uint32_t tickets_count;
    uint32_t tickets[TW_SAVE_TICKETS_MAX]; /* answered by the one under way */
    uint32_t next_tickets_count;
    uint32_t next_tickets[TW_SAVE_TICKETS_MAX];
    bool has_live;
    uint8_t *copy; /* phi, u, snapshot slot; exists from COPY to the end of WRITE */
    struct tw_snapshot_slot slot;
    struct tw_checkpoint_state state;
    enum tw_status status;
    struct tw_error err;
    uv_work_t work;
    struct tw_file_ops disk; /* counts what moves */
    _Atomic uint64_t moved;  /* bytes hashed, copied, read, written, and syncs, ever; any thread */
    uint64_t told_us;        /* how far loading is */
    /* the newest good one */
    uint64_t step, at_us, bytes;
    bool has_step;
    char error[TW_VIEW_TEXT_BYTES];
};

/* What the worker said, for people. */
struct tw_daemon_train {
    uint64_t step, tokens, started_us;
    float loss_mean, lr, grad_norm;
    bool has_loss;
    struct tw_wmsg_evaluated evaluated;
    bool has_evaluated, has_ready, is_stepping;
    uint64_t steps_skipped, step_us, sync_us;
    uint64_t snapshot_step;
    struct tw_loss_history losses;
    char device[64];
    struct tw_wmsg_about about; /* of the learner that was ready last */
    char error[TW_VIEW_TEXT_BYTES];
    bool is_device_fault; /* error is of the compute device */
    pid_t pid;
};

/* The run's dataset; without one (data.form = file) everything is zero. */
struct tw_daemon_data {
    struct tw_data_store *store; /* owned; NULL: no dataset */
    struct tw_data_serve serve;
    struct tw_fetch *fetch;            /* owned; NULL: the folder is the user's */
    void *fetch_memory;                /* owned */
    uv_timer_t timer;                  /* deadline of the fetcher */
    bool is_waiting;                   /* no whole training shard yet: no worker either */
    bool is_unusable;                  /* the index is no good, for ever */
    uint32_t train_whole, files_whole; /* training shards; files, the index included */
    uint64_t look_due_us;              /* for files that a user copies there */
    uint32_t look_next;
    uint64_t chunk_bytes_in; /* whatever came of them */
    uint64_t bytes_in, chunks_found, chunks_refused, strikes;
    char trouble[TW_VIEW_TEXT_BYTES]; /* what the disk has against it; "" */
};

enum tw_daemon_rest { TW_REST_NONE, TW_REST_HOURS, TW_REST_QUOTA };

/* How much of the line is ours, and what passed it. */
struct tw_daemon_caps {
    struct tw_rate download; /* shared with the core and the fetcher */
    bool has_upload_limit, has_download_limit;
    uint64_t upload_limit, download_limit; /* of `thinwire limit` */
    uint64_t upload_now, download_now;     /* in force; 0: no cap */
    struct tw_hours_now now;
    enum tw_daemon_rest rest; /* why the links rest */
    struct tw_quota quota, saving;
    uint64_t seen_bytes, seen_rest; /* of the transport's, when it was looked at last */
    uint64_t look_due_us, save_due_us;
    int dir; /* STATE_DIR */
    bool is_saving, is_save_failed;
    uv_work_t work;
    enum tw_status save_status;
    struct tw_error save_err;
};

/* What this node may spend on contributions, and did. */
struct tw_daemon_budget {
    struct tw_allowance allowance;
    uint64_t own_parts,
        granted_round;       /* + 1: the round that was granted; the parts that stay here */
    uint64_t left_out_round; /* + 1 */
    uint64_t rounds_left_out;
    bool is_short;          /* in pairs: no room for a contribution now, as the core was told */
    double bytes, elements; /* contributed to other nodes lately: sums that fade */
    double rungs[TW_AUTO_RUNGS];
};

/* A run with an owner: what is looked at now and then. */
struct tw_daemon_admission {
    uint64_t due_us, ask_due_us;
    uint16_t ask_next; /* peer asked for a renewal last, + 1 */
    uint16_t asked;    /* its answer is waited for, + 1; 0: nobody's */
    struct tw_daemon_stamp {
        uint64_t node, size, at_ns;
    } cert, list;                 /* of the files, as read */
    bool is_late;                 /* the certificate's end is near, and that was said */
    bool wants_list, wants_certs; /* to be written, once what is being written is */
    struct tw_certs known;        /* the certificate the file holds, as far as this node knows */
    struct tw_daemon_admission_save { /* on a thread, while is_saving */
        bool is_saving, has_list, has_certs;
        struct tw_revoked list;
        struct tw_certs old, certs;
        enum tw_status list_status, certs_status;
        struct tw_error list_err, certs_err;
        uv_work_t work;
    } save;
};

enum tw_daemon_stage { TW_DAEMON_RUNNING, TW_DAEMON_LEAVING, TW_DAEMON_CLOSING };

struct tw_daemon {
    uv_loop_t loop;
    struct tw_setup *setup; /* borrowed */
    enum tw_daemon_stage stage;
    enum tw_exit exit_code;
    uint64_t started_us;

    struct tw_node *node; /* owned */
    bool is_pumping;
    uint32_t events_first, events_count;
    struct tw_event *events;  /* TW_EVENT_QUEUE of them, owned */
    uint8_t *body;            /* TW_CONTROL_BYTES_MAX, owned */
    struct tw_node_view view; /* taken when needed */

    uv_timer_t core_timer, chores_timer, leave_timer;
    uv_signal_t sigterm, sigint, sighup;
    bool has_terminal; /* standard input was one at the start */
    struct tw_loop_lag lag;
    struct tw_api *api;

    /* network */
    struct tw_transport *transport; /* NULL with links = off */
    struct tw_members *members;     /* owned */
    struct tw_daemon_peer peers[TW_PEERS_MAX];
    uint32_t sends[TW_PAYLOADS_MAX]; /* chunks of a pool row queued at the transport */
    uint64_t gossip_due_us, cache_due_us;
    uint64_t refresh_due_us;     /* of the own addresses */
    struct tw_traffic bulk_gone; /* of peers that went */
    uint64_t links_refused, chunk_bytes_in, chunk_bytes_out, chunk_bytes_again;
    struct tw_dial_history dials;
    struct tw_log_limit refusal_limit; /* of all lines about refusals */
    struct tw_daemon_refusal_line refusal_lines[TW_REFUSAL_LINES];

    struct tw_daemon_admission gate;
    struct tw_daemon_probes probe;
    struct tw_daemon_invites *invite; /* owned; NULL: not opened */
    struct tw_daemon_link_quality quality;
    struct tw_daemon_data data;
    struct tw_daemon_budget budget;
    struct tw_daemon_caps caps;

    /* worker */
    struct tw_worker_host *host;
    struct tw_supervisor supervisor;
    struct tw_log_limit turned_away_limit; /* of lines about processes that may not be it */
    bool is_paused;
    struct tw_daemon_train train;

    /* disk */
    struct tw_vote_store votes;
    bool has_votes, is_vote_lost;
    struct tw_vote_job vote_saving, vote_waiting;
    uv_work_t vote_work;
    uv_timer_t vote_timer; /* after a failed save */
    enum tw_status vote_status;
    struct tw_error vote_err;
    char vote_error[TW_VIEW_TEXT_BYTES]; /* why the newest vote is not on disk; "" */
    struct tw_checkpoint *checkpoint;
    struct tw_save save;
    bool has_position;
    struct tw_position position; /* loaded, until the core has it */
    bool has_vote;
    struct tw_vote vote;
    char *cache_text; /* TW_MEMBERS_TEXT_MAX, owned */

    /* for people */
    struct tw_event_ring event_ring;
    struct tw_round_ring round_ring;
    struct {
        uint64_t round, at_us, bytes;
    } openings[TW_OPENINGS_MAX];
    struct tw_id lineage; /* as last reported */
    uint64_t rounds_contributed, lineage_changes, last_round_us, round_period_us;
    struct tw_id partner; /* merged with last, in a run in pairs; zero: nobody yet */
    uint64_t partners_struck;
    uint64_t partner_us;
    uint32_t minute_next, minute_count;
    uint32_t minute_clocks;      /* of these, the newest on one and the same run clock */
    struct tw_id minute_lineage; /* whose clock that is */
    struct tw_minute_sample minute[TW_MINUTE_SAMPLES];
    uint64_t minute_due_us, watchdog_us, watchdog_due_us;
    bool has_leave_ticket; /* somebody waits for what becomes of the last checkpoint */
    uint32_t leave_ticket;
    uint64_t leave_moved; /* save.moved when it was looked at last */
    bool is_worker_gone;
};

/* ---- runtime.c ------------------------------------------------------------------------------- */

/* Runs the daemon until it has left; returns what to exit with. Says on stderr why it could not
 * start. */
enum tw_exit tw_daemon_run(struct tw_setup *setup);

uint64_t tw_daemon_now_us(void);

/* Gives an event to the core and does what it asks for. From anywhere on the loop; inside an
 * action the event waits its turn. */
void tw_daemon_event(struct tw_daemon *daemon, const struct tw_event *event);

/* One line in the log and one row of /v1/events. */
void tw_daemon_note(struct tw_daemon *daemon, enum tw_log_level level, const char *name,
                    const char *fmt, ...) TW_PRINTF(4, 5);

/* Begins to leave; again: nothing. `code` is what the process ends with. */
void tw_daemon_leave(struct tw_daemon *daemon, enum tw_exit code);

/* Something leaving waits for was done. */
void tw_daemon_leave_step(struct tw_daemon *daemon);

/* ---- links.c --------------------------------------------------------------------------- */
enum tw_status tw_daemon_links_open(struct tw_daemon *daemon, struct tw_error *err);
/* Knows the configured peers, of the file too; those known already stay as they are. */
enum tw_status tw_daemon_links_bootstrap(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_links_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_links_send(struct tw_daemon *daemon, uint16_t peer,
                          const struct tw_message *message);
void tw_daemon_links_chunk(struct tw_daemon *daemon, const struct tw_action *action);
void tw_daemon_links_drop(struct tw_daemon *daemon, const struct tw_id *payload);
void tw_daemon_links_close(struct tw_daemon *daemon);

/* ---- invites.c: tickets, and guests that come with them; the run secret file ------------ */
enum tw_status tw_daemon_invites_open(struct tw_daemon *daemon, struct tw_error *err);
/* TW_API_INVITE, _LIST and _REVOKE. */
void tw_daemon_invites_verb(struct tw_daemon *daemon, enum tw_api_verb verb, uint32_t ticket);
void tw_daemon_invites_guest(struct tw_daemon *daemon, const struct tw_guest *guest);
void tw_daemon_invites_tick(struct tw_daemon *daemon, uint64_t now_us);
/* A save under way? Leaving waits for it. */
bool tw_daemon_invites_is_saving(const struct tw_daemon *daemon);
void tw_daemon_invites_free(struct tw_daemon *daemon);

/* ---- admission.c: certificates and revocations, in runs with an owner ----------------------- */
void tw_daemon_admission_open(struct tw_daemon *daemon);
void tw_daemon_admission_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_admission_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* True: it was one of these. */
bool tw_daemon_admission_frame(struct tw_daemon *daemon, uint16_t peer,
                               const struct tw_frame *frame);
/* Is it of no use to dial this node, since the owner revoked it? */
bool tw_daemon_admission_is_out(const struct tw_daemon *daemon, const struct tw_id *node);
void tw_daemon_admission_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_admission_fill(const struct tw_daemon *daemon, struct tw_status_view *view);

/* ---- link_qualities.c: what peers are like ------------------------------------------------------
 */
void tw_daemon_link_quality_peer_up(struct tw_daemon *daemon, uint16_t peer);
void tw_daemon_link_quality_peer_down(struct tw_daemon *daemon, uint16_t peer,
                                      enum tw_status reason);
/* Bytes of a payload came, and the core knows of them. */
void tw_daemon_link_quality_arrived(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes);
void tw_daemon_link_quality_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Tells the core what was measured. */
void tw_daemon_link_quality_tell(struct tw_daemon *daemon);
void tw_daemon_link_quality_fill(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                 struct tw_view_peer *row);

/* ---- probes.c: can this node be dialled? ------------------------------------------------ */
void tw_daemon_probes_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_probes_message(struct tw_daemon *daemon, uint16_t peer,
                              const struct tw_message *message);
void tw_daemon_probes_done(struct tw_daemon *daemon, const char *address,
                           const struct tw_id *expected, const struct tw_dial_result *result);
void tw_daemon_probes_fill(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view);

/* ---- refusals.c: callbacks of the transport --------------------------------------------- */
void tw_daemon_banned(void *user, const struct tw_id *id, uint32_t seconds, const char *sentence);
void tw_daemon_refused(void *user, const char *address, enum tw_status reason,
                       const char *sentence);

/* ---- workers.c ------------------------------------------------------------------------ */
enum tw_status tw_daemon_worker_open(struct tw_daemon *daemon, struct tw_error *err);
/* Nothing while the dataset is waited for: data.c calls again. */
enum tw_status tw_daemon_worker_start(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_worker_pause(struct tw_daemon *daemon, bool is_paused);
enum tw_view_worker tw_daemon_worker_state(const struct tw_daemon *daemon);

/* ---- votes.c: votes, member cache, bans, what peers are like --------------------------- */
enum tw_status tw_daemon_votes_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_vote_store(struct tw_daemon *daemon, const struct tw_action *action);
void tw_daemon_cache_load(struct tw_daemon *daemon);
void tw_daemon_cache_save(struct tw_daemon *daemon);
void tw_daemon_bans_load(struct tw_daemon *daemon);
void tw_daemon_bans_save(struct tw_daemon *daemon);
void tw_daemon_bans_clock(struct tw_daemon *daemon);
/* `thinwire unban`: of the node whose id begins with `hex`. The sentence is in *answer either way.
 */
enum tw_status tw_daemon_bans_lift(struct tw_daemon *daemon, const char *hex,
                                   struct tw_error *answer);
void tw_daemon_bans_fill(struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_link_quality_load(struct tw_daemon *daemon);
void tw_daemon_link_quality_save(struct tw_daemon *daemon);

/* ---- checkpoints.c: checkpoints ------------------------------------------------------------- */
enum tw_exit tw_daemon_load(struct tw_daemon *daemon, struct tw_error *err);
/* Starts a checkpoint or joins the next one; `ticket` (or NULL) is answered. */
void tw_daemon_save(struct tw_daemon *daemon, const uint32_t *ticket);
void tw_daemon_save_snapshot_done(struct tw_daemon *daemon);
void tw_daemon_save_frozen(struct tw_daemon *daemon);
void tw_daemon_save_tick(struct tw_daemon *daemon, uint64_t now_us);

/* ---- data.c: the dataset ------------------------------------------------------------- */
enum tw_status tw_daemon_data_open(struct tw_daemon *daemon, struct tw_error *err);
void tw_daemon_data_peer_up(struct tw_daemon *daemon, uint16_t peer, const struct tw_id *id);
void tw_daemon_data_peer_down(struct tw_daemon *daemon, uint16_t peer);
/* True: not the core's. */
bool tw_daemon_data_message(struct tw_daemon *daemon, uint16_t peer,
                            const struct tw_message *message);
bool tw_daemon_data_chunk(struct tw_daemon *daemon, const struct tw_fetch_arrival *chunk,
                          const uint8_t *bytes);
bool tw_daemon_data_released(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                             bool was_sent);
void tw_daemon_data_tick(struct tw_daemon *daemon, uint64_t now_us);
/* `bytes_per_s`: arriving, NaN when not known. */
void tw_daemon_data_fill(const struct tw_daemon *daemon, uint64_t now_us, double bytes_per_s,
                         struct tw_status_view *view);
void tw_daemon_data_close(struct tw_daemon *daemon);
void tw_daemon_data_free(struct tw_daemon *daemon);

/* ---- budget.c ------------------------------------------------------------------------ */
void tw_daemon_budget_open(struct tw_daemon *daemon);
/* Sets bytes_max of an ENCODE or PAIR_ENCODE. False: the budget has no room for this contribution,
 * and the core was told that there is none. */
bool tw_daemon_budget_grant(struct tw_daemon *daemon, struct tw_action *action);
void tw_daemon_budget_encoded(struct tw_daemon *daemon, const struct tw_encoded *encoded);
void tw_daemon_budget_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_budget_fill(const struct tw_daemon *daemon, struct tw_status_view *view);

/* ---- caps.c -------------------------------------------------------------------------- */
enum tw_status tw_daemon_caps_open(struct tw_daemon *daemon, struct tw_error *err);
/* The configuration, a limit or the time of day changed. */
void tw_daemon_caps_apply(struct tw_daemon *daemon);
/* "5mbit", "off", or NULL: as it was. The sentence is in *answer either way. */
enum tw_status tw_daemon_caps_limit(struct tw_daemon *daemon, const char *upload,
                                    const char *download, struct tw_error *answer);
void tw_daemon_caps_tick(struct tw_daemon *daemon, uint64_t now_us);
void tw_daemon_caps_fill(const struct tw_daemon *daemon, struct tw_status_view *view);
void tw_daemon_caps_close(struct tw_daemon *daemon);

/* ---- reload.c ------------------------------------------------------------------------ */
/* Reads the configuration again. What was taken over, and what needs a restart, or what is wrong
 * with the file (and nothing changes), is in *answer. */
enum tw_status tw_daemon_reload(struct tw_daemon *daemon, struct tw_error *answer);

/* ---- status.c -------------------------------------------------------------------------- */
void tw_daemon_status_fill(void *user, struct tw_status_view *view);
void tw_daemon_status_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Own tokens per second of the last minute; NaN when not known yet. */
double tw_daemon_status_speed(const struct tw_daemon *daemon);
void tw_daemon_status_round(struct tw_daemon *daemon, const struct tw_record *record);

#endif
