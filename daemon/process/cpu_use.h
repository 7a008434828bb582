/* cpu_use.h - how much of the processors others use: everybody but the daemon, its worker, and
 * processes with a nice value.
 *
 *     share = (user + min(system, user)) / all,   in ticks of /proc/stat since the last look,
 *     with the time of the daemon and of its worker taken out before
 *
 * Niced time is not in `user`, and nobody waits for it. System time has no such split. It counts up
 * to as much as the user time, because kernel threads that write or encrypt a checkpoint of this
 * node have system time alone. */
#ifndef TW_DAEMON_PROCESS_CPU_USE_H
#define TW_DAEMON_PROCESS_CPU_USE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { TW_CPU_PROCESSES = 2 }; /* the daemon, and the worker */

/* Ticks since the machine was started. */
struct tw_cpu_machine {
    uint64_t user, system; /* user: without niced processes, with virtual machines */
    uint64_t all;          /* of all processors, idle ones too */
};

/* Ticks since the process was started. */
struct tw_cpu_process {
    uint64_t user, system;
    bool is_niced; /* its nice value is above 0: /proc/stat counts its user time apart */
};

/* Reads the first line of /proc/stat. TW_CORRUPT with a sentence. */
enum tw_status tw_cpu_machine_parse(const char *text, struct tw_cpu_machine *machine,
                                    struct tw_error *err);
/* Reads /proc/PID/stat. The name in it may contain anything. TW_CORRUPT with a sentence. */
enum tw_status tw_cpu_process_parse(const char *text, struct tw_cpu_process *process,
                                    struct tw_error *err);

/* One look. */
struct tw_cpu_look {
    struct tw_cpu_machine machine;
    struct {
        pid_t pid; /* 0: no such process, or its time cannot be read */
        struct tw_cpu_process use;
    } processes[TW_CPU_PROCESSES];
};

/* The share of all processors that others used between two looks: 0 to 1. NaN: no tick has passed,
 * or the counts went back. A process that is new in the second look counts from its start. */
double tw_cpu_others(const struct tw_cpu_look *before, const struct tw_cpu_look *after);

/* Looks at the machine, this process and `worker` (0: none). TW_IO or TW_CORRUPT with a sentence:
 * /proc/stat cannot be read. Also TW_IO if the worker's time cannot be read and its nice value is
 * 0: its work would then look like that of others. */
enum tw_status tw_cpu_look(struct tw_cpu_look *look, pid_t worker, struct tw_error *err);

#endif
