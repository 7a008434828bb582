/* config_table.c - the keys of the configuration. A new key needs only a new row here: it is then
 * parsed, checked, shown and explained. */
#include "daemon/config/config_table.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"

/* ==== the table of keys ======================================================================= */

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
    {"node", "archive", TW_CONFIG_PATH, FIELD(node.archive), 0, 0, "", NULL, "/srv/bible-archive",
     "Folder to which this node writes every decided round, with its votes and results. From a\n"
     "copy anybody can prove the model (thinwire verify). It grows with each round. Left out:\n"
     "none."},
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

/* ==== values as text ========================================================================== */

/* Converts values of the configuration from and to text. */

struct unit {
    const char *name;
    uint64_t factor; /* size in base units */
};

/* Rates are read in bits per second, and divided by 8 at the end. */
static const struct unit RATES[] = {
    {"bit", 1}, {"kbit", 1000}, {"mbit", 1000000}, {"gbit", 1000000000}, {NULL, 0}};
static const struct unit DURATIONS[] = {{"ms", 1000},
                                        {"s", 1000000},
                                        {"m", 60000000},
                                        {"h", UINT64_C(3600000000)},
                                        {"d", UINT64_C(86400000000)},
                                        {NULL, 0}};

/* Reads a decimal number with at most six decimals ("12", "2.5") in millionths. *rest is the text
 * after it. Returns false for anything else, or if the number is too large. */
static bool read_decimal(const char *text, uint64_t *millionths, const char **rest) {
    uint64_t value = 0, scale = 1000000;
    if (!isdigit((unsigned char)*text)) return false;
    for (; isdigit((unsigned char)*text); text++) {
        if (value > UINT64_MAX / 100000000) return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    if (value > UINT64_MAX / 1000000) return false;
    value *= 1000000;
    if (*text == '.') {
        text++;
        if (!isdigit((unsigned char)*text)) return false;
        for (; isdigit((unsigned char)*text) && scale > 1; text++) {
            scale /= 10;
            value += scale * (uint64_t)(*text - '0');
        }
    }
    while (*text == ' ') text++;
    *millionths = value;
    *rest = text;
    return true;
}

/* Reads a number with its unit into base units. A bare 0 needs no unit. */
static enum tw_status read_quantity(const char *text, const struct unit *units, const char *want,
                                    uint64_t *out, struct tw_error *err) {
    uint64_t millionths;
    const char *rest;
    if (!read_decimal(text, &millionths, &rest)) {
        return tw_fail(err, TW_CONFIG, "`%s` is no number with a unit; write %s", text, want);
    }
    if (*rest == 0 && millionths == 0) {
        *out = 0;
        return TW_OK;
    }
    if (*rest == 0) return tw_fail(err, TW_CONFIG, "`%s` lacks its unit; write %s", text, want);
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcmp(rest, unit->name) != 0) continue;
        const uint64_t whole = millionths / 1000000, part = millionths % 1000000;
        if (whole > UINT64_MAX / unit->factor / 2) {
            return tw_fail(err, TW_CONFIG, "`%s` is too large", text);
        }
        *out = whole * unit->factor + part * unit->factor / 1000000;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "`%s` is no unit here; write %s", rest, want);
}

static enum tw_status read_rate(const struct tw_config_key *key, const char *text, uint64_t *out,
                                struct tw_error *err) {
    uint64_t bits;
    TW_TRY(read_quantity(text, RATES,
                         "a rate in bits such as 800kbit, 5mbit or 1gbit, or 0 for "
                         "no cap",
                         &bits, err));
    *out = bits / 8;
    if (bits > 0 && *out < key->min) {
        return tw_fail(err, TW_CONFIG, "%s is below %" PRIu64 "kbit, which no round would survive",
                       text, key->min * 8 / 1000);
    }
    return TW_OK;
}

static enum tw_status read_bytes(const struct tw_config_key *key, const char *text, uint64_t *out,
                                 struct tw_error *err) {
    char least[TW_UNITS_BYTES];
    uint64_t bytes;
    if (!tw_units_parse_bytes(text, &bytes))
        return tw_fail(err, TW_CONFIG, "`%s` is no size; write one such as 8GB or 512MiB", text);
    if (bytes > 0 && bytes < key->min)
        return tw_fail(err, TW_CONFIG, "%s is too small: at least %s, or 0 for none", text,
                       tw_units_exact_bytes(least, key->min));
    *out = bytes;
    return TW_OK;
}

