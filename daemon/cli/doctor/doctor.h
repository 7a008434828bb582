/* doctor.h - shared by the checks of `thinwire doctor`. Each check prints one line: good, or a
 * warning or failure with its remedy. Checks change nothing, except for a temporary file. */
#ifndef TW_DAEMON_CLI_DOCTOR_DOCTOR_H
#define TW_DAEMON_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/run/run_memory.h"
#include "daemon/config/config.h"
#include "proto/run/run.h"

enum doctor_grade {
    DOCTOR_OK,
    DOCTOR_SKIP, /* cannot be checked now; the line says why */
    DOCTOR_WARN,
    DOCTOR_FAIL, /* the node cannot start, or this link cannot come up */
    DOCTOR_GRADES,
};

struct doctor {
    struct tw_config config;
    bool has_run, has_identity, has_secret;
    struct tw_run run;
    struct tw_identity identity;
    struct tw_secrets secrets;
    bool has_gate; /* the run has an owner, so `gate` is filled */
    struct tw_gate gate;
    json_t *status;     /* status of the running daemon; NULL: no daemon runs */
    const char *start;  /* command that starts the daemon */
    const char *root;   /* folder of /proc and /sys: ""; tests replace it */
    const char *nvidia; /* device file of the GPU's driver, "/dev/nvidia0"; tests replace it too */
    const char *engine; /* program that reports the engine; NULL: thinwire-engine beside this one */
    uint64_t patience_us;

    json_t *list; /* the printed lines as a list of {check, grade, text, fix} */
    uint32_t counts[DOCTOR_GRADES];
    void (*said)(void *user, enum doctor_grade grade, const char *check, const char *text,
                 const char *fix);
    void *user;
};

/* Prints one line. `check` is its name for scripts, such as "disk.room". `fix` is the remedy, or
 * NULL if none is needed. */
void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *check, const char *fix,
                const char *fmt, ...) TW_PRINTF(5, 6);

/* Prints a failure whose error ends with `; ` and the remedy. `otherwise`: remedy of an error
 * without one. */
void doctor_say_error(struct doctor *doctor, const char *check, const struct tw_error *err,
                      const char *otherwise);

/* doctor_files.c: checks this node's files. Fills run, identity and secret. */
void doctor_files(struct doctor *doctor);

/* doctor_host.c: checks the machine. doctor_proc reads a small file of /proc, and returns false if
 * there is no such file. */
bool doctor_proc(const struct doctor *doctor, const char *name, char *text, size_t capacity);
void doctor_host(struct doctor *doctor);
/* Weighs the memory of the daemon that runs here, or of one that would start here. Returns false
 * without the manifest, or if the kernel does not tell. */
bool doctor_memory(const struct doctor *doctor, struct run_memory *memory);

/* Checks the configured device. */
void doctor_gpu(struct doctor *doctor);

/* doctor_links.c: checks ports, the running daemon, and every configured address stage by stage. */
void doctor_links(struct doctor *doctor);
/* Checks the addresses of at most TW_BOOTSTRAP_MAX other nodes with doctor->identity.
 * `is_stranger`: this machine has no secret or certificate yet, so admission is not tried. */
void doctor_addresses(struct doctor *doctor, const struct tw_bootstrap *peers, uint32_t count,
                      bool is_stranger);

#endif
