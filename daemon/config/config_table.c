/* The keys of the configuration. Add a row here and it is parsed, checked, shown and explained. */
#include "daemon/config/config_table.h"

#include <string.h>

static const char *const SECTIONS[] = {"node", "worker", "network", "api", NULL};
static const char *const COMPUTES[] = {"auto", "fp32", "bf16", NULL};
static const char *const RECOMPUTES[] = {"auto", "off", "on", NULL};
static const char *const SNAPSHOTS[] = {"full", "bf16-moments", "off", NULL};

#define FIELD(member) offsetof(struct tw_config, member), 0, sizeof(((struct tw_config *)0)->member)
#define LIST(member, counter)                                                                      \
    offsetof(struct tw_config, member), offsetof(struct tw_config, counter),                       \
        sizeof(((struct tw_config *)0)->member)

static const struct tw_config_key KEYS[] = {
    {"node", "name", TW_CONFIG_STRING, FIELD(node.name), 0, 0, "", NULL, "attic",
     "What people call this machine in tables; the host name when left out."},
    {"node", "state_dir", TW_CONFIG_PATH, FIELD(node.state_dir), 1, 0, "/var/lib/thinwire/%i", NULL,
     NULL,
     "Identity, run secret, member cache, checkpoints and training data that was fetched.\n"
     "%i is the name of this file."},
    {"node", "run_dir", TW_CONFIG_PATH, FIELD(node.run_dir), 1, 0, "/run/thinwire/%i", NULL, NULL,
     "Sockets: thinwired.sock for `thinwire`, worker.sock for the worker."},
    {"node", "run", TW_CONFIG_PATH, FIELD(node.run), 0, 0, "", NULL, "/etc/thinwire/bible.manifest",
     "Manifest of the run, the same file on every node (`thinwire run new` writes one);\n"
     "STATE_DIR/run.manifest when left out."},
    {"node", "data", TW_CONFIG_PATH, FIELD(node.data), 0, 0, "", NULL, "/srv/text/bible.txt",
     "What is trained on: a text, or the folder of a dataset (`thinwire data prepare` makes one).\n"
     "Leave it out in a run that is trained on a dataset, and it is fetched from the others."},
    {"node", "threads", TW_CONFIG_COUNT, FIELD(worker.threads), 0, 4096, "0", NULL, NULL,
     "Threads of the worker; 0 uses every core."},
    {"node", "spawn_worker", TW_CONFIG_BOOL, FIELD(node.spawn_worker), 0, 0, "on", NULL, NULL,
     "on: the daemon starts and restarts the worker. off: thinwire-worker@.service does."},
    {"node", "worker_path", TW_CONFIG_PATH, FIELD(node.worker_path), 0, 0, "", NULL,
     "/usr/local/lib/thinwire/my-worker",
     "Program to spawn as worker; thinwire-worker beside thinwired when left out."},
    {"node", "snapshot", TW_CONFIG_CHOICE, FIELD(node.snapshot), 0, 0, "full", SNAPSHOTS, NULL,
     "What a killed worker comes back with: full, bf16-moments (8 bytes per parameter\n"
     "less memory for both slots) or off (back to the anchor)."},
    {"node", "snapshot_steps", TW_CONFIG_COUNT, FIELD(node.snapshot_steps), 0, 1000000000, "0",
     NULL, NULL, "Inner steps between snapshots; 0 lets them cost 1 % of the time."},
    {"node", "checkpoint_interval", TW_CONFIG_DURATION, FIELD(node.checkpoint_interval_us), 0,
     UINT64_C(365) * 86400 * 1000000, "10m", NULL, NULL,
     "Time between checkpoints on disk, such as 90s, 10m, 2h; 0 only on request and at exit."},
    {"node", "eval_steps", TW_CONFIG_COUNT, FIELD(node.eval_steps), 0, 1000000000, "200", NULL,
     NULL, "Inner steps between measurements of the validation loss; 0 never measures."},
    {"node", "stop_step", TW_CONFIG_STEPS, FIELD(node.stop_step), 0, UINT64_C(1) << 62, "0", NULL,
     NULL, "Finish at this inner step; 0 finishes at the run's token budget."},

    {"worker", "device", TW_CONFIG_DEVICE, FIELD(worker.device), 0, 0, "cpu", NULL, NULL,
     "What the model is computed on: cpu, cuda (the first GPU), cuda:1 and so on, or auto: a GPU\n"
     "where one can be used, else the processor. `thinwire info` lists them."},
    {"worker", "compute", TW_CONFIG_CHOICE, FIELD(worker.compute), 0, 0, "auto", COMPUTES, NULL,
     "Type of activations and matrix products: auto is bf16 where the processor is faster\n"
     "with it, and on a GPU. Parameters and optimizer are fp32 always."},
    {"worker", "micro_batch", TW_CONFIG_COUNT, FIELD(worker.micro_batch), 0, 65536, "0", NULL, NULL,
     "Sequences of one pass through the model; 0 takes as many as help and fit. The batch\n"
     "of a step is the run's, whatever this is."},
    {"worker", "recompute", TW_CONFIG_CHOICE, FIELD(worker.recompute), 0, 0, "auto", RECOMPUTES,
     NULL,
     "Compute activations again in the backward pass: less memory, more time. auto does so\n"
     "only when they would not fit."},
    {"worker", "memory", TW_CONFIG_BYTES, FIELD(worker.memory_bytes), 0, 0, "0", NULL, "8GB",
     "Most the engine may take, such as 8GB or 512MiB; 0 for what the machine has free. A\n"
     "model that does not fit is refused with the numbers before it starts."},

    {"network", "listen", TW_CONFIG_ADDRESSES, LIST(network.listen, network.listen_count), 0,
     TW_LISTEN_MAX, "0.0.0.0:4747, [::]:4747", NULL, NULL,
     "Addresses other nodes may dial, IPv4 and IPv6; one TCP port is all that must be open.\n"
     "Leave the value empty to dial only: behind NAT that works as well."},
    {"network", "advertise", TW_CONFIG_ADDRESSES, LIST(network.advertise, network.advertise_count),
     1, TW_ADDRS_MAX, "", NULL, "node7.example.org:4747",
     "Addresses told to others when they differ from `listen` (port forwarding)."},
    {"network", "interface", TW_CONFIG_STRING, FIELD(network.interface), 0, 0, "", NULL, "wg0",
     "Network interface to listen and dial by, such as that of a VPN; any when left out."},
    {"network", "bind", TW_CONFIG_HOSTS, LIST(network.bind, network.bind_count), 0, TW_BIND_MAX, "",
     NULL, "192.0.2.7",
     "IP address to dial from, where a machine has several lines; an IPv4 and an IPv6 address\n"
     "at most. A family without one is not dialled, if the other has one."},
    {"network", "peers", TW_CONFIG_PEERS, LIST(network.peers, network.peers_count), 1,
     TW_BOOTSTRAP_MAX, "", NULL, "node1.example.org:4747, 192.0.2.7:4747",
     "Nodes to dial first, host:port or host:port=NODE_ID. One that answers is enough: it\n"
     "knows the others. None that answers is no error: the node trains alone meanwhile."},
    {"network", "peers_file", TW_CONFIG_PATH, FIELD(network.peers_file), 0, 0, "", NULL,
     "/etc/thinwire/peers", "More of them, one per line; # starts a comment."},
    {"network", "upload", TW_CONFIG_RATE, FIELD(network.upload_bytes_s), 1000, 0, "0", NULL,
     "5mbit", "Upload cap over all links together, such as 800kbit, 5mbit, 1gbit; 0 for none."},
    {"network", "pace", TW_CONFIG_PACE, FIELD(network.pace), 1000, 0, "auto", NULL, NULL,
     "How evenly payloads go out. auto: at 88 % of what the path to each node was measured to\n"
     "carry, so that nothing else on it has to queue; off: as fast as it goes; or a rate."},
    {"network", "download", TW_CONFIG_RATE, FIELD(network.download_bytes_s), 1000, 0, "0", NULL,
     "20mbit", "Download cap over all links together; no more is asked for than it allows."},
    {"network", "hours", TW_CONFIG_HOURS, FIELD(network.hours), 0, 0, "", NULL,
     "08:00-18:00 1mbit, 18:00-23:00 off",
     "Caps by the time of day (of this machine's clock): a rate for upload and download each,\n"
     "or off: no links, the node trains alone. At other hours upload and download hold."},
    {"network", "quota", TW_CONFIG_QUOTA, FIELD(network.quota_bytes), 0, 0, "0", NULL,
     "500GB/month",
     "What the line may carry in a calendar month, upload and download together; 0 for any.\n"
     "Headers of TCP and IP are taken for 3 % of it. Counted over restarts (a crash forgets a\n"
     "minute at most). When it is used up the node trains alone until the month ends."},
    {"network", "budget", TW_CONFIG_BUDGET, FIELD(network.budget), 1000, 0, "0", NULL, "50GB/month",
     "What training together may take: upload on average, such as 2mbit, or upload and\n"
     "download of 30 days, such as 50GB/month; 0 for any. Contributions are made to fit, with\n"
     "sync.codec = auto by their codec, else and below that by leaving rounds out."},
    {"network", "links", TW_CONFIG_BOOL, FIELD(network.links), 0, 0, "on", NULL, NULL,
     "off: no listening and no dialling. The node trains alone, as any trainer would."},
    {"network", "secret_file", TW_CONFIG_PATH, FIELD(network.secret_file), 0, 0, "", NULL,
     "/etc/thinwire/bible.secret",
     "Run secret that lets a node in, mode 0600; STATE_DIR/run.secret when left out."},

    {"api", "socket", TW_CONFIG_PATH, FIELD(api.socket), 0, 0, "", NULL,
     "/run/thinwire/attic/thinwired.sock", "RUN_DIR/thinwired.sock when left out."},
    {"api", "group", TW_CONFIG_STRING, FIELD(api.group), 0, 0, "", NULL, "thinwire",
     "Members may read status and metrics; the daemon's own group when left out."},
    {"api", "http", TW_CONFIG_ADDRESS, LIST(api.http, api.has_http), 0, 0, "", NULL,
     "127.0.0.1:9747", "Read-only API and /metrics for a scraper, on loopback only."},
};

