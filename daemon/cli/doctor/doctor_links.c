/* doctor_links.c - checks the addresses that this node listens on, prints its daemon's warnings,
 * and tests each configured address stage by stage: name, TCP, TLS, admission. */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/units.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/net/probe.h"
#include "daemon/net/socket.h"
#include "proto/frame.h"

enum {
    SMALL_MTU_BYTES = 1280, /* largest packet of a node: tw_socket_tune of daemon/net/socket.h */
    VOTERS_SAFE = 4,        /* fewest voters of which one may lie: tw_liars_max */
};

/* ---- this side ----------------------------------------------------------------------------- */

/* Says how many members vote, unless all do. */
static void look_at_voters(struct doctor *doctor) {
    const json_t *const sync = json_object_get(doctor->status, "sync");
    const json_int_t members = json_integer_value(json_object_get(sync, "roster_members")),
                     voters = json_integer_value(json_object_get(sync, "roster_voters"));
    if (voters == 0 || voters >= members) return;
    const bool has_owner = json_is_object(json_object_get(doctor->status, "admission"));
    if (voters < VOTERS_SAFE)
        doctor_say(doctor, DOCTOR_WARN, "voters",
                   has_owner ? "have the owner sign more voters (`thinwire owner sign`, without "
                               "--no-vote); they vote from their next start"
                             : "wait: a member votes once up to 64 rounds have merged its work",
                   "%lld of %lld members vote%s: fewer than four voters withstand no liar",
                   (long long)voters, (long long)members, voters == 1 ? "s" : "");
    else
        doctor_say(doctor, DOCTOR_OK, "voters", NULL, "%lld of %lld members vote",
                   (long long)voters, (long long)members);
}

/* Prints the daemon's warnings: the same lines as in `thinwire status`. */
static void look_at_daemon(struct doctor *doctor) {
    if (doctor->status == NULL) {
        doctor_say(doctor, DOCTOR_WARN, "daemon", doctor->start, "none answers on %s",
                   doctor->config.api.socket);
        return;
    }
    const json_t *const warnings = json_object_get(doctor->status, "warnings");
    const char *const state = json_string_value(json_object_get(doctor->status, "state"));
    const json_int_t linked =
        json_integer_value(json_object_get(json_object_get(doctor->status, "sync"), "alive_peers"));
    doctor_say(doctor, DOCTOR_OK, "daemon", NULL, "up, state %s, %lld peer%s alive",
               state != NULL ? state : "unknown", (long long)linked, tw_units_s((double)linked));
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const json_t *const row = json_array_get(warnings, i);
        const char *const what = json_string_value(json_object_get(row, "what"));
        doctor_say(doctor, DOCTOR_WARN, "daemon.says",
                   json_string_value(json_object_get(row, "way_out")), "%s",
                   what != NULL ? what : "a warning without text");
    }
    look_at_voters(doctor);
}

/* Asks the port that another process has whether a node answers there, as one of another
 * configuration of this machine does. Writes the begin of its id. */
static bool is_node_at(const struct doctor *doctor, const char *host, uint16_t port, char hex[9]) {
    static const struct tw_egress any = {.interface = ""};
    char address[TW_ADDR_BYTES + 16];
    struct tw_tls_context tls;
    struct tw_probe_answer answer;
    struct tw_error err;
    const bool is_v6 = strchr(host, ':') != NULL, is_any = host[strspn(host, "0.:")] == '\0';
    if (!doctor->has_identity || tw_tls_context_init(&tls, &doctor->identity, &err) != TW_OK)
        return false;
    (void)snprintf(address, sizeof(address), is_v6 ? "[%s]:%u" : "%s:%u",
                   !is_any ? host
                   : is_v6 ? "::1"
                           : "127.0.0.1",
                   (unsigned)port);
    const struct tw_probe_question question = {.address = address,
                                               .tls = &tls,
                                               .hello = {.id = doctor->identity.id},
                                               .egress = &any,
                                               .is_stranger = true,
                                               .patience_us = doctor->patience_us};
    tw_probe_run(&question, &answer);
    tw_tls_context_deinit(&tls);
    if (answer.has_id) tw_id_short(&answer.id, hex);
    return answer.has_id;
}

