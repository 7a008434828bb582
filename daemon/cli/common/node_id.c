#include "daemon/cli/common/node_id.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/cli/common/json_path.h"

enum { BEGINNING_MIN = 4 }; /* hex digits of an id; fewer are a slip of the hand */

static bool is_meant(const char *text, const char *id, const char *name) {
    const size_t size = strlen(text);
    const bool is_begin = size >= BEGINNING_MIN && strncmp(id, text, size) == 0;
    return is_begin || strcmp(name, text) == 0;
}

/* Asks the daemon for its peers. Returns NULL if it does not answer; the caller owns the answer. */
static json_t *ask_peers(const struct cli *cli) {
    struct cli quiet = *cli;
    long code = 0;
    char *body = NULL;
    json_error_t err;
    quiet.is_quiet = true;
    if (cli_request(&quiet, "GET", "/v1/peers", &code, &body) != TW_EXIT_OK) return NULL;
    json_t *const json = json_loads(body, 0, &err);
    free(body);
    return json;
}

enum tw_exit cli_node_id(const struct cli *cli, const char *text, struct tw_id *node) {
    char id[TW_ID_HEX_BYTES] = "", name[64] = "";
    unsigned count = 0;
    size_t at;
    json_t *peer;
    if (tw_id_parse(text, node)) return TW_EXIT_OK;
    json_t *const json = ask_peers(cli);
    json_array_foreach(json_object_get(json, "peers"), at, peer) {
        if (!is_meant(text, json_str(peer, "id"), json_str(peer, "name"))) continue;
        (void)snprintf(id, sizeof(id), "%s", json_str(peer, "id"));
        (void)snprintf(name, sizeof(name), "%s", json_str(peer, "name"));
        count++;
    }
    const bool is_asked = json != NULL;
    json_decref(json);
    if (count > 1)
        return cli_fail(TW_EXIT_USAGE, "%.80s means %u nodes: give more digits of the id", text,
                        count);
    if (count == 1 && tw_id_parse(id, node)) {
        (void)fprintf(stderr, "thinwire: %.80s is node %s%s%s\n", text, id,
                      name[0] != '\0' ? ", " : "", name);
        return TW_EXIT_OK;
    }
    return cli_fail(TW_EXIT_USAGE, "%.80s is no node id of 64 hex digits%s", text,
                    is_asked ? ", nor the beginning of one or a name that peers shows"
                             : "; a beginning or a name is known while the daemon runs");
}
