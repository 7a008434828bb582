/* bench_prepare.c - speed and memory of `thinwire data prepare` with one tokenizer thread and with
 * two.
 *
 *   thinwire-prepare-bench ENGINE TOKENIZER|bytes FOLDER [MB [RUNS]]
 *   thinwire-prepare-bench text FILE MB
 *
 * Makes FOLDER/text of MB (1000) of prose and code, once, and prepares it RUNS (3) times with each
 * number of threads in turn. Prints one line of JSON per run, and the medians: MB/s of wall time,
 * CPU seconds, peak resident memory, the ratio of the rates, and the ratio that the CPU seconds
 * would allow on two idle cores. Fails if two runs give different datasets. The second form only
 * makes the text. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "make_text.h"

enum { PATH_BYTES = 512, RUNS_MAX = 32, INDEX_BYTES = 1 << 16 };

extern char **environ;

struct run {
    double wall_s, cpu_s, busiest_s, rss_mb;
};

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds(struct timeval time) {
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Returns the CPU seconds of the process's busiest thread so far, among the threads that still run.
 */
static double busiest_s(pid_t process) {
    char path[PATH_BYTES];
    double most = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *const tasks = opendir(path);
    for (struct dirent *task = tasks != NULL ? readdir(tasks) : NULL; task != NULL;
         task = readdir(tasks)) {
        unsigned long long ran_ns = 0;
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)process,
                       task->d_name);
        FILE *const file = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file == NULL) continue;
        if (fscanf(file, "%llu", &ran_ns) == 1 && 1e-9 * (double)ran_ns > most) {
            most = 1e-9 * (double)ran_ns;
        }
        (void)fclose(file);
    }
    if (tasks != NULL) (void)closedir(tasks);
    return most;
}

/* Waits for the child, and measures its threads meanwhile. */
static int wait_for(pid_t child, struct rusage *usage, double *busiest) {
    const struct timespec pause = {.tv_nsec = 20 * 1000000};
    int status = 0;
    pid_t ended = 0;
    for (*busiest = 0; ended == 0; (void)nanosleep(&pause, NULL)) {
        const double now = busiest_s(child);
        if (now > *busiest) *busiest = now;
        ended = wait4(child, &status, WNOHANG, usage);
    }
    return ended == child && status == 0;
}

static int prepare(const char *engine, const char *tokenizer, const char *folder, int threads,
                   struct run *run) {
    char text[PATH_BYTES], out[PATH_BYTES], count[16];
    struct rusage usage;
    posix_spawn_file_actions_t quiet;
    pid_t child;
    double busiest = 0;
    (void)snprintf(text, sizeof(text), "%s/text", folder);
    (void)snprintf(out, sizeof(out), "%s/out", folder);
    (void)snprintf(count, sizeof(count), "%d", threads);
    const char *const argv[] = {engine,        "data",      "prepare", text,     "--out",
                                out,           "--threads", count,     "--json", "--restart",
                                "--tokenizer", tokenizer,   NULL};
    (void)posix_spawn_file_actions_init(&quiet);
    (void)posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const double start_s = now_s();
    const int failed = posix_spawn(&child, engine, &quiet, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&quiet);
    if (failed != 0 || !wait_for(child, &usage, &busiest)) return 0;
    *run = (struct run){.wall_s = now_s() - start_s,
                        .cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime),
                        .busiest_s = busiest,
                        .rss_mb = (double)usage.ru_maxrss * 1024 / 1e6};
    return 1;
}

static size_t read_index(const char *folder, char *index) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/out/dataset", folder);
    FILE *const file = fopen(path, "rb");
    const size_t size = file != NULL ? fread(index, 1, INDEX_BYTES, file) : 0;
    if (file != NULL) (void)fclose(file);
    return size;
}

static int by_wall(const void *a, const void *b) {
    const struct run *const x = a, *const y = b;
    return x->wall_s < y->wall_s ? -1 : x->wall_s > y->wall_s;
}

static void tell(const char *event, int threads, struct run run, double mb) {
    (void)printf("{\"event\": \"%s\", \"threads\": %d, \"mb_per_s\": %.2f, \"wall_s\": %.2f, "
                 "\"cpu_s\": %.2f, \"busiest_s\": %.2f, \"rss_mb\": %.1f}\n",
                 event, threads, mb / run.wall_s, run.wall_s, run.cpu_s, run.busiest_s, run.rss_mb);
    (void)fflush(stdout);
}

/* Returns the seconds that the run would take on two idle cores. */
static double undisturbed_s(struct run run) {
    return run.busiest_s > run.cpu_s / 2 ? run.busiest_s : run.cpu_s / 2;
}

static int measure(char **argv, double mb, int runs) {
    static char first[INDEX_BYTES], index[INDEX_BYTES];
    struct run all[2][RUNS_MAX];
    size_t first_size = 0;
    for (int i = 0; i < 2 * runs; i++) {
        struct run *const run = &all[i % 2][i / 2];
        if (!prepare(argv[1], argv[2], argv[3], 1 + i % 2, run)) {
            (void)fprintf(stderr, "thinwire-prepare-bench: %s failed\n", argv[1]);
            return 1;
        }
        tell("run", 1 + i % 2, *run, mb);
        const size_t size = read_index(argv[3], i == 0 ? first : index);
        if (i == 0) first_size = size;
        if (size == 0 || size != first_size || (i > 0 && memcmp(first, index, size) != 0)) {
            (void)fprintf(stderr, "thinwire-prepare-bench: two runs made different datasets\n");
            return 1;
        }
    }
    for (int k = 0; k < 2; k++) {
        qsort(all[k], (size_t)runs, sizeof(all[k][0]), by_wall);
        tell("median", k + 1, all[k][runs / 2], mb);
    }
    const struct run one = all[0][runs / 2], two = all[1][runs / 2];
    (void)printf("{\"event\": \"ratio\", \"wall\": %.3f, \"undisturbed\": %.3f}\n",
                 one.wall_s / two.wall_s, undisturbed_s(one) / undisturbed_s(two));
    return 0;
}

int main(int argc, char **argv) {
    struct stat info;
    char path[PATH_BYTES];
    if (argc == 4 && strcmp(argv[1], "text") == 0) {
        return make_text(argv[2], strtoull(argv[3], NULL, 10) * 1000000, 1) ? 0 : 1;
    }
    if (argc < 4 || argc > 6) {
        (void)fprintf(stderr,
                      "usage: thinwire-prepare-bench ENGINE TOKENIZER|bytes FOLDER [MB [RUNS]]\n");
        return 2;
    }
    const uint64_t mb = argc > 4 ? strtoull(argv[4], NULL, 10) : 1000;
    const long runs = argc > 5 ? strtol(argv[5], NULL, 10) : 3;
    (void)mkdir(argv[3], 0777);
    (void)snprintf(path, sizeof(path), "%s/text", argv[3]);
    if (stat(path, &info) != 0 || (uint64_t)info.st_size / 1000000 != mb) {
        if (!make_text(path, mb * 1000000, 1) || stat(path, &info) != 0) {
            (void)fprintf(stderr, "thinwire-prepare-bench: %s: %s\n", path, strerror(errno));
            return 1;
        }
    }
    return measure(argv, (double)info.st_size / 1e6, runs < 1 || runs > RUNS_MAX ? 3 : (int)runs);
}