/* Says that the node cannot listen there, and names another node that does. */
static void port_taken(struct doctor *doctor, const char *address, const char *host,
                       uint16_t port) {
    char hex[9];
    if (is_node_at(doctor, host, port, hex))
        doctor_say(doctor, DOCTOR_FAIL, "port",
                   "give one of the two nodes another `listen =` (and `advertise =`)",
                   "%s cannot be listened on: node %s of this machine does already", address, hex);
    else
        doctor_say(doctor, DOCTOR_FAIL, "port",
                   "another process has it: stop it, or change `listen =`",
                   "%s cannot be listened on: %s", address, strerror(EADDRINUSE));
}

/* Checks by a short bind that the node can listen on this address. */
static void port_try(struct doctor *doctor, const char *address) {
    char host[TW_ADDR_BYTES], service[8];
    uint16_t port = 0;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const int on = 1;
    if (!tw_address_split(address, host, &port)) return;
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0) {
        doctor_say(doctor, DOCTOR_FAIL, "port", "write an IP address of this machine in `listen =`",
                   "%s: %s", address, gai_strerror(code));
        return;
    }
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (found->ai_family == AF_INET6)
            (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    const bool is_free =
        fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
    const int why = errno;
    if (fd >= 0) (void)close(fd);
    freeaddrinfo(found);
    if (is_free)
        doctor_say(doctor, DOCTOR_OK, "port", NULL, "%s is free for the daemon", address);
    else if (why == EADDRINUSE)
        port_taken(doctor, address, host, port);
    else
        doctor_say(doctor, DOCTOR_FAIL, "port",
                   why == EADDRNOTAVAIL ? "it is no address of this machine: change `listen =`"
                                        : "ports below 1024 need root: change `listen =`",
                   "%s cannot be listened on: %s", address, strerror(why));
}

static void look_at_ports(struct doctor *doctor) {
    const struct tw_config *const config = &doctor->config;
    if (!config->network.links) {
        doctor_say(doctor, DOCTOR_SKIP, "port", NULL, "links = off: this node trains alone");
        return;
    }
    if (config->network.listen_count == 0)
        doctor_say(doctor, DOCTOR_OK, "port", NULL, "none: this node only dials");
    for (uint32_t i = 0; i < config->network.listen_count; i++) {
        if (doctor->status == NULL)
            port_try(doctor, config->network.listen[i].text);
        else
            doctor_say(doctor, DOCTOR_OK, "port", NULL, "the daemon listens on %s",
                       config->network.listen[i].text);
    }
}

/* Reports whether peers could dial the daemon back. The sentence names the port to open. */
static void look_at_dial_back(struct doctor *doctor) {
    const json_t *const reachable =
        json_object_get(json_object_get(doctor->status, "network"), "reachable");
    const char *const state = json_string_value(json_object_get(reachable, "state"));
    const char *const text = json_string_value(json_object_get(reachable, "text"));
    if (!doctor->config.network.links) return;
    if (doctor->config.network.listen_count == 0) {
        doctor_say(doctor, DOCTOR_OK, "dial-back", NULL, "not needed: this node only dials");
    } else if (state == NULL || text == NULL || strcmp(state, "unknown") == 0) {
        doctor_say(doctor, DOCTOR_SKIP, "dial-back", NULL,
                   "known once a peer has dialled the running daemon back");
    } else {
        const bool is_shut = strcmp(state, "no") == 0 || strcmp(state, "local") == 0;
        doctor_say(doctor, is_shut ? DOCTOR_WARN : DOCTOR_OK, "dial-back",
                   is_shut ? "links that this node dials are enough, unless the other nodes cannot "
                             "be dialled either"
                           : NULL,
                   "%s", text);
    }
}