static enum tw_status read_relay(const struct tw_config_key *key, const char *text,
                                 struct tw_relay_config *out, struct tw_error *err) {
    struct tw_relay_config read = {.is_on = strcmp(text, "off") != 0};
    if (read.is_on && strcmp(text, "on") != 0) {
        if (!isdigit((unsigned char)*text))
            return tw_fail(err, TW_CONFIG, "`%.40s` is neither on nor off nor a rate such as 2mbit",
                           text);
        TW_TRY(read_rate(key, text, &read.bytes_per_s, err));
        read.is_on = read.bytes_per_s > 0;
    }
    *out = read;
    return TW_OK;
}

static enum tw_status read_yield(const struct tw_config_key *key, const char *text, uint32_t *out,
                                 struct tw_error *err) {
    uint64_t millionths = 0;
    const char *rest = "";
    *out = strcmp(text, "on") == 0 ? TW_YIELD_ON_PERCENT : 0;
    if (*out > 0 || strcmp(text, "off") == 0) return TW_OK;
    if (!read_decimal(text, &millionths, &rest) || strcmp(rest, "%") != 0)
        return tw_fail(err, TW_CONFIG,
                       "`%.40s` is neither on nor off nor a percentage such as 40%%", text);
    const uint64_t percent = millionths / 1000000;
    if (millionths % 1000000 != 0 || percent < key->min || percent > key->max)
        return tw_fail(err, TW_CONFIG,
                       "`%.40s`: a whole number from %" PRIu64 "%% to %" PRIu64
                       "%% of all processors",
                       text, key->min, key->max);
    *out = (uint32_t)percent;
    return TW_OK;
}

static enum tw_status read_pace(const struct tw_config_key *key, const char *text,
                                struct tw_link_pace *out, struct tw_error *err) {
    struct tw_link_pace read = {.mode = TW_LINK_PACE_AUTO};
    if (strcmp(text, "off") == 0) {
        read.mode = TW_LINK_PACE_OFF;
    } else if (strcmp(text, "auto") != 0) {
        if (!isdigit((unsigned char)*text))
            return tw_fail(err, TW_CONFIG,
                           "`%.40s` is neither auto nor off nor a rate such as 5mbit", text);
        read.mode = TW_LINK_PACE_FIXED;
        TW_TRY(read_rate(key, text, &read.bytes_per_s, err));
        if (read.bytes_per_s == 0) read.mode = TW_LINK_PACE_OFF;
    }
    *out = read;
    return TW_OK;
}

enum tw_status tw_rate_parse(const char *text, uint64_t *bytes_per_s, struct tw_error *err) {
    static const struct tw_config_key any = {.min = 1000};
    return read_rate(&any, text, bytes_per_s, err);
}

static enum tw_status read_quota(const char *text, uint64_t *bytes, struct tw_error *err) {
    static const char want[] = "one such as 500GB/month, or 0 for none";
    const char *const slash = strchr(text, '/');
    char size[TW_UNITS_BYTES];
    if (strcmp(text, "0") == 0) {
        *bytes = 0;
        return TW_OK;
    }
    const size_t length = slash != NULL ? (size_t)(slash - text) : 0;
    if (slash == NULL || strcmp(slash, "/month") != 0 || length >= sizeof(size))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no quota; write %s", text, want);
    memcpy(size, text, length);
    size[length] = '\0';
    if (!tw_units_parse_bytes(size, bytes) || *bytes == 0)
        return tw_fail(err, TW_CONFIG, "`%.40s` is no size; write %s", size, want);
    return TW_OK;
}

enum tw_status tw_budget_parse(const char *text, struct tw_budget_config *budget,
                               struct tw_error *err) {
    static const char want[] = "2mbit of upload, 50GB/month in both directions, or 0 for none";
    enum { LEAST_BYTES_S = 1000 };
    struct tw_budget_config read = {0};
    const char *const slash = strchr(text, '/');
    char bytes[TW_UNITS_BYTES];
    uint64_t bits = 0;
    if (slash == NULL) {
        TW_TRY(read_quantity(text, RATES, want, &bits, err));
        read.bytes = bits / 8;
        if (bits > 0 && read.bytes < LEAST_BYTES_S)
            return tw_fail(err, TW_CONFIG, "%s is below 8kbit, which no round would survive", text);
        *budget = read;
        return TW_OK;
    }
    size_t size = (size_t)(slash - text);
    while (size > 0 && text[size - 1] == ' ') size--;
    const char *unit = slash + 1;
    while (*unit == ' ') unit++;
    if (strcmp(unit, "month") != 0 || size >= sizeof(bytes))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no budget; write %s", text, want);
    memcpy(bytes, text, size);
    bytes[size] = '\0';
    read.is_month = true;
    if (!tw_units_parse_bytes(bytes, &read.bytes))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no size; write %s", bytes, want);
    if (read.bytes / LEAST_BYTES_S < TW_MONTH_S)
        return tw_fail(err, TW_CONFIG, "%s is below 3GB/month, which no round would survive", text);
    *budget = read;
    return TW_OK;
}

