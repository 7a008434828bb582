/* owner_recall.c - `thinwire owner recall`: the owner returns the run, on every node, to the state
 * after a round. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/node/owner.h"
#include "daemon/store/checkpoint.h"

struct wish {
    const char *run, *key, *out;
    bool has_lineage;
    struct tw_id lineage;
    uint64_t rounds;
};

static enum tw_exit read_wish(struct cli *cli, struct wish *wish) {
    static const char *const OPTIONS[] = {"--key", "--run", "--lineage", "--out", "--config", NULL};
    const char *lineage = NULL;
    char *end = NULL;
    *wish = (struct wish){0};
    (void)cli_option(cli, "--key", &wish->key);
    (void)cli_option(cli, "--run", &wish->run);
    (void)cli_option(cli, "--out", &wish->out);
    wish->has_lineage = cli_option(cli, "--lineage", &lineage);
    const char *const round = cli_operand(cli);
    const enum tw_exit rc = cli_done(cli, "owner recall", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (round == NULL)
        return cli_fail(TW_EXIT_USAGE, "owner recall: to which round? `thinwire rollback` lists "
                                       "those that this node has");
    errno = 0;
    wish->rounds = strtoull(round, &end, 10);
    if (round[0] < '1' || round[0] > '9' || *end != 0 || errno != 0)
        return cli_fail(TW_EXIT_USAGE, "%.40s is no round: it is a number above 0", round);
    if (wish->has_lineage && !tw_id_parse(lineage, &wish->lineage))
        return cli_fail(TW_EXIT_USAGE,
                        "--lineage %.80s: it is 64 hex digits, as `thinwire rollback --json` "
                        "prints them",
                        lineage);
    return TW_EXIT_OK;
}

/* ---- the state ----------------------------------------------------------------------------- */

/* Finds the recalled state's lineage from this node's checkpoints of that round. Fails if they are
 * of two lineages. */
static enum tw_exit choose_lineage(const struct tw_checkpoint_about *about, struct wish *wish) {
    bool is_found = false;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        if (!about[i].exists || about[i].refused[0] != '\0' || !about[i].has_position ||
            about[i].rounds != wish->rounds)
            continue;
        if (is_found && !tw_id_equal(&wish->lineage, &about[i].lineage))
            return cli_fail(TW_EXIT_USAGE,
                            "owner recall: two lineages have a round %" PRIu64
                            " here; name one with --lineage (`thinwire rollback --json` lists "
                            "them)",
                            wish->rounds);
        wish->lineage = about[i].lineage;
        is_found = true;
    }
    if (is_found) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "owner recall: this node has no checkpoint of round %" PRIu64
                    "; `thinwire rollback` lists its checkpoints. If another node has one, name "
                    "its --lineage",
                    wish->rounds);
}

static enum tw_exit find_lineage(const struct owner_place *place, struct wish *wish) {
    static struct tw_layout layout;
    struct tw_checkpoint_about about[TW_CHECKPOINT_FILES];
    struct tw_checkpoint *files;
    struct tw_error err = {0};
    char hex[TW_ID_HEX_BYTES], folder[TW_PATH_BYTES];
    if (wish->has_lineage) return TW_EXIT_OK;
    if (!place->has_config)
        return cli_fail(TW_EXIT_USAGE, "owner recall: no node here, so name the --lineage too");
    tw_id_hex(&place->run_id, hex);
    hex[16] = '\0';
    if (!owner_path(place, hex, folder))
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    if (tw_layout_init(&layout, &place->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (tw_checkpoint_create(&files, tw_file_system(), folder, &layout, &place->run_id, &err) !=
        TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "owner recall: %s", err.message);
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) tw_checkpoint_look(files, i, &about[i]);
    tw_checkpoint_destroy(files);
    return choose_lineage(about, wish);
}

/* ---- the recall ---------------------------------------------------------------------------- */

/* Sets *version to one more than that of the recall in the file, or to 1 if there is no file. */
static enum tw_exit find_version(const struct owner_place *place, const char *path,
                                 uint64_t *version) {
    struct tw_recall there;
    struct tw_error err;
    *version = 1;
    if (access(path, F_OK) != 0) return TW_EXIT_OK;
    if (tw_recall_load(path, &there, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    if (!tw_id_equal(&there.run, &place->run_id))
        return cli_fail(TW_EXIT_IDENTITY, "%s is a recall of another run", path);
    *version = there.version + 1;
    return TW_EXIT_OK;
}

static enum tw_exit sign_recall(const struct owner_place *place, const struct wish *wish,
                                struct tw_recall *recall) {
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    char path[TW_PATH_BYTES];
    struct tw_identity key;
    const enum tw_exit rc = owner_key_open(place, wish->key, path, &key);
    if (rc != TW_EXIT_OK) return rc;
    const struct tw_id public_key = tw_public_key(key.key);
    const bool is_owner = tw_id_equal(&public_key, &place->run.security.owner);
    tw_recall_signed(recall, text);
    if (is_owner) tw_sign(key.key, text, sizeof(text), recall->signature);
    tw_identity_close(&key);
    if (is_owner) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY,
                    "%s is not the key of the run's owner, and only the owner recalls", path);
}

static enum tw_exit save_recall(const char *path, const struct tw_recall *recall) {
    char copy[TW_PATH_BYTES];
    struct tw_error err;
    const char *const slash = strrchr(path, '/');
    (void)snprintf(copy, sizeof(copy), "%s", path);
    if (tw_recall_save(dirname(copy), slash != NULL ? slash + 1 : path, recall, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
}

enum tw_exit owner_recall(struct cli *cli) {
    static struct owner_place place;
    struct wish wish;
    struct tw_recall recall = {.made_s = (uint64_t)time(NULL)};
    char path[TW_PATH_BYTES], lineage[9];
    enum tw_exit rc = read_wish(cli, &wish);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, wish.run, &place);
    if (rc != TW_EXIT_OK) return rc;
    if (place.run.sync.topology == TW_TOPOLOGY_PAIR)
        return cli_fail(TW_EXIT_MANIFEST, "owner recall: in a run of pairs each node has a history "
                                          "of its own; use `thinwire rollback` on each node");
    if (wish.out == NULL && !place.has_config)
        return cli_fail(TW_EXIT_USAGE, "owner recall: no node here, so name the file: --out FILE");
    if (wish.out != NULL)
        (void)snprintf(path, sizeof(path), "%s", wish.out);
    else if (!owner_path(&place, TW_RECALL_FILE, path))
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    rc = find_lineage(&place, &wish);
    if (rc == TW_EXIT_OK) rc = find_version(&place, path, &recall.version);
    recall.run = place.run_id;
    recall.lineage = wish.lineage;
    recall.rounds = wish.rounds;
    if (rc == TW_EXIT_OK) rc = sign_recall(&place, &wish, &recall);
    if (rc == TW_EXIT_OK && wish.out == NULL) rc = owner_become_node(cli, &place);
    if (rc == TW_EXIT_OK) rc = save_recall(path, &recall);
    if (rc != TW_EXIT_OK) return rc;
    tw_id_short(&recall.lineage, lineage);
    (void)printf("Recall %" PRIu64 " returns the run to round %" PRIu64 " of lineage %s. %s\n",
                 recall.version, recall.rounds, lineage,
                 wish.out == NULL ? "The daemon here passes it on within seconds."
                                  : "Give it to any node of the run: `thinwire owner import FILE` "
                                    "there. It spreads by itself.");
    return TW_EXIT_OK;
}