/* Reports the port that the router maps to the daemon. */
static void look_at_router(struct doctor *doctor) {
    const json_t *const network = json_object_get(doctor->status, "network");
    const json_t *const mapping = json_object_get(network, "port_mapping");
    const char *const state = json_string_value(json_object_get(mapping, "state"));
    const char *const text = json_string_value(json_object_get(mapping, "text"));
    const char *const reach =
        json_string_value(json_object_get(json_object_get(network, "reachable"), "state"));
    if (!doctor->config.network.links) return;
    if (state == NULL || text == NULL || strcmp(state, "asking") == 0) {
        doctor_say(doctor, DOCTOR_SKIP, "router", NULL,
                   "known once the running daemon has asked the router for a port");
        return;
    }
    const bool is_fine = strcmp(state, "mapped") == 0 || strcmp(state, "off") == 0 ||
                         strcmp(state, "not_needed") == 0;
    if (!is_fine && reach != NULL && strcmp(reach, "yes") == 0) {
        doctor_say(doctor, DOCTOR_OK, "router", NULL,
                   "it forwards no port, and need not: peers dial this node");
        return;
    }
    doctor_say(doctor, is_fine ? DOCTOR_OK : DOCTOR_WARN, "router",
               is_fine ? NULL
                       : "without a port at the router, links to other homes go through a member "
                         "that both reach",
               "%s", text);
}

/* Reports the kind of NAT that the daemon has found. */
static void look_at_nat(struct doctor *doctor) {
    const json_t *const nat = json_object_get(json_object_get(doctor->status, "network"), "nat");
    const char *const kind = json_string_value(json_object_get(nat, "kind"));
    const char *const text = json_string_value(json_object_get(nat, "text"));
    if (!doctor->config.network.links || kind == NULL || text == NULL) return;
    const bool is_known = strcmp(kind, "unknown") != 0;
    const char *const fix = strstr(text, "; ");
    if (strcmp(kind, "symmetric") == 0 && fix != NULL)
        doctor_say(doctor, DOCTOR_WARN, "nat", fix + 2, "%.*s", (int)(fix - text), text);
    else
        doctor_say(doctor, is_known ? DOCTOR_OK : DOCTOR_SKIP, "nat", NULL, "%s", text);
}

/* Reports which links of the daemon are direct, punched or relayed. */
static void look_at_paths(struct doctor *doctor) {
    const json_t *const links =
        json_object_get(json_object_get(doctor->status, "network"), "links");
    json_int_t counts[4];
    static const char *const NAMES[] = {"direct", "mapped", "punched", "relayed"};
    if (!doctor->config.network.links || links == NULL) return;
    for (unsigned i = 0; i < 4; i++)
        counts[i] = json_integer_value(json_object_get(links, NAMES[i]));
    doctor_say(doctor, DOCTOR_OK, "links", NULL,
               "%lld direct, %lld by the router's port, %lld punched, %lld through another member",
               (long long)counts[0], (long long)counts[1], (long long)counts[2],
               (long long)counts[3]);
}

/* ---- every configured address -------------------------------------------------------------- */

struct job {
    pthread_t thread;
    /* is_join: this machine has a ticket but no secret yet, so admission is not tested */
    bool is_started, is_join;
    struct tw_probe_question question;
    struct tw_probe_answer answer;
};

static void *job_run(void *user) {
    struct job *const job = user;
    tw_probe_run(&job->question, &job->answer);
    return NULL;
}

static uint32_t milliseconds(uint64_t us) {
    return (uint32_t)((us + 500) / 1000);
}

