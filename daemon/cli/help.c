/* Help texts: one page per verb, written like a short man page. */
#include <string.h>

#include "base/nearest.h"
#include "daemon/cli/cli.h"

static const char OVERVIEW[] =
    "thinwire - train one language model on many far-apart machines\n"
    "\n"
    "Set up\n"
    "  init              identity, run secret, folders and configuration of a node\n"
    "  run new NAME      write the manifest of a new run; run show explains one\n"
    "  config check      would the daemon start? config example, config show\n"
    "\n"
    "Look\n"
    "  status            one screen: what this node does and how well (--watch)\n"
    "  peers             who is there, and what each exchanged with us\n"
    "  rounds, events    the last merges, and what happened lately\n"
    "\n"
    "Act on the running daemon\n"
    "  checkpoint        save now; returns when it is durable\n"
    "  pause, resume     stop and go on training; links stay up\n"
    "  leave             save, say goodbye to the others, stop the daemon\n"
    "\n"
    "Without a daemon\n"
    "  train             train alone, in the foreground\n"
    "  eval              validation loss of a checkpoint or of exported weights\n"
    "  generate          text from a checkpoint or from exported weights\n"
    "  sim               the protocol under simulated networks and faults\n"
    "\n"
    "Everywhere: --json for machines, --config FILE or NAME (also $THINWIRE_CONFIG),\n"
    "--socket PATH, --color=auto|always|never. `thinwire help COMMAND` tells more,\n"
    "`thinwire help exit-codes` lists exit statuses.\n";

static const struct {
    const char *topic, *text;
} PAGES[] = {
    {"init",
     "thinwire init [--name NAME] [--data TEXT] [--run MANIFEST] [--peers LIST] ...\n"
     "\n"
     "Makes what a node needs: an Ed25519 key (the node's identity, mode 0600), the run\n"
     "secret, the state directory and a commented configuration file. Prints the node id\n"
     "and what to do next. Nothing that exists is overwritten.\n"
     "\n"
     "  --config FILE|NAME   where the configuration goes; NAME is /etc/thinwire/NAME.conf\n"
     "  --secret-file FILE   take the secret of an existing run from FILE (- = stdin)\n"
     "  --name, --state-dir, --run-dir, --run, --data, --threads, --listen, --peers,\n"
     "  --upload             go into the configuration as the keys of the same name\n"},
    {"run",
     "thinwire run new NAME [--data TEXT] [--preset streaming|diloco] [--set KEY=VALUE]...\n"
     "                      [--out FILE] [--steps-per-s N]\n"
     "thinwire run show [FILE] [--steps-per-s N]\n"
     "\n"
     "`run new` writes the manifest every node of the run must have: model, data, training,\n"
     "synchronisation. What is not set follows from the preset, fitted to the model and to\n"
     "the planned number of outer steps; what was chosen and why is printed, with the bytes\n"
     "each node will send. `run show` explains a file, or the run of the daemon.\n"
     "\n"
     "  --data TEXT          every node must train on exactly this text (its SHA-256)\n"
     "  --set KEY=VALUE      such as model.layers=6, train.tokens=20m, sync.nodes=8,\n"
     "                       sync.period=30; a wrong key is answered with the nearest one\n"
     "  --steps-per-s N      speed of a node, for the bytes per hour (default 10)\n"},
    {"status",
     "thinwire status [--watch] [--every SECONDS] [--json]\n"
     "\n"
     "One screen. First a sentence that says what the node is doing, then warnings with\n"
     "their way out. Three numbers count peers: known (in the table), alive (heard within\n"
     "6 s), mixed in lately (their training entered our model within the last rounds).\n"
     "The anchor is the last agreed model; validation loss is measured on text that is\n"
     "never trained on. \"Busy training\" is 1 - time spent synchronising / time.\n"},
    {"peers",
     "thinwire peers [--watch] [--json]\n"
     "\n"
     "One peer per two lines: link (alive, up, dialing, known, refused), node id, state,\n"
     "inner step, round trip time, bytes sent and received, when it was last heard; below\n"
     "that its address and the reason why it is not linked.\n"},
    {"rounds", "thinwire rounds [--watch] [--json]\n"
               "\n"
               "The last committed merges: fragment, how many members of the roster contributed,\n"
               "payload bytes through this node, time from opening to commit.\n"},
    {"events", "thinwire events [--watch] [--json]\n"
               "\n"
               "What happened lately, newest last. The full record is the daemon's log.\n"},
    {"checkpoint",
     "thinwire checkpoint\n"
     "\n"
     "Saves the node's state now and returns when it is on disk. Root and the daemon's\n"
     "user may do that.\n"},
    {"leave", "thinwire leave\n"
              "\n"
              "The daemon finishes its step, saves, says goodbye to its peers and stops. Under\n"
              "systemd use `systemctl stop`, which does the same and does not start it again.\n"},
    {"pause",
     "thinwire pause\n"
     "\n"
     "Stops training after the present step, to give the machine to something else. Links\n"
     "stay up; `thinwire resume` goes on.\n"},
    {"resume", "thinwire resume\n\nGoes on training after `thinwire pause`.\n"},
    {"config",
     "thinwire config check [FILE|NAME]   reads it and looks at every file it names\n"
     "thinwire config show [FILE|NAME]    every key with the value in force\n"
     "thinwire config example             the commented example, on standard output\n"
     "\n"
     "The file is --config, else $THINWIRE_CONFIG, else /etc/thinwire/thinwire.conf. NAME\n"
     "means /etc/thinwire/NAME.conf, the configuration of thinwired@NAME.\n"},
    {"train",
     "thinwire train --run MANIFEST --data TEXT [--steps N] [--threads N] [--out FILE]\n"
     "               [--from FILE] [--seed N] [--eval-steps N] [--json]\n"
     "\n"
     "Trains alone, in the foreground, and writes the parameters as safetensors. The same\n"
     "engine as in a node, without network and checkpoints.\n"},
    {"eval", "thinwire eval FILE --run MANIFEST --data TEXT [--part live|anchor] [--windows N]\n"
             "              [--threads N] [--json]\n"
             "\n"
             "Validation loss, in nats per token, on the held-out end of the text.\n"},
    {"generate",
     "thinwire generate FILE --run MANIFEST [--prompt TEXT] [--tokens N] [--temperature T]\n"
     "                  [--top-k K] [--seed N] [--part live|anchor] [--json]\n"
     "\n"
     "Writes text. FILE is a checkpoint of a node (STATE_DIR/RUN_ID/ckpt.a.safetensors) or "
     "exported\n"
     "weights (model.safetensors). Temperature 0 always takes the likeliest token.\n"},
    {"sim", "thinwire sim --seed S --nodes N --hours H [--json]\n"
            "\n"
            "The real protocol core under virtual time with delays, losses, partitions, crashes\n"
            "and slow nodes. The same arguments give the same output.\n"},
};
enum { PAGES_COUNT = sizeof(PAGES) / sizeof(PAGES[0]) };

