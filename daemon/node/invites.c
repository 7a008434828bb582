#include "daemon/node/invites.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <jansson.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/api/api.h"
#include "daemon/api/known_peers.h"
#include "daemon/auth/identity.h"
#include "daemon/auth/tickets.h"
#include "daemon/net/handshake.h"
#include "daemon/net/transport.h"
#include "proto/hello.h"
#include "sync/members/members.h"

enum {
    WAITING_MAX = TW_HANDSHAKES_MAX + TW_API_OWNERS_MAX,
    LOOK_US = 2 * 1000 * 1000, /* time between two checks of the secret file */
    DEFAULT_LIFE_S = 86400,
};

/* A guest or an API client that waits for a write. */
struct waiting {
    bool is_used, is_guest;
    uint64_t change;
    uint32_t number;         /* number of the API request, or of the guest */
    struct tw_ticket ticket; /* guest: id and key of its ticket; API client: the ticket to show */
    struct tw_id node;       /* id of the guest */
    bool lacks_vote;         /* the ticket gives no vote */
    char message[160];       /* answer for the API client */
};

struct tw_daemon_invites {
    struct tw_tickets tickets;
    char path[TW_PATH_BYTES + 16];
    uint64_t changes; /* number of changes to the tickets so far */
    uint64_t saving;  /* newest change that the file being written contains */
    uint64_t saved;   /* newest change that the file on disk contains */
    bool is_saving;
    char *text;
    size_t text_bytes;
    uv_work_t work;
    struct tw_error save_error;
    struct waiting waiting[WAITING_MAX];
    uint64_t look_due_us;
    struct stat secret_file; /* stamp of the secret file when it was read */
};

static uint64_t unix_s(void) {
    return (uint64_t)time(NULL);
}

/* ---- welcome ------------------------------------------------------------------------------- */

static void fill_peers(struct tw_daemon *daemon, struct tw_welcome *welcome) {
    static struct tw_msg_peers known;
    tw_members_records(daemon->members, tw_daemon_now_us(), &known);
    for (uint32_t i = 0; i < known.count && i < TW_WELCOME_PEERS_MAX; i++) {
        const struct tw_member_row *record = &known.rows[i];
        const bool is_self = tw_id_equal(&record->id, &daemon->setup->identity.id);
        /* One that said goodbye may be the guest itself, from before it was set up again. */
        if (tw_known_peers_is_absent(daemon->known, &record->id, tw_daemon_now_us())) continue;
        if (is_self || !tw_address_is_valid(record->addrs[0])) continue;
        struct tw_welcome_peer *peer = &welcome->peers[welcome->peers_count++];
        peer->id = record->id;
        memcpy(peer->addr, record->addrs[0], sizeof(peer->addr));
    }
}

