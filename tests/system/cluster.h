/* cluster.h - real daemons with real or stub workers on loopback. Each cluster has its own
 * folder under /tmp, because socket paths must be short. Its ports stay reserved until the end,
 * and every wait is bounded, so many tests may run at a time. */
#ifndef TW_TESTS_CLUSTER_H
#define TW_TESTS_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/id.h"

enum { CLUSTER_NODES_MAX = 4, CLUSTER_TEXT_MAX = 256 * 1024, CLUSTER_LOG_MAX = 16 << 20 };

struct cluster_node {
    char dir[64], config[96], log[96], socket[96];
    uint16_t port;
    int held;  /* socket that keeps the kernel from giving the port to others */
    pid_t pid; /* 0: not running */
};

struct cluster {
    char dir[32];
    const char *daemon_path, *worker_path, *data_path;
    const char *tokens;
    bool is_stub;
    uint32_t nodes_count;
    struct cluster_node nodes[CLUSTER_NODES_MAX];
};

/* Differences from an ordinary node. If all fields are zero, links are on, all other nodes are
 * peers, and the node has the shared secret and manifest. */
struct cluster_options {
    const char *more;    /* lines added to [node] */
    bool is_unlinked;    /* links = off */
    bool has_own_secret; /* the node has its own run secret */
    const char *seed;    /* model.seed of a separate manifest; NULL: the shared manifest */
    const char *no_data; /* value of node.data; NULL: the ordinary path */
    bool has_no_data;    /* no node.data: the data must come from peers */
    bool has_no_worker;  /* no node.worker_path */
    const char *network; /* lines added to [network] */
    uint16_t port;       /* port to listen on; 0: any free one */
    bool is_unevaluated; /* no evaluation on held-out text */
    const char *stub;    /* arguments of the stub worker, e.g. "--step-us 2000" */
};

/* Finds the programs with TW_DAEMON and TW_WORKER. TW_STUB=1 means that the worker is the stub.
 * Makes the secret, the training text and the manifest of a run over `tokens`, such as "1g". */
void cluster_open(struct cluster *cluster, const char *tokens);
/* Sets further keys of the shared manifest, with {NULL, NULL} after the last. With model.tensors
 * it is a run of any model. Call before cluster_make. */
void cluster_set_run(struct cluster *cluster, const char *const (*keys)[2]);
/* Kills the daemons and removes the folder. When `failed`, keeps the folder and prints its path. */
void cluster_close(struct cluster *cluster, bool failed);

/* Makes the files of `count` ordinary nodes that know each other. */
void cluster_make(struct cluster *cluster, uint32_t count);
/* Writes the configuration of node `idx` again. */
void cluster_configure(struct cluster *cluster, uint32_t idx,
                       const struct cluster_options *options);

/* Returns the id of the run, which is the hash of the manifest. */
struct tw_id cluster_run_id(const struct cluster *cluster);

void cluster_start(struct cluster *cluster, uint32_t idx, const char *option);
/* Each patience_s is in seconds, for an idle machine. The functions wait several times as long,
 * because the machine may be busy. */
/* Sends the signal and waits until the daemon ends. Returns the exit status, or 1000 + the
 * signal that ended it. */
int cluster_end(struct cluster *cluster, uint32_t idx, int signal, double patience_s);
/* Waits for a node that must end without a signal. Returns as cluster_end does. */
int cluster_wait_end(struct cluster *cluster, uint32_t idx, double patience_s);

/* Returns a number of /v1/status by its path, such as "sync.roster_members"; true is 1, and false
 * is 0. Returns -1 if it is missing or the daemon does not answer. */
double cluster_number(struct cluster *cluster, uint32_t idx, const char *path);
/* Copies the string at that path of /v1/status into text[96], or "" if there is none. */
void cluster_string(struct cluster *cluster, uint32_t idx, const char *path, char *text);
json_t *cluster_get(struct cluster *cluster, uint32_t idx, const char *resource);
/* Does a POST. Returns the HTTP status. */
int cluster_post(struct cluster *cluster, uint32_t idx, const char *resource);

/* Waits until the number is at least `least`. Returns false if it is not in time. */
bool cluster_reaches(struct cluster *cluster, uint32_t idx, const char *path, double least,
                     double patience_s);

/* Returns the daemon's output on stderr over all its starts, in static storage. */
const char *cluster_log(struct cluster *cluster, uint32_t idx);
/* Returns how often the log contains `text`. */
unsigned cluster_lines(struct cluster *cluster, uint32_t idx, const char *text);
/* Waits until the node's log contains `text`. Returns false if it does not in time. */
bool cluster_says(struct cluster *cluster, uint32_t idx, const char *text, double patience_s);

/* Compares the anchors (phi, u) that two nodes logged after each APPLY of the same lineage,
 * fragment and number of rounds. They must be equal. Returns the number of APPLYs compared. */
unsigned cluster_digests(struct cluster *cluster, uint32_t a, uint32_t b);

void cluster_pause(double seconds);

#endif
