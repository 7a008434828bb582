/* invite.c - `thinwire invite`: makes a ticket, or lists and revokes tickets. The ticket is printed
 * on standard output and its explanation on standard error, so that the ticket can be piped. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/limits.h"
#include "base/page.h"
#include "base/units.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/node_user.h"
#include "proto/ticket.h"

enum { URL_BYTES = 64 + TW_ADDRS_MAX * (TW_ADDR_BYTES * 3) };

/* Sends a POST request. *data_out is the answer's "data", as a new reference. With --json, prints
 * the answer unchanged and sets *data_out to NULL. */
static enum tw_exit ask_daemon(const struct cli *cli, const char *path, json_t **data_out) {
    long code = 0;
    char *body = NULL;
    json_error_t err;
    *data_out = NULL;
    enum tw_exit rc = cli_request(cli, "POST", path, &code, &body);
    if (rc != TW_EXIT_OK) return rc;
    json_t *const json = json_loads(body, 0, &err);
    const char *const error = json_string_value(json_object_get(json, "error"));
    if (code != 200)
        rc = cli_fail(TW_EXIT_FAILURE, "invite: %s", error != NULL ? error : "no reason given");
    else if (cli->json)
        (void)puts(body);
    else
        *data_out = json_incref(json);
    json_decref(json);
    free(body);
    return rc;
}

static const char *text_of(const json_t *data, const char *key) {
    const char *text = json_string_value(json_object_get(data, key));
    return text != NULL ? text : "?";
}

static void time_left(const json_t *data, char text[32]) {
    const int64_t left_s =
        json_integer_value(json_object_get(data, "expires_unix_s")) - (int64_t)time(NULL);
    if (left_s <= 0)
        (void)snprintf(text, 32, "over");
    else if (left_s < 60)
        (void)snprintf(text, 32, "%d s", (int)left_s);
    else if (left_s < 2 * 3600)
        (void)snprintf(text, 32, "%d min", (int)((left_s + 59) / 60));
    else if (left_s < 3 * 86400)
        (void)snprintf(text, 32, "%d h", (int)((left_s + 1800) / 3600));
    else
        (void)snprintf(text, 32, "%d days", (int)((left_s + 43200) / 86400));
}

/* ---- inviting ------------------------------------------------------------------------------ */

static bool is_of_this_machine(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0;
}

/* Writes how the other machine joins: a service of the same name if this node is one. */
static const char *join_command(const struct cli *cli, char text[CLI_COMMAND_BYTES]) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (cli->socket_option == NULL && tw_config_find(cli->config_option, path, &err) == TW_OK &&
        cli_is_service(path))
        return cli_command(path, true, "join --start", text);
    (void)snprintf(text, CLI_COMMAND_BYTES, "thinwire join --dir FOLDER --start");
    return text;
}

static void explain_ticket(const struct cli *cli, const json_t *data) {
    char left[32], command[CLI_COMMAND_BYTES];
    const json_t *addrs = json_object_get(data, "addresses");
    const int uses = (int)json_integer_value(json_object_get(data, "uses"));
    const bool lacks_vote = json_is_false(json_object_get(data, "votes"));
    time_left(data, left);
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stderr);
    (void)fflush(stdout);
    (void)fprintf(to,
                  "\nThis line lets %d machine%s into run %s%s, for %s. Anybody who has it can "
                  "use it: send it like a password. On the other machine:\n\n"
                  "    %s\n\n"
                  "%sIt asks for the line, and dials",
                  uses, uses == 1 ? "" : "s", text_of(data, "run"),
                  lacks_vote ? " without a vote" : "", left, join_command(cli, command),
                  json_is_true(json_object_get(data, "needs_data"))
                      ? "The run trains on a plain text, which nodes do not send: add its path "
                        "there, with --data. "
                      : "");
    bool is_local = json_array_size(addrs) > 0;
    for (size_t i = 0; i < json_array_size(addrs); i++) {
        const char *addr = json_string_value(json_array_get(addrs, i));
        (void)fprintf(to, "%s %s", i > 0 ? " or" : "", addr);
        is_local = is_local && is_of_this_machine(addr);
    }
    (void)fprintf(to, "; --address HOST:PORT replaces that. %s\n",
                  is_local ? "No other machine can reach these addresses."
                           : "`thinwire invite --list` shows the uses.");
    tw_page_end(&page);
}

/* Returns true if a value of `--address` or a ticket's name needs no escaping in a URL. */
static bool is_plain(const char *text) {
    return strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:-_[]") ==
           strlen(text);
}

static enum tw_exit addresses_take(struct cli *cli, char *url) {
    const char *address = NULL;
    unsigned count = 0;
    while (cli_option(cli, "--address", &address)) {
        const size_t at = strlen(url);
        if (!is_plain(address) || !tw_address_is_valid(address))
            return cli_fail(TW_EXIT_USAGE, "--address %.80s: it is host:port", address);
        if (count++ == TW_ADDRS_MAX)
            return cli_fail(TW_EXIT_USAGE, "--address: a ticket has %d at most", TW_ADDRS_MAX);
        (void)snprintf(url + at, URL_BYTES - at, "%s%s", count == 1 ? "&address=" : ",", address);
    }
    return TW_EXIT_OK;
}