static void send_welcome(struct tw_daemon *daemon, const struct waiting *guest) {
    static struct tw_welcome welcome; /* static, because it is too large for the stack */
    static uint8_t body[TW_WELCOME_BYTES_MAX];
    const struct tw_setup *setup = daemon->setup;
    struct tw_error err = {0};
    memset(&welcome, 0, sizeof(welcome));
    welcome.manifest_bytes = (uint32_t)strlen(setup->manifest);
    memcpy(welcome.manifest, setup->manifest, welcome.manifest_bytes);
    _Static_assert((int)TW_WELCOME_SECRETS_MAX == (int)TW_SECRETS_MAX, "all of them fit");
    welcome.secrets_count = setup->secrets.count;
    for (uint32_t i = 0; i < setup->secrets.count; i++)
        memcpy(welcome.secrets[i], setup->secrets.list[i].bytes, TW_SECRET_BYTES);
    const struct tw_gate_admission admission = {
        .node = guest->node, .life_s = TW_GATE_LIFE_S, .lacks_vote = guest->lacks_vote};
    if (setup->has_gate && tw_gate_admit(&setup->gate, &admission, &welcome.certs, &err) != TW_OK) {
        tw_transport_turn_away(daemon->transport, guest->number, err.status, err.message);
        return;
    }
    fill_peers(daemon, &welcome);
    const uint32_t size = tw_welcome_encode(&welcome, body);
    tw_transport_welcome(daemon->transport, guest->number, guest->ticket.key, body, size);
    explicit_bzero(&welcome, sizeof(welcome));
    explicit_bzero(body, sizeof(body));
    char node[9], name[9];
    tw_id_short(&guest->node, node);
    tw_ticket_name(guest->ticket.id, name);
    tw_daemon_note(daemon, TW_LOG_INFO, "guest_welcomed", "node=%s ticket=%s", node, name);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* True if the run trains on a plain text: a guest needs a copy, since nodes send datasets alone. */
static bool needs_data(const struct tw_daemon *daemon) {
    const struct tw_run *const run = &daemon->setup->run;
    return run->data.form == TW_FORM_FILE && !tw_run_has_own_data(run);
}

static void answer_saved(struct tw_daemon *daemon, const struct waiting *waiting) {
    char line[TW_TICKET_TEXT_BYTES], name[9];
    if (waiting->is_guest) {
        if (daemon->transport != NULL) send_welcome(daemon, waiting);
        return;
    }
    if (waiting->ticket.addrs_count ==
        0) { /* a revocation was saved, so there is no ticket to show */
        tw_api_answer(daemon->api, waiting->number, TW_OK, waiting->message);
        return;
    }
    tw_ticket_encode(&waiting->ticket, line);
    tw_ticket_name(waiting->ticket.id, name);
    json_t *addrs = json_array();
    for (uint32_t i = 0; i < waiting->ticket.addrs_count; i++)
        (void)json_array_append_new(addrs, json_string(waiting->ticket.addrs[i]));
    tw_api_answer_data(
        daemon->api, waiting->number, waiting->message,
        json_pack("{s:s,s:s,s:b,s:b,s:I,s:i,s:o,s:s}", "line", line, "ticket", name, "votes",
                  (int)!waiting->lacks_vote, "needs_data", (int)needs_data(daemon),
                  "expires_unix_s", (json_int_t)waiting->ticket.expires_s, "uses",
                  (int)waiting->ticket.uses, "addresses", addrs, "run", daemon->setup->run.name));
    explicit_bzero(line, sizeof(line));
}

static void answer_lost(struct tw_daemon *daemon, const struct waiting *waiting,
                        const struct tw_error *why) {
    char sentence[sizeof(why->message) + 64];
    (void)snprintf(sentence, sizeof(sentence),
                   "the tickets cannot be saved: %s; repair that and try again", why->message);
    if (!waiting->is_guest)
        tw_api_answer(daemon->api, waiting->number, why->status, sentence);
    else if (daemon->transport != NULL)
        tw_transport_turn_away(daemon->transport, waiting->number, TW_LIMIT,
                               "it cannot save the use of a ticket now");
}

static void on_write(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_invites *invites = daemon->invites;
    invites->save_error = (struct tw_error){0};
    (void)tw_private_replace(invites->path, invites->text, invites->text_bytes,
                             &invites->save_error);
}

static void start_save(struct tw_daemon *daemon);

static void on_written(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_invites *invites = daemon->invites;
    const struct tw_error err = invites->save_error;
    (void)status;
    invites->is_saving = false;
    explicit_bzero(invites->text, invites->text_bytes);
    if (err.status == TW_OK)
        invites->saved = invites->saving;
    else
        tw_daemon_note(daemon, TW_LOG_ERROR, "tickets_not_saved", "text=\"%s\"", err.message);
    for (unsigned i = 0; i < WAITING_MAX; i++) {
        struct waiting *waiting = &invites->waiting[i];
        if (!waiting->is_used || waiting->change > invites->saving) continue;
        if (daemon->stage != TW_DAEMON_CLOSING) {
            if (err.status == TW_OK)
                answer_saved(daemon, waiting);
            else
                answer_lost(daemon, waiting, &err);
        }
        explicit_bzero(waiting, sizeof(*waiting));
    }
    if (invites->changes > invites->saving) start_save(daemon);
    tw_daemon_leave_step(daemon);
}

static void start_save(struct tw_daemon *daemon) {
    struct tw_daemon_invites *invites = daemon->invites;
    if (invites->is_saving) return;
    invites->saving = invites->changes;
    invites->text_bytes = tw_tickets_encode(&invites->tickets, invites->text);
    invites->work.data = daemon;
    invites->is_saving = true;
    TW_ASSERT(uv_queue_work(&daemon->loop, &invites->work, on_write, on_written) == 0);
}

/* Returns a free entry for a caller that waits until the newest change is saved, or NULL. Guests
 * have separate entries, so that they cannot use up those of API clients. */
static struct waiting *wait_for_save(struct tw_daemon_invites *invites, bool is_guest) {
    const unsigned begin = is_guest ? 0 : TW_HANDSHAKES_MAX;
    const unsigned end = is_guest ? TW_HANDSHAKES_MAX : WAITING_MAX;
    for (unsigned i = begin; i < end; i++) {
        struct waiting *waiting = &invites->waiting[i];
        if (waiting->is_used) continue;
        *waiting =
            (struct waiting){.is_used = true, .is_guest = is_guest, .change = invites->changes};
        return waiting;
    }
    return NULL;
}

/* ---- guests -------------------------------------------------------------------------------- */

bool tw_daemon_invites_is_knock(const struct tw_daemon *daemon, const char *name, size_t size) {
    const struct tw_tickets *tickets = &daemon->invites->tickets;
    for (uint32_t i = 0; i < tickets->count; i++) {
        if (!tw_ticket_may_return(&tickets->rows[i], unix_s())) continue;
        const struct tw_knock_key key = {.bytes = tickets->rows[i].key,
                                         .size = TW_TICKET_KEY_BYTES,
                                         .run = daemon->setup->run_id};
        if (tw_knock_is_of(&key, name, size, unix_s())) return true;
    }
    return false;
}

void tw_daemon_invites_guest(struct tw_daemon *daemon, const struct tw_guest *guest) {
    struct tw_daemon_invites *invites = daemon->invites;
    struct tw_ticket_row *row = tw_tickets_find(&invites->tickets, guest->ticket_id);
    struct tw_error err = {0};
    bool is_new = false;
    char name[9];
    tw_ticket_name(guest->ticket_id, name);
    enum tw_status status = tw_fail(&err, TW_TICKET_UNKNOWN, "ticket %s", name);
    if (row != NULL) status = tw_hello_check_ticket(guest->hello, row->key, guest->ekm, &err);
    if (status == TW_OK) status = tw_ticket_use(row, &guest->hello->id, unix_s(), &is_new, &err);
    if (status != TW_OK) {
        tw_transport_turn_away(daemon->transport, guest->number, status, err.message);
        return;
    }
    char said[TW_NODE_NAME_BYTES];
    tw_extensions_name(&guest->hello->extensions, said);
    tw_known_peers_invited(daemon->known, &guest->hello->id, said, tw_daemon_now_us());
    if (is_new) invites->changes++;
    struct waiting *waiting = wait_for_save(invites, true);
    if (waiting == NULL) {
        tw_transport_turn_away(daemon->transport, guest->number, TW_LIMIT,
                               "too many guests at once");
        return;
    }
    waiting->number = guest->number;
    waiting->node = guest->hello->id;
    waiting->lacks_vote = row->lacks_vote;
    memcpy(waiting->ticket.id, row->id, sizeof(row->id));
    memcpy(waiting->ticket.key, row->key, sizeof(row->key));
    if (invites->saved < waiting->change) {
        start_save(daemon);
        return;
    }
    answer_saved(daemon, waiting);
    explicit_bzero(waiting, sizeof(*waiting));
}

/* ---- requests of the API -------------------------------------------------------------------- */

static bool is_host(const char *addr, const char *a, const char *b) {
    char host[TW_ADDR_BYTES];
    uint16_t port = 0;
    return tw_address_split(addr, host, &port) && (strcmp(host, a) == 0 || strcmp(host, b) == 0);
}

/* Adds the addresses that this node advertises. Loopback addresses are added only if there are no
 * others. */
static void add_own_addrs(const struct tw_daemon *daemon, struct tw_ticket *ticket) {
    const struct tw_member_row *self = tw_transport_self(daemon->transport);
    for (unsigned pass = 0; pass < 2 && ticket->addrs_count == 0; pass++) {
        for (unsigned i = 0; i < TW_ADDRS_MAX && self->addrs[i][0] != '\0'; i++) {
            const char *addr = self->addrs[i];
            if (is_host(addr, "0.0.0.0", "::") || !tw_address_is_valid(addr)) continue;
            if (pass == 0 && is_host(addr, "127.0.0.1", "::1")) continue;
            memcpy(ticket->addrs[ticket->addrs_count++], addr, TW_ADDR_BYTES);
        }
    }
}

static enum tw_status parse_addrs(const char *list, struct tw_ticket *ticket,
                                  struct tw_error *err) {
    while (*list != '\0') {
        const size_t size = strcspn(list, ",");
        if (ticket->addrs_count == TW_ADDRS_MAX)
            return tw_fail(err, TW_CONFIG, "a ticket has at most %d addresses", TW_ADDRS_MAX);
        char *addr = ticket->addrs[ticket->addrs_count++];
        if (size < TW_ADDR_BYTES) memcpy(addr, list, size);
        if (size >= TW_ADDR_BYTES || !tw_address_is_valid(addr))
            return tw_fail(err, TW_CONFIG, "%.*s is not host:port",
                           (int)(size < TW_ADDR_BYTES ? size : TW_ADDR_BYTES), list);
        list += size + (list[size] == ',');
    }
    return TW_OK;
}

static uint64_t number_argument(const struct tw_daemon *daemon, uint32_t request, const char *name,
                                uint64_t otherwise) {
    const char *text = tw_api_argument(daemon->api, request, name);
    char *end = NULL;
    if (text == NULL) return otherwise;
    const unsigned long long value = strtoull(text, &end, 10);
    /* Not a number: every caller refuses 0. */
    return *text >= '0' && *text <= '9' && *end == '\0' ? value : 0;
}

/* Sets *lacks_vote to whether the guests of the wanted ticket get no vote: the caller wants none
 * for them, or this node has none to give. */
static enum tw_status read_no_vote(struct tw_daemon *daemon, uint32_t request, bool *lacks_vote,
                                   struct tw_error *err) {
    const char *text = tw_api_argument(daemon->api, request, "no_vote");
    if (text != NULL && strcmp(text, "1") != 0)
        return tw_fail(err, TW_CONFIG, "no_vote is 1, or left out");
    if (text != NULL && !daemon->setup->has_gate)
        return tw_fail(err, TW_CONFIG,
                       "--no-vote: only in a run with an owner are there members without a vote");
    *lacks_vote =
        text != NULL || (daemon->setup->has_gate && !tw_certs_has_vote(&daemon->setup->gate.own));
    return TW_OK;
}

static enum tw_status make_ticket(struct tw_daemon *daemon, uint32_t request,
                                  struct tw_ticket *ticket, struct tw_error *err) {
    struct tw_ticket_row *row = NULL;
    const char *given = tw_api_argument(daemon->api, request, "address");
    bool lacks_vote = false;
    if (daemon->transport == NULL)
        return tw_fail(err, TW_CONFIG, "network.links = off: no machine can join here");
    if (daemon->setup->has_gate) TW_TRY(tw_gate_can_admit(&daemon->setup->gate, err));
    TW_TRY(read_no_vote(daemon, request, &lacks_vote, err));
    if (given != NULL)
        TW_TRY(parse_addrs(given, ticket, err));
    else
        add_own_addrs(daemon, ticket);
    if (ticket->addrs_count == 0)
        return tw_fail(err, TW_CONFIG,
                       "this node knows no address at which it can be dialled: give one with "
                       "--address HOST:PORT, or invite from a node that other machines can dial");
    const uint64_t uses = number_argument(daemon, request, "uses", 1);
    const uint64_t life_s = number_argument(daemon, request, "expires_s", DEFAULT_LIFE_S);
    TW_TRY(tw_tickets_add(&daemon->invites->tickets, uses <= UINT32_MAX ? (uint32_t)uses : 0,
                          life_s, unix_s(), &row, err));
    row->lacks_vote = lacks_vote;
    ticket->run = daemon->setup->run_id;
    ticket->inviter = daemon->setup->identity.id;
    memcpy(ticket->id, row->id, sizeof(row->id));
    memcpy(ticket->key, row->key, sizeof(row->key));
    ticket->expires_s = row->expires_s;
    ticket->uses = row->uses;
    return TW_OK;
}

/* Answers the API request once the change is on disk. */
static void answer_later(struct tw_daemon *daemon, uint32_t request, const char *message,
                         const struct tw_ticket *ticket) {
    struct tw_daemon_invites *invites = daemon->invites;
    invites->changes++;
    start_save(daemon);
    struct waiting *waiting = wait_for_save(invites, false);
    if (waiting == NULL) { /* clients that left without their answer still occupy all entries */
        tw_api_answer(
            daemon->api, request, TW_LIMIT,
            "too many clients wait for the disk; see `thinwire invite --list` for the result");
        return;
    }
    waiting->number = request;
    if (ticket != NULL) {
        waiting->ticket = *ticket;
        waiting->lacks_vote = tw_tickets_find(&invites->tickets, ticket->id)->lacks_vote;
    }
    (void)snprintf(waiting->message, sizeof(waiting->message), "%s", message);
}

static json_t *row_json(const struct tw_daemon *daemon, const struct tw_ticket_row *row,
                        uint64_t now_s) {
    char name[9], hex[TW_ID_HEX_BYTES], label[TW_KNOWN_LABEL_BYTES];
    tw_ticket_name(row->id, name);
    json_t *guests = json_array(), *names = json_array();
    for (uint32_t i = 0; i < row->guests_count; i++) {
        tw_id_hex(&row->guests[i], hex);
        (void)json_array_append_new(guests, json_string(hex));
        (void)json_array_append_new(
            names, json_string(tw_known_peers_label(daemon->known, &row->guests[i], label)));
    }
    const char *state = "good";
    if (row->is_withdrawn)
        state = "revoked";
    else if (now_s >= row->expires_s)
        state = "expired";
    else if (row->guests_count >= row->uses)
        state = "used";
    return json_pack("{s:s,s:s,s:b,s:I,s:i,s:i,s:o,s:o}", "ticket", name, "state", state, "votes",
                     (int)!row->lacks_vote, "expires_unix_s", (json_int_t)row->expires_s, "uses",
                     (int)row->uses, "used", (int)row->guests_count, "nodes", guests, "names",
                     names);
}

static void answer_list(struct tw_daemon *daemon, uint32_t request) {
    const struct tw_tickets *tickets = &daemon->invites->tickets;
    json_t *list = json_array();
    for (uint32_t i = 0; i < tickets->count; i++)
        (void)json_array_append_new(list, row_json(daemon, &tickets->rows[i], unix_s()));
    tw_api_answer_data(daemon->api, request, "tickets of this node",
                       json_pack("{s:o}", "tickets", list));
}

void tw_daemon_invites_verb(struct tw_daemon *daemon, enum tw_api_verb verb, uint32_t request) {
    struct tw_error err = {0};
    struct tw_ticket ticket = {0};
    char name[9], message[128];
    if (verb == TW_API_INVITE_LIST) {
        answer_list(daemon, request);
    } else if (verb == TW_API_INVITE) {
        if (make_ticket(daemon, request, &ticket, &err) != TW_OK) {
            tw_api_answer(daemon->api, request, err.status, err.message);
            return;
        }
        tw_ticket_name(ticket.id, name);
        tw_daemon_note(daemon, TW_LOG_INFO, "ticket_made", "ticket=%s uses=%u", name, ticket.uses);
        answer_later(daemon, request, "give this line to the person whose machine shall join",
                     &ticket);
        explicit_bzero(&ticket, sizeof(ticket));
    } else {
        const char *given = tw_api_argument(daemon->api, request, "ticket");
        if (tw_tickets_withdraw(&daemon->invites->tickets, given != NULL ? given : "", &err) !=
            TW_OK) {
            tw_api_answer(daemon->api, request, err.status, err.message);
            return;
        }
        tw_daemon_note(daemon, TW_LOG_INFO, "ticket_revoked", "ticket=%.16s", given);
        (void)snprintf(message, sizeof(message), "ticket %.16s is revoked", given);
        answer_later(daemon, request, message, NULL);
    }
}

/* ---- a new secret -----------------------------------------------------------------------------
 */

/* Called with the current run secrets. If they were replaced, revokes the tickets that were already
 * used, so that these do not give out the new secret. Returns the number of revoked tickets. */
static uint32_t note_secrets(struct tw_daemon *daemon, const struct tw_secrets *secrets) {
    struct tw_daemon_invites *invites = daemon->invites;
    const uint32_t count = tw_tickets_secrets(&invites->tickets, secrets);
    if (count == 0) return 0;
    invites->changes++;
    tw_daemon_note(daemon, TW_LOG_INFO, "tickets_ended",
                   "tickets=%u text=\"the run secret is replaced: used tickets are revoked\"",
                   count);
    return count;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_invites_open(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_invites *invites = calloc(1, sizeof(*invites));
    char *text = malloc(TW_TICKETS_TEXT_MAX);
    struct tw_error reason = {0};
    if (invites == NULL || text == NULL) {
        free(invites);
        free(text);
        return tw_fail(err, TW_NOMEM, "no memory for the tickets");
    }
    daemon->invites = invites;
    invites->text = text;
    (void)snprintf(invites->path, sizeof(invites->path), "%s/tickets",
                   daemon->setup->run_state_dir);
    /* Without tickets no guest is admitted, but training can go on. */
    if (tw_tickets_load(&invites->tickets, invites->path, &reason) != TW_OK)
        tw_daemon_note(daemon, TW_LOG_ERROR, "tickets_lost", "text=\"%s\"", reason.message);
    if (daemon->setup->secrets.count > 0) {
        (void)stat(daemon->setup->secret_path, &invites->secret_file);
        /* The file of an older release has no marks of the secret, without which the next new
         * secret would go unnoticed. So save them. */
        if (invites->tickets.marks_count == 0 && invites->tickets.count > 0) invites->changes++;
        (void)note_secrets(daemon, &daemon->setup->secrets); /* the first tick writes the file */
    }
    return TW_OK;
}

/* Reads the file of the run secret again if it was changed (`thinwire secret`), and uses its
 * secrets. */
static void read_secret(struct tw_daemon *daemon) {
    struct tw_daemon_invites *invites = daemon->invites;
    struct tw_secrets fresh = {0};
    struct tw_error err = {0};
    struct stat now;
    if (stat(daemon->setup->secret_path, &now) != 0) return;
    const struct stat *was = &invites->secret_file;
    if (now.st_ino == was->st_ino && now.st_size == was->st_size &&
        now.st_mtim.tv_sec == was->st_mtim.tv_sec && now.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
        return;
    invites->secret_file = now;
    if (tw_secrets_open(daemon->setup->secret_path, &fresh, &err) != TW_OK) {
        tw_daemon_note(daemon, TW_LOG_ERROR, "secret_refused", "text=\"%s\"", err.message);
        return;
    }
    char mark[TW_SECRET_MARK_BYTES];
    tw_secret_mark(&fresh.list[0], mark);
    if (note_secrets(daemon, &fresh) > 0) start_save(daemon);
    daemon->setup->secrets = fresh;
    tw_transport_set_secrets(daemon->transport, &fresh);
    tw_secrets_wipe(&fresh);
    tw_daemon_note(daemon, TW_LOG_INFO, "secret_changed", "used=%s secrets=%u", mark,
                   daemon->setup->secrets.count);
}

void tw_daemon_invites_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_invites *invites = daemon->invites;
    if (invites == NULL || daemon->transport == NULL || now_us < invites->look_due_us) return;
    invites->look_due_us = now_us + LOOK_US;
    if (tw_tickets_sweep(&invites->tickets, unix_s()) > 0) invites->changes++;
    if (invites->changes > invites->saving) start_save(daemon);
    if (daemon->setup->secrets.count > 0) read_secret(daemon);
}

bool tw_daemon_invites_is_saving(const struct tw_daemon *daemon) {
    return daemon->invites != NULL && daemon->invites->is_saving;
}

void tw_daemon_invites_free(struct tw_daemon *daemon) {
    if (daemon->invites == NULL) return;
    explicit_bzero(&daemon->invites->tickets, sizeof(daemon->invites->tickets));
    free(daemon->invites->text);
    free(daemon->invites);
    daemon->invites = NULL;
}
