/* Tests of daemon/config/config.c. */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "tests/test.h"

#define ID "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct tw_config config;
static struct tw_error err;

static enum tw_status parse(const char *text) {
    memset(&err, 0, sizeof(err));
    return tw_config_parse(&config, "/etc/thinwire/garage.conf", text, strlen(text), &err);
}

/* The sentence must name file, line and key, and contain `part`. */
static void refuse(const char *text, unsigned line, const char *part) {
    char where[64];
    (void)snprintf(where, sizeof(where), "/etc/thinwire/garage.conf:%u: ", line);
    assert_int_equal(parse(text), TW_CONFIG);
    if (strncmp(err.message, where, strlen(where)) != 0 || strstr(err.message, part) == NULL) {
        fail_msg("wanted %s...%s..., got: %s", where, part, err.message);
    }
}

TEST(an_empty_file_gives_the_defaults) {
    assert_int_equal(parse(""), TW_OK);
    assert_string_equal(config.instance, "garage");
    assert_string_equal(config.node.state_dir, "/var/lib/thinwire/garage");
    assert_string_equal(config.node.run, "/var/lib/thinwire/garage/run.manifest");
    assert_string_equal(config.network.secret_file, "/var/lib/thinwire/garage/run.secret");
    assert_string_equal(config.api.socket, "/run/thinwire/garage/thinwired.sock");
    assert_string_equal(config.network.listen[0].text, "0.0.0.0:4747");
    assert_string_equal(config.network.listen[1].text, "[::]:4747");
    assert_int_equal(config.network.listen_count, 2);
    assert_true(config.node.spawn_worker);
    assert_true(config.network.links);
    assert_false(config.api.has_http);
    assert_int_equal(config.node.checkpoint_interval_us, 120000000);
    assert_true(config.node.name[0] != 0);
}

TEST(every_kind_of_value_is_read) {
    assert_int_equal(parse("[node]\n"
                           "name = attic   # the one upstairs\n"
                           "run = bible.manifest\n"
                           "data = /srv/%i.txt\n"
                           "threads = 3\n"
                           "spawn_worker = no\n"
                           "snapshot = bf16-moments\n"
                           "checkpoint_interval = 1.5h\n"
                           "stop_step = 5000000000\n"
                           "[worker]\n"
                           "device = cuda:1\n"
                           "compute = bf16\n"
                           "micro_batch = 4\n"
                           "recompute = on\n"
                           "memory = 1.5 GiB\n"
                           "hours = 08:00-12:30 off, 22-6 off\n"
                           "yield = 40%\n"
                           "nice = 19\n"
                           "[network]\n"
                           "; a comment\n"
                           "listen = 127.0.0.1:0, [::1]:4747\n"
                           "peers = a.example:1, 10.0.0.1:2=" ID "\n"
                           "peers = [2001:db8::1]:3\n"
                           "upload = 2.5mbit\n"
                           "pace = 2mbit\n"
                           "download = 20mbit\n"
                           "hours = 08:00-18:00 1mbit, 18-23 off\n"
                           "quota = 500GB/month\n"
                           "[api]\n"
                           "http = 127.0.0.1:9747\n"),
                     TW_OK);
    assert_string_equal(config.node.name, "attic");
    assert_string_equal(config.node.run, "/etc/thinwire/bible.manifest");
    assert_string_equal(config.node.data, "/srv/garage.txt");
    assert_int_equal(config.worker.threads, 3);
    assert_int_equal(config.worker.device.kind, TW_DEVICE_CUDA);
    assert_int_equal(config.worker.device.ordinal, 1);
    assert_int_equal(config.worker.compute, TW_COMPUTE_BF16);
    assert_int_equal(config.worker.micro_batch, 4);
    assert_int_equal(config.worker.recompute, TW_RECOMPUTE_ON);
    assert_int_equal(config.worker.memory_bytes, 1610612736);
    assert_int_equal(config.manners.hours.count, 2);
    assert_int_equal(config.manners.hours.entries[0].end_min, 12 * 60 + 30);
    assert_int_equal(config.manners.yield_percent, 40);
    assert_int_equal(config.manners.nice, 19);
    assert_false(config.node.spawn_worker);
    assert_int_equal(config.node.snapshot, TW_SNAPSHOT_BF16_MOMENTS);
    assert_int_equal(config.node.checkpoint_interval_us, UINT64_C(5400000000));
    assert_int_equal(config.node.stop_step, UINT64_C(5000000000));
    assert_int_equal(config.network.listen_count, 2);
    assert_string_equal(config.network.listen[1].text, "[::1]:4747");
    assert_int_equal(config.network.peers_count, 3);
    assert_true(config.network.peers[1].has_id);
    assert_int_equal(config.network.peers[1].id.bytes[1], 0x11);
    assert_false(config.network.peers[2].has_id);
    assert_int_equal(config.network.upload_bytes_s, 312500);
    assert_int_equal(config.network.pace.mode, TW_LINK_PACE_FIXED);
    assert_int_equal(config.network.pace.bytes_per_s, 250000);
    assert_int_equal(config.network.download_bytes_s, 2500000);
    assert_int_equal(config.network.hours.count, 2);
    assert_true(config.network.hours.entries[1].is_off);
    assert_int_equal(config.network.quota_bytes, 500000000000);
    assert_int_equal(config.network.budget.bytes, 0);
    assert_true(config.api.has_http);
}