enum tw_status tw_config_duration_parse(const char *text, uint64_t *us, struct tw_error *err) {
    return read_quantity(text, DURATIONS, "a time such as 500ms, 90s, 10m, 2h or 1d", us, err);
}

static enum tw_status read_duration(const struct tw_config_key *key, const char *text,
                                    uint64_t *out, struct tw_error *err) {
    TW_TRY(tw_config_duration_parse(text, out, err));
    if (*out > key->max) {
        return tw_fail(err, TW_CONFIG, "%s is more than %" PRIu64 "d", text,
                       key->max / UINT64_C(86400000000));
    }
    return TW_OK;
}

static enum tw_status read_integer(const struct tw_config_key *key, const char *text, uint64_t *out,
                                   struct tw_error *err) {
    char *end = NULL;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != 0) {
        return tw_fail(err, TW_CONFIG, "`%s` is no whole number from %" PRIu64 " to %" PRIu64, text,
                       key->min, key->max);
    }
    if (errno != 0 || value < key->min || value > key->max) {
        return tw_fail(err, TW_CONFIG, "%s is outside %" PRIu64 " to %" PRIu64, text, key->min,
                       key->max);
    }
    *out = value;
    return TW_OK;
}

static enum tw_status read_bool(const char *text, bool *out, struct tw_error *err) {
    static const char *const YES[] = {"on", "yes", "true", "1"}, *const NO[] = {"off", "no",
                                                                                "false", "0"};
    for (size_t i = 0; i < sizeof(YES) / sizeof(YES[0]); i++) {
        if (strcmp(text, YES[i]) == 0 || strcmp(text, NO[i]) == 0) {
            *out = strcmp(text, YES[i]) == 0;
            return TW_OK;
        }
    }
    return tw_fail(err, TW_CONFIG, "`%s` is neither on nor off", text);
}

static enum tw_status read_choice(const struct tw_config_key *key, const char *text, int *out,
                                  struct tw_error *err) {
    char list[128] = "";
    size_t count = 0;
    for (; key->choices[count] != NULL; count++) {
        if (strcmp(text, key->choices[count]) == 0) {
            *out = (int)count;
            return TW_OK;
        }
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof(list) - used, "%s%s", count > 0 ? ", " : "",
                       key->choices[count]);
    }
    return tw_fail(err, TW_CONFIG, "`%s` is none of %s", text, list);
}

/* Reads host:port or [v6]:port, whose port is at least `port_min`. */
static enum tw_status read_address(const char *text, unsigned port_min, struct tw_address *out,
                                   struct tw_error *err) {
    const char *const colon = strrchr(text, ':');
    if (strlen(text) >= sizeof(out->text)) {
        return tw_fail(err, TW_CONFIG, "`%.40s...` is longer than %zu bytes", text,
                       sizeof(out->text) - 1);
    }
    if (colon == NULL || colon == text) {
        return tw_fail(err, TW_CONFIG, "`%s` is no host:port, such as 192.0.2.1:4747", text);
    }
    const bool is_v6 = text[0] == '[' && colon[-1] == ']' && colon - text > 2;
    if (!is_v6 && memchr(text, ':', (size_t)(colon - text)) != NULL) {
        return tw_fail(err, TW_CONFIG, "`%s`: put an IPv6 address in brackets, [2001:db8::1]:4747",
                       text);
    }
    for (const char *c = text; c < colon; c++) {
        const bool is_fit = isalnum((unsigned char)*c) || strchr(".-_", *c) != NULL ||
                            (is_v6 && strchr("[]:%", *c) != NULL);
        if (!is_fit)
            return tw_fail(err, TW_CONFIG, "`%s` is no host:port, such as 192.0.2.1:4747", text);
    }
    char *end = NULL;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (!isdigit((unsigned char)colon[1]) || *end != 0 || port < port_min || port > 65535) {
        return tw_fail(err, TW_CONFIG, "`%s`: the port is a number from %u to 65535", text,
                       port_min);
    }
    memcpy(out->text, text, strlen(text) + 1);
    return TW_OK;
}

