/* run_memory.h - memory that daemon and worker of a run will take on this machine, before they
 * start. Payloads in transit are not counted: about two fragments. */
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
    struct tw_memory_plan plan; /* the daemon's choice for the memory that is free now */
    uint64_t daemon_bytes;      /* host memory of the daemon */
    uint64_t file_bytes;        /* file of the daemon instead of memory; 0: none */
    uint64_t worker_bytes;      /* host memory of the worker; of a trainer only libthinwire */
    /* Memory of the device: the worker's on a GPU; of a trainer AdamW, weights and gradients in
     * fp32, wherever its parameters are. 0: the worker computes on the processor. */
    uint64_t device_bytes;
    uint64_t host_free_bytes;   /* free memory of this machine; UINT64_MAX: unknown */
    uint64_t device_free_bytes; /* of its GPU; 0: unknown, or none */
    bool is_own_trainer;        /* a program of the user's trains, not thinwire-worker */
    bool has_base;              /* such a trainer also holds frozen weights */
    bool is_estimate;           /* the engine did not answer: without activations */
    char engine[128];           /* arithmetic of thinwire-worker; empty: unknown */
};

/* Weighs a run on this machine, with the engine beside this program. `is_running`: the node of the
 * configuration runs already, and its memory counts as free. False: the run has no layout. */
bool run_memory_weigh(struct run_memory *memory, const struct tw_config *config,
                      const struct tw_run *run, bool is_running);

/* Memory that the machine lacks. */
struct run_memory_lack {
    const char *side;    /* "host" or "device" */
    char text[128];      /* memory that is wanted, and memory that is free */
    const char *way_out; /* a sentence for the user */
};

/* Whether the machine has less memory than is needed; then fills *lack. */
bool run_memory_lacks(const struct run_memory *memory, struct run_memory_lack *lack);

/* One line for a list of findings, into text[RUN_MEMORY_TEXT_BYTES]; returns text. */
const char *run_memory_line(const struct run_memory *memory, char *text);

/* The lines of `run new` and `run show`, with the warning if there is one. */
void run_memory_print(FILE *to, const struct run_memory *memory);

/* The caller owns the object. */
json_t *run_memory_json(const struct run_memory *memory);

/* Bytes that daemon and worker share: anchor, momentum and full snapshots. */
uint64_t run_memory_shared(const struct tw_layout *layout);

#endif
