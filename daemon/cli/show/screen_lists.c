/* screen_lists.c - tables: peers, rounds, events. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/show/screen.h"

enum {
    ID_DIGITS = 8,
    NAME_MOST = 15, /* columns for the name of a node */
    PLACE_BYTES = 320
};

/* Returns the columns that the names of these nodes need: the short id of one without a name. */
static int name_width(const json_t *nodes, size_t least) {
    size_t most = least;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const size_t length = strlen(json_str(json_array_get(nodes, i), "name"));
        if (length > most) most = length;
    }
    return most < NAME_MOST ? (int)most : NAME_MOST;
}

/* Returns the name of a node, else its short id, else `other`. */
static const char *name_of(const json_t *node, const char *other) {
    const char *const name = json_str(node, "name"), *const id = json_str(node, "id_short");
    return *name != 0 ? name : *id != 0 ? id : other;
}

/* Appends to text[PLACE_BYTES]. */
static void TW_PRINTF(2, 3) append(char *text, const char *fmt, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text + used, PLACE_BYTES - used, fmt, args);
    va_end(args);
}

/* Prints below a peer's row where it is, and how it takes part. */
static void print_place(const struct screen *screen, const json_t *peer, bool is_group) {
    char text[PLACE_BYTES] = "", number[TW_UNITS_BYTES];
    const char *const address = json_str(peer, "address"), *const via = json_str(peer, "via"),
                      *const via_name = json_str(peer, "via_name");
    const double mixed = json_num(peer, "last_mixed_round"),
                 share = json_num(peer, "token_share_ratio");
    const bool is_alive = strcmp(json_str(peer, "link"), "alive") == 0;
    if (*json_str(peer, "name") != 0) append(text, "%s, ", json_str(peer, "id_short"));
    if (*via != 0)
        append(text, "through %s", *via_name != 0 ? via_name : via);
    else
        append(text, "%s", *address != 0 ? address : is_alive ? "dials us" : "no address");
    const char *const path = json_str(peer, "path");
    if (strcmp(path, "punched") == 0 || strcmp(path, "mapped") == 0) append(text, ", %s", path);
    if (isfinite(mixed))
        append(text, ", last %s in round %s", is_group ? "mixed" : "merged",
               tw_units_count(number, mixed));
    if (isfinite(share)) append(text, ", %s of tokens", tw_units_percent(number, share));
    const char *const role = json_str(peer, "role");
    if (strcmp(role, "follow") == 0) append(text, ", follows");
    if (strcmp(role, "reduce") == 0) append(text, ", reduces");
    if (is_group && json_yes(peer, "member") && json_is_false(json_at(peer, "votes")))
        append(text, ", does not vote");
    line_wrap(screen, DIM, "", 11, text);
    if (is_group && is_alive && !json_yes(peer, "same_lineage"))
        line_wrap(screen, YELLOW, "", 11, "in another lineage");
}

/* Prints a peer's row. In a `pair` or `solo` run each node has its own lineage, so lineages are not
 * compared. */