/* Prints one stage. `is_spare`: another address admits this node, so a dead one is no failure. */
static void stage_say(struct doctor *doctor, const struct job *job, enum tw_probe_stage stage,
                      bool is_spare) {
    static const char *const NAMES[] = {"peer.name", "peer.tcp", "peer.tls", "peer.admitted"};
    const struct tw_probe_answer *const answer = &job->answer;
    const uint32_t took_ms = milliseconds(answer->took_us[stage]);
    const char *const address = job->question.address;
    char hex[9];
    if (answer->stage < stage) {
        doctor_say(doctor, DOCTOR_SKIP, NAMES[stage], NULL, "%s: not reached", address);
    } else if (answer->stage == stage) {
        /* the probe's error sentence, which ends with the remedy */
        char what[TW_DIAL_SENTENCE_BYTES];
        (void)snprintf(what, sizeof(what), "%s", answer->sentence);
        char *const fix = strrchr(what, ';');
        if (fix != NULL) *fix = '\0';
        doctor_say(doctor,
                   is_spare && !tw_dial_is_refusal(answer->cause) ? DOCTOR_WARN : DOCTOR_FAIL,
                   NAMES[stage], fix != NULL ? fix + 2 : NULL, "%s%s", what,
                   is_spare ? "; another address of the run works" : "");
    } else if (stage == TW_PROBE_NAME) {
        if (strcmp(address, answer->remote) == 0)
            doctor_say(doctor, DOCTOR_SKIP, NAMES[stage], NULL, "%s needs no name server", address);
        else
            doctor_say(doctor, DOCTOR_OK, NAMES[stage], NULL, "%s is %s, in %u ms", address,
                       answer->remote, took_ms);
    } else if (stage == TW_PROBE_TCP) {
        doctor_say(doctor, DOCTOR_OK, NAMES[stage], NULL, "%s connects in %u ms", address, took_ms);
    } else if (stage == TW_PROBE_TLS) {
        tw_id_short(&answer->id, hex);
        doctor_say(doctor, DOCTOR_OK, NAMES[stage], NULL, "%s is node %s%s", address, hex,
                   job->question.expected != NULL ? ", the one expected" : "");
    } else {
        doctor_say(doctor, DOCTOR_OK, NAMES[stage], NULL, "%s admits this node, in %u ms", address,
                   took_ms);
    }
}

/* Says whether the largest packets of a node pass. Larger ones are never sent, so the MTU of a path
 * is not measured; the kernel knows a smaller one only if a router reported it. */
static void mtu_say(struct doctor *doctor, const struct job *jobs, uint32_t count) {
    char text[32] = "?";
    uint32_t connected = 0, passed = 0;
    bool is_stalled = false, is_small = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct tw_probe_answer *const answer = &jobs[i].answer;
        is_stalled |= answer->cause == TW_DIAL_STALLED;
        is_small |= answer->mtu_bytes > 0 && answer->mtu_bytes < SMALL_MTU_BYTES;
        connected += answer->mtu_bytes > 0;
        passed += answer->stage == TW_PROBE_DONE && !jobs[i].question.is_stranger;
    }
    const bool is_probing =
        doctor_proc(doctor, "sys/net/ipv4/tcp_mtu_probing", text, sizeof(text)) && text[0] != '0';
    if (connected == 0 && !is_stalled)
        doctor_say(doctor, DOCTOR_SKIP, "mtu", NULL, "no address connected");
    else if (!is_probing && (is_stalled || is_small))
        doctor_say(doctor, DOCTOR_WARN, "mtu",
                   "sysctl -w net.ipv4.tcp_mtu_probing=1 on both machines, or set the interface's "
                   "MTU to that of the path",
                   "a path %s: large packets may get lost on it",
                   is_stalled ? "accepts connections and then sends nothing"
                              : "has an MTU below 1280 bytes");
    else if (is_stalled || is_small)
        doctor_say(doctor, DOCTOR_OK, "mtu", NULL, "the kernel detects a smaller MTU on a path");
    else if (passed > 0)
        doctor_say(doctor, DOCTOR_OK, "mtu", NULL,
                   "the largest packets of a node, of at most %d bytes, reached %u of %u addresses",
                   SMALL_MTU_BYTES, passed, count);
    else
        doctor_say(doctor, DOCTOR_SKIP, "mtu", NULL,
                   "known once a node admits this one: a large packet is then tried");
}

