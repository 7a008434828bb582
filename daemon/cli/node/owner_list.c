/* owner_list.c - the list that a run's owner signs: `thinwire owner revoke` and `thinwire pause
 * --run`. Both need the owner's key. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/node_id.h"
#include "daemon/cli/node/owner.h"

/* ---- revoke -------------------------------------------------------------------------------- */

struct revoke {
    const char *run, *key, *list;
    bool lifts, is_pause;
};

/* Loads the list to extend. A missing file is an empty list, an invalid one is an error. */
static enum tw_exit list_open(const struct revoke *revoke, const struct owner_place *place,
                              struct tw_revoked *list, char path[TW_PATH_BYTES]) {
    struct tw_error err;
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    if (revoke->list != NULL) {
        (void)snprintf(path, TW_PATH_BYTES, "%s", revoke->list);
    } else if (!place->has_config) {
        return cli_fail(TW_EXIT_USAGE, "there is no node here, so name the list: --list FILE");
    } else if (!owner_path(place, TW_REVOKED_FILE, path)) {
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    }
    memset(list, 0, sizeof(*list));
    list->run = place->run_id;
    if (access(path, F_OK) != 0) return TW_EXIT_OK;
    if (tw_revoked_load(path, list, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    tw_revoked_signed(list, text);
    if (tw_id_equal(&list->run, &place->run_id) &&
        tw_is_signed(&place->run.security.owner, text, sizeof(text), list->signature))
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s is not a list of this run's owner", path);
}

/* Nodes whose certificates have expired need no revocation. */
static enum tw_exit fail_full(void) {
    return cli_fail(TW_EXIT_FAILURE,
                    "the list is full at %d nodes: `thinwire owner revoke --lift` nodes whose "
                    "certificates have expired",
                    TW_REVOKED_MAX);
}

static enum tw_exit list_change(struct cli *cli, const struct revoke *revoke,
                                struct tw_revoked *list) {
    unsigned count = 0;
    for (const char *text = cli_operand(cli); text != NULL; text = cli_operand(cli), count++) {
        struct tw_id node;
        const enum tw_exit rc = cli_node_id(cli, text, &node);
        if (rc != TW_EXIT_OK) return rc;
        if (revoke->lifts ? tw_revoked_remove(list, &node) : tw_revoked_add(list, &node)) continue;
        if (list->count == TW_REVOKED_MAX && !tw_revoked_has(list, &node)) return fail_full();
        return cli_fail(TW_EXIT_FAILURE, "%.64s is %s the list", text,
                        revoke->lifts ? "not on" : "already on");
    }
    return count > 0 ? TW_EXIT_OK : cli_fail(TW_EXIT_USAGE, "owner revoke: which node id?");
}

static void list_sign(struct tw_revoked *list, const struct tw_identity *key) {
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    list->version++;
    list->made_s = (uint64_t)time(NULL);
    tw_revoked_signed(list, text);
    tw_sign(key->key, text, sizeof(text), list->signature);
}

/* Signs the changed list with the owner's key, and saves it. Prints errors itself. */
static enum tw_exit list_publish(const struct cli *cli, const struct revoke *revoke,
                                 const struct owner_place *place, const char *path,
                                 struct tw_revoked *list) {
    char folder[TW_PATH_BYTES], key_path[TW_PATH_BYTES];
    struct tw_identity key;
    struct tw_error err;
    enum tw_exit rc = owner_key_open(place, revoke->key, key_path, &key);
    if (rc != TW_EXIT_OK) return rc;
    const struct tw_id public_key = tw_public_key(key.key);
    const bool is_owner = tw_id_equal(&public_key, &place->run.security.owner);
    if (is_owner) list_sign(list, &key);
    tw_identity_close(&key);
    if (!is_owner)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner, and only the owner %s", key_path,
                        revoke->is_pause ? "pauses the run" : "revokes");
    if (revoke->list == NULL) rc = owner_become_node(cli, place);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_save(owner_folder(path, folder), owner_file(path), list, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    return TW_EXIT_OK;
}

static const char *describe_way(const struct revoke *revoke) {
    return revoke->list == NULL ? "The daemon here passes it on within seconds."
                                : "Give it to any node of the run: `thinwire owner import FILE` "
                                  "there. It spreads by itself.";
}

enum tw_exit owner_revoke(struct cli *cli) {
    static const char *const OPTIONS[] = {"--key", "--run", "--list", "--lift", "--config", NULL};
    static struct owner_place place;
    static struct tw_revoked list;
    struct revoke revoke = {.lifts = cli_flag(cli, "--lift")};
    char path[TW_PATH_BYTES];
    (void)cli_option(cli, "--key", &revoke.key);
    (void)cli_option(cli, "--run", &revoke.run);
    (void)cli_option(cli, "--list", &revoke.list);
    enum tw_exit rc = owner_place_find(cli, revoke.run, &place);
    if (rc == TW_EXIT_OK) rc = list_open(&revoke, &place, &list, path);
    if (rc == TW_EXIT_OK) rc = list_change(cli, &revoke, &list);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "owner revoke", OPTIONS);
    if (rc == TW_EXIT_OK) rc = list_publish(cli, &revoke, &place, path, &list);
    if (rc != TW_EXIT_OK) return rc;
    const unsigned count = tw_revoked_nodes(&list);
    (void)printf("List %llu revokes %u %s. %s\n", (unsigned long long)list.version, count,
                 count == 1 ? "node" : "nodes", describe_way(&revoke));
    return TW_EXIT_OK;
}

/* ---- pause --run --------------------------------------------------------------------------- */

enum tw_exit owner_pause_run(struct cli *cli, bool is_paused) {
    static const char *const OPTIONS[] = {"--key", "--manifest", "--list", "--config", NULL};
    static struct owner_place place;
    static struct tw_revoked list;
    const char *const verb = is_paused ? "pause" : "resume";
    struct revoke revoke = {.is_pause = true};
    char path[TW_PATH_BYTES];
    (void)cli_option(cli, "--key", &revoke.key);
    (void)cli_option(cli, "--manifest", &revoke.run);
    (void)cli_option(cli, "--list", &revoke.list);
    enum tw_exit rc = cli_done(cli, verb, OPTIONS);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, revoke.run, &place);
    if (rc == TW_EXIT_MANIFEST)
        (void)fprintf(stderr,
                      "Without an owner no node obeys another: use `thinwire %s` on each node.\n",
                      verb);
    if (rc == TW_EXIT_OK) rc = list_open(&revoke, &place, &list, path);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_is_paused(&list) == is_paused)
        return cli_fail(TW_EXIT_FAILURE, "the run is %s by list %llu",
                        is_paused ? "already paused" : "not paused",
                        (unsigned long long)list.version);
    if (!(is_paused ? tw_revoked_add : tw_revoked_remove)(&list, &tw_revoked_pause_entry))
        return fail_full();
    rc = list_publish(cli, &revoke, &place, path, &list);
    if (rc != TW_EXIT_OK) return rc;
    (void)printf("List %llu %s training in the whole run. %s\n", (unsigned long long)list.version,
                 is_paused ? "pauses" : "resumes", describe_way(&revoke));
    return TW_EXIT_OK;
}
