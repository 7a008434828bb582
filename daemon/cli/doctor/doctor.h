/* doctor.h - `thinwire doctor`: what its checks share. Every check says one line: good, worth a
 * look, or broken, each of the latter two with what to do. Checks look; they change nothing but a
 * file of their own that is gone again. */
#ifndef TW_DAEMON_CLI_DOCTOR_DOCTOR_H
#define TW_DAEMON_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/auth/secret.h"
#include "daemon/config/config.h"
#include "proto/run/run.h"

enum doctor_grade {
    DOCTOR_OK,
    DOCTOR_SKIP, /* cannot be looked at now; the line says why */
    DOCTOR_WARN,
    DOCTOR_FAIL, /* the node cannot start, or this link cannot be made */
    DOCTOR_GRADES,
};

struct doctor {
    struct tw_config config;
    bool has_run, has_identity, has_secret;
    struct tw_run run;
    struct tw_identity identity;
    struct tw_secrets secrets;
    bool has_gate; /* a run with an owner: */
    struct tw_gate gate;
    json_t *status;     /* of the daemon that runs; NULL: none does */
    const char *proc;   /* "/proc"; tests have their own, */
    const char *nvidia; /* and of "/dev/nvidia0", a device file of a GPU's driver, */
    const char
        *engine; /* and of the program that is asked; NULL: thinwire-engine beside this one */
    uint64_t patience_us;

    json_t *list; /* of {check, grade, text, fix} */
    uint32_t counts[DOCTOR_GRADES];
    void (*said)(void *user, enum doctor_grade grade, const char *check, const char *text,
                 const char *fix);
    void *user;
};

/* One line: `check` names it for scripts ("disk.room"), `fix` is NULL where nothing is to do. */
void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *check, const char *fix,
                const char *fmt, ...) TW_PRINTF(5, 6);

/* "ok", "skip", "warn", "fail". */
const char *doctor_grade_name(enum doctor_grade grade);

/* doctor_files.c: what this node has on its disk. Fills run, identity and secret. */
void doctor_files(struct doctor *doctor);

/* doctor_host.c: the machine. doctor_proc reads a small file of /proc as it is; false: it is not
 * there. */
bool doctor_proc(const struct doctor *doctor, const char *name, char *text, size_t capacity);
void doctor_host(struct doctor *doctor);

/* doctor_gpu.c: the device that the configuration wants. */
void doctor_gpu(struct doctor *doctor);

/* doctor_links.c: ports, the daemon that runs, every configured address stage by stage. */
void doctor_links(struct doctor *doctor);
/* Addresses of others, at most TW_BOOTSTRAP_MAX, with doctor->identity. `is_stranger`: this machine
 * has nothing to prove yet, so admission is not tried. */
void doctor_addresses(struct doctor *doctor, const struct tw_bootstrap *peers, uint32_t count,
                      bool is_stranger);

/* doctor_ticket.c: a line of `thinwire invite`, before it is used. It costs no use of it. */
void doctor_ticket(struct doctor *doctor, const char *line);

#endif
