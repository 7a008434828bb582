/* config_table.c - the keys of the configuration. A new key needs only a new row here: it is then
 * parsed, checked, shown and explained. */
#include "daemon/config/config_table.h"

#include <string.h>

static const char *const SECTIONS[] = {"node", "worker", "network", "api", NULL};
static const char *const COMPUTES[] = {"auto", "fp32", "bf16", NULL};
static const char *const RECOMPUTES[] = {"auto", "off", "on", NULL};
static const char *const ROLES[] = {"train", "follow", "reduce", NULL};
static const char *const SNAPSHOTS[] = {"full", "bf16-moments", "off", "auto", NULL};
static const char *const ANCHORS[] = {"auto", "memory", "file", NULL};

#define FIELD(member) offsetof(struct tw_config, member), 0, sizeof(((struct tw_config *)0)->member)
#define LIST(member, counter)                                                                      \
    offsetof(struct tw_config, member), offsetof(struct tw_config, counter),                       \
        sizeof(((struct tw_config *)0)->member)

static const struct tw_config_key KEYS[] = {
    {"node", "name", TW_CONFIG_STRING, FIELD(node.name), 0, 0, "", NULL, "attic",
     "Name of this machine in tables; the host name when left out."},
    {"node", "state_dir", TW_CONFIG_PATH, FIELD(node.state_dir), 1, 0, "/var/lib/thinwire/%i", NULL,
     NULL,
     "Identity, run secret, member cache, checkpoints and fetched training data.\n"
     "%i is the name of this file."},
    {"node", "run_dir", TW_CONFIG_PATH, FIELD(node.run_dir), 1, 0, "/run/thinwire/%i", NULL, NULL,
     "Sockets: thinwired.sock for `thinwire`, worker.sock for the worker."},
    {"node", "run", TW_CONFIG_PATH, FIELD(node.run), 0, 0, "", NULL, "/etc/thinwire/bible.manifest",
     "Manifest of the run, identical on every node (`thinwire run new` writes one);\n"
     "STATE_DIR/run.manifest when left out."},
    {"node", "data", TW_CONFIG_PATH, FIELD(node.data), 0, 0, "", NULL, "/srv/text/bible.txt",
     "Training data: a text file, or the folder of a dataset (`thinwire data prepare` makes one).\n"
     "Left out, a run that trains on a dataset fetches it from other nodes."},
    {"node", "threads", TW_CONFIG_COUNT, FIELD(worker.threads), 0, 4096, "0", NULL, NULL,
     "Threads of the worker; 0: one per core."},
    {"node", "spawn_worker", TW_CONFIG_BOOL, FIELD(node.spawn_worker), 0, 0, "on", NULL, NULL,
     "on: the daemon starts and restarts the worker; in a run of any model (`run new --tensors`)\n"
     "only one that worker_path names. off: thinwire-worker@.service or your trainer attaches."},
    {"node", "worker_path", TW_CONFIG_PATH, FIELD(node.worker_path), 0, 0, "", NULL,
     "/usr/local/lib/thinwire/my-worker",
     "Program to start as the worker; thinwire-worker beside thinwired when left out."},
    {"node", "worker_user", TW_CONFIG_STRING, FIELD(node.worker_user), 0, 0, "", NULL,
     "thinwire-worker",
     "Another user that may run the worker, beside root and the daemon's own. Its processes must\n"
     "be in the daemon's group."},
    {"node", "role", TW_CONFIG_CHOICE, FIELD(node.role), 0, 0, "train", ROLES, NULL,
     "train, or follow: takes no steps and gives no work, but has the agreed model, votes, serves\n"
     "the model to joiners, and measures it. reduce: needs no data and measures nothing, but "
     "merges\n"
     "for the nodes that train, which then send less. Both need sync.topology = group."},
    {"node", "snapshot", TW_CONFIG_CHOICE, FIELD(node.snapshot), 0, 0, "auto", SNAPSHOTS, NULL,
     "State that survives a killed worker. full: all of it, in 24 bytes per parameter.\n"
     "bf16-moments: all of it, in 16. off: none; it restarts from the anchor, and merges wait for\n"
     "checkpoints. auto: the first of these that leaves a quarter of the memory free."},
    {"node", "anchors", TW_CONFIG_CHOICE, FIELD(node.anchors), 0, 0, "auto", ANCHORS, NULL,
     "Where anchor and momentum lie, 8 bytes per parameter. memory. file: a nameless file in\n"
     "STATE_DIR, of which the system keeps in memory as much as there is room for. auto: file if\n"
     "they would leave less than a quarter of the memory free."},
    {"node", "snapshot_steps", TW_CONFIG_COUNT, FIELD(node.snapshot_steps), 0, 1000000000, "0",
     NULL, NULL,
     "Inner steps between snapshots; 0: as many as keep their cost at 1 % of the time."},
    {"node", "recorder", TW_CONFIG_BYTES, FIELD(node.recorder_bytes), 16000000, 0, "64MB", NULL,
     NULL,
     "Size of the flight recorder, from which `thinwire replay` repeats every decision of this\n"
     "node; at least 16MB. 0: none."},
    {"node", "run_log", TW_CONFIG_BYTES, FIELD(node.run_log_bytes), 1000000, 0, "64MB", NULL, NULL,
     "Size of the run log: losses, rounds and warnings of this node as JSON Lines, in\n"
     "STATE_DIR/RUN/runlog; at least 1MB. 0: none."},
    {"node", "hook", TW_CONFIG_STRING, FIELD(node.hook), 0, 0, "", NULL,
     "/usr/share/thinwire/hooks/ntfy https://ntfy.sh/TOPIC",
     "Command that a shell runs when a warning is raised, and when it is cleared, such as one of\n"
     "/usr/share/thinwire/hooks (mail, ntfy, webhook). The warning is in THINWIRE_STATE,\n"
     "THINWIRE_WARNING, THINWIRE_TEXT and THINWIRE_WAY_OUT, and as JSON on standard input."},
    {"node", "evaluate", TW_CONFIG_STRING, FIELD(node.evaluate), 0, 0, "", NULL,
     "nice /usr/share/thinwire/hooks/evaluate /srv/text/poems.txt",
     "Command that a shell runs on a checkpoint now and then, and that prints lines `name value`.\n"
     "`thinwire status`, the run log and the metrics have the values. THINWIRE_CHECKPOINT,\n"
     "THINWIRE_MANIFEST, THINWIRE_DATA: paths; THINWIRE_ROUNDS, THINWIRE_STEP, THINWIRE_TOKENS."},
    {"node", "evaluate_rounds", TW_CONFIG_COUNT, FIELD(node.evaluate_rounds), 1, 1000000000, "100",
     NULL, NULL,
     "Committed rounds between two such measurements: after every multiple of this number."},
    {"node", "evaluate_timeout", TW_CONFIG_DURATION, FIELD(node.evaluate_timeout_us), 1000000,
     UINT64_C(7) * 86400 * 1000000, "1h", NULL, NULL,
     "Time that it may take; then it is killed, with all that it started."},
    {"node", "checkpoint_interval", TW_CONFIG_DURATION, FIELD(node.checkpoint_interval_us), 0,
     UINT64_C(365) * 86400 * 1000000, "2m", NULL, NULL,
     "Most work, as time, that a power cut may cost, such as 90s, 10m or 2h: a checkpoint is "
     "saved\n"
     "so often, after the first merge, and when peers die. From 1m on, a large file or a slow "
     "disk\n"
     "makes it longer: `thinwire events` tells. 0: only on request and at exit."},
    {"node", "eval_steps", TW_CONFIG_COUNT, FIELD(node.eval_steps), 0, 1000000000, "200", NULL,
     NULL, "Inner steps between measurements of the validation loss; 0: never."},
    {"node", "sample_bytes", TW_CONFIG_COUNT, FIELD(node.sample_bytes), 0, 1000, "240", NULL, NULL,
     "Bytes of text that the model writes after such a measurement, for `thinwire status` and the "
     "page;\n"
     "at most a two-hundredth of the time is spent on it. 0: none."},
    {"node", "stop_step", TW_CONFIG_STEPS, FIELD(node.stop_step), 0, UINT64_C(1) << 62, "0", NULL,
     NULL, "Inner step at which training ends; 0: at the run's token budget."},

    {"worker", "command", TW_CONFIG_STRING, FIELD(node.worker_command), 0, 0, "", NULL,
     "torchrun --nproc-per-node 8 train.py",
     "Command of your own trainer, which the daemon starts and restarts instead of "
     "thinwire-worker.\n"
     "A shell runs it. THINWIRE_WORKER_SOCKET is the socket to attach to; libthinwire reads it."},
    {"worker", "device", TW_CONFIG_DEVICE, FIELD(worker.device), 0, 0, "cpu", NULL, NULL,
     "Device for the model: cpu, cuda (the first GPU), cuda:1 and so on, or auto (a GPU if one\n"
     "is usable, else the CPU). `thinwire info` lists the devices."},
    {"worker", "compute", TW_CONFIG_CHOICE, FIELD(worker.compute), 0, 0, "auto", COMPUTES, NULL,
     "Type of activations and matrix products. auto: bf16 on a GPU, and on a CPU that is faster\n"
     "with it; else fp32. Parameters and optimizer state are always fp32."},
    {"worker", "micro_batch", TW_CONFIG_COUNT, FIELD(worker.micro_batch), 0, 65536, "0", NULL, NULL,
     "Sequences per pass through the model; 0: as many as help and fit into memory. The batch\n"
     "of a step is set by the run and does not depend on this."},
    {"worker", "recompute", TW_CONFIG_CHOICE, FIELD(worker.recompute), 0, 0, "auto", RECOMPUTES,
     NULL,
     "Recompute activations in the backward pass: less memory, more time. auto: only if they\n"
     "do not fit otherwise."},
    {"worker", "memory", TW_CONFIG_BYTES, FIELD(worker.memory_bytes), 0, 0, "0", NULL, "8GB",
     "Memory limit of the engine, such as 8GB or 512MiB; 0: the free memory of the machine. A\n"
     "model that does not fit is refused at start, with the numbers."},
    {"worker", "hours", TW_CONFIG_HOURS_OFF, FIELD(manners.hours), 0, 0, "", NULL,
     "08:00-18:00 off",
     "Hours without training (clock of this machine). When two minutes of a pause are over, the\n"
     "worker's memory is given back and the links rest, until training goes on. A node that\n"
     "starts in these hours starts no worker before their end."},
    {"worker", "yield", TW_CONFIG_YIELD, FIELD(manners.yield_percent), 1, 99, "off", NULL, "on",
     "Pause while others use more of all processors, or of the node's GPU, than this, such as "
     "40%;\n"
     "go on after 30 s below half of it. on: 20%. Processes with a nice value do not count.\n"
     "With `command` it needs a `nice` above 0."},
    {"worker", "nice", TW_CONFIG_COUNT, FIELD(manners.nice), 0, 19, "5", NULL, NULL,
     "Nice value of a worker that the daemon starts, at least; 19 leaves the most to others."},

    {"network", "listen", TW_CONFIG_ADDRESSES, LIST(network.listen, network.listen_count), 0,
     TW_LISTEN_MAX, "0.0.0.0:4747, [::]:4747", NULL, NULL,
     "Addresses that other nodes may dial, IPv4 and IPv6. Only this TCP port must be open.\n"
     "Leave the value empty to dial only: that also works behind NAT."},
    {"network", "advertise", TW_CONFIG_ADDRESSES, LIST(network.advertise, network.advertise_count),
     1, TW_ADDRS_MAX, "", NULL, "node7.example.org:4747",
     "Addresses announced to other nodes, if they differ from `listen` (port forwarding)."},
    {"network", "port_mapping", TW_CONFIG_BOOL, FIELD(network.port_mapping), 0, 0, "on", NULL, NULL,
     "on: behind a router, ask it by NAT-PMP, PCP or UPnP to forward this port, while the node\n"
     "runs. No router is asked where `advertise` is set."},
    {"network", "punch", TW_CONFIG_BOOL, FIELD(network.punch), 0, 0, "on", NULL, NULL,
     "on: replace a relayed link by a direct one, for which both nodes dial at the same time."},
    {"network", "interface", TW_CONFIG_STRING, FIELD(network.interface), 0, 0, "", NULL, "wg0",
     "Network interface to listen on and dial from, such as that of a VPN; any when left out."},
    {"network", "bind", TW_CONFIG_HOSTS, LIST(network.bind, network.bind_count), 0, TW_BIND_MAX, "",
     NULL, "192.0.2.7",
     "IP address to dial from, on a machine with several lines: at most one IPv4 and one IPv6\n"
     "address. If only one family is given, the other is not dialled."},
    {"network", "peers", TW_CONFIG_PEERS, LIST(network.peers, network.peers_count), 1,
     TW_BOOTSTRAP_MAX, "", NULL, "node1.example.org:4747, 192.0.2.7:4747",
     "Nodes to dial first: host:port or host:port=NODE_ID. One node that answers is enough,\n"
     "because it knows the others. Until one answers, this node trains alone."},
    {"network", "peers_file", TW_CONFIG_PATH, FIELD(network.peers_file), 0, 0, "", NULL,
     "/etc/thinwire/peers", "File with more of these nodes, one per line; # starts a comment."},
    {"network", "upload", TW_CONFIG_RATE, FIELD(network.upload_bytes_s), 1000, 0, "0", NULL,
     "5mbit", "Upload cap of all links together, such as 800kbit, 5mbit or 1gbit; 0: none."},
    {"network", "pace", TW_CONFIG_PACE, FIELD(network.pace), 1000, 0, "auto", NULL, NULL,
     "Pace of payloads on each link. auto: 88 % of the path's measured rate, so that other\n"
     "traffic on it need not queue; off: as fast as possible; or a rate."},
    {"network", "relay", TW_CONFIG_RELAY, FIELD(network.relay), 1000, 0, "on", NULL, NULL,
     "Carry links of nodes that cannot dial each other, which stay encrypted: on, off, or a cap\n"
     "such as 2mbit. They count as traffic of this node, and get half of `upload` and a quarter\n"
     "of `budget` at most. A node that listens nowhere carries none."},
    {"network", "download", TW_CONFIG_RATE, FIELD(network.download_bytes_s), 1000, 0, "0", NULL,
     "20mbit",
     "Download cap of all links together; 0: none. The node requests no more than it allows."},
    {"network", "hours", TW_CONFIG_HOURS, FIELD(network.hours), 0, 0, "", NULL,
     "08:00-18:00 1mbit, 18:00-23:00 off",
     "Caps by the time of day (clock of this machine): a rate for upload and download each, or\n"
     "off: no links, the node trains alone. At other times `upload` and `download` apply."},
    {"network", "quota", TW_CONFIG_QUOTA, FIELD(network.quota_bytes), 0, 0, "0", NULL,
     "500GB/month",
     "Limit per calendar month, upload and download together; 0: none. TCP and IP headers count\n"
     "as 3 %. The count survives restarts (a crash loses at most a minute of it). When the quota\n"
     "is used up, the node trains alone until the month ends. Connections that do not prove the\n"
     "right to be in the run are outside of it. They may use a 300th of it a day, 1 MiB at least;\n"
     "then only hosts that members came from may connect."},
    {"network", "budget", TW_CONFIG_BUDGET, FIELD(network.budget), 1000, 0, "0", NULL, "50GB/month",
     "Limit of all training traffic: average upload, such as 2mbit, or upload and download in 30\n"
     "days, such as 50GB/month; 0: none. Contributions are made to fit. With sync.codec = auto\n"
     "the codec changes; with other codecs, or if that is not enough, rounds are skipped."},
    {"network", "links", TW_CONFIG_BOOL, FIELD(network.links), 0, 0, "on", NULL, NULL,
     "off: no listening and no dialling; the node trains alone."},
    {"network", "secret_file", TW_CONFIG_PATH, FIELD(network.secret_file), 0, 0, "", NULL,
     "/etc/thinwire/bible.secret",
     "Run secret, which lets a node into the run; mode 0600. STATE_DIR/run.secret when left out."},

    {"api", "socket", TW_CONFIG_PATH, FIELD(api.socket), 0, 0, "", NULL,
     "/run/thinwire/attic/thinwired.sock",
     "Socket of the API; RUN_DIR/thinwired.sock when left out."},
    {"api", "group", TW_CONFIG_STRING, FIELD(api.group), 0, 0, "", NULL, "thinwire",
     "Group whose members may read status and metrics; the daemon's own group when left out."},
    {"api", "http", TW_CONFIG_ADDRESS, LIST(api.http, api.has_http), 0, 0, "", NULL,
     "127.0.0.1:9747", "Read-only API and /metrics for a scraper, on loopback only."},
    {"api", "web", TW_CONFIG_ADDRESS, LIST(api.web, api.has_web), 0, 0, "", NULL, "127.0.0.1:9748",
     "A page about this node for a browser, on loopback only. `thinwire web` prints its link."},
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

/* Keys that a running daemon reloads from a changed file. The others need a restart. */
static const char *const LIVE[][2] = {
    {"worker", "hours"},     {"worker", "yield"},       {"network", "upload"},
    {"network", "download"}, {"network", "pace"},       {"network", "relay"},
    {"network", "hours"},    {"network", "quota"},      {"network", "budget"},
    {"network", "peers"},    {"network", "peers_file"}, {"network", "port_mapping"},
    {"network", "punch"},    {"node", "hook"},
};

bool tw_config_key_is_live(const struct tw_config_key *key) {
    for (size_t i = 0; i < sizeof(LIVE) / sizeof(LIVE[0]); i++) {
        if (strcmp(key->section, LIVE[i][0]) == 0 && strcmp(key->name, LIVE[i][1]) == 0)
            return true;
    }
    return false;
}

const char *const *tw_config_sections(void) {
    return SECTIONS;
}

const char *tw_config_section_help(const char *section) {
    if (strcmp(section, "node") == 0) return "This machine: its files and its training.";
    if (strcmp(section, "worker") == 0) return "How the worker computes; other nodes may differ.";
    if (strcmp(section, "network") == 0)
        return "Other nodes, and how much of the line they may take.";
    return "Access to the status of this node.";
}