static void question_fill(const struct doctor *doctor, const struct tw_bootstrap *peer,
                          struct tw_probe_question *question) {
    const bool has_no_secret =
        doctor->has_run && doctor->run.security.admission != TW_ADMISSION_SECRET;
    /* Without the secret this machine could only send a wrong proof, which peers would count
     * against it. */
    question->is_stranger |= !doctor->has_run || (!has_no_secret && !doctor->has_secret);
    question->address = peer->address.text;
    question->expected = peer->has_id ? &peer->id : NULL;
    question->hello = (struct tw_hello){.version_min = TW_WIRE_VERSION,
                                        .version_max = TW_WIRE_VERSION,
                                        .role = TW_ROLE_PROBE,
                                        .boot = 1,
                                        .id = doctor->identity.id};
    question->secret = has_no_secret ? NULL : &doctor->secrets.list[0];
    question->patience_us = doctor->patience_us;
    if (doctor->has_run) question->hello.run = tw_run_id(&doctor->run);
    if (!doctor->has_gate) return;
    uint8_t bytes[TW_GATE_BYTES_MAX];
    const uint32_t size = tw_gate_encode(&doctor->gate, bytes);
    tw_extensions_add(&question->hello.extensions, TW_EXTENSION_CERTIFICATES, bytes, size);
}

