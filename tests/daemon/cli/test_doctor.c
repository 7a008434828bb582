/* Tests of `thinwire doctor` on faulty machines. Each line has its grade and names a remedy. The
 * test provides its own /proc. */
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/doctor/doctor.h"
#include "tests/test.h"

static char root[64], proc[80];
static char engine[96]; /* stands for thinwire-engine; absent unless a test writes the file */
static struct doctor doctor;

static void put(const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", proc, name);
    for (char *slash = path + strlen(proc) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#define TCP "sys/net/ipv4/"

static int setup(void **state) {
    (void)snprintf(root, sizeof(root), "/tmp/thinwire-doctor.XXXXXX");
    assert_non_null(mkdtemp(root));
    (void)snprintf(proc, sizeof(proc), "%s/proc", root);
    assert_int_equal(mkdir(proc, 0700), 0);
    (void)snprintf(engine, sizeof(engine), "%s/engine", proc);
    doctor = (struct doctor){.root = root,
                             .start = "thinwire start",
                             .nvidia = "/nowhere",
                             .engine = engine,
                             .list = json_array()};
    tw_config_defaults(&doctor.config, "test");
    put("meminfo", "MemTotal: 8000000 kB\nMemAvailable:    4000000 kB\n");
    put("loadavg", "0.01 0.02 0.03 1/100 4711\n");
    put(TCP "tcp_available_congestion_control", "reno cubic bbr\n");
    put(TCP "tcp_allowed_congestion_control", "reno cubic bbr\n");
    put(TCP "tcp_wmem", "4096\t16384\t4194304\n");
    put(TCP "tcp_rmem", "4096\t131072\t6291456\n");
    return 0;
}

static int teardown(void **state) {
    static const char *const names[] = {"engine",
                                        "meminfo",
                                        "loadavg",
                                        TCP "tcp_available_congestion_control",
                                        TCP "tcp_allowed_congestion_control",
                                        TCP "tcp_wmem",
                                        TCP "tcp_rmem",
                                        "sys/net/ipv4",
                                        "sys/net",
                                        "sys"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/%s", proc, names[i]);
        (void)remove(path);
    }
    (void)remove(proc);
    (void)remove(root);
    json_decref(doctor.list);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

/* Returns the first line of this check, or NULL. */
static const json_t *find_row(const char *check) {
    for (size_t i = 0; i < json_array_size(doctor.list); i++) {
        const json_t *row = json_array_get(doctor.list, i);
        if (strcmp(json_string_value(json_object_get(row, "check")), check) == 0) return row;
    }
    return NULL;
}

static const json_t *row_of(const char *check) {
    const json_t *row = find_row(check);
    if (row == NULL) fail_msg("no line of %s", check);
    return row;
}

static void is_said(const char *check, const char *grade, const char *fix) {
    const json_t *row = row_of(check);
    const char *said = json_string_value(json_object_get(row, "fix"));
    assert_string_equal(json_string_value(json_object_get(row, "grade")), grade);
    if (fix == NULL)
        assert_null(said);
    else if (said == NULL || strstr(said, fix) == NULL)
        fail_msg("%s: the way out `%s` lacks `%s`", check, said != NULL ? said : "", fix);
}

FACT(good_machine_has_nothing_to_do) {
    doctor_host(&doctor);
    is_said("bbr", "ok", NULL);
    is_said("buffers.send", "ok", NULL);
    is_said("buffers.take", "ok", NULL);
    is_said("device", "ok", NULL);
}

FACT(bbr_that_lacks_is_named_with_the_command) {
    put(TCP "tcp_available_congestion_control", "reno cubic mybbr bbr2\n");
    doctor_host(&doctor);
    is_said("bbr", "warn", "modprobe tcp_bbr");
}

FACT(kernel_without_an_answer_is_no_finding) {
    put(TCP "tcp_available_congestion_control", "");
    put(TCP "tcp_wmem", "nonsense\n");
    put("meminfo", "");
    doctor_host(&doctor);
    is_said("bbr", "skip", NULL);
    is_said("buffers.send", "skip", NULL);
    is_said("memory", "skip", NULL);
}

FACT(small_buffers_come_with_the_line_to_set) {
    put(TCP "tcp_wmem", "4096\t16384\t212992\n");
    doctor_host(&doctor);
    is_said("buffers.send", "warn", "net.ipv4.tcp_wmem=\"4096 16384 6291456\"");
}

FACT(busy_machine_is_noticed_unless_it_is_we) {
    put("loadavg", "4000.0 1.0 1.0 1/100 4711\n");
    doctor_host(&doctor);
    is_said("device", "warn", "node.threads");
}

/* Writes a program in place of thinwire-engine. It prints `answer` if it is asked for `device`. */
static void put_engine(const char *device, const char *answer) {
    char script[1024];
    (void)snprintf(script, sizeof(script),
                   "#!/bin/sh\n[ \"$*\" = \"info --json --device=%s\" ] && echo '%s'\n", device,
                   answer);
    put("engine", script);
    assert_int_equal(chmod(engine, 0700), 0);
}

#define H100                                                                                       \
    "{\"device\": \"cuda:0\", \"model\": \"NVIDIA H100\", \"memory_bytes\": 85000000000, "         \
    "\"memory_free_bytes\": 84000000000}"

static bool has_row(const char *check) {
    for (size_t i = 0; i < json_array_size(doctor.list); i++) {
        const json_t *row = json_array_get(doctor.list, i);
        if (strcmp(json_string_value(json_object_get(row, "check")), check) == 0) return true;
    }
    return false;
}

FACT(gpu_that_is_used_is_named) {
    doctor.config.worker.device.kind = TW_DEVICE_AUTO;
    put_engine("auto", "{\"devices\": [{\"device\": \"cpu\"}, " H100
                       "], \"chosen\": \"cuda:0\", \"error\": \"\", \"why_no_gpu\": \"\"}");
    doctor_gpu(&doctor);
    is_said("gpu", "ok", NULL);
    assert_string_equal(json_string_value(json_object_get(row_of("gpu"), "text")),
                        "cuda:0, NVIDIA H100, 84.0 GB of 85.0 GB free");
}

FACT(gpu_that_is_asked_for_and_cannot_be_used_fails) {
    doctor.config.worker.device = (struct tw_device_choice){TW_DEVICE_CUDA, 1};
    put_engine("cuda:1",
               "{\"devices\": [" H100 "], \"chosen\": \"\", \"error\": \"there is no cuda:1\"}");
    doctor_gpu(&doctor);
    is_said("gpu", "fail", "thinwire info");
    assert_string_equal(json_string_value(json_object_get(row_of("gpu"), "text")),
                        "there is no cuda:1");
}

FACT(silent_engine_is_no_failure_unless_a_gpu_is_asked_for) {
    doctor.config.worker.device.kind = TW_DEVICE_AUTO;
    doctor_gpu(&doctor); /* the program is missing */
    is_said("gpu", "skip", NULL);
    json_array_clear(doctor.list);
    put("engine", "#!/bin/sh\necho nonsense\n");
    assert_int_equal(chmod(engine, 0700), 0);
    doctor_gpu(&doctor);
    is_said("gpu", "skip", NULL);
    json_array_clear(doctor.list);
    doctor.config.worker.device.kind = TW_DEVICE_CUDA;
    doctor_gpu(&doctor);
    is_said("gpu", "fail", "device = auto");
}

FACT(gpu_that_is_here_and_not_used_is_noticed) {
    static const char answer[] =
        "{\"devices\": [{\"device\": \"cpu\"}], \"chosen\": \"cpu\", \"error\": \"\", "
        "\"why_no_gpu\": \"the driver is older than the toolkit\"}";
    doctor.config.worker.device.kind = TW_DEVICE_AUTO;
    put_engine("auto", answer);
    doctor_gpu(&doctor);
    assert_false(has_row("gpu")); /* a machine without a GPU */
    doctor.nvidia = proc;
    doctor_gpu(&doctor);
    is_said("gpu", "warn", "device = cpu");
    assert_non_null(strstr(json_string_value(json_object_get(row_of("gpu"), "text")),
                           "the driver is older than the toolkit"));
    json_array_clear(doctor.list);
    doctor.config.worker.device.kind = TW_DEVICE_CPU;
    doctor_gpu(&doctor);
    is_said("gpu", "ok", NULL);
}

static void put_memory(uint64_t bytes) {
    char text[96];
    (void)snprintf(text, sizeof(text), "MemTotal: 8000 kB\nMemAvailable: %llu kB\n",
                   (unsigned long long)bytes / 1024);
    (void)json_array_clear(doctor.list);
    put("meminfo", text);
}

FACT(model_that_does_not_fit_fails) {
    struct run_memory memory;
    tw_run_defaults(&doctor.run);
    doctor.has_run = true;
    doctor_host(&doctor);
    is_said("memory", "ok", NULL);
    doctor.config.node.snapshot = TW_SNAPSHOT_WISH_FULL;
    doctor.config.node.anchors = TW_ANCHORS_MEMORY;
    assert_true(doctor_memory(&doctor, &memory));
    const uint64_t wants = memory.daemon_bytes + memory.worker_bytes;
    put_memory(wants / 10 * 9);
    doctor_host(&doctor);
    is_said("memory", "fail", "set `snapshot = off` and `anchors = file`");
    put_memory(wants / 10 * 12);
    doctor_host(&doctor);
    is_said("memory", "warn", "train a smaller model");
    put_memory(40 * 1024);
    doctor_host(&doctor);
    is_said("memory", "fail", "train a smaller model");
}

/* A memory limit of the process counts, not the memory of the machine: so the daemon decides. */
FACT(memory_of_the_control_group_counts) {
    struct run_memory memory;
    char folder[128], path[160];
    tw_run_defaults(&doctor.run);
    doctor.has_run = true;
    (void)snprintf(folder, sizeof(folder), "%s/sys", root);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const names[] = {"", "/fs", "/cgroup"};
        (void)snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "%s", names[i]);
        (void)mkdir(folder, 0700);
    }
    static const struct {
        const char *name, *text;
    } files[] = {{"memory.max", "1000000000\n"}, {"memory.current", "0\n"}};
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i].name);
        FILE *const file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(files[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    assert_true(doctor_memory(&doctor, &memory));
    assert_int_equal(memory.host_free_bytes, 1000000000);
    doctor_host(&doctor);
    assert_non_null(
        strstr(json_string_value(json_object_get(row_of("memory"), "text")), "; 1.00 GB are free"));
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i].name);
        (void)remove(path);
    }
    for (unsigned i = 0; i < 3; i++) {
        (void)remove(folder);
        *strrchr(folder, '/') = '\0';
    }
}

