/* join.c - `thinwire join`: turns a ticket into a node of its run, on an empty disk.
 *
 * The order is: identity, WELCOME from the inviter, manifest, secret or certificate, configuration.
 * An interrupted command can be repeated. The identity stays, so the inviter recognises the machine
 * and counts no second use of the ticket. A node that exists gets a certificate alone, if it has
 * none that is good now. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/machine.h"
#include "base/page.h"
#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/ended.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/ticket_line.h"
#include "daemon/cli/node/init.h"
#include "daemon/cli/node/node_files.h"
#include "daemon/cli/node/node_start.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_memory.h"
#include "daemon/net/transport.h"
#include "proto/hello.h"
#include "proto/message.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "proto/ticket.h"

/* ---- the WELCOME of the inviter -------------------------------------------------------------- */

struct dial {
    struct tw_transport *transport;
    const struct tw_ticket *ticket;
    struct tw_welcome *welcome;
    uint32_t next; /* index of the next address */
    bool is_welcome;
    char *address;
};

/* ---- events -------------------------------------------------------------------------------- */

static void next_address(struct dial *dial) {
    struct tw_error err = {0};
    while (dial->next < dial->ticket->addrs_count) {
        const char *address = dial->ticket->addrs[dial->next++];
        (void)fprintf(stderr, "thinwire: dialling %s\n", address);
        if (tw_transport_visit(dial->transport, address, dial->ticket, &err) == TW_OK) return;
        (void)cli_fail(TW_EXIT_JOIN, "%s: %s", address, err.message);
    }
    tw_transport_destroy(dial->transport, "done", NULL);
}

static void on_welcomed(void *user, const uint8_t *body, uint32_t size) {
    struct dial *dial = user;
    struct tw_error err = {0};
    dial->is_welcome = tw_welcome_decode(body, size, dial->welcome, &err) == TW_OK;
    if (!dial->is_welcome)
        (void)cli_fail(TW_EXIT_JOIN, "the inviter's answer is malformed: %s", err.message);
}

static void on_dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    struct dial *dial = user;
    const char *const way_out = strrchr(result->sentence, ';');
    /* The way out of this sentence is that of a daemon, which dials again by itself. */
    if (result->cause == TW_DIAL_OFFLINE && way_out != NULL)
        (void)cli_fail(TW_EXIT_JOIN, "%.*s; join again once it has a line",
                       (int)(way_out - result->sentence), result->sentence);
    else if (result->status != TW_OK)
        (void)cli_fail(TW_EXIT_JOIN, "%s", result->sentence);
    if (dial->is_welcome) (void)snprintf(dial->address, TW_ADDR_BYTES, "%s", address);
    /* An inviter that refuses would also refuse at its other addresses. */
    const bool is_over = result->status == TW_OK || tw_dial_is_refusal(result->cause);
    if (is_over && result->cause != TW_DIAL_WRONG_ID) dial->next = dial->ticket->addrs_count;
    next_address(dial);
}

/* never called: a guest has no peers */
static void on_peer_up(void *user, uint16_t peer, const struct tw_member_row *hello) {
    (void)user, (void)peer, (void)hello;
}

static void on_peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    (void)user, (void)peer, (void)reason, (void)sentence;
}

static void on_frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    (void)user, (void)peer, (void)is_bulk, (void)frame;
}

/* ---- the dial -------------------------------------------------------------------------------- */

/* Tries the ticket's addresses in turn, on a loop of its own. Prints the reason of each failure on
 * standard error. `name` is this node's, for the inviter's lists. On TW_EXIT_OK, *welcome is
 * filled, and address[TW_ADDR_BYTES] is the address that answered. Otherwise returns TW_EXIT_JOIN.
 */
