#include "daemon/cli/common/node_user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/auth/identity.h"

/* ---- the command --------------------------------------------------------------------------- */

bool cli_is_service(const char *config_path) {
    return strncmp(config_path, TW_CONFIG_FOLDER "/", sizeof(TW_CONFIG_FOLDER)) == 0;
}

bool cli_is_hidden(const char *config_path, const char *path) {
    const struct passwd *const root = getpwuid(0);
    const char *const homes[] = {"/home", "/run/user", root != NULL ? root->pw_dir : "/home"};
    for (unsigned i = 0; i < 3; i++) {
        const size_t size = strlen(homes[i]);
        if (size > 1 && strncmp(path, homes[i], size) == 0 && path[size] == '/')
            return cli_is_service(config_path);
    }
    return false;
}

static bool was_root; /* this process was root before it became the node's user */

bool cli_needs_sudo(const char *config_path) {
    const bool is_root = geteuid() == 0 || was_root;
    return cli_is_service(config_path) && (!is_root || getenv("SUDO_USER") != NULL);
}

/* Writes the name of a service's node, or the quoted path of another configuration. */
static void node_word(const char *config_path, char word[CLI_NODE_BYTES]) {
    static const char PLAIN[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
    size_t size = strlen(config_path), used = 0;
    if (cli_is_service(config_path) && size > sizeof(TW_CONFIG_FOLDER) + 5 &&
        strcmp(config_path + size - 5, ".conf") == 0) {
        config_path += sizeof(TW_CONFIG_FOLDER);
        size -= sizeof(TW_CONFIG_FOLDER) + 5;
    }
    const bool is_plain = strspn(config_path, PLAIN) == strlen(config_path);
    if (!is_plain) word[used++] = '\'';
    for (size_t i = 0; i < size && used + 6 < CLI_NODE_BYTES; i++) {
        const bool is_quote = config_path[i] == '\'';
        if (is_quote) memcpy(word + used, "'\\'", 3);
        used += is_quote ? 3 : 0;
        word[used++] = config_path[i];
    }
    if (!is_plain) word[used++] = '\'';
    word[used] = '\0';
}

const char *cli_command(const char *config_path, bool has_sudo, const char *words,
                        char text[CLI_COMMAND_BYTES]) {
    char node[CLI_NODE_BYTES];
    node_word(config_path, node);
    const bool is_default =
        strcmp(node, "thinwire") == 0; /* the node without --config, for root too */
    (void)snprintf(text, CLI_COMMAND_BYTES, "%sthinwire %s%s%s%.*s", has_sudo ? "sudo " : "",
                   is_default ? "" : "--config ", is_default ? "" : node, is_default ? "" : " ",
                   CLI_WORDS_BYTES, words);
    return text;
}

const char *cli_next_command(const struct cli *cli, const char *words,
                             char text[CLI_COMMAND_BYTES]) {
    char path[TW_PATH_BYTES];
    struct tw_error err;
    if (tw_config_find(cli->config_option, path, &err) == TW_OK &&
        (cli_is_service(path) || cli->config_option != NULL))
        return cli_command(path, cli_needs_sudo(path), words, text);
    (void)snprintf(text, CLI_COMMAND_BYTES, "thinwire %s", words);
    return text;
}

/* ---- the user ------------------------------------------------------------------------------ */

static enum tw_status become(uint32_t uid, uint32_t gid, struct tw_error *err) {
    char name[TW_USER_NAME_BYTES];
    const struct passwd *const user = getpwuid(uid);
    was_root = true;
    if (user != NULL) gid = user->pw_gid;
    const int groups =
        user != NULL ? initgroups(user->pw_name, gid) : setgroups(0, (const gid_t *)NULL);
    if (groups == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0) return TW_OK;
    const int why = errno;
    return tw_fail(err, TW_CONFIG,
                   "the files of this node belong to user %s, which root cannot become here: %s; "
                   "run it as that user",
                   tw_user_name(uid, name), strerror(why));
}

enum tw_status cli_become_node_user(const struct cli *cli, const struct tw_config *config,
                                    struct tw_error *err) {
    const char *const folder = config->node.state_dir;
    struct stat info;
    char has[TW_USER_NAME_BYTES], is[TW_USER_NAME_BYTES], command[CLI_COMMAND_BYTES];
    if (stat(folder, &info) != 0 || info.st_uid == geteuid()) return TW_OK;
    if (geteuid() == 0) return become(tw_private_owner(folder), info.st_gid, err);
    if (access(folder, W_OK | X_OK) == 0) return TW_OK; /* a folder that a group shares */
    return tw_fail(err, TW_CONFIG,
                   "the files of this node belong to user %s, and this is user %s; use `%s`",
                   tw_user_name(info.st_uid, has), tw_user_name(geteuid(), is),
                   cli_command(config->path, true, cli->words, command));
}

enum tw_exit cli_node_config(const struct cli *cli, struct tw_config *config) {
    struct tw_error err;
    const enum tw_exit rc = cli_config(cli, config);
    if (rc != TW_EXIT_OK) return rc;
    if (cli_become_node_user(cli, config, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
}