static void print_peer(const struct screen *screen, const json_t *peer, const char *topology,
                       int width) {
    char step[TW_UNITS_BYTES], rtt[TW_UNITS_BYTES], up[TW_UNITS_BYTES], down[TW_UNITS_BYTES],
        heard[TW_UNITS_BYTES];
    const char *const link = json_str(peer, "link");
    const bool is_alive = strcmp(link, "alive") == 0;
    struct line line = line_begin(screen, NULL);
    line_put(&line, is_alive ? GREEN : strcmp(link, "refused") == 0 ? RED : DIM, "  %-9s", link);
    line_put(&line, PLAIN, "%-*.*s %-9s", width, width, name_of(peer, "?"),
             json_str(peer, "state"));
    line_put(&line, PLAIN, "%9s %7s", tw_units_count(step, json_num(peer, "steps")),
             tw_units_duration(rtt, json_num(peer, "rtt_us") / 1e6));
    line_put(&line, PLAIN, " %8s %8s", tw_units_bytes(up, json_num(peer, "up_bytes")),
             tw_units_bytes(down, json_num(peer, "down_bytes")));
    line_put(&line, DIM, " %7s", tw_units_duration(heard, json_num(peer, "heard_age_s")));
    line_end(&line);
    print_place(screen, peer, strcmp(topology, "group") == 0);
    const char *const absence = json_str(peer, "absence"), *const error = json_str(peer, "error");
    if (*absence != 0) line_wrap(screen, strcmp(link, "away") == 0 ? YELLOW : DIM, "", 11, absence);
    const char *const way = json_str(peer, "path_text");
    if (*way != 0) line_wrap(screen, DIM, "", 11, way);
    if (*error != 0) line_wrap(screen, YELLOW, "", 11, error);
    const char *const anomaly = json_str(peer, "anomaly");
    if (*anomaly != 0) line_wrap(screen, YELLOW, "", 11, anomaly);
    const char *const clock_note = json_str(peer, "clock_note");
    if (*clock_note != 0) line_wrap(screen, YELLOW, "", 11, clock_note);
    const char *const large = json_str(peer, "large");
    if (*large != 0) line_wrap(screen, YELLOW, "", 11, large);
    const char *const waits = json_str(peer, "waits");
    if (*waits != 0) line_wrap(screen, YELLOW, "", 11, waits);
    const char *const stall = json_str(peer, "stall");
    if (*stall != 0) line_wrap(screen, YELLOW, "", 11, stall);
    const char *const strike = json_str(peer, "strike");
    if (*strike != 0) line_wrap(screen, YELLOW, "", 11, strike);
    const char *const twin = json_str(peer, "twin");
    if (*twin != 0) line_wrap(screen, RED, "", 11, twin);
    const char *const refuses = json_str(peer, "refuses");
    if (*refuses != 0) line_wrap(screen, YELLOW, "", 11, refuses);
    const char *const refused = json_str(peer, "refused");
    if (*refused != 0) line_wrap(screen, YELLOW, "", 11, refused);
}

static void print_bans(const struct screen *screen, const json_t *bans) {
    for (size_t i = 0; i < json_array_size(bans); i++) {
        const json_t *const ban = json_array_get(bans, i);
        char left[TW_UNITS_BYTES];
        struct line line = line_begin(screen, NULL);
        line_put(&line, RED, "  %-9s", "banned");
        line_put(&line, PLAIN, "%-9s ", name_of(ban, "?"));
        line_put(&line, DIM, "broke the protocol; for %s more",
                 tw_units_duration(left, json_num(ban, "left_s")));
        line_end(&line);
    }
    if (json_array_size(bans) > 0)
        line_wrap(screen, DIM, "", 11, "`thinwire unban NODE` lifts a ban before it ends.");
}

/* Prints the port mapping at the router. Its absence is shown only if a peer has no direct link. */
static void print_mapping(const struct screen *screen, const json_t *json) {
    const json_t *const peers = json_at(json, "peers");
    const char *const state = json_str(json, "port_mapping.state");
    bool is_indirect = false;
    for (size_t i = 0; i < json_array_size(peers); i++) {
        const json_t *const peer = json_array_get(peers, i);
        is_indirect |=
            *json_str(peer, "via") != 0 ||
            (strcmp(json_str(peer, "link"), "known") == 0 && *json_str(peer, "error") != 0);
    }
    const char *const nat = json_str(json, "nat_text");
    if (is_indirect && *nat != 0) line_wrap(screen, YELLOW, "", 2, nat);
    const bool is_mapped = strcmp(state, "mapped") == 0;
    if (strcmp(state, "off") == 0 || strcmp(state, "not_needed") == 0) return;
    if (is_mapped || is_indirect)
        line_wrap(screen, is_mapped ? DIM : YELLOW, "", 2, json_str(json, "port_mapping.text"));
}

/* Reports another machine that uses this node's key. */
static void print_twins(const struct screen *screen, const json_t *twins) {
    for (size_t i = 0; i < json_array_size(twins); i++) {
        const json_t *const twin = json_array_get(twins, i);
        const char *const address = json_str(twin, "address");
        if (!json_yes(twin, "self"))
            continue; /* another machine with a peer's key is shown in the peer's row */
        struct line line = line_begin(screen, NULL);
        line_put(&line, RED, "  %-9s", "twin");
        line_put(&line, PLAIN, "%-9s ", json_str(twin, "id_short"));
        line_put(&line, DIM, "%s", *address != 0 ? address : "address not known");
        line_end(&line);
        line_wrap(screen, RED, "", 11,
                  "another machine has this node's key: give the copy its own (`thinwire init "
                  "--new-key` there, then `thinwire leave` and `thinwire start`)");
    }
}

