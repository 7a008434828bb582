/* Tests of daemon/auth/identity.c and daemon/auth/identity.c. */
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/auth/identity.h"
#include "tests/test.h"

static const char A[] = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
static const char B[] = "ffffffff00000000ffffffff00000000ffffffff00000000ffffffff00000000";

static char folder[] = "/tmp/thinwire-secret-XXXXXX";
static char path[256], fresh[300];
static struct tw_error err;

static int group_setup(void **state) {
    if (mkdtemp(folder) == NULL) return -1;
    (void)snprintf(path, sizeof(path), "%s/run.secret", folder);
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    return 0;
}

static int group_teardown(void **state) {
    return rmdir(folder);
}

static int teardown(void **state) {
    (void)unlink(path);
    (void)unlink(fresh);
    return 0;
}

#define FACT(name) TEST_IN(NULL, teardown, name)

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

FACT(new_secret_survives_the_file) {
    struct tw_secrets first, second;
    struct stat st;
    assert_int_equal(tw_secret_create(path, NULL), TW_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tw_secrets_open(path, &first, NULL), TW_OK);
    assert_int_equal(tw_secrets_open(path, &second, NULL), TW_OK);
    assert_int_equal(first.count, 1);
    assert_memory_equal(&first, &second, sizeof(first));
    assert_int_equal(tw_secret_create(path, &err), TW_CONFIG); /* never overwritten */
    tw_secrets_wipe(&first);
    const struct tw_secrets zero = {0};
    assert_memory_equal(&first, &zero, sizeof(zero));
}

FACT(missing_secret_is_to_be_copied_not_made) {
    struct tw_secrets secrets;
    assert_int_equal(tw_secrets_open(path, &secrets, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "copy run.secret from a node of the run"));
    assert_non_null(strstr(err.message, "thinwire join"));
}

FACT(a_friends_secret_is_read_and_never_repeated) {
    struct tw_secret secret;
    assert_int_equal(tw_secret_parse("hunter2", &secret, &err), TW_CONFIG);
    assert_null(strstr(err.message, "hunter2"));
    assert_int_equal(tw_secret_parse(A, &secret, NULL), TW_OK);
    assert_int_equal(secret.bytes[1], 0x11);
    assert_int_equal(secret.bytes[16], 0xff);
    assert_int_equal(secret.bytes[31], 0x00);
}

FACT(two_secrets_keep_their_order) {
    struct tw_secrets two = {.count = 2}, back, one;
    struct stat st;
    assert_int_equal(tw_secret_parse(B, &two.list[0], NULL), TW_OK);
    assert_int_equal(tw_secret_parse(A, &two.list[1], NULL), TW_OK);
    assert_int_equal(tw_secrets_save(path, &two, NULL), TW_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tw_secrets_open(path, &back, NULL), TW_OK);
    assert_memory_equal(&back, &two, sizeof(two));
    assert_int_equal(tw_secrets_find(&back, &two.list[1]), 1);
    one = (struct tw_secrets){.count = 1, .list = {two.list[1]}};
    assert_int_equal(tw_secrets_find(&one, &two.list[0]), -1);
    assert_int_equal(tw_secrets_save(path, &one, NULL), TW_OK); /* replaces */
    assert_int_equal(tw_secrets_open(path, &back, NULL), TW_OK);
    assert_int_equal(back.count, 1);
    assert_memory_equal(&back.list[0], &two.list[1], sizeof(two.list[1]));
}

FACT(bad_files_are_refused_without_showing_them) {
    char three[256], twice[256], nul[256];
    (void)snprintf(three, sizeof(three), "%s\n%s\n%.63s2\n", A, B, A);
    (void)snprintf(twice, sizeof(twice), "%s\n%s\n", A, A);
    (void)snprintf(nul, sizeof(nul), "%s\n\n%s", A, B);
    const char *const bad[] = {"", "\n", "12", "hunter2hunter2", three, twice, nul};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct tw_secrets secrets = {.count = 9};
        write_file(bad[i]);
        assert_int_equal(tw_secrets_open(path, &secrets, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, "64 hex digits"));
        assert_null(strstr(err.message, "hunter2"));
        assert_int_equal(secrets.count, 9);
    }
    assert_int_equal(chmod(path, 0644), 0);
    struct tw_secrets secrets;
    assert_int_equal(tw_secrets_open(path, &secrets, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "chmod 600"));
}

FACT(ends_of_lines_may_be_of_any_system) {
    char text[256];
    struct tw_secrets secrets;
    (void)snprintf(text, sizeof(text), "%s\r\n%s\r\n", A, B);
    write_file(text);
    assert_int_equal(tw_secrets_open(path, &secrets, NULL), TW_OK);
    assert_int_equal(secrets.count, 2);
    write_file(A); /* no secret */
    assert_int_equal(tw_secrets_open(path, &secrets, NULL), TW_OK);
    assert_int_equal(secrets.count, 1);
}

FACT(a_mark_names_a_secret_and_is_no_part_of_it) {
    struct tw_secret a, b;
    char mark_a[TW_SECRET_MARK_BYTES], mark_b[TW_SECRET_MARK_BYTES];
    assert_int_equal(tw_secret_parse(A, &a, NULL), TW_OK);
    assert_int_equal(tw_secret_parse(B, &b, NULL), TW_OK);
    tw_secret_mark(&a, mark_a);
    tw_secret_mark(&b, mark_b);
    assert_int_equal(strlen(mark_a), 8);
    assert_string_not_equal(mark_a, mark_b);
    assert_null(strstr(A, mark_a));
    /* SHA-256("thinwire-secret-mark\0" || secret), from another implementation */
    assert_string_equal(mark_b, "5b832fd4");
}

FACT(an_interrupted_replacement_does_not_block_a_later_one) {
    struct tw_secrets one = {.count = 1}, back;
    assert_int_equal(tw_secret_parse(A, &one.list[0], NULL), TW_OK);
    assert_int_equal(tw_private_create(fresh, "half", 4, NULL), TW_OK);
    assert_int_equal(tw_secrets_save(path, &one, NULL), TW_OK);
    assert_int_equal(access(fresh, F_OK), -1);
    assert_int_equal(tw_secrets_open(path, &back, NULL), TW_OK);
    assert_int_equal(tw_private_replace("/nonexistent/key", "x", 1, &err), TW_IO);
    assert_non_null(strstr(err.message, "/nonexistent/key"));
}

int main(void) {
    return test_run(group_setup, group_teardown);
}
