/* Kills or stops `prepare` at random moments and restarts it until it completes. The folder must
 * equal that of an undisturbed `prepare`, except for the files of its state. An optional second
 * argument is the number of kills. Each round prints its seed. */
#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "prepare_fixture.h"
#include "tests/test.h"

extern char **environ;

static const char *engine;
static int kills_wanted = 24;

static pid_t spawn(const struct prepare_fixture *at, const char *out) {
    pid_t child;
    posix_spawn_file_actions_t quiet;
    const char *const argv[] = {engine,      "data", "prepare",        at->in, "--out",  out,
                                "--heldout", "10%",  "--shard-tokens", "20k",  "--text", "lines",
                                "--threads", "2",    "--json",         NULL};
    assert_int_equal(posix_spawn_file_actions_init(&quiet), 0);
    assert_int_equal(posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", 1, 0), 0);
    assert_int_equal(posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", 1, 0), 0);
    assert_int_equal(posix_spawn(&child, engine, &quiet, NULL, (char *const *)argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&quiet);
    return child;
}

static int wait_for(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Hashes the names and contents of the dataset's files. Every other file must belong to the state
 * of `prepare`. */
static struct tw_id digest_of(const struct prepare_fixture *at, const char *out) {
    struct tw_id sum = {{0}};
    struct prepare_fixture there = *at;
    struct dirent **entries;
    (void)snprintf(there.out, sizeof(there.out), "%s", out);
    const int count = scandir(out, &entries, NULL, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        const char *const name = entries[i]->d_name;
        if (name[0] != '.' && strncmp(name, "prepare.", 8) != 0) {
            size_t size = 0;
            uint8_t *const bytes = prepare_fixture_read(&there, name, &size);
            const struct tw_id one = tw_sha256_pair(name, strlen(name), bytes, size);
            sum = tw_sha256_pair(&sum, sizeof(sum), &one, sizeof(one));
            free(bytes);
        }
        free(entries[i]);
    }
    free(entries);
    return sum;
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Sends signal `number` to a `prepare` at a random time, at most whole_s seconds after its start.
 * Returns 0 if it had already completed. */
static int end_one(const struct prepare_fixture *at, struct tw_rng *rng, double whole_s,
                   int number) {
    const double wait_s = tw_rng_unit(rng) * whole_s;
    const struct timespec wait = {.tv_sec = (time_t)wait_s,
                                  .tv_nsec = (long)((wait_s - (double)(time_t)wait_s) * 1e9)};
    const pid_t child = spawn(at, at->out);
    (void)nanosleep(&wait, NULL);
    (void)kill(child, number);
    const int status = wait_for(child);
    if (WIFSIGNALED(status)) {
        /* SIGTERM, too, kills before its handler is installed */
        assert_int_equal(WTERMSIG(status), number);
        return 1;
    }
    /* SIGTERM makes `prepare` exit with an error, unless it has already completed. */
    if (WEXITSTATUS(status) != 0) {
        assert_int_equal(number, SIGTERM);
        assert_int_equal(WEXITSTATUS(status), TW_EXIT_FAILURE);
    }
    return WEXITSTATUS(status) != 0;
}

static void clear(const struct prepare_fixture *at) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)execlp("rm", "rm", "-rf", at->out, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(wait_for(child), 0);
}

TEST(killed_at_any_moment_it_ends_with_the_same_bytes) {
    struct prepare_fixture *const at = prepare_fixture_create();
    const uint64_t seed = (uint64_t)time(NULL);
    struct tw_rng rng;
    char whole[96];
    int kills = 0, rounds = 0, terms = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    tw_rng_seed(&rng, seed);
    prepare_fixture_fill(at, 200000, 9);
    (void)snprintf(whole, sizeof(whole), "%s/whole", at->folder);
    const double start_s = now_s();
    assert_int_equal(wait_for(spawn(at, whole)), 0);
    const double whole_s = now_s() - start_s;
    const struct tw_id want = digest_of(at, whole);
    while (kills < kills_wanted) {
        /* Each dataset is interrupted a few times, then completed. */
        for (int i = 0; i < 5; i++) {
            const int number = tw_rng_below(&rng, 5) == 0 ? SIGTERM : SIGKILL;
            const int ended = end_one(at, &rng, 0.5 * whole_s, number);
            kills += ended;
            terms += ended && number == SIGTERM;
        }
        assert_int_equal(wait_for(spawn(at, at->out)), 0);
        const struct tw_id got = digest_of(at, at->out);
        assert_true(tw_id_equal(&got, &want));
        clear(at);
        rounds++;
    }
    print_message("%d kills, %d of them SIGTERM, over %d preparations of %.0f ms\n", kills, terms,
                  rounds, 1e3 * whole_s);
    assert_int_equal(prepare_fixture_destroy(at), 0);
}

int main(int argc, char **argv) {
    assert_true(argc >= 2);
    engine = argv[1];
    if (argc > 2) kills_wanted = (int)strtol(argv[2], NULL, 10);
    return test_run(NULL, NULL);
}