/* Adds how many peers are absent, by state. */
static void put_absent(struct line *line, const json_t *peers) {
    static const char *const LINKS[] = {"left", "paused", "away", "gone"};
    for (size_t k = 0; k < sizeof(LINKS) / sizeof(LINKS[0]); k++) {
        unsigned count = 0;
        for (size_t i = 0; i < json_array_size(peers); i++)
            count += strcmp(json_str(json_array_get(peers, i), "link"), LINKS[k]) == 0;
        if (count > 0) line_put(line, k == 2 ? YELLOW : DIM, ", %u %s", count, LINKS[k]);
    }
}

void screen_peers(const struct screen *screen, const json_t *json) {
    const json_t *const peers = json_at(json, "peers");
    const int width = name_width(peers, ID_DIGITS + 1);
    struct line line = line_begin(screen, NULL);
    const char *const topology = json_str(json, "topology");
    line_put(&line, BOLD, "%.0f known, %.0f alive", json_num(json, "known_peers"),
             json_num(json, "alive_peers"));
    if (strcmp(topology, "solo") != 0) {
        line_put(&line, BOLD, ", %.0f merged with lately", json_num(json, "mixed_peers"));
    }
    put_absent(&line, peers);
    line_end(&line);
    if (json_array_size(peers) == 0) {
        line_wrap(
            screen, PLAIN, "", 2,
            "No peers yet. `thinwire invite` prints a line with which another machine joins. To "
            "join an existing run, name a node of it with `peers = host:port` in [network] "
            "of the configuration; it knows the other nodes.");
        print_twins(screen, json_at(json, "twins"));
        print_bans(screen, json_at(json, "banned"));
        return;
    }
    line = line_begin(screen, NULL);
    line_put(&line, DIM, "  %-9s%-*s %-9s%9s %7s %8s %8s %7s", "link", width, "node", "state",
             "step", "rtt", "sent", "received", "heard");
    line_end(&line);
    for (size_t i = 0; i < json_array_size(peers); i++) {
        print_peer(screen, json_array_get(peers, i), topology, width);
    }
    print_mapping(screen, json);
    print_twins(screen, json_at(json, "twins"));
    print_bans(screen, json_at(json, "banned"));
}

/* Prints a round's members in 13 columns, and remarks about the round. */
static void put_round_members(struct line *line, const json_t *round, bool is_group) {
    const char *const name = json_str(round, "partner_name"), *const partner =
                                                                  *name != 0
                                                                      ? name
                                                                      : json_str(round, "partner");
    if (is_group) {
        line_put(line, PLAIN, " %6.0f of %3.0f", json_num(round, "contributors"),
                 json_num(round, "roster_members"));
    } else {
        line_put(line, PLAIN, " %13.13s", partner[0] != 0 ? partner : "alone");
    }
}

void screen_rounds(const struct screen *screen, const json_t *json) {
    const bool is_group = strcmp(json_str(json, "topology"), "group") == 0;
    const json_t *const rounds = json_at(json, "rounds");
    struct line line = line_begin(screen, NULL);
    if (json_array_size(rounds) == 0) {
        line_put(&line, PLAIN, "No rounds yet; `thinwire status` shows whether peers are alive.");
        line_end(&line);
        return;
    }
    line_put(&line, DIM, "  %9s %8s %13s %9s %9s %9s", "round", "fragment",
             is_group ? "contributors" : "partner", "bytes", "took", "age");
    line_end(&line);
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *const round = json_array_get(rounds, i);
        char number[TW_UNITS_BYTES], bytes[TW_UNITS_BYTES], took[TW_UNITS_BYTES],
            age[TW_UNITS_BYTES];
        line = line_begin(screen, NULL);
        line_put(&line, PLAIN, "  %9s %8.0f", tw_units_count(number, json_num(round, "round")),
                 json_num(round, "fragment"));
        put_round_members(&line, round, is_group);
        line_put(&line, PLAIN, " %9s %9s %9s",
                 tw_units_bytes(bytes, json_num(round, "payload_bytes")),
                 tw_units_duration(took, json_num(round, "took_us") / 1e6),
                 tw_units_duration(age, json_num(round, "age_s")));
        if (!is_group) {
            line_end(&line);
            continue;
        }
        if (json_yes(round, "solo")) {
            line_put(&line, DIM, "  solo");
        } else if (!json_yes(round, "ours")) {
            line_put(&line, YELLOW, "  without us");
        }
        line_end(&line);
    }
}

