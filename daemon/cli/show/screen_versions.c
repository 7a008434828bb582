/* screen_versions.c - prints which nodes hold which committed version of the model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/show/screen.h"

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