/* The first node of a run needs no `peers`: others dial it. */
FACT(node_with_living_peers_needs_none_configured) {
    doctor.config.network.links = true;
    doctor.status = json_pack("{s:s, s:{s:i}}", "state", "member", "sync", "alive_peers", 1);
    doctor_links(&doctor);
    is_said("peers", "ok", NULL);
    json_decref(doctor.status);
    (void)json_array_clear(doctor.list);
    doctor.status = json_pack("{s:s, s:{s:i}}", "state", "solo", "sync", "alive_peers", 0);
    doctor_links(&doctor);
    is_said("peers", "warn", "thinwire invite");
    json_decref(doctor.status);
}

FACT(run_of_any_model_needs_no_worker_of_ours) {
    tw_run_defaults(&doctor.run);
    assert_int_equal(tw_run_apply_tensors(&doctor.run, "w:100x100", NULL), TW_OK);
    doctor.has_run = true;
    doctor.config.node.spawn_worker = true;
    doctor_host(&doctor);
    is_said("worker", "ok", NULL);
    is_said("memory", "ok", NULL);
}

FACT(worker_that_is_not_there_fails) {
    (void)snprintf(doctor.config.node.worker_path, sizeof(doctor.config.node.worker_path),
                   "/nowhere/thinwire-worker");
    doctor.config.node.spawn_worker = true;
    doctor_host(&doctor);
    is_said("worker", "fail", "node.worker_path");
}

