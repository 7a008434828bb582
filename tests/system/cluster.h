/* cluster.h - real daemons with real or stub workers on loopback, for the tests of the whole.
 * Everything lies in one folder of its own under /tmp (socket paths are short), ports stay reserved
 * to the end, and every wait has an end: so any number of tests may run at a time. */
#ifndef TW_TESTS_CLUSTER_H
#define TW_TESTS_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

enum { CLUSTER_NODES_MAX = 4, CLUSTER_TEXT_MAX = 256 * 1024, CLUSTER_LOG_MAX = 16 << 20 };

struct cluster_node {
    char dir[64], config[96], log[96], socket[96];
    uint16_t port;
    int held;  /* a socket that keeps the port from everybody who asks for any */
    pid_t pid; /* 0 = not running */
};

struct cluster {
    char dir[32];
    const char *daemon_path, *worker_path, *data_path;
    const char *tokens;
    bool is_stub;
    uint32_t nodes_count;
    struct cluster_node nodes[CLUSTER_NODES_MAX];
};

/* How a node differs from the ordinary one. All zero: links on, all others as peers, the shared
 * secret and manifest. */
struct cluster_options {
    const char *more;    /* lines added to [node] */
    bool is_unlinked;    /* links = off */
    bool has_own_secret; /* a secret of its own */
    const char *seed;    /* model.seed of its manifest, if another one */
    const char *no_data; /* data path to name instead */
    bool has_no_data;    /* no path at all: what is trained on must come from others */
    const char *network; /* lines added to [network] */
    uint16_t port;       /* instead of a free one */
    bool is_unevaluated; /* held-out text is not looked at */
    const char *stub;    /* arguments of the stub worker, e.g. "--step-us 2000" */
};

/* Finds the binaries from the environment (TW_DAEMON, TW_WORKER; TW_STUB=1: the worker is the
 * stub) and makes secret, manifest (of a run over `tokens`, "1g") and training text. */
void cluster_open(struct cluster *cluster, const char *tokens);
/* Further keys of the manifest all nodes have, {NULL, NULL} after the last. Before cluster_make. */
void cluster_set_run(struct cluster *cluster, const char *const (*keys)[2]);
/* Kills what runs and removes the folder; keeps it and says where when `failed`. */
void cluster_close(struct cluster *cluster, bool failed);

/* Lays out `count` ordinary nodes that know each other. */
void cluster_make(struct cluster *cluster, uint32_t count);
/* Writes the configuration of node `idx` again. */
void cluster_configure(struct cluster *cluster, uint32_t idx,
                       const struct cluster_options *options);

void cluster_start(struct cluster *cluster, uint32_t idx, const char *option);
/* Sends the signal and waits for the end; returns the exit status, or 1000 + signal. */
int cluster_end(struct cluster *cluster, uint32_t idx, int signal, double patience_s);
/* Waits for the end of a node that should not live. */
int cluster_wait_end(struct cluster *cluster, uint32_t idx, double patience_s);

/* A number of /v1/status by path, "sync.roster_members"; -1 when there is none or no answer. */
double cluster_number(struct cluster *cluster, uint32_t idx, const char *path);
/* The string at that path into text[96]; "" when there is none. */
void cluster_string(struct cluster *cluster, uint32_t idx, const char *path, char *text);
json_t *cluster_get(struct cluster *cluster, uint32_t idx, const char *resource);
/* POSTs; returns the HTTP status. */
int cluster_post(struct cluster *cluster, uint32_t idx, const char *resource);

/* Waits until the number is at least `least`; false when patience ends first. */
bool cluster_reaches(struct cluster *cluster, uint32_t idx, const char *path, double least,
                     double patience_s);

/* What the daemon wrote on stderr, all of its lives. Static storage. */
const char *cluster_log(struct cluster *cluster, uint32_t idx);
/* How often that log contains `text`. */
unsigned cluster_lines(struct cluster *cluster, uint32_t idx, const char *text);
/* Waits until the log of the node contains `text`. */
bool cluster_says(struct cluster *cluster, uint32_t idx, const char *text, double patience_s);

/* Every APPLY in the log of `a` that the log of `b` has too (same lineage, fragment and rounds)
 * must have left the same (phi, u). Returns how many there were. */
unsigned cluster_digests(struct cluster *cluster, uint32_t a, uint32_t b);

void cluster_pause(double seconds);

#endif