/* Parses one `host:port[=id]` of a config list or of peers_file. Returns TW_CONFIG on failure. */
static enum tw_status parse_bootstrap(const char *text, struct tw_bootstrap *bootstrap,
                                      struct tw_error *err) {
    struct tw_bootstrap parsed = {0};
    char address[TW_ADDR_BYTES];
    const char *const equals = strchr(text, '=');
    const size_t size = equals != NULL ? (size_t)(equals - text) : strlen(text);
    if (size >= sizeof(address)) {
        return tw_fail(err, TW_CONFIG, "`%.40s...` is longer than %zu bytes", text,
                       sizeof(address) - 1);
    }
    memcpy(address, text, size);
    address[size] = 0;
    TW_TRY(read_address(address, 1, &parsed.address, err));
    parsed.has_id = equals != NULL;
    if (parsed.has_id && !tw_id_parse(equals + 1, &parsed.id)) {
        return tw_fail(err, TW_CONFIG,
                       "`%s`: the node id after = is the 64 hex digits `thinwire init` printed",
                       address);
    }
    *bootstrap = parsed;
    return TW_OK;
}

static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

static enum tw_status read_path(const struct tw_config *config, const struct tw_config_key *key,
                                const char *folder, const char *text, char *out,
                                struct tw_error *err) {
    if (*text == 0 && key->min > 0) return tw_fail(err, TW_CONFIG, "a path is missing");
    if (text[0] == '~') {
        return tw_fail(err, TW_CONFIG, "`%s`: `~` means nothing to a service; write it out", text);
    }
    char path[TW_PATH_BYTES];
    const char *const mark = strstr(text, "%i");
    const int prefix = mark != NULL ? (int)(mark - text) : (int)strlen(text);
    const int n =
        snprintf(path, sizeof(path), "%s%s%.*s%s%s", *text != '/' && *text != 0 ? folder : "",
                 *text != '/' && *text != 0 && *folder != 0 ? "/" : "", prefix, text,
                 mark != NULL ? config->instance : "", mark != NULL ? mark + 2 : "");
    if (n < 0 || (size_t)n >= sizeof(path)) return tw_fail(err, TW_CONFIG, "the path is too long");
    memcpy(out, path, (size_t)n + 1);
    return TW_OK;
}

/* Reads an IP address without a port. */
static enum tw_status read_host(const char *text, struct tw_address *out, struct tw_error *err) {
    unsigned char bytes[sizeof(struct in6_addr)];
    if (strlen(text) >= sizeof(out->text) ||
        (inet_pton(AF_INET, text, bytes) != 1 && inet_pton(AF_INET6, text, bytes) != 1)) {
        return tw_fail(err, TW_CONFIG,
                       "`%.60s` is no IP address; write 192.0.2.7 or 2001:db8::7, without port",
                       text);
    }
    memcpy(out->text, text, strlen(text) + 1);
    return TW_OK;
}

bool tw_config_is_list(const struct tw_config_key *key) {
    return key->type == TW_CONFIG_ADDRESSES || key->type == TW_CONFIG_HOSTS ||
           key->type == TW_CONFIG_PEERS;
}

static enum tw_status append_entry(struct tw_config *config, const struct tw_config_key *key,
                                   const char *entry, struct tw_error *err) {
    uint32_t *const count = (uint32_t *)((char *)config + key->count_offset);
    if (*count == key->max) {
        return tw_fail(err, TW_CONFIG, "more than %" PRIu64 " entries", key->max);
    }
    char *const list = (char *)config + key->offset;
    if (key->type == TW_CONFIG_PEERS) {
        TW_TRY(parse_bootstrap(entry, (struct tw_bootstrap *)list + *count, err));
    } else if (key->type == TW_CONFIG_HOSTS) {
        TW_TRY(read_host(entry, (struct tw_address *)list + *count, err));
    } else {
        TW_TRY(read_address(entry, (unsigned)key->min, (struct tw_address *)list + *count, err));
    }
    (*count)++;
    return TW_OK;
}

static enum tw_status read_list(struct tw_config *config, const struct tw_config_key *key,
                                const char *text, struct tw_error *err) {
    char entry[TW_ADDR_BYTES + 80];
    while (*text != 0) {
        const size_t skip = strspn(text, ", \t");
        text += skip;
        const size_t size = strcspn(text, ", \t");
        if (size == 0) break;
        if (size >= sizeof(entry)) return tw_fail(err, TW_CONFIG, "`%.40s...` is too long", text);
        memcpy(entry, text, size);
        entry[size] = 0;
        TW_TRY(append_entry(config, key, entry, err));
        text += size;
    }
    return TW_OK;
}