TEST(the_programs_of_a_command_are_not_others) {
    assert_int_equal(parse("[worker]\ncommand = train\nyield = on\n"), TW_OK);
    assert_int_equal(parse("[worker]\nnice = 0\nyield = on\n"), TW_OK);
    assert_int_equal(parse("[worker]\ncommand = train\nnice = 0\n"), TW_OK);
    assert_int_equal(parse("[worker]\ncommand = train\nnice = 0\nyield = on\n"), TW_CONFIG);
    assert_non_null(strstr(err.message, "set nice to 1 or more, or yield = off"));
}

TEST(yield_is_off_on_or_a_percentage) {
    static const struct {
        const char *text, *shown;
        uint32_t percent;
    } CASES[] = {{"", "yield = off\n", 0},
                 {"yield = off\n", "yield = off\n", 0},
                 {"yield = on\n", "yield = 20%\n", TW_YIELD_ON_PERCENT},
                 {"yield = 1%\n", "yield = 1%\n", 1},
                 {"yield = 99 %\n", "yield = 99%\n", 99}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[64], shown[16 * 1024];
        (void)snprintf(text, sizeof(text), "[worker]\n%s", CASES[i].text);
        assert_int_equal(parse(text), TW_OK);
        assert_int_equal(config.manners.yield_percent, CASES[i].percent);
        assert_true(tw_config_show(&config, shown, sizeof(shown)) < sizeof(shown));
        if (strstr(shown, CASES[i].shown) == NULL) fail_msg("no %s in %s", CASES[i].shown, shown);
    }
}

TEST(pace_is_auto_off_or_a_rate) {
    static const struct {
        const char *text, *shown;
        enum tw_link_pace_mode mode;
    } CASES[] = {{"", "pace = auto\n", TW_LINK_PACE_AUTO},
                 {"pace = auto\n", "pace = auto\n", TW_LINK_PACE_AUTO},
                 {"pace = off\n", "pace = off\n", TW_LINK_PACE_OFF},
                 {"pace = 0\n", "pace = off\n", TW_LINK_PACE_OFF},
                 {"pace = 1.5mbit\n", "pace = 1500kbit\n", TW_LINK_PACE_FIXED}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[64], shown[16 * 1024];
        (void)snprintf(text, sizeof(text), "[network]\n%s", CASES[i].text);
        assert_int_equal(parse(text), TW_OK);
        assert_int_equal(config.network.pace.mode, CASES[i].mode);
        assert_true(tw_config_show(&config, shown, sizeof(shown)) < sizeof(shown));
        if (strstr(shown, CASES[i].shown) == NULL) fail_msg("no %s in %s", CASES[i].shown, shown);
    }
}

TEST(relaying_is_on_off_or_a_rate) {
    static const struct {
        const char *text, *shown;
        bool is_on;
        uint64_t bytes_per_s;
    } CASES[] = {{"", "relay = on\n", true, 0},
                 {"relay = on\n", "relay = on\n", true, 0},
                 {"relay = off\n", "relay = off\n", false, 0},
                 {"relay = 0\n", "relay = off\n", false, 0},
                 {"relay = 2mbit\n", "relay = 2mbit\n", true, 250000}};
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[64], shown[16 * 1024];
        (void)snprintf(text, sizeof(text), "[network]\n%s", CASES[i].text);
        assert_int_equal(parse(text), TW_OK);
        assert_int_equal(config.network.relay.is_on, CASES[i].is_on);
        assert_int_equal(config.network.relay.bytes_per_s, CASES[i].bytes_per_s);
        assert_true(tw_config_show(&config, shown, sizeof(shown)) < sizeof(shown));
        if (strstr(shown, CASES[i].shown) == NULL) fail_msg("no %s in %s", CASES[i].shown, shown);
    }
    assert_int_equal(parse("[network]\nrelay = yes\n"), TW_CONFIG);
}