static enum tw_exit fetch_welcome(const struct tw_ticket *ticket,
                                  const struct tw_identity *identity, const char *name,
                                  struct tw_welcome *welcome, char *address) {
    uv_loop_t loop;
    struct tw_error err = {0};
    struct dial dial = {.ticket = ticket, .welcome = welcome, .address = address};
    TW_ASSERT(uv_loop_init(&loop) == 0);
    struct tw_transport_config config = {
        .loop = &loop,
        .identity = identity,
        .run = ticket->run,
        .events = {.peer_up = on_peer_up,
                   .peer_down = on_peer_down,
                   .frame = on_frame,
                   .welcomed = on_welcomed,
                   .dial_done = on_dial_done},
        .user = &dial,
    };
    tw_node_name_clean(name, config.name);
    if (tw_transport_create(&config, &dial.transport, &err) != TW_OK) {
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    }
    next_address(&dial);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    TW_ASSERT(uv_loop_close(&loop) == 0);
    return dial.is_welcome ? TW_EXIT_OK : TW_EXIT_JOIN;
}

/* ---- the command ----------------------------------------------------------------------------- */

enum {
    PEERS_BYTES = (TW_ADDRS_MAX + TW_WELCOME_PEERS_MAX) * (TW_ADDR_BYTES + TW_ID_HEX_BYTES + 1)
};

struct join {
    struct node_files files;
    struct tw_ticket ticket;
    struct tw_identity identity;
    struct tw_welcome welcome;
    struct tw_run run;
    char peers[PEERS_BYTES];
    char inviter[TW_ADDR_BYTES]; /* address at which the inviter answered */
    bool is_start;
    bool lacks_vote; /* the inviter's certificate, which gives no vote, is on disk */
};

/* ---- the ticket ---------------------------------------------------------------------------- */

static enum tw_exit ticket_read(char *line, struct tw_ticket *ticket) {
    char text[TW_TICKET_LINE_BYTES];
    struct tw_error err = {0};
    const enum tw_exit rc = cli_ticket_line("join", line, text);
    if (rc != TW_EXIT_OK) return rc;
    const enum tw_status status = tw_ticket_decode(text, ticket, &err);
    const bool is_file = status != TW_OK && access(text, F_OK) == 0;
    explicit_bzero(text, sizeof(text));
    char late[TW_TICKET_AGE_BYTES];
    if (status == TW_OK && cli_ticket_is_late(ticket, (uint64_t)time(NULL), late))
        tw_page_say("%s", late);
    if (status == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "join: %s%s", err.message,
                    is_file ? "; from a file: thinwire join - <FILE" : "");
}

/* ---- existing files ------------------------------------------------------------------------- */

