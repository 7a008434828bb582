/* doctor.c - `thinwire doctor`: checks everything a node needs, from the configuration to each
 * peer. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "base/units.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/common/ticket_line.h"
#include "daemon/cli/doctor/doctor.h"
#include "proto/ticket.h"

/* ---- the line of a check --------------------------------------------------------------------- */

enum { TEXT_BYTES = 512 };

/* Returns "ok", "skip", "warn" or "fail". */
static const char *doctor_grade_name(enum doctor_grade grade) {
    switch (grade) {
    case DOCTOR_OK: return "ok";
    case DOCTOR_SKIP: return "skip";
    case DOCTOR_WARN: return "warn";
    case DOCTOR_FAIL: return "fail";
    case DOCTOR_GRADES: break;
    }
    return "unknown";
}

void doctor_say_error(struct doctor *doctor, const char *check, const struct tw_error *err,
                      const char *otherwise) {
    const char *const fix = strrchr(err->message, ';');
    const bool has_fix = fix != NULL && fix[1] == ' ';
    doctor_say(doctor, DOCTOR_FAIL, check, has_fix ? fix + 2 : otherwise, "%.*s",
               has_fix ? (int)(fix - err->message) : (int)sizeof(err->message), err->message);
}

void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *check, const char *fix,
                const char *fmt, ...) {
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    doctor->counts[grade]++;
    json_t *row = json_pack("{s:s,s:s,s:s,s:s?}", "check", check, "grade", doctor_grade_name(grade),
                            "text", text, "fix", fix);
    if (row == NULL) /* text from a file was not valid UTF-8 */
        row = json_pack("{s:s,s:s,s:s}", "check", check, "grade", doctor_grade_name(grade), "text",
                        "(not UTF-8)");
    (void)json_array_append_new(doctor->list, row);
    if (doctor->said != NULL) doctor->said(doctor->user, grade, check, text, fix);
}

/* ---- a ticket, on a machine that is not a node yet ------------------------------------------- */

_Static_assert((int)TW_BOOTSTRAP_MAX >= (int)TW_ADDRS_MAX, "every address is tried");

static void look_at_expiry(struct doctor *doctor, const struct tw_ticket *ticket) {
    char name[9], until[TW_UNITS_BYTES], node[9], late[TW_TICKET_AGE_BYTES];
    tw_ticket_name(ticket->id, name);
    tw_id_short(&ticket->inviter, node);
    if (cli_ticket_is_late(ticket, (uint64_t)time(NULL), late))
        doctor_say(
            doctor, DOCTOR_WARN, "ticket",
            "if the clock is right (`timedatectl` shows it), ask for a new ticket: `thinwire "
            "invite`; otherwise set the clock: `timedatectl set-ntp true`",
            "%s", late);
    else
        doctor_say(doctor, DOCTOR_OK, "ticket", NULL, "%s of node %s, valid until %s", name, node,
                   tw_units_utc(until, ticket->expires_s));
}

/* Checks a line of `thinwire invite` without spending a use. */
static void doctor_ticket(struct doctor *doctor, const char *line) {
    static struct tw_bootstrap peers[TW_ADDRS_MAX];
    struct tw_ticket ticket;
    struct tw_error err;
    if (tw_ticket_decode(line, &ticket, &err) != TW_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "ticket", NULL, "%s", err.message);
        return;
    }
    look_at_expiry(doctor, &ticket);
    doctor->has_identity = tw_identity_ephemeral(&doctor->identity, &err) == TW_OK;
    for (uint32_t i = 0; i < ticket.addrs_count; i++) {
        peers[i] = (struct tw_bootstrap){.has_id = true, .id = ticket.inviter};
        (void)snprintf(peers[i].address.text, TW_ADDR_BYTES, "%s", ticket.addrs[i]);
    }
    doctor_addresses(doctor, peers, ticket.addrs_count, true);
}

/* ---- the command ----------------------------------------------------------------------------- */

enum { NAME_COLUMNS = 14 };

static void print_line(void *user, enum doctor_grade grade, const char *check, const char *text,
                       const char *fix) {
    static const char *const WORDS[] = {"OK  ", "-   ", "WARN", "FAIL"};
    static const char *const COLOURS[] = {"\033[32m", "\033[2m", "\033[33m", "\033[31m"};
    const struct cli *const cli = user;
    struct tw_page page;
    FILE *const to = tw_page_begin(&page, stdout);
    (void)fprintf(to, "%s%s%s  %-*s  %s\n", cli->has_colour ? COLOURS[grade] : "", WORDS[grade],
                  cli->has_colour ? "\033[0m" : "", NAME_COLUMNS, check, text);
    if (fix != NULL)
        (void)fprintf(to, "      %*s%s  %s\n", NAME_COLUMNS - 1, "", cli->has_utf8 ? "→" : "->",
                      fix);
    tw_page_end(&page);
    (void)fflush(stdout);
}

