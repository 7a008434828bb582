/* run_wish.h - the options of `thinwire run new` and `thinwire plan`, and the run that they make.
 */
#ifndef TW_DAEMON_CLI_RUN_RUN_WISH_H
#define TW_DAEMON_CLI_RUN_RUN_WISH_H

#include "daemon/cli/common/cli.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_speed.h"
#include "daemon/cli/run/tensors.h"
#include "daemon/config/quota.h"

enum { CLI_SETS_MAX = 64 };

/* Returns the preset of a run for so many nodes, where neither the user nor a line or budget
 * chooses one. From four nodes on, sparse merges at half the period give the same loss for fewer
 * bytes (tests/RECORDS.md): 4 nodes, 1.875 with 12.0 MB against 1.877 with 17.5 of `streaming`; 8
 * nodes after 160 merges, 1.471 with 51.8 MB against 1.476 with 175.6. Two nodes gain nothing. */
enum tw_preset cli_preset_of(uint32_t nodes);

/* Arguments of `--set key=value`, in the given order. */
struct cli_sets {
    unsigned count;
    char keys[CLI_SETS_MAX][48];
    const char *values[CLI_SETS_MAX];
};

/* The line of a node. */
struct cli_line {
    double upload_s, download_s; /* bytes per second; 0: not given */
    double rtt_s;                /* seconds for a round trip between two nodes */
};

struct cli_wish {
    const char *name;     /* name of the run; NULL keeps the default */
    const char *data;     /* path, or NULL */
    const char *model;    /* NULL: the small default model */
    struct cli_pick pick; /* tensors of a run of any model; without a path, the run is not one */
    struct cli_sets sets;
    struct tw_budget_config budget; /* bytes 0: none */
    struct cli_line line;
    bool keeps_way; /* neither line nor budget choose how the run merges */
    struct cli_speed speed;
    struct cli_data found; /* properties of the training data, if the user named any */
};

/* Reads the options that `plan` and `run new` share from the command line. Prints errors itself. */
enum tw_exit cli_wish_read(struct cli *cli, struct cli_wish *wish);

/* Makes the run, and checks it against its data. Reads data and weights. Measures the time of a
 * step if a key depends on it. Prints errors itself. */
enum tw_exit cli_wish_make(struct cli_wish *wish, struct tw_run *run);

/* Measures the time of an inner step with this machine's engine, unless the user gave it. Prints
 * errors itself. */
enum tw_exit cli_wish_measure(struct cli_wish *wish, const struct tw_run *run);

/* Returns true if the user set the key. */
bool cli_wish_has(const struct cli_wish *wish, const char *key);

/* Returns true if the run is to have an owner, and the user named none: by default, or with
 * security.admission = owner alone, which the caller sets once there is a key. */
bool cli_wish_lacks_owner(struct cli_wish *wish);

/* Applies the keys that the user set on the command line. Prints errors itself. */
enum tw_exit cli_wish_apply(const struct cli_wish *wish, struct tw_run *run);

/* Returns true if there is a budget and the run sends anything. */
bool cli_wish_has_budget(const struct cli_wish *wish, const struct tw_run *run);

/* Returns true if line or budget choose how the run merges. The speed is known then. */
bool cli_wish_fits_way(const struct cli_wish *wish, const struct tw_run *run);

/* Returns the speed from which bytes are computed. With a budget, also the bits per parameter that
 * it leaves to contributions. */
struct cli_pace cli_wish_pace(const struct cli_wish *wish, const struct tw_run *run);

#endif