enum tw_status tw_config_set(struct tw_config *config, const struct tw_config_key *key,
                             const char *folder, const char *value, struct tw_error *err) {
    void *const field = (char *)config + key->offset;
    uint64_t number = 0;
    switch (key->type) {
    case TW_CONFIG_STRING:
        if (strlen(value) >= key->size) {
            return tw_fail(err, TW_CONFIG, "longer than %zu bytes", key->size - 1);
        }
        memcpy(field, value, strlen(value) + 1);
        return TW_OK;
    case TW_CONFIG_PATH: return read_path(config, key, folder, value, field, err);
    case TW_CONFIG_COUNT:
        TW_TRY(read_integer(key, value, &number, err));
        *(uint32_t *)field = (uint32_t)number;
        return TW_OK;
    case TW_CONFIG_STEPS: return read_integer(key, value, field, err);
    case TW_CONFIG_BOOL: return read_bool(value, field, err);
    case TW_CONFIG_RATE: return read_rate(key, value, field, err);
    case TW_CONFIG_PACE: return read_pace(key, value, field, err);
    case TW_CONFIG_RELAY: return read_relay(key, value, field, err);
    case TW_CONFIG_BUDGET: return tw_budget_parse(value, field, err);
    case TW_CONFIG_QUOTA: return read_quota(value, field, err);
    case TW_CONFIG_HOURS: return tw_hours_parse(value, field, err);
    case TW_CONFIG_HOURS_OFF: return tw_hours_parse_off(value, field, err);
    case TW_CONFIG_YIELD: return read_yield(key, value, field, err);
    case TW_CONFIG_BYTES: return read_bytes(key, value, field, err);
    case TW_CONFIG_DURATION: return read_duration(key, value, field, err);
    case TW_CONFIG_DEVICE: return tw_device_parse(value, field, err);
    case TW_CONFIG_CHOICE: {
        int choice = 0;
        TW_TRY(read_choice(key, value, &choice, err));
        memcpy(field, &choice, sizeof(choice));
        return TW_OK;
    }
    case TW_CONFIG_ADDRESS:
        *(bool *)((char *)config + key->count_offset) = *value != 0;
        if (*value == 0) return TW_OK;
        TW_TRY(read_address(value, (unsigned)key->min, field, err));
        if (!is_loopback(value)) {
            return tw_fail(err, TW_CONFIG,
                           "`%s` is not loopback; use 127.0.0.1, [::1] or a proxy "
                           "of your own in front",
                           value);
        }
        return TW_OK;
    case TW_CONFIG_ADDRESSES:
    case TW_CONFIG_HOSTS:
    case TW_CONFIG_PEERS: return read_list(config, key, value, err);
    }
    TW_ASSERT(false); /* every type has a case */
    return TW_CONFIG;
}

void tw_config_clear(struct tw_config *config, const struct tw_config_key *key) {
    if (!tw_config_is_list(key)) return;
    *(uint32_t *)((char *)config + key->count_offset) = 0;
}

static void print_quantity(uint64_t value, const struct unit *units, char *text, size_t capacity) {
    const struct unit *best = units;
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (value >= unit->factor && value % unit->factor == 0) best = unit;
    }
    if (value == 0) {
        (void)snprintf(text, capacity, "0");
    } else if (value % best->factor == 0) {
        (void)snprintf(text, capacity, "%" PRIu64 "%s", value / best->factor, best->name);
    } else { /* finer than the smallest unit; six decimals are exact for microseconds */
        (void)snprintf(text, capacity, "%" PRIu64 ".%06" PRIu64 "%s", value / best->factor,
                       value % best->factor * 1000000 / best->factor, best->name);
    }
}

static void print_relay(const struct tw_relay_config *relay, char *text, size_t capacity) {
    if (relay->is_on && relay->bytes_per_s > 0)
        print_quantity(relay->bytes_per_s * 8, RATES, text, capacity);
    else
        (void)snprintf(text, capacity, relay->is_on ? "on" : "off");
}

static void print_yield(uint32_t percent, char *text, size_t capacity) {
    if (percent > 0)
        (void)snprintf(text, capacity, "%" PRIu32 "%%", percent);
    else
        (void)snprintf(text, capacity, "off");
}

