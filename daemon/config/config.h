/* config.h - configuration of one node: an INI file, read through one typed table.
 *
 * The table (config_table.c) is the single source: it parses, checks bounds, names units in errors,
 * prints the commented example and shows the values in force. Unknown sections and keys are refused
 * with the line and the nearest known name. `instance` is the file's name without `.conf`. `%i` in
 * a default stands for it. A relative path is relative to the folder of the file. */
#ifndef TW_DAEMON_CONFIG_CONFIG_H
#define TW_DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <net/if.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/config/quota.h"
#include "proto/compute.h"
#include "proto/message.h" /* for enum tw_node_role */
#include "proto/run/run.h"
#include "proto/worker_msg.h" /* enum tw_snapshot_mode */

enum {
    TW_PATH_BYTES = 1024,      /* size of a path, with NUL */
    TW_CONFIG_NAME_BYTES = 64, /* size of a node's name in TW_CONFIG_FOLDER, with NUL */
    TW_BOOTSTRAP_MAX = 32,
    TW_CONFIG_BYTES_MAX = 64 * 1024, /* largest configuration file */
    /* Threshold of `worker.yield = on`: below one busy CPU of four (25 %), which pauses training,
     * and above one of eight (12 %), which does not. */
    TW_YIELD_ON_PERCENT = 20,
};

#define TW_CONFIG_FOLDER "/etc/thinwire" /* configurations of nodes that systemd runs */

/* Configured snapshots: a mode of worker_msg.h, or AUTO for the best one that fits (memory_plan.h).
 */
enum tw_snapshot_wish {
    TW_SNAPSHOT_WISH_FULL = TW_SNAPSHOT_FULL,
    TW_SNAPSHOT_WISH_BF16_MOMENTS = TW_SNAPSHOT_BF16_MOMENTS,
    TW_SNAPSHOT_WISH_OFF = TW_SNAPSHOT_OFF,
    TW_SNAPSHOT_WISH_AUTO,
};

/* Where daemon and worker keep their shared memory. */
enum tw_anchor_place { TW_ANCHORS_AUTO, TW_ANCHORS_MEMORY, TW_ANCHORS_FILE };

/* "host:port" or "[v6]:port". Only the syntax is checked; names are resolved when needed. */
struct tw_address {
    char text[TW_ADDR_BYTES];
};

struct tw_bootstrap {
    struct tw_address address;
    bool has_id;
    struct tw_id id; /* with has_id: id that the node at the address must prove */
};

struct tw_config {
    char path[TW_PATH_BYTES]; /* path of the file; empty if there was none */
    char instance[TW_CONFIG_NAME_BYTES];

    struct {
        char name[64];                   /* name shown to people; empty = host name */
        char state_dir[TW_PATH_BYTES];   /* folder of identity, member cache, votes and
                                            checkpoints */
        char run_dir[TW_PATH_BYTES];     /* folder of the sockets thinwired.sock and worker.sock */
        char run[TW_PATH_BYTES];         /* manifest file; empty = STATE_DIR/run.manifest */
        char data[TW_PATH_BYTES];        /* training text; empty = none configured */
        bool spawn_worker;               /* the daemon starts and restarts the worker */
        char worker_path[TW_PATH_BYTES]; /* the worker's program; empty = thinwire-worker beside
                                            thinwired */
        char worker_command[TW_PATH_BYTES]; /* shell command that starts the worker; empty =
                                               worker_path */
        char worker_user[64];               /* second user that may run the worker; empty = none */
        enum tw_node_role role;
        enum tw_snapshot_wish snapshot;
        enum tw_anchor_place anchors;
        /* inner steps between snapshots; 0 = as often as 1 % of the time allows */
        uint32_t snapshot_steps;
        char archive[TW_PATH_BYTES];     /* folder of the decided rounds; empty = none */
        uint64_t recorder_bytes;         /* size of the flight recorder; 0 = none */
        uint64_t run_log_bytes;          /* size of the run log; 0 = none */
        char hook[TW_PATH_BYTES];        /* command run at each warning; empty = none */
        char evaluate[TW_PATH_BYTES];    /* command that scores a checkpoint; empty = none */
        uint32_t evaluate_rounds;        /* committed rounds between two runs of `evaluate` */
        uint64_t evaluate_timeout_us;    /* time limit of one run of `evaluate` */
        uint64_t checkpoint_interval_us; /* interval; 0 = only on request and at exit */
        uint32_t sample_bytes;           /* approximate size of a text sample; 0 = none */
        uint32_t eval_steps;             /* inner steps between held-out evaluations; 0 = never */
        uint64_t stop_step; /* finish at this inner step; 0 = at the run's token budget */
    } node;

    struct tw_compute_config worker; /* section [worker], and `threads` of [node] */

    struct { /* also section [worker]: how training yields to other uses of the machine */
        struct tw_hours hours;  /* hours without training; every entry is `off` */
        uint32_t yield_percent; /* use by others, in percent of all CPUs or of the GPU, that pauses
                                   training; 0 = off */
        uint32_t nice;          /* lowest nice value of a worker that the daemon starts */
    } manners;