const struct tw_config_key *tw_config_keys(size_t *count_out) {
    *count_out = sizeof(KEYS) / sizeof(KEYS[0]);
    return KEYS;
}

const struct tw_config_key *tw_config_key_find(const char *section, const char *name) {
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        if (strcmp(KEYS[i].section, section) == 0 && strcmp(KEYS[i].name, name) == 0) {
            return &KEYS[i];
        }
    }
    return NULL;
}

/* What a running daemon takes over from a changed file; the rest needs a start. */
static const char *const LIVE[] = {"upload", "download", "pace",  "hours",
                                   "quota",  "budget",   "peers", "peers_file"};

bool tw_config_key_is_live(const struct tw_config_key *key) {
    if (strcmp(key->section, "network") != 0) return false;
    for (size_t i = 0; i < sizeof(LIVE) / sizeof(LIVE[0]); i++) {
        if (strcmp(key->name, LIVE[i]) == 0) return true;
    }
    return false;
}

const char *const *tw_config_sections(void) {
    return SECTIONS;
}

const char *tw_config_section_help(const char *section) {
    if (strcmp(section, "node") == 0) return "This machine: where it keeps things, what it trains.";
    if (strcmp(section, "worker") == 0) return "How the worker computes; the run does not care.";
    if (strcmp(section, "network") == 0)
        return "The other machines, and how much of the line is ours.";
    return "Who may ask this node how it is doing.";
}
