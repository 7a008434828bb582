/* Help texts: one page per verb, written like a short man page. */
#include <string.h>

#include "base/nearest.h"
#include "daemon/cli/common/cli.h"

static const char OVERVIEW[] =
    "thinwire - train one language model on many far-apart machines\n"
    "\n"
    "Set up\n"
    "  init              identity, run secret, folders and configuration of a node\n"
    "  invite, join      a line from a node of the run, and a new machine that is in by it\n"
    "  start             start the daemon, in the background or as a service\n"
    "  secret            the run secret, and its replacement\n"
    "  run new NAME      write the manifest of a new run; run show explains one\n"
    "  owner             runs with an owner: sign certificates, shut nodes out\n"
    "  run models        models by name, and the memory training one takes here\n"
    "  config check      would the daemon start? config example, config show\n"
    "\n"
    "Look\n"
    "  status            one screen: what this node does and how well (--watch)\n"
    "  peers             who is there, and what each exchanged with us\n"
    "  rounds, events    the last merges, and what happened lately\n"
    "  doctor            what is wrong here or on the way to the others, and what to do\n"
    "\n"
    "Act on the running daemon\n"
    "  checkpoint        save now; returns when it is durable\n"
    "  pause, resume     stop and go on training; links stay up\n"
    "  leave             save, say goodbye to the others, stop the daemon, wait until it has\n"
    "  limit             upload and download caps, until the next start\n"
    "  reload            read the configuration again\n"
    "  unban             let a node come back that broke the protocol\n"
    "\n"
    "Without a daemon\n"
    "  data              what is trained on: data prepare, data info, data weigh\n"
    "  train             train alone, in the foreground; stop and go on at will\n"
    "  eval              loss of a model on held-out text\n"
    "  generate          text from a model\n"
    "  merge             one model of several, by averaging them\n"
    "  import, export    models from and for Hugging Face, GGUF\n"
    "  info              what a model can be computed on here: processor and GPUs\n"
    "  sim               the protocol under simulated networks and faults\n"
    "\n"
    "Everywhere: --json for machines, --config FILE or NAME (also $THINWIRE_CONFIG),\n"
    "--socket PATH, --color=auto|always|never. `thinwire help COMMAND` tells more,\n"
    "`thinwire help exit-codes` lists exit statuses.\n";