/* Asks this configuration's daemon for its status. Returns NULL if no daemon listens. */
static json_t *daemon_status(struct cli *cli, const struct tw_config *config) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *const path = cli->socket_option != NULL ? cli->socket_option : config->api.socket;
    char *body = NULL;
    long code = 0;
    if (strlen(path) >= sizeof(address.sun_path)) return NULL;
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return NULL;
    const int connected = connect(fd, (struct sockaddr *)&address, sizeof(address));
    (void)close(fd);
    if (connected != 0) return NULL;
    if (cli_request(cli, "GET", "/v1/status", &code, &body) != TW_EXIT_OK) return NULL;
    json_t *const json = code == 200 ? json_loads(body, 0, NULL) : NULL;
    free(body);
    return json;
}

static enum tw_exit print_summary(const struct cli *cli, const struct doctor *doctor) {
    const uint32_t *const counts = doctor->counts;
    const enum tw_exit rc = counts[DOCTOR_FAIL] > 0 ? TW_EXIT_FAILURE : TW_EXIT_OK;
    if (!cli->json) {
        const uint32_t all =
            counts[DOCTOR_OK] + counts[DOCTOR_WARN] + counts[DOCTOR_FAIL] + counts[DOCTOR_SKIP];
        (void)printf("\n%u check%s: %u good, %u warning%s, %u failure%s, %u skipped\n", all,
                     tw_units_s(all), counts[DOCTOR_OK], counts[DOCTOR_WARN],
                     tw_units_s(counts[DOCTOR_WARN]), counts[DOCTOR_FAIL],
                     tw_units_s(counts[DOCTOR_FAIL]), counts[DOCTOR_SKIP]);
        return rc;
    }
    json_t *const json = json_pack("{s:b,s:i,s:i,s:i,s:i,s:O}", "ok", rc == TW_EXIT_OK, "good",
                                   (int)counts[DOCTOR_OK], "warnings", (int)counts[DOCTOR_WARN],
                                   "failures", (int)counts[DOCTOR_FAIL], "skipped",
                                   (int)counts[DOCTOR_SKIP], "checks", doctor->list);
    (void)json_print(json);
    return rc;
}

/* Opens the configuration as the user of the node, without which nothing else can be checked.
 * *is_other_user: the caller may not do that, which is no fault of the node. */
static bool config_open(const struct cli *cli, struct doctor *doctor, bool *is_other_user) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (tw_config_find(cli->config_option, path, &err) != TW_OK ||
        tw_config_load(&doctor->config, path, &err) != TW_OK) {
        const bool is_there = access(path, F_OK) == 0;
        doctor_say(doctor, DOCTOR_FAIL, "config",
                   is_there ? "repair that line, or name another file with --config" : NULL, "%s",
                   err.message);
        return false;
    }
    if (cli_become_node_user(cli, &doctor->config, &err) != TW_OK) {
        /* This user sees neither files nor status, so all else would mislead. */
        *is_other_user = true;
        if (cli->json)
            doctor_say_error(doctor, "user", &err, NULL);
        else
            (void)cli_fail(TW_EXIT_FAILURE, "%s", err.message);
        return false;
    }
    if (cli_is_service(path) && access(path, R_OK) != 0)
        doctor_say(doctor, DOCTOR_FAIL, "config", "chmod go+r it",
                   "%s: %s for the user of the node", path, strerror(errno));
    else
        doctor_say(doctor, DOCTOR_OK, "config", NULL, "%s", doctor->config.path);
    return true;
}

enum tw_exit cli_doctor(struct cli *cli) {
    static struct doctor doctor;
    const char *patience = "5", *end = NULL;
    bool is_other_user = false;
    char start[CLI_COMMAND_BYTES + 32];
    char command[CLI_COMMAND_BYTES];
    (void)cli_option(cli, "--patience", &patience);
    char *const line = cli_operand(cli);
    const enum tw_exit usage = cli_done(cli, "doctor");
    if (usage != TW_EXIT_OK) return usage;
    const double patience_s = strtod(patience, (char **)&end);
    if (*end != 0 || !(patience_s >= 0.1 && patience_s <= 60)) {
        return cli_fail(TW_EXIT_USAGE, "--patience %s: seconds from 0.1 to 60", patience);
    }
    doctor.patience_us = (uint64_t)(patience_s * 1e6);
    doctor.root = "";
    (void)snprintf(start, sizeof(start), "`%s`, when all is good here",
                   cli_next_command(cli, "start", command));
    doctor.start = start;
    doctor.nvidia = "/dev/nvidia0";
    doctor.list = json_array();
    doctor.said = cli->json ? NULL : print_line;
    doctor.user = cli;
    if (line != NULL) {
        char text[TW_TICKET_LINE_BYTES];
        (void)cli_ticket_line("doctor", line, text);
        tw_config_defaults(&doctor.config, "thinwire");
        doctor_host(&doctor);
        doctor_ticket(&doctor, text);
        explicit_bzero(text, sizeof(text));
    } else if (config_open(cli, &doctor, &is_other_user)) {
        doctor.status = daemon_status(cli, &doctor.config);
        doctor_files(&doctor);
        doctor_host(&doctor);
        doctor_links(&doctor);
    }
    const enum tw_exit rc =
        is_other_user && !cli->json ? TW_EXIT_FAILURE : print_summary(cli, &doctor);
    if (doctor.has_identity) tw_identity_close(&doctor.identity);
    tw_secrets_wipe(&doctor.secrets);
    json_decref(doctor.status);
    json_decref(doctor.list);
    return rc;
}