    struct {
        uint32_t listen_count, advertise_count, peers_count;
        struct tw_address listen[TW_LISTEN_MAX]; /* none = dial only */
        struct tw_address advertise[TW_ADDRS_MAX];
        char interface[IF_NAMESIZE]; /* interface to listen on and dial from; empty = any */
        uint32_t bind_count;
        struct tw_address bind[TW_BIND_MAX]; /* IP addresses to dial from; none = any */
        bool port_mapping;                   /* ask the router to map a port */
        bool punch;                          /* punch direct links through NAT
                                                (daemon/node/ways.h) */
        struct tw_bootstrap peers[TW_BOOTSTRAP_MAX];
        char peers_file[TW_PATH_BYTES]; /* file of further peers, one `host:port[=id]` per line;
                                           empty = none */
        uint64_t upload_bytes_s;        /* upload cap of all links together; 0 = none */
        struct tw_link_pace pace;       /* pacing rate of payloads on each link */
        struct tw_relay_config relay;   /* relaying for other nodes */
        uint64_t download_bytes_s;      /* download cap of all links together; 0 = none */
        uint64_t quota_bytes;           /* bytes per calendar month, both directions together; 0 =
                                           none */
        struct tw_hours hours;          /* rate caps by time of day */
        struct tw_budget_config budget;
        bool links; /* false: the node neither listens nor dials, and trains alone */
        char secret_file[TW_PATH_BYTES]; /* file of the run secret; empty = STATE_DIR/run.secret */
    } network;

    struct {
        char socket[TW_PATH_BYTES]; /* path of the API's socket; empty in the file:
                                       RUN_DIR/thinwired.sock */
        char group[64];             /* group that may use the socket; empty = the daemon's group */
        bool has_http;
        struct tw_address http; /* read-only listener on loopback */
        bool has_web;
        struct tw_address web; /* listener of the page on loopback */
    } api;
};

/* Sets every default, as an empty file named `<instance>.conf` would. */
void tw_config_defaults(struct tw_config *config, const char *instance);

/* Parses a whole configuration, text[size]. `path` names the file in errors and is the base of
 * relative paths. Fills in derived defaults. Returns TW_CONFIG with "PATH:LINE: ..." at the first
 * error; *config is then undefined. */
enum tw_status tw_config_parse(struct tw_config *config, const char *path, const char *text,
                               size_t size, struct tw_error *err);

/* Reads and parses a file. Returns TW_CONFIG also if it cannot be opened. */
enum tw_status tw_config_load(struct tw_config *config, const char *path, struct tw_error *err);

/* Checks that a node with this configuration can take part in the run. Otherwise returns TW_CONFIG
 * and names the key. */
enum tw_status tw_config_check_run(const struct tw_config *config, const struct tw_run *run,
                                   struct tw_error *err);

/* Returns the place of a configuration file: `option` (--config, may be NULL), else
 * $THINWIRE_CONFIG, else /etc/thinwire/thinwire.conf. A value without a slash or `.conf` is an
 * instance: `garage` means /etc/thinwire/garage.conf. Returns TW_CONFIG if the path exceeds
 * TW_PATH_BYTES. */
enum tw_status tw_config_place(const char *option, char path[TW_PATH_BYTES], struct tw_error *err);

/* Finds the configuration file of a node that exists: like tw_config_place, but `option` may also
 * be the node's folder (`init --dir`), or `garage.conf` for the file of TW_CONFIG_FOLDER. If
 * nothing is named and there is no thinwire.conf, it is the only one in TW_CONFIG_FOLDER. If there
 * are several, returns TW_CONFIG and names them. */
enum tw_status tw_config_find(const char *option, char path[TW_PATH_BYTES], struct tw_error *err);

/* Parses "20mbit" (upload), "50 GB/month" (both directions together) or "0" (no budget). Returns
 * TW_CONFIG on failure. */
enum tw_status tw_budget_parse(const char *text, struct tw_budget_config *budget,
                               struct tw_error *err);

/* Convert "5mbit" or "0" to bytes per second, and back. */
enum tw_status tw_rate_parse(const char *text, uint64_t *bytes_per_s, struct tw_error *err);
void tw_rate_print(uint64_t bytes_per_s, char *text, size_t capacity);

/* Parses "90s", "10m" or "24h" into microseconds. Returns TW_CONFIG on failure. */
enum tw_status tw_config_duration_parse(const char *text, uint64_t *us, struct tw_error *err);

/* Writes the commented example of `thinwire config example`, NUL-terminated. Returns the length of
 * the whole text without the NUL, even if it exceeds `capacity`. */
size_t tw_config_example(char *text, size_t capacity);

/* Writes every key with its present value. The text parses to the same configuration. */
size_t tw_config_show(const struct tw_config *config, char *text, size_t capacity);

#endif