FACT(unlinked_node_without_a_daemon_is_no_failure) {
    doctor.config.network.links = false;
    doctor_links(&doctor);
    is_said("daemon", "warn", "thinwire start");
    is_said("port", "skip", NULL);
    assert_int_equal(doctor.counts[DOCTOR_FAIL], 0);
}

FACT(foreign_listen_address_fails) {
    doctor.config.network.listen_count = 1;
    (void)snprintf(doctor.config.network.listen[0].text, TW_ADDR_BYTES, "192.0.2.1:4747");
    doctor_links(&doctor);
    is_said("port", "fail", "no address of this machine");
    is_said("peers", "skip", NULL); /* a daemon that does not run is dialled by nobody */
}

/* Tests the line about voters; `text` is NULL if there should be none. */
static void voters_are_said_of(bool has_owner, int members, int voters, const char *grade,
                               const char *text) {
    doctor.status =
        json_pack("{s:s, s:{s:i,s:i}, s:o}", "state", "member", "sync", "roster_members", members,
                  "roster_voters", voters, "admission", has_owner ? json_object() : json_null());
    (void)json_array_clear(doctor.list);
    assert_non_null(doctor.status);
    doctor_links(&doctor);
    json_decref(doctor.status);
    doctor.status = NULL;
    if (text == NULL) {
        assert_null(find_row("voters"));
        return;
    }
    const char *const way_out = has_owner ? "without --no-vote" : "64 rounds";
    is_said("voters", grade, strcmp(grade, "ok") == 0 ? NULL : way_out);
    assert_string_equal(json_string_value(json_object_get(row_of("voters"), "text")), text);
}