static void print_ledger_row(const struct screen *screen, const json_t *row, int width) {
    char tokens[TW_UNITS_BYTES], share[TW_UNITS_BYTES], rounds[TW_UNITS_BYTES],
        parts[TW_UNITS_BYTES], bytes[TW_UNITS_BYTES], last[TW_UNITS_BYTES];
    const bool is_self = json_yes(row, "is_self");
    struct line line = line_begin(screen, NULL);
    line_put(&line, is_self ? GREEN : PLAIN, "  %-*.*s ", width, width, name_of(row, "others"));
    line_put(&line, PLAIN, "%9s %7s %9s %9s %9s %10s",
             tw_units_count(tokens, json_num(row, "tokens")),
             tw_units_percent(share, json_num(row, "token_share_ratio")),
             tw_units_count(rounds, json_num(row, "rounds")),
             tw_units_count(parts, json_num(row, "parts")),
             tw_units_bytes(bytes, json_num(row, "merged_bytes")),
             json_num(row, "rounds") > 0 ? tw_units_count(last, json_num(row, "last_round")) : "-");
    if (is_self) line_put(&line, DIM, "  this node");
    line_end(&line);
}

void screen_ledger(const struct screen *screen, const json_t *json) {
    const json_t *const nodes = json_at(json, "nodes"), *const others = json_at(json, "others");
    char rounds[TW_UNITS_BYTES], first[TW_UNITS_BYTES], unseen[TW_UNITS_BYTES];
    struct line line = line_begin(screen, NULL);
    if (json_array_size(nodes) == 0) {
        line_put(&line, PLAIN, "No round of a group was seen here yet.");
        line_end(&line);
        return;
    }
    const int width = name_width(nodes, ID_DIGITS);
    line_put(&line, DIM, "  %-*s %9s %7s %9s %9s %9s %10s", width, "node", "tokens", "share",
             "rounds", "parts", "bytes", "last round");
    line_end(&line);
    for (size_t i = 0; i < json_array_size(nodes); i++)
        print_ledger_row(screen, json_array_get(nodes, i), width);
    if (json_is_object(others)) print_ledger_row(screen, others, width);
    line = line_begin(screen, NULL);
    line_put(&line, DIM, "  %s rounds seen from round %s on",
             tw_units_count(rounds, json_num(json, "rounds")),
             tw_units_count(first, json_num(json, "first_round")));
    if (json_num(json, "unseen_rounds") > 0)
        line_put(&line, DIM, "; %s more were not",
                 tw_units_count(unseen, json_num(json, "unseen_rounds")));
    if (json_num(json, "undone_rounds") > 0)
        line_put(&line, DIM, "; %s of them were lost later",
                 tw_units_count(unseen, json_num(json, "undone_rounds")));
    line_end(&line);
    if (!json_is_string(json_at(json, "base"))) return;
    line = line_begin(screen, NULL);
    line_put(&line, DIM, "  the record of round %s names base %.16s",
             tw_units_count(first, json_num(json, "base_round")), json_str(json, "base"));
    line_end(&line);
}

void screen_event(const struct screen *screen, const json_t *event) {
    char text[32];
    const time_t at = time(NULL) - (time_t)json_num(event, "age_s");
    struct tm local;
    (void)localtime_r(&at, &local);
    (void)strftime(text, sizeof(text), "%m-%d %H:%M:%S", &local);
    struct line line = line_begin(screen, NULL);
    line_put(&line, DIM, "%s  ", text);
    line_put(&line, json_yes(event, "warning") ? YELLOW : PLAIN, "%s", json_str(event, "name"));
    line_put(&line, DIM, "  %s", json_str(event, "text"));
    line_end(&line);
}