TEST(an_empty_list_means_none) {
    assert_int_equal(parse("[network]\nlisten =\n"), TW_OK);
    assert_int_equal(config.network.listen_count, 0);
}

TEST(unknown_names_are_refused_with_the_nearest) {
    refuse("[node]\nname = x\ntreads = 4\n", 3, "did you mean `threads`?");
    refuse("\n[netwrok]\n", 2, "did you mean [network]?");
    refuse("[banana]\n", 1, "sections are [node], [worker], [network], [api]");
    refuse("[node]\nbanana = 1\n", 2, "`thinwire config example` lists them");
    refuse("[node]\nupload = 5mbit\n", 2, "belongs into section [network], not [node]");
    refuse("threads = 4\n", 1, "before the first section");
}

TEST(every_bad_value_names_line_key_and_the_way_out) {
    refuse("[node]\nthreads = many\n", 2, "threads: `many` is no whole number from 0 to 4096");
    refuse("[node]\nthreads = 5000\n", 2, "threads: 5000 is outside 0 to 4096");
    refuse("[node]\nthreads = -1\n", 2, "threads: ");
    refuse("[node]\nthreads = 99999999999999999999\n", 2, "threads: ");
    refuse("[node]\nspawn_worker = maybe\n", 2, "spawn_worker: `maybe` is neither on nor off");
    refuse("[worker]\ndevice = gpu\n", 2,
           "device: `gpu` is none of auto, cpu, cuda and cuda:N with N up to 63");
    refuse("[worker]\ncompute = fp16\n", 2, "compute: `fp16` is none of auto, fp32, bf16");
    refuse("[worker]\nmemory = 8\n", 2, "memory: `8` is no size; write one such as 8GB");
    refuse("[worker]\nmemory = 8 apples\n", 2, "memory: ");
    refuse("[node]\nsnapshot = half\n", 2, "snapshot: `half` is none of full, bf16-moments, off");
    refuse("[node]\ncheckpoint_interval = 10\n", 2, "checkpoint_interval: `10` lacks its unit");
    refuse("[node]\ncheckpoint_interval = 10 weeks\n", 2, "`weeks` is no unit here; write a time");
    refuse("[node]\ncheckpoint_interval = 400d\n", 2, "400d is more than 365d");
    refuse("[node]\nstate_dir =\n", 2, "state_dir: a path is missing");
    refuse("[node]\ndata = ~/text\n", 2, "data: `~/text`");
    refuse("[network]\nupload = 5\n", 2, "upload: `5` lacks its unit; write a rate in bits");
    refuse("[network]\nupload = 5MB\n", 2, "upload: `MB` is no unit here");
    refuse("[network]\nupload = 1bit\n", 2, "upload: 1bit is below 8kbit");
    refuse("[network]\npace = fast\n", 2, "pace: `fast` is neither auto nor off nor a rate");
    refuse("[network]\npace = 5\n", 2, "pace: `5` lacks its unit");
    refuse("[network]\npace = 1bit\n", 2, "pace: 1bit is below 8kbit");
    refuse("[network]\nquota = 5GB\n", 2, "quota: `5GB` is no quota; write one such as 500GB");
    refuse("[network]\nquota = 5/month\n", 2, "quota: `5` is no size");
    refuse("[network]\nquota = 0GB/month\n", 2, "quota: `0GB` is no size");
    refuse("[worker]\nhours = 8-18 1mbit\n", 2, "`8-18 1mbit` does not end with off; write");
    refuse("[worker]\nhours = 8-18\n", 2, "`8-18` does not end with off");
    refuse("[worker]\nyield = yes\n", 2, "yield: `yes` is neither on nor off nor a percentage");
    refuse("[worker]\nyield = 40\n", 2, "yield: `40` is neither on nor off nor a percentage");
    refuse("[worker]\nyield = 0%\n", 2, "yield: `0%`: a whole number from 1% to 99%");
    refuse("[worker]\nyield = 100%\n", 2, "yield: `100%`: a whole number");
    refuse("[worker]\nyield = 2.5%\n", 2, "yield: `2.5%`: a whole number");
    refuse("[worker]\nnice = 20\n", 2, "nice: 20 is outside 0 to 19");
    refuse("[network]\nhours = always\n", 2, "hours: `always` names no hours");
    refuse("[network]\ndownload = 5\n", 2, "download: `5` lacks its unit");
    refuse("[network]\nbudget = 5\n", 2, "budget: `5` lacks its unit; write 2mbit of upload");
    refuse("[network]\nbudget = 1bit\n", 2, "budget: 1bit is below 8kbit");
    refuse("[network]\nbudget = 50GB/year\n", 2, "`50GB/year` is no budget; write 2mbit");
    refuse("[network]\nbudget = 50mbit/month\n", 2, "`50mbit` is no size; write 2mbit");
    refuse("[network]\nbudget = 2GB/month\n", 2, "2GB/month is below 3GB/month");
    refuse("[network]\nupload = fast\n", 2, "upload: `fast` is no number");
    refuse("[network]\npeers = a.example\n", 2, "peers: `a.example` is no host:port");
    refuse("[network]\npeers = a.example:0\n", 2, "port is a number from 1 to 65535");
    refuse("[network]\npeers = a.example:70000\n", 2, "port is a number from 1 to 65535");
    refuse("[network]\npeers = 2001:db8::1:4747\n", 2, "IPv6 address in brackets");
    refuse("[network]\npeers = a:1=1234\n", 2, "the node id after = is the 64 hex digits");
    refuse("[network]\nlisten = a:1,b:1,c:1,d:1,e:1\n", 2, "listen: more than 4 entries");
    refuse("[network]\nlisten = a b/c:1\n", 2, "listen: ");
    refuse("[api]\nhttp = 0.0.0.0:80\n", 2, "http: `0.0.0.0:80` is not loopback");
    refuse("[node]\nname = a\n\nname = b\n", 4, "`name` is given twice, first in line 2");
    refuse("[node]\nname = a\nnonsense\n", 3, "neither `key = value` nor `[section]`");
}