static void print_pace(const struct tw_link_pace *pace, char *text, size_t capacity) {
    if (pace->mode == TW_LINK_PACE_FIXED)
        print_quantity(pace->bytes_per_s * 8, RATES, text, capacity);
    else
        (void)snprintf(text, capacity, pace->mode == TW_LINK_PACE_OFF ? "off" : "auto");
}

void tw_rate_print(uint64_t bytes_per_s, char *text, size_t capacity) {
    print_quantity(bytes_per_s * 8, RATES, text, capacity);
}

static void print_quota(uint64_t bytes, char *text, size_t capacity) {
    char size[TW_UNITS_BYTES];
    (void)snprintf(text, capacity, "%s%s", bytes > 0 ? tw_units_exact_bytes(size, bytes) : "0",
                   bytes > 0 ? "/month" : "");
}

static void print_budget(const struct tw_budget_config *budget, char *text, size_t capacity) {
    char size[TW_UNITS_BYTES];
    if (budget->is_month) {
        (void)snprintf(text, capacity, "%s/month", tw_units_exact_bytes(size, budget->bytes));
    } else {
        print_quantity(budget->bytes * 8, RATES, text, capacity);
    }
}

bool tw_config_get(const struct tw_config *config, const struct tw_config_key *key, uint32_t i,
                   char *text, size_t capacity) {
    const void *const field = (const char *)config + key->offset;
    const void *const count = (const char *)config + key->count_offset;
    if (tw_config_is_list(key)) {
        if (i >= *(const uint32_t *)count) return false;
    } else if (i > 0) {
        return false;
    }
    switch (key->type) {
    case TW_CONFIG_STRING:
    case TW_CONFIG_PATH: (void)snprintf(text, capacity, "%s", (const char *)field); break;
    case TW_CONFIG_COUNT:
        (void)snprintf(text, capacity, "%" PRIu32, *(const uint32_t *)field);
        break;
    case TW_CONFIG_STEPS:
        (void)snprintf(text, capacity, "%" PRIu64, *(const uint64_t *)field);
        break;
    case TW_CONFIG_BOOL: (void)snprintf(text, capacity, *(const bool *)field ? "on" : "off"); break;
    case TW_CONFIG_RATE: print_quantity(*(const uint64_t *)field * 8, RATES, text, capacity); break;
    case TW_CONFIG_PACE: print_pace(field, text, capacity); break;
    case TW_CONFIG_RELAY: print_relay(field, text, capacity); break;
    case TW_CONFIG_BUDGET: print_budget(field, text, capacity); break;
    case TW_CONFIG_QUOTA: print_quota(*(const uint64_t *)field, text, capacity); break;
    case TW_CONFIG_HOURS:
    case TW_CONFIG_HOURS_OFF: tw_hours_print(field, text, capacity); break;
    case TW_CONFIG_YIELD: print_yield(*(const uint32_t *)field, text, capacity); break;
    case TW_CONFIG_BYTES: {
        char size[TW_UNITS_BYTES];
        (void)snprintf(text, capacity, "%s", tw_units_exact_bytes(size, *(const uint64_t *)field));
        break;
    }
    case TW_CONFIG_DURATION:
        print_quantity(*(const uint64_t *)field, DURATIONS, text, capacity);
        break;
    case TW_CONFIG_DEVICE: {
        char name[TW_DEVICE_TEXT_BYTES];
        (void)snprintf(text, capacity, "%s", tw_device_print(field, name));
        break;
    }
    case TW_CONFIG_CHOICE: {
        int choice;
        memcpy(&choice, field, sizeof(choice));
        (void)snprintf(text, capacity, "%s", key->choices[choice]);
        break;
    }
    case TW_CONFIG_ADDRESS:
        (void)snprintf(text, capacity, "%s",
                       *(const bool *)count ? ((const struct tw_address *)field)->text : "");
        break;
    case TW_CONFIG_ADDRESSES:
    case TW_CONFIG_HOSTS:
        (void)snprintf(text, capacity, "%s", ((const struct tw_address *)field)[i].text);
        break;
    case TW_CONFIG_PEERS: {
        const struct tw_bootstrap *const peer = (const struct tw_bootstrap *)field + i;
        char hex[TW_ID_HEX_BYTES] = "";
        if (peer->has_id) tw_id_hex(&peer->id, hex);
        (void)snprintf(text, capacity, "%s%s%s", peer->address.text, peer->has_id ? "=" : "", hex);
        break;
    }
    }
    return true;
}