void screen_events(const struct screen *screen, const json_t *json) {
    const json_t *const events = json_at(json, "events");
    for (size_t i = json_array_size(events); i-- > 0;) /* newest last, like a log */
        screen_event(screen, json_array_get(events, i));
}

/* ---- versions of members --------------------------------------------------------------------- */

enum { INDENT = 4, NODES_BYTES = 2048 };

/* Lists nodes: "this node, barn and 5e5e5e5e", truncated to NODES_BYTES. */
static void list_nodes(char text[NODES_BYTES], const json_t *nodes) {
    const size_t count = json_array_size(nodes);
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && at < NODES_BYTES; i++) {
        const json_t *const node = json_array_get(nodes, i);
        const char *const between = i == 0 ? "" : i + 1 == count ? " and " : ", ";
        const char *const name = json_str(node, "name");
        at += (size_t)snprintf(text + at, NODES_BYTES - at, "%s%s", between,
                               json_yes(node, "self") ? "this node"
                               : *name != 0           ? name
                                                      : json_str(node, "id_short"));
    }
}

static void print_version(const struct screen *screen, const json_t *version, bool is_most,
                          const char *lineage) {
    char rounds[TW_UNITS_BYTES], nodes[NODES_BYTES];
    const json_t *const list = json_at(version, "nodes");
    const size_t count = json_array_size(list);
    const char *const tip = json_str(version, "tip_short");
    const bool is_other = strcmp(json_str(version, "lineage_short"), lineage) != 0;
    struct line line = line_begin(screen, NULL);
    line_put(&line,
             is_most    ? GREEN
             : is_other ? YELLOW
                        : PLAIN,
             "  %zu node%s", count, count == 1 ? "" : "s");
    line_put(&line, PLAIN, " after %s rounds", tw_units_count(rounds, json_num(version, "rounds")));
    if (*tip != '\0') line_put(&line, DIM, ", record %s", tip);
    line_put(&line, is_other ? YELLOW : DIM, ", lineage %s", json_str(version, "lineage_short"));
    line_end(&line);
    list_nodes(nodes, list);
    line_wrap(screen, PLAIN, "", INDENT, nodes);
}

static void print_disk(const struct screen *screen, const json_t *versions) {
    char rounds[TW_UNITS_BYTES], age[TW_UNITS_BYTES], text[256];
    const double saved = json_num(versions, "checkpoint.rounds");
    if (isfinite(saved))
        (void)snprintf(text, sizeof(text),
                       "On disk here: a checkpoint after %s rounds, %s old. Other nodes do not "
                       "tell of theirs; `thinwire checkpoint` there saves one.",
                       tw_units_count(rounds, saved),
                       tw_units_duration(age, json_num(versions, "checkpoint.age_s")));
    else
        (void)snprintf(text, sizeof(text), "On disk here: no checkpoint with a round yet.");
    line_wrap(screen, DIM, "", 2, text);
}

void screen_versions(const struct screen *screen, const json_t *versions) {
    const json_t *const list = json_at(versions, "versions"), *const unknown =
                                                                  json_at(versions, "unknown");
    const size_t count = json_array_size(list), silent = json_array_size(unknown);
    const json_t *const first = json_array_get(list, 0);
    char nodes[NODES_BYTES];
    if (strcmp(json_str(versions, "topology"), "group") != 0)
        line_wrap(screen, YELLOW, "", 2,
                  "In this run each node has a model of its own, so no two versions are equal.");
    for (size_t i = 0; i < count; i++)
        print_version(screen, json_array_get(list, i), i == 0, json_str(first, "lineage_short"));
    if (silent > 0) {
        struct line line = line_begin(screen, NULL);
        line_put(&line, YELLOW, "  %zu node%s not heard now", silent, silent == 1 ? "" : "s");
        line_end(&line);
        list_nodes(nodes, unknown);
        line_wrap(screen, PLAIN, "", INDENT, nodes);
    }
    print_disk(screen, versions);
}
