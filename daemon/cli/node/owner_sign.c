/* owner_sign.c - `thinwire owner sign`: needs the owner's key, or the key of a node that may admit
 * others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/node/owner.h"
#include "daemon/cli/node/owner_key.h"
#include "proto/armour.h"

enum { DAY_S = 24 * 3600, DAYS_OWNER = 365, DAYS_MAX = 3650 };

static enum tw_exit parse_node(const char *text, struct tw_id *node) {
    if (tw_id_parse(text, node)) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "%.80s is no node id: 64 hex digits, as `thinwire status --json` of that node "
                    "prints it",
                    text);
}

enum tw_exit owner_key_open(const struct owner_place *place, const char *given,
                            char path[TW_PATH_BYTES], struct tw_identity *key) {
    struct tw_error err;
    const bool is_beside = given == NULL && owner_key_beside(place->run_path, path);
    if (given == NULL && (!is_beside || access(path, F_OK) != 0) &&
        access(OWNER_KEY_FILE, F_OK) == 0)
        given = OWNER_KEY_FILE;
    if (given != NULL && snprintf(path, TW_PATH_BYTES, "%s", given) >= TW_PATH_BYTES)
        return cli_fail(TW_EXIT_USAGE, "--key: the path is too long");
    if (access(path, F_OK) != 0)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s: %s; name the owner's key with --key FILE (`thinwire run new` made it "
                        "beside the manifest)",
                        path, strerror(errno));
    if (tw_identity_open(path, key, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* ---- sign ---------------------------------------------------------------------------------- */

struct sign {
    const char *run, *key, *out, *days_text;
    char key_path[TW_PATH_BYTES];
    struct tw_id node;
    uint32_t may;
    bool lacks_vote;
    uint64_t days; /* 0: not given */
};

static enum tw_exit sign_options(struct cli *cli, struct sign *sign) {
    static const char *const OPTIONS[] = {"--key", "--run",    "--may",  "--no-vote", "--days",
                                          "--out", "--config", "--json", NULL};
    const char *may = "train";
    *sign = (struct sign){.lacks_vote = cli_flag(cli, "--no-vote")};
    (void)cli_option(cli, "--key", &sign->key);
    (void)cli_option(cli, "--run", &sign->run);
    (void)cli_option(cli, "--out", &sign->out);
    (void)cli_option(cli, "--may", &may);
    (void)cli_option(cli, "--days", &sign->days_text);
    const char *const node = cli_operand(cli);
    const enum tw_exit rc = cli_done(cli, "owner sign", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (node == NULL) return cli_fail(TW_EXIT_USAGE, "owner sign: for which node id?");
    if (strcmp(may, "train") == 0) sign->may = TW_CERT_TRAIN;
    if (strcmp(may, "train,admit") == 0) sign->may = TW_CERT_TRAIN | TW_CERT_ADMIT;
    if (sign->may == 0) return cli_fail(TW_EXIT_USAGE, "--may %s: it is train or train,admit", may);
    if (sign->days_text != NULL) {
        char *end;
        sign->days = strtoull(sign->days_text, &end, 10);
        if (*end != 0 || sign->days == 0 || sign->days > DAYS_MAX || sign->days_text[0] == '-')
            return cli_fail(TW_EXIT_USAGE, "--days %s: it is 1 to %d", sign->days_text, DAYS_MAX);
    }
    return parse_node(node, &sign->node);
}

/* Signs with the owner's key. */
static void sign_as_owner(const struct sign *sign, const struct tw_gate *gate,
                          struct tw_certs *certs) {
    *certs = (struct tw_certs){.count = 1};
    certs->certs[0] = (struct tw_cert){.may = sign->may | (sign->lacks_vote ? TW_CERT_VOTELESS : 0),
                                       .from_s = gate->clock_s(),
                                       .run = gate->run,
                                       .node = sign->node};
    owner_key_sign(gate->identity, sign->days > 0 ? sign->days : DAYS_OWNER, &certs->certs[0]);
}

/* Signs with the key of a node that may admit others, and appends that node's own certificate. */
static enum tw_exit sign_as_admitter(const struct sign *sign, struct tw_gate *gate,
                                     const struct owner_place *place, struct tw_certs *certs) {
    struct tw_error err;
    if (!place->has_config)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner; for a node that may admit name its "
                        "--config, and its identity.key as --key",
                        sign->key_path);
    if (sign->may != TW_CERT_TRAIN)
        return cli_fail(TW_EXIT_USAGE, "--may: only the owner lets nodes admit");
    enum tw_status status = tw_gate_load(gate, place->state_dir, &err);
    if (status == TW_OK) {
        const struct tw_gate_admission admission = {
            .node = sign->node,
            .life_s = sign->days > 0 ? sign->days * DAY_S : TW_GATE_LIFE_S,
            .lacks_vote = sign->lacks_vote,
        };
        status = tw_gate_admit(gate, &admission, certs, &err);
    }
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

static enum tw_exit certs_print(const struct cli *cli, const struct sign *sign,
                                const struct tw_certs *certs) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    char text[TW_ARMOUR_BYTES(TW_CERTS_MAX * TW_CERT_BYTES)];
    char until[TW_UNITS_BYTES], folder[TW_PATH_BYTES], hex[TW_ID_HEX_BYTES];
    struct tw_error err;
    (void)tw_armour_encode(TW_ARMOUR_CERTS, bytes, tw_certs_encode(certs, bytes), text);
    (void)tw_units_utc(until, certs->certs[0].until_s);
    tw_id_hex(&sign->node, hex);
    if (sign->out != NULL &&
        tw_certs_save(owner_folder(sign->out, folder), owner_file(sign->out), certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    if (cli->json) {
        json_t *const json = json_pack("{s:s,s:s,s:b,s:s}", "node", hex, "until", until, "votes",
                                       (int)tw_certs_has_vote(certs), "certificate", text);
        (void)json_dumpf(json, stdout, JSON_INDENT(1));
        (void)fputc('\n', stdout);
        json_decref(json);
    } else if (sign->out == NULL) {
        (void)fputs(text, stdout);
    }
    (void)fprintf(
        stderr,
        "Node %.8s is admitted until %s%s, once it has this: `thinwire owner import FILE` "
        "there.\n",
        hex, until, tw_certs_has_vote(certs) ? "" : " (it trains, but does not vote)");
    return TW_EXIT_OK;
}

enum tw_exit owner_sign(struct cli *cli) {
    static struct owner_place place;
    static struct tw_gate gate;
    struct sign sign;
    struct tw_identity key;
    struct tw_certs certs;
    struct tw_error err;
    enum tw_exit rc = sign_options(cli, &sign);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, sign.run, &place);
    if (rc == TW_EXIT_OK) rc = owner_key_open(&place, sign.key, sign.key_path, &key);
    if (rc != TW_EXIT_OK) return rc;
    tw_gate_init(&gate, &place.run_id, &place.run.security.owner, &key);
    const struct tw_id public_key = tw_public_key(key.key);
    if (tw_id_equal(&public_key, &gate.owner)) {
        /* Loads this node's revocation list, if there is one. */
        if (place.has_config) (void)tw_gate_load(&gate, place.state_dir, &err);
        sign_as_owner(&sign, &gate, &certs);
    } else {
        rc = sign_as_admitter(&sign, &gate, &place, &certs);
    }
    tw_identity_close(&key);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_check(&gate.revoked, &certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    return certs_print(cli, &sign, &certs);
}