static enum tw_exit make_ticket(const char *uses, const char *expires, bool lacks_vote, char *url) {
    char *end = NULL;
    uint64_t life_us = 0;
    struct tw_error err = {0};
    const unsigned long count = strtoul(uses, &end, 10);
    if (*uses < '0' || *uses > '9' || *end != 0 || count < 1 || count > 64)
        return cli_fail(TW_EXIT_USAGE, "--uses %.20s: machines it lets in, 1 to 64", uses);
    if (tw_config_duration_parse(expires, &life_us, &err) != TW_OK || life_us < 1000000)
        return cli_fail(TW_EXIT_USAGE, "--expires %.20s: a time such as 30m, 24h or 7d", expires);
    const int size = snprintf(url, URL_BYTES, "/v1/invite?uses=%lu&expires_s=%" PRIu64 "%s", count,
                              life_us / 1000000, lacks_vote ? "&no_vote=1" : "");
    if (size < 0) return TW_EXIT_FAILURE;
    return TW_EXIT_OK;
}

/* ---- listing ------------------------------------------------------------------------------- */

static void list_tickets(const json_t *data) {
    const json_t *tickets = json_object_get(data, "tickets");
    if (json_array_size(tickets) == 0) {
        (void)puts("There are no tickets. `thinwire invite` makes one.");
        return;
    }
    (void)printf("%-10s %-8s %-9s %s\n", "ticket", "state", "time left", "used by");
    for (size_t i = 0; i < json_array_size(tickets); i++) {
        const json_t *row = json_array_get(tickets, i);
        const json_t *nodes = json_object_get(row, "nodes");
        char left[32];
        const bool is_open = strcmp(text_of(row, "state"), "good") == 0;
        (void)snprintf(left, sizeof(left), "-");
        if (is_open) time_left(row, left);
        (void)printf("%-10s %-8s %-9s %d of %d", text_of(row, "ticket"), text_of(row, "state"),
                     left, (int)json_array_size(nodes),
                     (int)json_integer_value(json_object_get(row, "uses")));
        for (size_t k = 0; k < json_array_size(nodes); k++) {
            const char *const name =
                json_string_value(json_array_get(json_object_get(row, "names"), k));
            (void)printf("%s %s", k == 0 ? ":" : ",", name != NULL ? name : "?");
        }
        (void)puts(json_is_false(json_object_get(row, "votes")) ? " (no vote)" : "");
    }
}

/* Builds the request that revokes a ticket, which the user gave by its line or its name. */
static enum tw_exit revoke_ticket(const char *given, char url[URL_BYTES]) {
    char name[2 * TW_TICKET_ID_BYTES + 1];
    struct tw_ticket ticket;
    struct tw_error err;
    if (strncmp(given, "tw1", 3) == 0) {
        if (tw_ticket_decode(given, &ticket, &err) != TW_OK)
            return cli_fail(TW_EXIT_USAGE, "--revoke: %s", err.message);
        for (size_t i = 0; i < TW_TICKET_ID_BYTES; i++)
            (void)snprintf(name + 2 * i, 3, "%02x", ticket.id[i]);
    } else if (!is_plain(given) || strlen(given) >= sizeof(name)) {
        return cli_fail(TW_EXIT_USAGE,
                        "--revoke %.20s: give the line of the ticket, or its name, which `thinwire "
                        "invite --list` shows",
                        given);
    } else {
        (void)snprintf(name, sizeof(name), "%s", given);
    }
    (void)snprintf(url, URL_BYTES, "/v1/invite/revoke?ticket=%s", name);
    return TW_EXIT_OK;
}

enum tw_exit cli_invite(struct cli *cli) {
    char url[URL_BYTES] = "/v1/invite/list";
    const char *uses = "1", *expires = "24h", *revoked = NULL;
    json_t *answer = NULL;
    const bool is_list = cli_flag(cli, "--list"), lacks_vote = cli_flag(cli, "--no-vote");
    (void)cli_option(cli, "--uses", &uses);
    (void)cli_option(cli, "--expires", &expires);
    enum tw_exit rc = TW_EXIT_OK;
    if (cli_option(cli, "--revoke", &revoked)) {
        rc = revoke_ticket(revoked, url);
    } else if (!is_list) {
        rc = make_ticket(uses, expires, lacks_vote, url);
        if (rc == TW_EXIT_OK) rc = addresses_take(cli, url);
    }
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "invite");
    if (rc == TW_EXIT_OK) rc = ask_daemon(cli, url, &answer);
    if (answer == NULL) return rc;
    const json_t *data = json_object_get(answer, "data");
    if (is_list) {
        list_tickets(data);
    } else if (revoked != NULL) {
        (void)puts(text_of(answer, "message"));
    } else {
        (void)puts(text_of(data, "line"));
        explain_ticket(cli, data);
    }
    json_decref(answer);
    return rc;
}