/* Checks an existing configuration. If it is of a node of this run, there is nothing to do. */
static enum tw_exit check_existing(struct join *join) {
    struct tw_error err = {0};
    const char *const path = join->files.config_path;
    if (tw_config_load(&join->files.config, path, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (cli_manifest_load(join->files.config.node.run, &join->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s exists, but %s", path, err.message);
    const struct tw_id id = tw_run_id(&join->run);
    if (!tw_id_equal(&id, &join->ticket.run))
        return cli_fail(
            TW_EXIT_USAGE,
            "%s exists and is a node of another run (%s); name another place with --dir "
            "or --config",
            path, join->run.name);
    return TW_EXIT_OK;
}

/* Fails if the file at the manifest's path is another run's manifest: it, and the secret beside it,
 * belong to another node. */
static enum tw_exit place_check(const struct join *join) {
    static struct tw_run found;
    struct tw_error err = {0};
    const char *const path = join->files.config.node.run;
    if (access(path, F_OK) != 0) return TW_EXIT_OK;
    if (cli_manifest_load(path, &found, &err) == TW_OK) {
        const struct tw_id id = tw_run_id(&found);
        if (tw_id_equal(&id, &join->ticket.run)) return TW_EXIT_OK;
    }
    return cli_fail(TW_EXIT_MANIFEST,
                    "%s exists and is not the manifest of this run: move it away, or name another "
                    "place with --dir",
                    path);
}

static enum tw_exit identity_have(struct join *join) {
    struct tw_error err = {0};
    const char *const path = join->files.key_path;
    if (access(path, F_OK) != 0 && tw_identity_create(path, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    if (tw_identity_open(path, &join->identity, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    return TW_EXIT_OK;
}

/* ---- the inviter's answer ------------------------------------------------------------------- */

static enum tw_exit welcome_check(struct join *join) {
    struct tw_error err = {0};
    const struct tw_welcome *welcome = &join->welcome;
    if (tw_run_read(welcome->manifest, welcome->manifest_bytes, &join->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST,
                        "the run's manifest is not understood here: %s; is this program older than "
                        "the inviter's?",
                        err.message);
    const struct tw_id id = tw_run_id(&join->run);
    if (!tw_id_equal(&id, &join->ticket.run))
        return cli_fail(TW_EXIT_MANIFEST, "the inviter sent the manifest of another run than the "
                                          "ticket names; ask for a new ticket");
    if (join->run.security.admission == TW_ADMISSION_SECRET && welcome->secrets_count == 0)
        return cli_fail(TW_EXIT_JOIN, "the inviter sent no run secret, which this run needs");
    if (join->run.security.admission == TW_ADMISSION_OWNER && welcome->certs.count == 0)
        return cli_fail(TW_EXIT_JOIN, "the inviter sent no certificate, which this run needs");
    return TW_EXIT_OK;
}

static enum tw_exit manifest_write(const struct join *join) {
    const char *const path = join->files.config.node.run;
    char fresh[TW_PATH_BYTES + 8];
    struct tw_error err;
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *const file = fopen(fresh, "we");
    if (file == NULL) return cli_fail(TW_EXIT_MANIFEST, "%s: %s", fresh, strerror(errno));
    bool is_whole = fwrite(join->welcome.manifest, 1, join->welcome.manifest_bytes, file) ==
                    join->welcome.manifest_bytes;
    is_whole = fflush(file) == 0 && fsync(fileno(file)) == 0 && is_whole;
    if (fclose(file) == 0 && is_whole && rename(fresh, path) == 0 &&
        tw_folder_sync(path, &err) == TW_OK)
        return TW_EXIT_OK;
    (void)unlink(fresh);
    return cli_fail(TW_EXIT_MANIFEST, "%s: the disk is full or failing", path);
}

/* Loads the certificate on disk. Returns true if it admits this node now. */
static bool read_certs(const struct join *join, char path[TW_PATH_BYTES + 32],
                       struct tw_certs *here) {
    static struct tw_gate gate;
    struct tw_error err;
    tw_gate_init(&gate, &join->ticket.run, &join->run.security.owner, &join->identity);
    (void)snprintf(path, TW_PATH_BYTES + 32, "%s/%s", join->files.config.node.state_dir,
                   TW_CERT_FILE);
    return tw_certs_load(path, here, &err) == TW_OK &&
           tw_gate_judge(&gate, here, &join->identity.id, TW_CERT_TRAIN, 0, &err) == TW_OK;
}

/* Returns true if the certificate on disk should stay, because it is valid for longer than the
 * inviter's, and was signed by the owner, or by the same node with the same right to vote. */
static bool has_better_certs(const struct join *join) {
    char path[TW_PATH_BYTES + 32];
    struct tw_certs here;
    if (!read_certs(join, path, &here)) return false;
    const struct tw_id by = tw_certs_admitter(&here);
    const struct tw_id inviter = tw_certs_admitter(&join->welcome.certs);
    const bool is_like = tw_id_equal(&by, &inviter) &&
                         tw_certs_has_vote(&here) == tw_certs_has_vote(&join->welcome.certs);
    return (tw_id_is_zero(&by) || is_like) &&
           tw_certs_until(&here) > tw_certs_until(&join->welcome.certs);
}

static enum tw_exit right_write(struct join *join) {
    struct tw_error err = {0};
    const struct tw_config *config = &join->files.config;
    enum tw_status status = TW_OK;
    if (join->welcome.secrets_count > 0) {
        struct tw_secrets secrets = {.count = join->welcome.secrets_count};
        for (uint32_t i = 0; i < secrets.count; i++)
            memcpy(secrets.list[i].bytes, join->welcome.secrets[i], TW_SECRET_BYTES);
        status = tw_secrets_save(config->network.secret_file, &secrets, &err);
        tw_secrets_wipe(&secrets);
    }
    const struct tw_certs *certs = &join->welcome.certs;
    if (status == TW_OK && certs->count > 0 && !has_better_certs(join)) {
        join->lacks_vote = !tw_certs_has_vote(certs);
        status = tw_certs_save(config->node.state_dir, TW_CERT_FILE, certs, &err);
    }
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* Lists the nodes to dial: the inviter first, then the nodes in its WELCOME. */
static void peers_list(struct join *join) {
    char hex[TW_ID_HEX_BYTES];
    size_t at = 0;
    for (uint32_t i = 0; i < join->ticket.addrs_count + join->welcome.peers_count; i++) {
        const bool is_inviter = i < join->ticket.addrs_count;
        const struct tw_welcome_peer *peer =
            is_inviter ? NULL : &join->welcome.peers[i - join->ticket.addrs_count];
        tw_id_hex(is_inviter ? &join->ticket.inviter : &peer->id, hex);
        const int size =
            snprintf(join->peers + at, sizeof(join->peers) - at, "%s%s=%s", at > 0 ? "," : "",
                     is_inviter ? join->ticket.addrs[i] : peer->addr, hex);
        if (size > 0) at += (size_t)size;
    }
    node_files_put(&join->files, "peers", join->peers);
}

/* ---- all steps ------------------------------------------------------------------------------ */

static enum tw_exit dial(struct join *join) {
    const enum tw_exit rc =
        fetch_welcome(&join->ticket, &join->identity, join->files.config.node.name, &join->welcome,
                      join->inviter);
    return rc == TW_EXIT_OK ? welcome_check(join) : rc;
}

/* A node that was away until its certificate ended gets another one by a new ticket. */
static enum tw_exit renew_right(struct join *join) {
    char path[TW_PATH_BYTES + 32];
    struct tw_certs here;
    struct stat folder;
    if (join->run.security.admission != TW_ADMISSION_OWNER || read_certs(join, path, &here))
        return TW_EXIT_OK;
    enum tw_exit rc = dial(join);
    if (rc == TW_EXIT_OK) rc = right_write(join);
    if (rc != TW_EXIT_OK || geteuid() != 0) return rc;
    /* With sudo, the certificate of a service must be its user's. */
    if (stat(join->files.config.node.state_dir, &folder) == 0 &&
        chown(path, folder.st_uid, folder.st_gid) == 0)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s: %s", path, strerror(errno));
}

/* Checks the data that --data names, now that the run is known. The inviter knows this machine by
 * its identity, which stays: the same ticket lets it in again. */
static enum tw_exit data_check(const struct join *join) {
    static struct cli_data data;
    struct tw_error err;
    const char *const path = join->files.config.node.data;
    if (path[0] == '\0' || tw_run_has_own_data(&join->run) ||
        cli_data_of_run(path, &join->run, &data, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_DATA,
                    "join: --data %s. No node was made; the same ticket still lets this machine in",
                    err.message);
}

/* The addresses must be free before a ticket is used: two nodes on one machine, of one user or of
 * two, both want the usual port. */
static enum tw_exit listen_check(const struct join *join) {
    static const struct tw_egress any;
    const struct tw_config *const config = &join->files.config;
    struct tw_error err;
    for (uint32_t i = 0; i < config->network.listen_count; i++) {
        const char *const address = config->network.listen[i].text;
        const enum tw_status status = cli_listen_check(address, &any, false, false, &err);
        if (status == TW_OK || status == TW_CONFIG) continue; /* init_check refuses a wrong one */
        return cli_fail(TW_EXIT_PORT,
                        "join: %s. No node was made, and the ticket was not used: --listen names "
                        "another address, such as 0.0.0.0:4748",
                        err.message);
    }
    return TW_EXIT_OK;
}

static enum tw_exit make_node(struct join *join) {
    enum tw_exit rc = node_files_plan(&join->files);
    if (rc == TW_EXIT_OK) rc = listen_check(join); /* first, for it refuses a busy port */
    if (rc == TW_EXIT_OK) rc = init_check(&join->files, false);
    if (rc == TW_EXIT_OK) rc = place_check(join);
    if (rc == TW_EXIT_OK) rc = node_files_folders(&join->files);
    if (rc == TW_EXIT_OK) rc = identity_have(join);
    if (rc == TW_EXIT_OK) rc = dial(join);
    if (rc != TW_EXIT_OK) return rc;
    peers_list(join);
    rc = node_files_plan(&join->files);
    if (rc == TW_EXIT_OK) rc = data_check(join);
    if (rc == TW_EXIT_OK) rc = manifest_write(join);
    if (rc == TW_EXIT_OK) rc = right_write(join);
    if (rc == TW_EXIT_OK) rc = node_files_write_config(&join->files);
    return rc == TW_EXIT_OK ? node_files_hand_over(&join->files) : rc;
}

/* Returns true if the run is trained on a plain text that this node does not have. Only datasets
 * can be fetched from peers. */
static bool lacks_data(const struct join *join) {
    return join->run.data.form == TW_FORM_FILE && !tw_run_has_own_data(&join->run) &&
           join->files.config.node.data[0] == '\0';
}

static const char *const NEXT[] = {"start", "status --watch", NULL};

/* Returns the commands to type next; a node that runs already needs no start. */
static const char *const *next_of(const struct join *join) {
    const int daemon = ended_open(join->files.config.api.socket);
    if (daemon >= 0) (void)close(daemon);
    return daemon >= 0 ? NEXT + 1 : NEXT;
}

/* Says that the disk has too little room for the run's checkpoints, beside the data. */
static void warn_of_room(const struct join *join) {
    char free_text[TW_UNITS_BYTES], wanted_text[TW_UNITS_BYTES];
    struct statvfs info;
    struct run_memory memory;
    static struct tw_layout layout;
    const char *const folder = join->files.config.node.state_dir;
    if (statvfs(folder, &info) != 0 || tw_layout_init(&layout, &join->run, NULL) != TW_OK ||
        !run_memory_weigh(&memory, &join->files.config, &join->run, tw_machine_memory(), false))
        return;
    const double free_bytes = (double)info.f_bavail * (double)info.f_frsize,
                 wanted_bytes = (double)tw_memory_plan_disk(&memory.plan, &layout, false);
    if (free_bytes >= wanted_bytes) return;
    tw_page_say("the disk of %s has %s free, and %s are needed for checkpoints and "
                "logs%s: free some space, or move state_dir to a larger disk",
                folder, tw_units_bytes(free_text, free_bytes),
                tw_units_bytes(wanted_text, wanted_bytes),
                join->run.data.form == TW_FORM_DATASET && join->files.config.node.data[0] == '\0'
                    ? ", beside the data"
                    : "");
}

static void print_result(const struct join *join, const char *hex) {
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stdout);
    if (join->inviter[0] != '\0')
        (void)fprintf(to, "%s admitted this machine to run %s%s\n", join->inviter, join->run.name,
                      join->lacks_vote ? " (it trains, but does not vote)" : "");
    else
        (void)fprintf(to, "This machine is in run %s already\n", join->run.name);
    (void)fprintf(to, "\n  %-14s%s\n  %-14s%s\n  %-14s%s\n", "node", hex, "configuration",
                  join->files.config_path, "state", join->files.config.node.state_dir);
    if (lacks_data(join))
        (void)fprintf(to,
                      "\nThe run trains on a plain text, which nodes do not send: write `data = "
                      "/path/of/the.txt` below [node] of the configuration.\n");
    if (join->files.config.network.upload_bytes_s == 0)
        (void)fprintf(to, "\nIt may use all of the line; `upload = 5mbit` below [network] of the "
                          "configuration caps it.\n");
    if (!join->is_start) (void)fprintf(to, "\nNext:\n");
    tw_page_end(&page);
    if (!join->is_start) node_files_say_next(&join->files, next_of(join));
}

static void say_json(const struct join *join, const char *hex) {
    json_t *const json = json_pack("{s:s,s:s,s:s,s:s,s:b}", "id", hex, "run", join->run.name,
                                   "config", join->files.config_path, "inviter", join->inviter,
                                   "needs_data", lacks_data(join));
    (void)json_print(json);
}

/* Puts --data into an existing configuration that names no data: the node needs it, and nobody
 * chose anything else. */
static enum tw_exit take_data(struct join *join) {
    const char *const data = node_files_value(&join->files, "data");
    char *const known = join->files.config.node.data;
    if (data == NULL || known[0] != '\0') return TW_EXIT_OK;
    enum tw_exit rc = init_check(&join->files, false);
    if (rc == TW_EXIT_OK) rc = node_files_add_value(&join->files, "data", data);
    if (rc != TW_EXIT_OK) return rc;
    (void)snprintf(known, sizeof(join->files.config.node.data), "%s", data);
    tw_page_say("%s now has data = %s", join->files.config_path, data);
    return TW_EXIT_OK;
}

/* Reports that an existing configuration stays unchanged, and which options therefore have no
 * effect. */
static void say_kept(const struct join *join) {
    static const char *const keys[] = {"run",   "data",   "name",   "listen",
                                       "peers", "upload", "threads"};
    char list[80] = "";
    for (unsigned i = 0; i < join->files.count; i++) {
        for (unsigned k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            const size_t used = strlen(list);
            if (strcmp(join->files.values[i].key, keys[k]) != 0) continue;
            if (strcmp(join->files.values[i].text, join->files.config.node.data) == 0) continue;
            (void)snprintf(list + used, sizeof(list) - used, "%s`%s`", used > 0 ? ", " : "",
                           keys[k]);
        }
    }
    if (list[0] != '\0')
        tw_page_say("%s is kept as it is: set %s there", join->files.config_path, list);
}

/* The node is made, but lacks the text: says where to name it, and how to start then. */
static enum tw_exit fail_without_data(const struct join *join, bool is_json) {
    (void)fflush(stdout); /* the admission comes first */
    const enum tw_exit rc = cli_fail(TW_EXIT_DATA,
                                     "not started, as the training text is missing: write "
                                     "`data = /path/of/the.txt` below [node] of %s, and start",
                                     join->files.config_path);
    if (!is_json) (void)printf("\nThen:\n");
    if (!is_json) node_files_say_next(&join->files, NEXT);
    return rc;
}

/* Refuses a service without root before the ticket is asked for, which a person would have to type
 * again. */
static enum tw_exit may_make(const struct node_files *files) {
    char folder[TW_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s", files->config_path);
    if (!node_files_is_service(files) || geteuid() == 0 || access(dirname(folder), W_OK) == 0)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "only root makes a service, a node of " TW_CONFIG_FOLDER
                                   ": use sudo, or --dir FOLDER for a node of your own");
}

enum tw_exit cli_join(struct cli *cli) {
    static struct join join;
    char hex[TW_ID_HEX_BYTES];
    join.is_start = cli_flag(cli, "--start");
    enum tw_exit rc = node_files_options(cli, &join.files);
    char *const line = cli_operand(cli);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "join");
    if (rc == TW_EXIT_OK) rc = node_files_find(cli, &join.files);
    if (rc == TW_EXIT_OK) rc = may_make(&join.files);
    if (rc == TW_EXIT_OK) rc = ticket_read(line, &join.ticket);
    if (rc != TW_EXIT_OK) return rc;
    const bool is_here = access(join.files.config_path, F_OK) == 0;
    rc = is_here ? check_existing(&join) : make_node(&join);
    if (rc == TW_EXIT_OK && is_here) rc = take_data(&join);
    if (rc == TW_EXIT_OK && is_here) say_kept(&join);
    if (rc == TW_EXIT_OK && is_here) {
        (void)snprintf(join.files.key_path, sizeof(join.files.key_path), "%.900s/identity.key",
                       join.files.config.node.state_dir);
        rc = identity_have(&join);
        if (rc == TW_EXIT_OK) rc = renew_right(&join);
    }
    explicit_bzero(&join.ticket.key, sizeof(join.ticket.key));
    explicit_bzero(join.welcome.secrets, sizeof(join.welcome.secrets));
    if (rc != TW_EXIT_OK) return rc;
    tw_id_hex(&join.identity.id, hex);
    tw_identity_close(&join.identity);
    if (cli->json)
        say_json(&join, hex);
    else
        print_result(&join, hex);
    warn_of_room(&join);
    if (!join.is_start) return TW_EXIT_OK;
    if (lacks_data(&join)) return fail_without_data(&join, cli->json);
    if (!cli->json) (void)fputc('\n', stdout);
    rc = node_start(&join.files, cli->json ? stderr : stdout);
    if (rc == TW_EXIT_OK && !cli->json) {
        (void)printf("\nStatus:\n");
        node_files_say_next(&join.files, NEXT + 1);
    }
    return rc;
}
