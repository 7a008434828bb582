/* Tests of daemon/auth/identity.c. */
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/hash.h"
#include "daemon/auth/identity.h"
#include "tests/test.h"

static char folder[] = "/tmp/thinwire-identity-XXXXXX";
static char path[256];

static int group_setup(void **state) {
    return mkdtemp(folder) == NULL;
}

static int group_teardown(void **state) {
    return rmdir(folder);
}

static int setup(void **state) {
    (void)snprintf(path, sizeof(path), "%s/key", folder);
    return 0;
}

static int teardown(void **state) {
    (void)unlink(path);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void refused_with(enum tw_status status, const char *word) {
    struct tw_identity identity;
    struct tw_error err = {0};
    assert_int_equal(tw_identity_open(path, &identity, &err), status);
    if (strstr(err.message, word) == NULL) fail_msg("no '%s' in: %s", word, err.message);
    if (strstr(err.message, path) == NULL) fail_msg("does not name the file: %s", err.message);
}

FACT(key_survives_the_file_and_names_the_node) {
    struct tw_identity first, second;
    struct stat st;
    assert_int_equal(tw_identity_create(path, NULL), TW_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tw_identity_open(path, &first, NULL), TW_OK);
    assert_int_equal(tw_identity_open(path, &second, NULL), TW_OK);
    assert_true(tw_id_equal(&first.id, &second.id));
    struct tw_id expected;
    size_t size = sizeof(expected.bytes);
    assert_int_equal(EVP_PKEY_get_raw_public_key(first.key, expected.bytes, &size), 1);
    assert_true(tw_id_equal(&first.id, &expected));
    assert_int_equal(X509_verify(first.cert, first.key), 1);
    tw_identity_close(&first);
    tw_identity_close(&second);
}

FACT(existing_key_is_never_overwritten) {
    struct tw_error err;
    struct tw_identity before, after;
    assert_int_equal(tw_identity_create(path, NULL), TW_OK);
    assert_int_equal(tw_identity_open(path, &before, NULL), TW_OK);
    assert_int_equal(tw_identity_create(path, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "exists"));
    assert_int_equal(tw_identity_open(path, &after, NULL), TW_OK);
    assert_true(tw_id_equal(&before.id, &after.id));
    tw_identity_close(&before);
    tw_identity_close(&after);
}

FACT(key_that_others_can_read_is_refused) {
    static const mode_t modes[] = {0640, 0604, 0660, 0610, 0601};
    assert_int_equal(tw_identity_create(path, NULL), TW_OK);
    for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        refused_with(TW_CONFIG, "chmod 600");
    }
}

FACT(key_of_another_user_is_refused) {
    if (geteuid() != 0) skip(); /* only root can give a file away */
    assert_int_equal(tw_identity_create(path, NULL), TW_OK);
    assert_int_equal(chown(path, 12345, 12345), 0);
    refused_with(TW_CONFIG, "; run it as user 12345");
}

/* Root checks and makes files of a service: they belong to the user of the folder, never to root.
 */
FACT(root_judges_by_the_owner_of_the_folder) {
    struct tw_identity identity;
    struct stat st;
    char remedy[sizeof(path) + 32];
    if (geteuid() != 0) skip(); /* only root can give a file away */
    assert_int_equal(chown(folder, 12345, 12345), 0);
    assert_int_equal(tw_identity_create(path, NULL), TW_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 12345);
    assert_int_equal(tw_identity_open(path, &identity, NULL), TW_OK);
    tw_identity_close(&identity);
    assert_int_equal(chown(path, 0, 0), 0);
    (void)snprintf(remedy, sizeof(remedy), "; `sudo chown 12345: %s`", path);
    refused_with(TW_CONFIG, remedy);
    assert_int_equal(chown(folder, 0, 0), 0);
}

FACT(symbolic_link_is_not_followed) {
    char target[300];
    (void)snprintf(target, sizeof(target), "%s.real", path);
    assert_int_equal(tw_identity_create(target, NULL), TW_OK);
    assert_int_equal(symlink(target, path), 0);
    refused_with(TW_CONFIG, "symbolic link");
    assert_int_equal(unlink(target), 0);
}

FACT(missing_and_damaged_keys_name_the_way_out) {
    refused_with(TW_CONFIG, "thinwire init");
    write_file("");
    refused_with(TW_CONFIG, "no Ed25519 key");
    write_file("-----BEGIN PRIVATE KEY-----\nbm90IGEga2V5\n-----END PRIVATE KEY-----\n");
    refused_with(TW_CONFIG, "no Ed25519 key");
    char big[8192];
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    write_file(big);
    refused_with(TW_CONFIG, "larger");
}

FACT(key_of_another_kind_is_refused) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    struct tw_id id;
    assert_non_null(key);
    assert_false(tw_identity_of_key(key, &id));
    EVP_PKEY_free(key);
    assert_false(tw_identity_of_key(NULL, &id));
}

FACT(unwritable_folder_is_reported) {
    struct tw_error err;
    assert_int_equal(tw_identity_create("/nonexistent/key", &err), TW_IO);
    assert_non_null(strstr(err.message, "/nonexistent/key"));
}

int main(void) {
    return test_run(group_setup, group_teardown);
}