TEST(bytes_that_are_no_text_are_refused) {
    char line[400];
    memset(line, 'x', sizeof(line));
    memcpy(line, "[node]\nname = ", 14);
    line[398] = '\n';
    line[399] = 0;
    refuse(line, 2, "longer than 198 bytes");
    refuse("[node]\nname = a\001b\n", 2, "control character (byte 1)");
    assert_int_equal(tw_config_parse(&config, "x.conf", "[node]\n\0\n", 9, &err), TW_CONFIG);
}

TEST(a_file_too_large_is_refused_unread) {
    char *const text = calloc(1, TW_CONFIG_BYTES_MAX + 1);
    assert_non_null(text);
    assert_int_equal(tw_config_parse(&config, "x.conf", text, TW_CONFIG_BYTES_MAX + 1, &err),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "64 KiB"));
    free(text);
}

TEST(a_run_dir_too_long_for_a_socket_is_refused) {
    char text[256] = "[node]\nrun_dir = /";
    memset(text + strlen(text), 'r', 100);
    assert_int_equal(parse(text), TW_CONFIG);
    assert_non_null(strstr(err.message, "choose a shorter run_dir"));
}

/* Random text of the parser's own tokens: parsing always ends, with success or an error. */
TEST(any_mixture_of_pieces_ends_in_an_answer) {
    static const char *const PIECES[] = {"[node]", "[network]", "[",  "]", "=", "\n", "\n", " ",
                                         "peers",  "listen",    "\t", "1", ":", "a",  ";",  "#",
                                         "upload", "5mbit",     "%i", ",", "~", "/",  "\"", "run"};
    uint64_t x = 88172645463325252u;
    unsigned accepted = 0;
    for (unsigned round = 0; round < 20000; round++) {
        char text[256];
        size_t size = 0;
        while (size < 200) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            const char *const piece = PIECES[x % (sizeof(PIECES) / sizeof(PIECES[0]))];
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }
        const enum tw_status status = tw_config_parse(&config, "x.conf", text, size, &err);
        assert_true(status == TW_OK || (status == TW_CONFIG && err.message[0] != 0));
        accepted += status == TW_OK;
    }
    assert_true(accepted < 20000);
}

