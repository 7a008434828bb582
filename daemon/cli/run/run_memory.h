/* run_memory.h - memory that a run's daemon and worker will need on this machine, before they
 * start. */
#ifndef TW_DAEMON_CLI_RUN_RUN_MEMORY_H
#define TW_DAEMON_CLI_RUN_RUN_MEMORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/config/memory_plan.h"
#include "proto/run/run.h"

enum { RUN_MEMORY_TEXT_BYTES = 512 };

struct run_memory {
    struct tw_memory_plan plan; /* plan that the daemon would choose for the memory free now */
    uint64_t daemon_bytes;      /* host memory of the daemon */
    uint64_t file_bytes;        /* size of the daemon's file, used instead of memory; 0: no file */
    uint64_t worker_bytes;      /* host memory of the worker; for a user's trainer, only
                                   libthinwire's share */
    /* Device memory. For thinwire-worker: its memory on the GPU, 0 if it computes on the CPU. For a
     * user's trainer: weights, gradients and AdamW in float32, wherever its parameters are. */
    uint64_t device_bytes;
    uint64_t host_free_bytes;   /* free memory of this machine; UINT64_MAX: unknown */
    uint64_t device_free_bytes; /* free memory of the machine's GPU; 0: unknown, or no GPU */
    bool is_own_trainer;        /* the user's own program trains, not thinwire-worker */
    bool has_base;              /* the trainer also holds frozen weights */
    bool is_estimate;           /* the engine did not answer, so activations are not counted */
    char engine[128];           /* thinwire-worker's engine; empty: unknown */
};

/* Computes the memory of a run on a machine where this process can still allocate `free_bytes`
 * (tw_machine_memory, as the daemon); asks the engine beside this program. `is_running`: the
 * configuration's node runs already, so the memory that it uses counts as free. Returns false if
 * the run has no layout. */
bool run_memory_weigh(struct run_memory *memory, const struct tw_config *config,
                      const struct tw_run *run, uint64_t free_bytes, bool is_running);

/* Memory that the machine lacks. */
struct run_memory_lack {
    const char *side;    /* "host" or "device" */
    char text[128];      /* memory that is needed, and memory that is free */
    const char *way_out; /* remedy, as a sentence for the user */
};

/* Returns true and fills *lack if the machine has less memory than is needed. */
bool run_memory_lacks(const struct run_memory *memory, struct run_memory_lack *lack);

/* Writes one line for a list of findings to text[RUN_MEMORY_TEXT_BYTES]. Returns `text`. */
const char *run_memory_line(const struct run_memory *memory, char *text);

/* Prints the lines of `run new` and `run show`, with a warning if memory is short. */
void run_memory_print(FILE *to, const struct run_memory *memory);

/* Returns the memory as an object, which the caller owns. */
json_t *run_memory_json(const struct run_memory *memory);

/* Returns the bytes that a daemon of the run needs in memory without snapshots: anchor, momentum
 * and payloads. Returns more than any memory has if the model is too large. */
uint64_t run_memory_least(const struct tw_run *run, const struct tw_layout *layout);

/* Returns the bytes of full snapshots, which come on top. */
uint64_t run_memory_snapshots(const struct tw_layout *layout);

#endif