static const struct {
    const char *topic, *text;
} PAGES[] = {
    {"invite",
     "thinwire invite [--uses N] [--expires 24h] [--address HOST:PORT]...\n"
     "thinwire invite --list\n"
     "thinwire invite --revoke TICKET\n"
     "\n"
     "Prints one line, a ticket, that lets a machine into the run with `thinwire join`: where "
     "this\n"
     "node can be dialled, who it is, and a key. Who has the line can use it, so send it as you\n"
     "would a password. The daemon keeps count; the same machine may use a ticket again.\n"
     "\n"
     "  --uses N             machines it lets in, 1 to 64: 1\n"
     "  --expires TIME       30m, 24h, 7d: 24h\n"
     "  --address HOST:PORT  where this node can be dialled, up to four times; what the node\n"
     "                       itself knows when left out (`advertise`, `listen`)\n"
     "  --list               tickets that are out, and who used them\n"
     "  --revoke TICKET      takes one back; who is in stays in (`thinwire help secret`)\n"},
    {"join",
     "thinwire join LINE [--dir DIR] [--start] [--data TEXT] [--upload RATE] ...\n"
     "\n"
     "Makes this machine a node of the run that LINE, from `thinwire invite`, is of: dials the\n"
     "inviter, and writes identity, manifest, run secret and configuration. `-` reads LINE from\n"
     "standard input. The same command again goes on where it was cut off. A dataset is fetched\n"
     "from the others; a plain text that all must have is named with --data.\n"
     "\n"
     "  --start              start the daemon too, and wait until it answers: in the background, "
     "or\n"
     "                       as thinwired@NAME for a configuration under /etc/thinwire\n"
     "  --dir DIR            everything in one folder: DIR/node.conf, state and sockets beside it\n"
     "  --config FILE|NAME   where the configuration goes instead\n"
     "  --name, --state-dir, --run-dir, --data, --threads, --listen, --peers, --upload\n"
     "                       go into the configuration as the keys of the same name\n"},
    {"start",
     "thinwire start\n"
     "\n"
     "Starts the daemon of this node and waits until it answers: in the background, with its log\n"
     "beside the configuration, where it outlives the terminal; or as thinwired@NAME, which also\n"
     "comes back with the machine, for a configuration under /etc/thinwire. One that runs is left\n"
     "alone, one that is leaving is waited for. `thinwired` itself runs in the foreground;\n"
     "`thinwire leave` stops either.\n"},
    {"secret",
     "thinwire secret [show]\n"
     "thinwire secret add [FILE]\n"
     "thinwire secret use MARK\n"
     "thinwire secret remove MARK\n"
     "\n"
     "Whoever has the run secret may join. To shut out somebody who has it, replace it: a node "
     "can\n"
     "hold two. `add` a new one on one node (without FILE it is made), copy the file of the secret "
     "to\n"
     "the others and `add` it there; when all have it, `use` it on all; then `remove` the old one "
     "on\n"
     "all, and links it made are closed. A running daemon follows within seconds; tickets it gave "
     "out\n"
     "that were used before it saw the new one let nobody in any more. Secrets are never\n"
     "shown, but named by marks. They are in STATE_DIR/run.secret, the one in use first.\n"},
    {"init",
     "thinwire init [--dir DIR] [--name NAME] [--data TEXT] [--run MANIFEST] ...\n"
     "\n"
     "Makes what a node needs: an Ed25519 key (the node's identity, mode 0600), the run\n"
     "secret, the state directory and a commented configuration file. Prints the node id\n"
     "and what to do next. Nothing that exists is overwritten.\n"
     "\n"
     "  --dir DIR            everything in one folder: DIR/node.conf, state and sockets beside it\n"
     "  --config FILE|NAME   where the configuration goes; NAME is /etc/thinwire/NAME.conf\n"
     "  --secret-file FILE   take the secret of an existing run from FILE (- = stdin)\n"
     "  --name, --state-dir, --run-dir, --run, --data, --threads, --listen, --peers,\n"
     "  --upload             go into the configuration as the keys of the same name\n"},
    {"run",
     "thinwire run new NAME [--model MODEL] [--data TEXT] [--preset PRESET]\n"
     "                      [--set KEY=VALUE]... [--out FILE] [--steps-per-s N]\n"
     "                      [--budget 20mbit|50GB/month] [--step-time 0.8s]\n"
     "thinwire run show [FILE] [--steps-per-s N]\n"
     "thinwire run models|presets|codecs|keys [--json]\n"
     "\n"
     "`run new` writes the manifest every node of the run must have: model, data, training,\n"
     "synchronisation. What is not set follows from the preset, fitted to the model and to\n"
     "the planned number of outer steps; what was chosen and why is printed, with the bytes\n"
     "each node will send. `run show` explains a file, or the run of the daemon.\n"
     "\n"
     "  --model MODEL        a shape by name, 1m to llama-8b, with training keys that suit it;\n"
     "                       `run models` lists them with the memory training one takes here\n"
     "  --preset PRESET      how nodes merge: streaming (default), diloco, noloco, ...;\n"
     "                       `run presets` tells them apart, `run codecs` lists sync.codec\n"
     "  --data PATH          every node must train on exactly this text, or on the dataset in\n"
     "                       this folder, which sets the tokenizer and what is held out\n"
     "  --set KEY=VALUE      such as model.layers=6, train.tokens=20m, sync.nodes=8,\n"
     "                       sync.period=30; `run keys` lists every key with what it takes\n"
     "  --step-time TIME     of an inner step of a node, such as 0.8s; or --steps-per-s N. The\n"
     "                       bytes an hour follow (default 100ms), and with sync.pace=clock\n"
     "                       sync.interval or sync.period, whichever is not set: then, and\n"
     "                       with --budget, it is measured here unless it is given\n"
     "  --budget LIMIT       what a node may send (20mbit), or send and take in 30 days\n"
     "                       (50GB/month): picks sync.period and codecs that keep to it\n"},
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
    {"leave",
     "thinwire leave\n"
     "\n"
     "The daemon finishes its step, saves, says goodbye to its peers and ends; the command\n"
     "returns when it has, and `thinwire start` goes on from there. Where it cannot save (a full\n"
     "disk) it ends all the same and keeps the last one it saved: that is said, status 1. Under\n"
     "systemd use `systemctl stop`, which does the same and does not start it again.\n"},
    {"pause",
     "thinwire pause\n"
     "\n"
     "Stops training after the present step, to give the machine to something else. Links\n"
     "stay up; `thinwire resume` goes on.\n"},
    {"resume", "thinwire resume\n\nGoes on training after `thinwire pause`.\n"},
    {"owner",
     "thinwire owner new [FILE]                 a key pair; FILE is owner.key\n"
     "thinwire owner sign NODE_ID [--key FILE] [--may train,admit] [--days N] [--out FILE]\n"
     "thinwire owner revoke NODE_ID... [--key FILE] [--list FILE] [--lift]\n"
     "thinwire owner import FILE\n"
     "thinwire owner show [FILE]\n"
     "\n"
     "In a run with security.admission = owner there is no secret to share: a node is let in\n"
     "when it has a certificate that the owner's key signed, or a node that the owner lets\n"
     "admit others. `owner new` makes the key; `run new --set security.admission=owner\n"
     "--set security.owner=KEY` the manifest. Keep the key file off the nodes.\n"
     "\n"
     "`sign` writes a certificate for a node (its id stands in `thinwire status` and is printed\n"
     "by `init`), `import` gives it to this node; a running daemon takes it within seconds.\n"
     "`revoke` puts nodes on the one list of those that are out, and import gives it to any\n"
     "node: it spreads by itself, and their links end at once. Whom a revoked node admitted is\n"
     "out too. `show` explains a key, a certificate or a list; without FILE what this node has.\n"
     "\n"
     "  --key FILE       owner.key, or the identity.key of a node that may admit\n"
     "  --run FILE       the run's manifest, if not that of this node\n"
     "  --may WHAT       train (default); train,admit: it may let others in, invite and renew\n"
     "  --days N         how long it is good: 365, or 30 when a node signs, which it renews\n"
     "  --list FILE      revoke: the list to go on from, if not that of this node\n"
     "  --lift           revoke: take the nodes off the list\n"},
    {"reload",
     "thinwire reload\n"
     "\n"
     "The daemon reads its configuration again, as it does on SIGHUP, and says what it took\n"
     "over: upload, download, hours, quota, budget, pace and new peers. What else was changed\n"
     "needs a restart and is named. A file with a mistake changes nothing; the mistake is said\n"
     "with its line.\n"},
    {"limit",
     "thinwire limit [upload|download] [RATE|off]\n"
     "\n"
     "Caps the line of the running daemon: `thinwire limit 2mbit` both ways, `thinwire limit\n"
     "upload 500kbit` one way, off for no cap. Holds until the daemon starts anew; upload and\n"
     "download in the configuration hold for ever. Hours that network.hours caps or switches\n"
     "off stay so. Without a rate it says which caps are in force.\n"},
    {"unban",
     "thinwire unban NODE\n"
     "\n"
     "A node that breaks the protocol three times within an hour is left alone: for an hour, then\n"
     "for twice as long each time, at most for a week. `thinwire peers` names such nodes with "
     "what\n"
     "is left of it. Once that machine is repaired, this lifts the ban and forgets what led to "
     "it.\n"
     "NODE is its id or the beginning of it. Each node has bans of its own.\n"},
    {"doctor",
     "thinwire doctor [--patience SECONDS] [--json]\n"
     "thinwire doctor LINE      a line of `thinwire invite`, before it is used\n"
     "\n"
     "Looks at everything a node needs and says what to do where something lacks: configuration,\n"
     "manifest, key files and their modes, room and speed of the disk, clock, memory, processors,\n"
     "what the kernel lets a link do (BBR, buffers, MTU), ports, and every address of `peers`\n"
     "stage by stage: name, TCP, TLS, admission. It may run beside the daemon and changes "
     "nothing.\n"
     "\n"
     "OK is good, WARN works but could be better, FAIL will not work; - could not be looked at.\n"
     "The exit status is 1 if anything FAILs. --patience is how long a stage may take (5).\n"},
    {"config",
     "thinwire config check [FILE|NAME]   reads it and looks at every file it names\n"
     "thinwire config show [FILE|NAME]    every key with the value in force (--json)\n"
     "thinwire config example             the commented example, on standard output\n"
     "\n"
     "The file is --config, else $THINWIRE_CONFIG, else /etc/thinwire/thinwire.conf. NAME\n"
     "means /etc/thinwire/NAME.conf, the configuration of thinwired@NAME.\n"},
    {"data",
     "thinwire data prepare INPUT... --out DIR [--tokenizer FILE]\n"
     "  [--source NAME[=WEIGHT] INPUT...]...\n"
     "thinwire data info PATH [--verify] [--json] [--tokenizer FILE]\n"
     "thinwire data weigh DIR NAME=SHARE ... | size [--json]\n"
     "\n"
     "`data prepare` makes a dataset: shards of tokens that any node can check, and the index\n"
     "that names them. INPUTs are texts and .jsonl or .ndjson files, each as it is or as .gz or\n"
     ".zst, token shards of llm.c, .idx and .bin of Megatron-LM, and folders with any of these.\n"
     "It shows how far it is; stopped, it goes on when the same command is given again.\n"
     "\n"
     "  --tokenizer FILE       a tokenizer.json; else a token is a byte\n"
     "  --source NAME=WEIGHT   INPUTs behind it are a part of their own, drawn with this share\n"
     "  --field NAME           of a line of JSON that holds the text: text\n"
     "  --text UNIT            what is one document of a plain text: passages (cut at blank lines\n"
     "                         after 16 KiB), lines, or whole (the file)\n"
     "  --heldout SHARE        documents never trained on, chosen by their hash: 1%\n"
     "  --shard-tokens N       tokens of a shard: 8m\n"
     "  --threads N            that tokenise; the shards are the same with any number\n"
     "  --skip-bad             documents and files that cannot be used are counted and left out\n"
     "  --restart              what DIR has of an earlier time is removed\n"
     "  --json                 one event a line on standard output\n"
     "\n"
     "`data info` shows what training data hold: sources, tokens, documents, what is held out,\n"
     "and the beginning of some documents. PATH is a text; a file of token numbers; shards of\n"
     "llm.c, one or a folder of them (*_train_*.bin, *_val_*.bin); a pair X.idx, X.bin of\n"
     "Megatron-LM; a dataset of ours, or one of its shards. A run trains on any of these.\n"
     "\n"
     "  --verify             read everything, and check what has checksums: shards and datasets,\n"
     "                       with their tokenizer; other files have nothing to be checked by\n"
     "  --tokenizer FILE     a tokenizer.json for the samples (default: the dataset's own)\n"
     "\n"
     "`data weigh` sets the shares of a dataset's sources in what is drawn, such as prose=70%\n"
     "code=30%; `size` draws all by their tokens. The dataset is another one then, by name.\n"},
    {"train",
     "thinwire train --run MANIFEST --data TEXT [--out FILE] [--steps N] [--plan]\n"
     "thinwire train --from FILE --data TEXT [...]\n"
     "\n"
     "Trains alone, in the foreground, with the engine of a node. First it says what it will\n"
     "do: model, arithmetic, every byte it will take; what does not fit is refused before\n"
     "anything is allocated. Then one line lives: loss, gradient norm, learning rate, tokens/s,\n"
     "MFU, time left. MFU is against what this machine's matrix products alone reach, which is\n"
     "measured at the start. Steps whose gradient is not finite are skipped and counted.\n"
     "\n"
     "FILE holds parameters, optimizer and manifest (safetensors): generate, eval and export\n"
     "take it as it is. It is written at the end, on Ctrl-C, when the terminal is closed, and\n"
     "every ten minutes or --save-every steps; a save that fails on the way (a full disk) is\n"
     "told, and tried again. --from goes on from it, on the same kind of machine to the bit as\n"
     "if it had never stopped: in passes of the same size and type, which FILE tells. Where\n"
     "--compute or --micro-batch says otherwise, or the memory is too small, a line tells that\n"
     "the curve may differ in rounding. With a --run that differs from FILE's own in any key "
     "another training\n"
     "begins from its parameters; a line names the key.\n"
     "\n"
     "  --out FILE           RUN.safetensors when left out; what exists is not overwritten\n"
     "  --from FILE|FOLDER   a training to go on with, or any model to begin from\n"
     "  --plan               say what it would take, and stop\n"
     "  --steps N            stop at step N; the run's token budget when left out\n"
     "  --eval-steps N       steps between measurements on held-out text (200; 0 never)\n"
     "  --save-every N       steps between saves\n"
     "  --device DEVICE      auto, cpu, cuda or cuda:N: see `thinwire help info`\n"
     "  --compute TYPE       auto, fp32 or bf16: activations and products; masters are fp32\n"
     "  --micro-batch N      sequences of one pass; auto takes as many as help and fit\n"
     "  --recompute on|off   layers again in the backward pass instead of memory (auto)\n"
     "  --memory SIZE        most it may take, such as 8GB; what is free when left out\n"
     "  --threads N, --seed N, --part live|anchor (of a checkpoint in --from)\n"
     "  --json               events on standard output: plan, step, validation, saved,\n"
     "                       unsaved, done, interrupted\n"},
    {"info",
     "thinwire info [--device DEVICE] [--json]\n"
     "\n"
     "What a model can be computed on here, and which of it `device = auto` takes: the processor,\n"
     "and NVIDIA GPUs (compute capability 8.0 and newer) where the program was built with CUDA\n"
     "and a driver is installed; else the reason why there is none. --device asks for one: auto,\n"
     "cpu, cuda (the first) or cuda:N; the exit status is not 0 when it cannot be used.\n"
     "\n"
     "In node.conf it is `device` in [worker]; train, eval, generate and merge have --device.\n"},
    {"eval", "thinwire eval MODEL --data TEXT [--run MANIFEST] [--windows N] [--json]\n"
             "              [--part live|anchor] [--device DEVICE] [--compute TYPE]\n"
             "              [--memory SIZE] [--threads N]\n"
             "\n"
             "Loss on the held-out end of the text in nats per token with its standard error,\n"
             "perplexity, bits per byte where tokens are bytes, and tokens/s. MODEL is what\n"
             "`thinwire train` wrote, the state folder of a node (its newest whole checkpoint),\n"
             "one checkpoint (with --run), or a Hugging Face folder. --windows takes so\n"
             "many evenly spaced windows instead of all.\n"},
    {"generate",
     "thinwire generate MODEL [--run MANIFEST] [--prompt TEXT] [--tokens N] [-n SAMPLES]\n"
     "                  [--temperature T] [--top-k K] [--top-p P] [--repeat-penalty R]\n"
     "                  [--seed N] [--part live|anchor] [--device DEVICE] [--compute TYPE]\n"
     "                  [--threads N] [--json]\n"
     "\n"
     "Writes text as it is made, whole characters only; tokens/s at the end go to standard\n"
     "error. MODEL is what `thinwire train` wrote, the state folder of a node (its newest\n"
     "whole checkpoint is taken, and named), one checkpoint of it (STATE_DIR/RUN_ID/ckpt.a or\n"
     "ckpt.b.safetensors, with --run), or a Hugging Face folder, whose tokenizer.json is read;\n"
     "a model without one takes and gives token numbers.\n"
     "\n"
     "  --tokenizer FILE     a tokenizer.json\n"
     "  --temperature T      0 always takes the likeliest token (0.8)\n"
     "  --top-k K            among the K likeliest (40; 0 all)\n"
     "  --top-p P            among the fewest that have P of the probability (1: all,\n"
     "                       0: always the likeliest)\n"
     "  --repeat-penalty R   above 1 makes what the last 64 tokens said less likely (1)\n"
     "  -n, --samples N      so many texts, with seeds SEED, SEED+1, ...\n"},
    {"import",
     "thinwire import FOLDER --out FILE [--run MANIFEST] [--name NAME] [--context N]\n"
     "                [--dtype f32|bf16|f16] [--json]\n"
     "\n"
     "Makes a weights file of ours from a Hugging Face folder (config.json and safetensors, in\n"
     "one file or several), and with --run a manifest that fits it. Numbers keep their type and\n"
     "their bits. gpt2, llama, mistral, qwen2 and qwen3 are read, with tied and untied heads and\n"
     "Llama 3's scaled rotation; whatever would compute something else here is refused by name.\n"
     "Nothing is overwritten. `train --from`, `eval` and `generate` take such a folder as well.\n"
     "\n"
     "  --run MANIFEST       written too; its training keys are for going on with a trained model\n"
     "  --context N          length of a training sequence, where positions are not weights\n"
     "                       (default: what the model knows, up to 2048)\n"
     "  --name NAME          of the run (default: the folder's)\n"
     "\n"
     "The folder's tokenizer.json is for `data prepare`, generate and export (--tokenizer).\n"},
    {"merge",
     "thinwire merge FILE FILE ... [--out FILE] [--data TEXT] [--run MANIFEST] [--weights HOW]\n"
     "               [--ablate] [--part live|anchor] [--json]\n"
     "\n"
     "Averages models of one shape: state folders of the nodes of a `btm` run, files of `train`,\n"
     "imported weights. They must have begun from the same weights (model.seed) to fit together.\n"
     "\n"
     "  --data TEXT          shows the held-out loss of each and of the merge\n"
     "  --weights equal      the plain mean (default)\n"
     "  --weights loss       exp(-loss / T): one better by T nats counts e times as much;\n"
     "                       --temperature T (default 0.1)\n"
     "  --weights greedy     from the best on, takes in each that makes the mean no worse\n"
     "  --weights 2,1,1      as you say\n"
     "  --ablate             the loss of the mean without each: what that one, and the data it\n"
     "                       trained on, is worth\n"
     "  --windows N          of held-out text (default: all)\n"
     "\n"
     "The merge is written whole to --out or not at all; without it nothing is written. It\n"
     "carries the manifest of the run that all are of, or that --run names.\n"},
    {"export",
     "thinwire export FILE [--run MANIFEST] --out FOLDER [--format hf] [--shard 5GB]\n"
     "                [--dtype f32|bf16|f16] [--part live|anchor] [--json]\n"
     "thinwire export FILE [--run MANIFEST] --out FILE.gguf --format gguf [--dtype ...]\n"
     "\n"
     "Writes a model as others read it. FILE is the state folder of a node (its newest whole\n"
     "checkpoint), a file of `train`, one checkpoint (with --run), imported weights, or a Hugging "
     "Face folder.\n"
     "\n"
     "  --format hf          a folder for transformers: config.json, safetensors, tokenizer.json;\n"
     "                       files are cut at --shard (0: never)\n"
     "  --tokenizer FILE     the tokenizer.json that goes along (default: bytes as one, for a\n"
     "                       model on bytes, or the one in the folder FILE)\n"
     "  --format gguf        one file for llama.cpp and its relatives, with vocabulary and merges\n"
     "  --context N          positions to say the model knows (default: the manifest's)\n"
     "\n"
     "What is written appears whole under its name or not at all; nothing is overwritten.\n"},
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
    const enum tw_exit rc = cli_done(cli, "help", NULL);
    if (rc != TW_EXIT_OK) return rc;
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