TEST(shown_configuration_parses_to_the_same) {
    static char shown[16384], again[16384];
    assert_int_equal(parse("[node]\nname=a\ncheckpoint_interval=1500ms\n[network]\nupload=5mbit\n"
                           "peers=a:1, b:2=" ID "\nlisten=\n[api]\nhttp=127.0.0.1:80\n"),
                     TW_OK);
    assert_true(tw_config_show(&config, shown, sizeof(shown)) < sizeof(shown));
    assert_non_null(strstr(shown, "upload = 5mbit\n"));
    assert_non_null(strstr(shown, "checkpoint_interval = 1500ms\n"));
    const struct tw_config before = config;
    assert_int_equal(parse(shown), TW_OK);
    assert_true(tw_config_show(&config, again, sizeof(again)) < sizeof(again));
    assert_string_equal(shown, again);
    assert_memory_equal(&before, &config, sizeof(config));
}

TEST(a_budget_is_a_rate_or_a_month) {
    char shown[16384];
    assert_int_equal(parse("[network]\nbudget = 2mbit\n"), TW_OK);
    assert_int_equal(config.network.budget.bytes, 250000);
    assert_false(config.network.budget.is_month);
    (void)tw_config_show(&config, shown, sizeof(shown));
    assert_non_null(strstr(shown, "budget = 2mbit\n"));
    assert_int_equal(parse("[network]\nbudget = 50 GB / month\n"), TW_OK);
    assert_true(config.network.budget.bytes == UINT64_C(50000000000));
    assert_true(config.network.budget.is_month);
    (void)tw_config_show(&config, shown, sizeof(shown));
    assert_non_null(strstr(shown, "budget = 50GB/month\n"));
}

/* The example is a valid configuration when every key in it is uncommented. */
TEST(the_example_is_valid_when_uncommented) {
    static char text[16384], bare[16384];
    const size_t size = tw_config_example(text, sizeof(text));
    assert_true(size < sizeof(text));
    assert_int_equal(parse(text), TW_OK); /* every line is a comment, so the defaults apply */
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        const int is_key = text[i] == '#' && (i == 0 || text[i - 1] == '\n') && text[i + 1] != ' ';
        if (!is_key) bare[used++] = text[i];
    }
    bare[used] = 0;
    if (parse(bare) != TW_OK) fail_msg("%s", err.message);
    assert_string_equal(config.node.name, "attic");
}

TEST(no_line_of_the_example_is_cut_by_a_terminal) {
    static char text[16384];
    (void)tw_config_example(text, sizeof(text));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strlen(line) > 100) fail_msg("%zu bytes: %s", strlen(line), line);
    }
}

TEST(the_file_is_found_by_option_environment_and_instance) {
    char path[TW_PATH_BYTES];
    assert_int_equal(unsetenv("THINWIRE_CONFIG"), 0);
    assert_int_equal(tw_config_find(NULL, path, &err), TW_OK);
    assert_string_equal(path, "/etc/thinwire/thinwire.conf");
    assert_int_equal(tw_config_find("garage", path, &err), TW_OK);
    assert_string_equal(path, "/etc/thinwire/garage.conf");
    assert_int_equal(tw_config_find("./garage", path, &err), TW_OK);
    assert_string_equal(path, "./garage");
    assert_int_equal(setenv("THINWIRE_CONFIG", "my.conf", 1), 0);
    assert_int_equal(tw_config_find(NULL, path, &err), TW_OK);
    assert_string_equal(path, "my.conf");
    assert_int_equal(tw_config_find("cellar", path, &err), TW_OK);
    assert_string_equal(path, "/etc/thinwire/cellar.conf");
    assert_int_equal(unsetenv("THINWIRE_CONFIG"), 0);
}

TEST(the_folder_of_a_node_names_its_file) {
    char folder[] = "/tmp/tw-config-XXXXXX", path[TW_PATH_BYTES], file[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof(file), "%s/node.conf", folder);
    assert_int_equal(tw_config_find(folder, path, &err), TW_OK);
    assert_string_equal(path, folder); /* there is no node yet */
    FILE *const to = fopen(file, "w");
    assert_non_null(to);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(tw_config_find(folder, path, &err), TW_OK);
    assert_string_equal(path, file);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

TEST(a_manifest_is_no_configuration) {
    refuse("thinwire-run 1\nrun.name = bible\n", 2, "this is the manifest of a run");
}

TEST(a_missing_file_says_how_to_make_one) {
    assert_int_equal(tw_config_load(&config, "/nowhere/x.conf", &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "/nowhere/x.conf: No such file"));
    assert_non_null(strstr(err.message, "thinwire init"));
}