static void voters_are_said(int members, int voters, const char *grade, const char *text) {
    voters_are_said_of(true, members, voters, grade, text);
    voters_are_said_of(false, members, voters, grade, text);
}

FACT(few_voters_are_warned_of) {
    voters_are_said(6, 6, NULL, NULL);
    voters_are_said(3, 3, NULL, NULL);
    voters_are_said(9, 4, "ok", "4 of 9 members vote");
    voters_are_said(9, 3, "warn", "3 of 9 members vote: fewer than four voters withstand no liar");
    voters_are_said(9, 1, "warn", "1 of 9 members votes: fewer than four voters withstand no liar");
}

FACT(warnings_of_the_daemon_are_passed_on) {
    doctor.status =
        json_pack("{s:s, s:[{s:s,s:s}], s:{s:i}}", "state", "member", "warnings", "what",
                  "The disk is full", "way_out", "free some", "sync", "alive_peers", 3);
    assert_non_null(doctor.status);
    doctor_links(&doctor);
    is_said("daemon", "ok", NULL);
    is_said("daemon.says", "warn", "free some");
    json_decref(doctor.status);
}

FACT(dial_back_is_reported_in_the_words_of_the_daemon) {
    static const struct {
        const char *state, *grade;
    } cases[] = {{"yes", "ok"}, {"no", "warn"}, {"local", "warn"}, {"unknown", "skip"}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)json_array_clear(doctor.list);
        doctor.status = json_pack("{s:s, s:{s:{s:s,s:s}}}", "state", "member", "network",
                                  "reachable", "state", cases[i].state, "text", "open port 4747");
        assert_non_null(doctor.status);
        doctor_links(&doctor);
        const json_t *row = row_of("dial-back");
        assert_string_equal(json_string_value(json_object_get(row, "grade")), cases[i].grade);
        if (strcmp(cases[i].grade, "skip") != 0)
            assert_string_equal(json_string_value(json_object_get(row, "text")), "open port 4747");
        json_decref(doctor.status);
    }
}
