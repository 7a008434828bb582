/* cpu_use.h - share of the machine's CPUs that other programs use: all but the daemon, its worker,
 * and processes with a positive nice value.
 *
 *     share = (user + min(system, user)) / all
 *
 * All three are ticks of /proc/stat since the last measurement, after the daemon's and the worker's
 * own time is subtracted from user and system.
 *
 * Niced time is not in `user`, and nobody waits for it. System time is not split like that. It
 * counts only up to the user time, because kernel threads that write or encrypt this node's
 * checkpoint consume system time alone. */
#ifndef TW_DAEMON_PROCESS_CPU_USE_H
#define TW_DAEMON_PROCESS_CPU_USE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { TW_CPU_PROCESSES = 2 }; /* the daemon and its worker */

/* CPU time since the machine was started, in ticks. */
struct tw_cpu_machine {
    uint64_t user, system; /* user: includes virtual machines, but not niced processes */
    uint64_t all;          /* all CPUs together, including idle time */
};

/* CPU time since the process was started, in ticks. */
struct tw_cpu_process {
    uint64_t user, system;
    bool is_niced; /* its nice value is positive: /proc/stat counts its user time as `nice` */
};

/* Parses the first line of /proc/stat. Returns TW_CORRUPT on failure. */
enum tw_status tw_cpu_machine_parse(const char *text, struct tw_cpu_machine *machine,
                                    struct tw_error *err);
/* Parses /proc/PID/stat, in which the process name may contain anything. Returns TW_CORRUPT on
 * failure. */
enum tw_status tw_cpu_process_parse(const char *text, struct tw_cpu_process *process,
                                    struct tw_error *err);

/* One measurement. */
struct tw_cpu_look {
    struct tw_cpu_machine machine;
    struct {
        pid_t pid; /* 0: no such process, or its times cannot be read */
        struct tw_cpu_process use;
    } processes[TW_CPU_PROCESSES];
};

/* Returns the share of all CPUs that other programs used between two measurements, 0 to 1. Returns
 * NaN if no tick has passed or the counts went back. A process that is new in `after` counts from
 * its start. */
double tw_cpu_others(const struct tw_cpu_look *before, const struct tw_cpu_look *after);

/* Measures the machine, this process and `worker` (0: none). Returns TW_IO or TW_CORRUPT if
 * /proc/stat cannot be read. Returns TW_IO also if the worker's times cannot be read and its nice
 * value is not positive: its work would then count as that of other programs. */
enum tw_status tw_cpu_look(struct tw_cpu_look *look, pid_t worker, struct tw_error *err);

#endif