static void print_exit_codes(void) {
    (void)puts("Exit statuses of thinwire, thinwired, thinwire-engine and thinwire-worker:\n");
#define X(name, value, meaning) (void)printf("  %d  %s\n", value, meaning);
    TW_EXIT_LIST(X)
#undef X
}

const char *cli_help_text(const char *topic) {
    if (*topic == 0) return OVERVIEW;
    for (size_t i = 0; i < PAGES_COUNT; i++) {
        if (strcmp(PAGES[i].topic, topic) == 0) return PAGES[i].text;
    }
    return NULL;
}

enum tw_exit cli_help(struct cli *cli) {
    const char *const topic = cli_operand(cli);
    if (topic != NULL && strcmp(topic, "exit-codes") == 0) {
        print_exit_codes();
        return TW_EXIT_OK;
    }
    const char *const text = cli_help_text(topic != NULL ? topic : "");
    if (text != NULL) {
        (void)fputs(text, stdout);
        return TW_EXIT_OK;
    }
    const char *names[PAGES_COUNT + 1];
    for (size_t i = 0; i < PAGES_COUNT; i++) names[i] = PAGES[i].topic;
    names[PAGES_COUNT] = "exit-codes";
    const char *const near = tw_nearest(topic, names, PAGES_COUNT + 1);
    if (near != NULL) {
        return cli_fail(TW_EXIT_USAGE, "help: there is no page `%s`; did you mean `%s`?", topic,
                        near);
    }
    return cli_fail(TW_EXIT_USAGE, "help: there is no page `%s`; `thinwire help` lists them",
                    topic);
}

enum tw_exit cli_version(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", NULL};
    const enum tw_exit rc = cli_done(cli, "version", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    (void)printf(cli->json ? "{\"version\": \"%s\", \"protocol\": \"thinwire/1\"}\n"
                           : "thinwire %s, protocol thinwire/1\n",
                 TW_RELEASE);
    return TW_EXIT_OK;
}