static void jobs_run(struct job *jobs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        jobs[i].is_started = pthread_create(&jobs[i].thread, NULL, job_run, &jobs[i]) == 0;
        if (!jobs[i].is_started) (void)job_run(&jobs[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (jobs[i].is_started) (void)pthread_join(jobs[i].thread, NULL);
    }
}

/* Returns true if nothing answers at the address, as it is one at which this node itself would
 * listen: its own of a former identity, say. */
static bool is_own_address(const struct doctor *doctor, const struct tw_probe_answer *answer) {
    char host[TW_ADDR_BYTES];
    struct addrinfo *found = NULL;
    struct sockaddr_storage address = {0};
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    uint16_t port = 0, own = 0;
    bool is_listened = false;
    if (answer->stage != TW_PROBE_TCP || doctor->status != NULL ||
        !tw_address_split(answer->remote, host, &port) ||
        getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    for (uint32_t i = 0; i < doctor->config.network.listen_count; i++)
        is_listened |=
            tw_address_split(doctor->config.network.listen[i].text, host, &own) && own == port;
    return is_listened && tw_local_address_is(&address);
}

static void job_say(struct doctor *doctor, const struct job *job, bool is_spare) {
    const struct tw_probe_answer *const answer = &job->answer;
    const bool is_self = answer->has_id && tw_id_equal(&answer->id, &doctor->identity.id);
    if (is_own_address(doctor, answer)) {
        doctor_say(doctor, DOCTOR_SKIP, "peer.self", NULL,
                   "%s is an address of this machine, at which its own daemon would listen",
                   job->question.address);
        return;
    }
    if (is_self) {
        doctor_say(doctor, DOCTOR_OK, "peer.self", NULL, "%s is this node itself",
                   job->question.address);
        return;
    }
    for (enum tw_probe_stage stage = TW_PROBE_NAME; stage < TW_PROBE_DONE; stage++) {
        if (stage != TW_PROBE_HELLO || !job->question.is_stranger)
            stage_say(doctor, job, stage, is_spare);
        else
            doctor_say(doctor, DOCTOR_SKIP, "peer.admitted", NULL, "%s: %s", job->question.address,
                       job->is_join ? "`thinwire join` will tell"
                                    : "needs the manifest and the secret");
    }
}

/* Resolves `bind` and `interface`, which say where to dial from, as the daemon does. */
static void egress_find(struct doctor *doctor, struct tw_egress *egress) {
    char bind[TW_BIND_MAX][TW_ADDR_BYTES] = {{0}};
    struct tw_error err;
    for (uint32_t i = 0; i < doctor->config.network.bind_count; i++)
        memcpy(bind[i], doctor->config.network.bind[i].text, TW_ADDR_BYTES);
    if (tw_egress_init(egress, doctor->config.network.interface, (const char(*)[TW_ADDR_BYTES])bind,
                       &err) == TW_OK &&
        tw_egress_check(egress, &err) == TW_OK)
        return;
    doctor_say(doctor, DOCTOR_FAIL, "line", "repair network.bind or network.interface", "%s",
               err.message);
    *egress = (struct tw_egress){0};
}

void doctor_addresses(struct doctor *doctor, const struct tw_bootstrap *peers, uint32_t count,
                      bool is_stranger) {
    static struct job jobs[TW_BOOTSTRAP_MAX];
    struct tw_tls_context tls;
    struct tw_egress egress;
    struct tw_error err;
    TW_ASSERT(count <= TW_BOOTSTRAP_MAX);
    if (!doctor->has_identity || tw_tls_context_init(&tls, &doctor->identity, &err) != TW_OK) {
        doctor_say(doctor, DOCTOR_SKIP, "peers", NULL, "dialling needs an identity");
        return;
    }
    egress_find(doctor, &egress);
    for (uint32_t i = 0; i < count; i++) {
        jobs[i] =
            (struct job){.is_join = is_stranger,
                         .question = {.tls = &tls, .egress = &egress, .is_stranger = is_stranger}};
        question_fill(doctor, &peers[i], &jobs[i].question);
    }
    jobs_run(jobs, count);
    bool has_good = false;
    for (uint32_t i = 0; i < count; i++)
        has_good |= jobs[i].answer.stage == TW_PROBE_DONE &&
                    !tw_id_equal(&jobs[i].answer.id, &doctor->identity.id);
    for (uint32_t i = 0; i < count; i++) job_say(doctor, &jobs[i], has_good);
    mtu_say(doctor, jobs, count);
    tw_tls_context_deinit(&tls);
}

static void look_at_peers(struct doctor *doctor) {
    const uint32_t count = doctor->config.network.peers_count;
    const json_int_t alive =
        json_integer_value(json_object_get(json_object_get(doctor->status, "sync"), "alive_peers"));
    if (!doctor->config.network.links) return;
    if (count > 0)
        doctor_addresses(doctor, doctor->config.network.peers, count, false);
    else if (alive > 0)
        doctor_say(doctor, DOCTOR_OK, "peers", NULL,
                   "none are configured, and %lld %s alive: the node knows them from their dials",
                   (long long)alive, alive == 1 ? "is" : "are");
    else if (doctor->status == NULL) /* other nodes may dial it once it runs */
        doctor_say(doctor, DOCTOR_SKIP, "peers", NULL,
                   "none are configured: the running daemon knows the nodes that dial it");
    else if (doctor->has_gate && tw_gate_is_admitter(&doctor->gate.own))
        doctor_say(doctor, DOCTOR_OK, "peers", NULL,
                   "nobody has joined yet: this node lets machines in, and they dial it");
    else
        doctor_say(doctor, DOCTOR_WARN, "peers",
                   "`thinwire invite` prints a line with which another machine joins; to join an "
                   "existing run, name a node of it with `peers = host:port`",
                   "none are configured: this node links only to nodes that dial it");
}

void doctor_links(struct doctor *doctor) {
    look_at_daemon(doctor);
    look_at_ports(doctor);
    look_at_dial_back(doctor);
    look_at_router(doctor);
    look_at_nat(doctor);
    look_at_paths(doctor);
    look_at_peers(doctor);
}
