/* help.c - help texts: one page per command, in the style of a short man page. */
#include <string.h>

#include "base/nearest.h"
#include "daemon/cli/common/cli.h"

static const char OVERVIEW[] =
    "thinwire - train one language model on many far-apart machines\n"
    "\n"
    "Set up\n"
    "  init              make identity, run secret, folders and configuration of a node\n"
    "  invite, join      print a ticket, a line that lets a machine in; join the run of a ticket\n"
    "  start             start the daemon, in the background or as a service\n"
    "  secret            show the run secret's mark, or replace the secret\n"
    "  run new NAME      write the manifest of a new run; run show explains one\n"
    "  plan              cost of a run beforehand: bytes, time, memory, loss, for several presets\n"
    "  owner             runs with an owner: sign certificates, revoke nodes\n"
    "  run models        list models by name, and the memory that training one takes here\n"
    "  config check      check what the daemon would read; config example, config show\n"
    "\n"
    "Look\n"
    "  status            one screen: the work of this node, and how it goes (--watch)\n"
    "  peers             the other nodes, and the traffic with each\n"
    "  rounds, events    the last merges, and recent events (--follow)\n"
    "  logs              the log of daemon and worker, from the journal or its file (--follow)\n"
    "  top               the same on a terminal, live: loss, rounds, line, peers by rate\n"
    "  web               the link of a page about this node, for a browser\n"
    "  doctor            find faults here and on the way to the other nodes, with the remedy\n"
    "\n"
    "Act on the running daemon\n"
    "  checkpoint        save now; returns when the checkpoint is durable\n"
    "  pause, resume     stop and continue training; links stay up\n"
    "  leave             save, say goodbye to the peers, stop the daemon, wait for its end\n"
    "  limit             set upload and download caps until the next start\n"
    "  reload            read the configuration again\n"
    "  unban             lift the ban of a node that broke the protocol\n"
    "\n"
    "Without a daemon\n"
    "  rollback          list the generations of the model on disk; go back to one of them\n"
    "  replay            repeat a daemon's decisions, from its flight recorder; compare two\n"
    "  data              training data: data prepare, data info, data weigh\n"
    "  train             train alone, in the foreground; stop and continue at will\n"
    "  eval              loss of a model on held-out text\n"
    "  generate          text from a model\n"
    "  merge             average several models into one\n"
    "  import, export    models from and for Hugging Face, GGUF\n"
    "  info              devices here that can run a model: CPU and GPUs\n"
    "  sim               the protocol under simulated networks and faults\n"
    "\n"
    "Everywhere: --json for machines, --config FILE or NAME (also $THINWIRE_CONFIG),\n"
    "--socket PATH, --color=auto|always|never. `thinwire help COMMAND` explains a command,\n"
    "`thinwire help exit-codes` lists exit statuses.\n";

static const struct {
    const char *topic, *text;
} PAGES[] = {
    {"invite",
     "thinwire invite [--uses N] [--expires 24h] [--address HOST:PORT]...\n"
     "thinwire invite --list\n"
     "thinwire invite --revoke TICKET\n"
     "\n"
     "Prints one line, a ticket, that lets a machine into the run with `thinwire join`. The\n"
     "line holds this node's id, its addresses and a key. Anybody who has the line can use it,\n"
     "so send it like a password. The daemon counts the uses; the same machine may use a\n"
     "ticket again.\n"
     "\n"
     "  --uses N             number of machines it lets in, 1 to 64: 1\n"
     "  --expires TIME       30m, 24h, 7d: 24h\n"
     "  --address HOST:PORT  address of this node, up to four times; when left out, the\n"
     "                       addresses that the node knows (`advertise`, `listen`)\n"
     "  --list               list the tickets issued, and the machines that used them\n"
     "  --revoke TICKET      revoke a ticket, given by its line or by its name in --list;\n"
     "                       machines that used it stay in (`thinwire help secret`)\n"},
    {"join",
     "thinwire join [-] [--dir DIR] [--start] [--data TEXT] [--upload RATE] ...\n"
     "\n"
     "Makes this machine a node of the run. Asks for the line of `thinwire invite` and does\n"
     "not show it; `-` reads it from standard input. The line may be an argument too, but\n"
     "shells and sudo write arguments down, and others on the machine may see them.\n"
     "Dials the inviter, then writes identity, manifest, run secret and configuration. If it\n"
     "was interrupted, the same command continues. A dataset is fetched from the other nodes.\n"
     "A plain text that every node must have is given with --data.\n"
     "\n"
     "  --start              start the daemon too, and wait until it answers: in the background,\n"
     "                       or as thinwired@NAME for a configuration under /etc/thinwire\n"
     "  --dir DIR            everything in one folder: DIR/node.conf, state and sockets beside\n"
     "                       it\n"
     "  --config FILE|NAME   write the configuration there instead\n"
     "  --name, --state-dir, --run-dir, --data, --threads, --listen, --peers, --upload\n"
     "                       set the configuration keys of the same name\n"},
    {"start",
     "thinwire start\n"
     "\n"
     "Starts the daemon of this node and waits until it answers. For a configuration under\n"
     "/etc/thinwire it runs as thinwired@NAME, which also starts at boot. Otherwise it runs in\n"
     "the background, outlives the terminal, and writes its log beside the configuration. A\n"
     "running daemon is left alone; one that is about to end is waited for. `thinwired` itself\n"
     "runs in the foreground. `thinwire leave` stops either.\n"},
    {"secret",
     "thinwire secret [show]\n"
     "thinwire secret add [FILE]\n"
     "thinwire secret use MARK\n"
     "thinwire secret remove MARK\n"
     "\n"
     "Anybody who has the run secret may join. To shut out somebody who has it, replace it. A\n"
     "node can hold two secrets, so that no link breaks meanwhile:\n"
     "\n"
     "  1. `add` a new secret on one node; without FILE, it is drawn at random\n"
     "  2. copy the secret file of that node to the others, and `add` it there\n"
     "  3. when every node has it, `use` it on every node\n"
     "  4. `remove` the old one on every node; links that still use it are closed\n"
     "\n"
     "A running daemon follows within seconds. Tickets that were used before it saw the new\n"
     "secret become invalid. Secrets are never shown; they have marks as names. They are\n"
     "stored in STATE_DIR/run.secret, the one in use first.\n"},
    {"init",
     "thinwire init [--dir DIR] [--name NAME] [--data TEXT] [--run MANIFEST] ...\n"
     "\n"
     "Makes the files of a node: an Ed25519 key (the node's identity, mode 0600), the run\n"
     "secret, the state directory and a commented configuration file. Prints the node id and\n"
     "the next steps. Existing files are never overwritten. On a terminal it asks for\n"
     "--run, --data and --upload where they are left out.\n"
     "\n"
     "  --dir DIR            everything in one folder: DIR/node.conf, state and sockets beside\n"
     "                       it\n"
     "  --config FILE|NAME   file for the configuration; NAME is /etc/thinwire/NAME.conf\n"
     "  --secret-file FILE   take the secret of an existing run from FILE (- = stdin)\n"
     "  --name, --state-dir, --run-dir, --run, --data, --threads, --listen, --peers,\n"
     "  --upload             set the configuration keys of the same name\n"},
    {"run",
     "thinwire run new NAME [--model MODEL] [--data TEXT] [--preset PRESET]\n"
     "                      [--set KEY=VALUE]... [--out FILE] [--steps-per-s N]\n"
     "                      [--budget 20mbit|50GB/month] [--step-time 0.8s]\n"
     "thinwire run new NAME --tensors FILE|FOLDER --batch N --context N --tokens N\n"
     "                      [--train PATTERN]... [--frozen PATTERN]... [--base FILE|FOLDER] ...\n"
     "thinwire run show [FILE] [--steps-per-s N]\n"
     "thinwire run models|presets|codecs|keys [--json]\n"
     "\n"
     "`run new` writes the manifest that every node of the run must have: model, data,\n"
     "training, synchronisation. Keys that are not set follow from the preset, fitted to the\n"
     "model and to the planned number of outer steps. It prints its choices with their\n"
     "reasons, and the bytes that each node will send. `run show` explains a file, or the run\n"
     "of the daemon.\n"
     "\n"
     "  --model MODEL        a shape by name, 1m to llama-70b, with suitable training keys; `run\n"
     "                       models` lists them with the memory that training takes here\n"
     "  --preset PRESET      how nodes merge: streaming (default), diloco, noloco, ...; `run\n"
     "                       presets` compares them, `run codecs` lists sync.codec\n"
     "  --data PATH          every node must train on exactly this text, or on the dataset in\n"
     "                       this folder, which sets the tokenizer and the held-out part\n"
     "  --tensors PATH       a model of any kind, which your own trainer knows: names and shapes\n"
     "                       from this safetensors file, from the files of this folder, or from a\n"
     "                       list such as bigram.weight:256x256\n"
     "  --train, --frozen PATTERN  the tensors that are trained and merged (default: all), and\n"
     "                       those that are not, such as --train '*lora_*'\n"
     "  --base PATH          weights below them, such as the model below adapters; their SHA-256\n"
     "                       goes into the manifest\n"
     "  --batch, --context, --tokens, --nodes  short for --set train.batch=, model.context=,\n"
     "                       train.tokens=, sync.nodes=\n"
     "  --set KEY=VALUE      such as model.layers=6, train.tokens=20m, sync.nodes=8,\n"
     "                       sync.period=30; `run keys` lists every key with its values\n"
     "  --step-time TIME     time of an inner step of a node, such as 0.8s; or --steps-per-s N.\n"
     "                       It gives the bytes per hour (default 100ms), and with\n"
     "                       sync.pace=clock the one of sync.interval and sync.period that is\n"
     "                       not set. In that case, and with --budget, it is measured here\n"
     "                       unless it is given\n"
     "  --budget LIMIT       upload of a node (20mbit), or its upload and download in 30 days\n"
     "                       (50GB/month): picks sync.period and codecs that stay below it\n"},
    {"plan",
     "thinwire plan [--model MODEL] [--nodes N] [--upload RATE] [--download RATE]\n"
     "              [--rtt TIME] [--step-time TIME | --tokens-per-s N] [--budget LIMIT]\n"
     "              [any option of `run new`] [--json]\n"
     "thinwire plan FILE [--upload RATE] ...\n"
     "\n"
     "The cost of a run before it starts, for several presets, periods and codecs: bytes a\n"
     "day, share of the line, time of a round, time lost to merging, memory, and the loss above\n"
     "one big batch. It recommends one and prints the command that makes it. FILE is a\n"
     "manifest. With --preset, only that preset is varied. Keys that are set stay as they are.\n"
     "\n"
     "  --upload, --download RATE  the line of a node, such as 20mbit; not given: fast\n"
     "  --rtt TIME           from a node to another and back (50ms)\n"
     "  --step-time TIME     of an inner step of a node, or --tokens-per-s N of a node; measured\n"
     "                       here unless it is given\n"
     "  --budget LIMIT       as in `run new`; rows above it are marked\n"},
    {"status",
     "thinwire status [--watch] [--every SECONDS] [--json]\n"
     "\n"
     "One screen: a sentence about the node's activity, warnings with their remedy, then\n"
     "details. Three numbers count peers: known (in the member table), alive (heard from\n"
     "within 6 s) and mixed in lately (their training entered our model within the last\n"
     "rounds). The anchor is the last agreed model. Validation loss is measured on text that\n"
     "is never trained on. \"Busy training\" is 1 - time spent synchronising / time.\n"},
    {"peers",
     "thinwire peers [--watch] [--json]\n"
     "\n"
     "One peer per two lines: link (alive, up, dialing, known, refused), node id, state, inner\n"
     "step, round trip time, bytes sent and received, time since it was last heard from. Below\n"
     "that are its address and the reason why it is not linked.\n"},
    {"rounds",
     "thinwire rounds [--watch] [--json]\n"
     "\n"
     "The last committed merges: fragment, number of roster members that contributed, payload\n"
     "bytes through this node, time from opening to commit.\n"},
    {"ledger",
     "thinwire ledger [--watch] [--json]\n"
     "\n"
     "The part of each node in the run, by the committed rounds that this node saw: tokens and\n"
     "their share, rounds with its work, merged parts that it owned and their bytes. The numbers "
     "of\n"
     "a round are signed by its members. Rounds that this node took over as state, without\n"
     "their records, are unseen and not in the sums. In a run in pairs there are no such "
     "records.\n"},
    {"events",
     "thinwire events [--watch] [--json]\n"
     "thinwire events --follow [--json]\n"
     "\n"
     "Recent events, newest last. The daemon's log has all of them (`thinwire logs`).\n"
     "\n"
     "  -f, --follow         print each new event as it comes, until Ctrl-C, with --json as one\n"
     "                       object per line. A daemon that ends is waited for: its next start\n"
     "                       goes on with boot + 1 and events from id 1\n"},
    {"logs",
     "thinwire logs [--follow] [--lines N] [--json]\n"
     "\n"
     "The log of the daemon and of its worker. For a node under /etc/thinwire it is the journal "
     "of\n"
     "thinwired@NAME and thinwire-worker@NAME; otherwise the file `log` beside the configuration,\n"
     "which `thinwire start` has it written to.\n"
     "\n"
     "  -f, --follow         go on with new lines until Ctrl-C, over restarts\n"
     "  -n, --lines N        begin with the last N lines: 50\n"
     "  --json               one object per line: ts, level, ev and the keys of that event, all "
     "as\n"
     "                       text; a line of another form is its `text`\n"},
    {"top",
     "thinwire top\n"
     "\n"
     "The node on a terminal of 60 columns and 12 rows or more, drawn anew every second: "
     "sentence,\n"
     "worst warning, curve of the loss, rounds with and without this node's work, line, peers.\n"
     "\n"
     "  q           quit\n"
     "  s           sort the peers by link, rate, round trip or step\n"
     "  up, down    scroll the peers (also k, j)\n"
     "\n"
     "NO_COLOR and --color=never are kept. `thinwire status --watch` needs no such terminal.\n"},
    {"web",
     "thinwire web [--json]\n"
     "\n"
     "Prints the link of the page: loss, rounds, peers, budget and warnings, as `thinwire status`\n"
     "and `thinwire peers` have them. The page is off until `web = 127.0.0.1:9748` is set in\n"
     "[api]. It changes nothing, and it loads nothing from elsewhere. The link holds a token that\n"
     "each start of the daemon makes anew; anybody with the link may read. Only root and the\n"
     "daemon's user get it.\n"
     "\n"
     "For a machine that you reach by ssh, first `ssh -L 9748:localhost:9748 MACHINE`.\n"},
    {"checkpoint",
     "thinwire checkpoint\n"
     "thinwire checkpoint --run [--watch] [--json]\n"
     "\n"
     "Saves the node's state now and returns when it is on disk. Only root and the daemon's\n"
     "user may do that.\n"
     "\n"
     "With --run it saves nothing and says which nodes hold the same committed version of the\n"
     "model now: number of rounds, and digest of the newest round record. Each linked node tells\n"
     "its own once a second. The nodes do not tell which versions are on their disks; the\n"
     "newest checkpoint of this node is named.\n"},
    {"leave",
     "thinwire leave\n"
     "\n"
     "The daemon finishes its step, saves, says goodbye to its peers and ends. The command\n"
     "returns when it has ended; `thinwire start` continues from the checkpoint. If the\n"
     "checkpoint cannot be saved (for example, the disk is full), the daemon keeps the\n"
     "previous one and ends; the command says so and exits with status 1. Under systemd use\n"
     "`systemctl stop`, which does the same and does not start it again.\n"},
    {"pause",
     "thinwire pause\n"
     "thinwire pause --run [--key FILE] [--list FILE] [--manifest FILE]\n"
     "\n"
     "Stops training, to free the machine for other work: a step of more than 0.4 s is given up\n"
     "and taken again later. After two minutes the worker's memory is given back, and the links\n"
     "rest. `thinwire resume` continues.\n"
     "\n"
     "--run pauses all nodes of a run with an owner, also those that link later. The order is an\n"
     "entry of the list that `thinwire owner revoke` signs, and spreads with it. `thinwire resume\n"
     "--run` ends it; `resume` on a node alone does not. In other runs no node obeys another.\n"
     "\n"
     "  --key FILE       the owner's key (owner.key)\n"
     "  --list FILE      the list to change, if not that of this node\n"
     "  --manifest FILE  the run's manifest, if not that of this node\n"},
    {"resume",
     "thinwire resume\n"
     "thinwire resume --run [--key FILE] [--list FILE] [--manifest FILE]\n"
     "\n"
     "Continues training after `thinwire pause`. If worker.hours or worker.yield still hold it,\n"
     "or the owner of the run, the command says so. --run continues it in the whole run, as\n"
     "`thinwire help pause` explains.\n"},
    {"owner",
     "thinwire owner new [FILE]                 a key pair; FILE is owner.key\n"
     "thinwire owner sign NODE_ID [--key FILE] [--may train,admit] [--days N] [--out FILE]\n"
     "thinwire owner revoke NODE_ID... [--key FILE] [--list FILE] [--lift]\n"
     "thinwire owner recall ROUND [--key FILE] [--lineage ID] [--out FILE]\n"
     "thinwire owner import FILE\n"
     "thinwire owner show [FILE]\n"
     "\n"
     "In a run with security.admission = owner there is no secret to share. A node is admitted\n"
     "if its certificate is signed by the owner's key, or by a node that the owner lets admit\n"
     "others. `owner new` makes the key; `run new --set security.admission=owner --set\n"
     "security.owner=KEY` makes the manifest. Keep the key file off the nodes.\n"
     "\n"
     "`sign` writes a certificate for a node; `thinwire status` shows its id, and `init`\n"
     "prints it. `import` gives the certificate to this node; a running daemon applies it\n"
     "within seconds. `revoke` adds nodes to the run's list of revoked nodes. `import` gives\n"
     "that list to any node: it spreads by itself, and the links of revoked nodes end at once.\n"
     "Nodes that a revoked node admitted are revoked too. `recall` returns the run to a round of\n"
     "which this node has a checkpoint (`thinwire rollback` lists them): every node begins anew\n"
     "with that state, its own or that of another node. `show` explains a key, a certificate, a\n"
     "list or a recall; without FILE, it shows those of this node.\n"
     "\n"
     "  --key FILE       owner.key, or the identity.key of a node that may admit\n"
     "  --run FILE       the run's manifest, if not that of this node\n"
     "  --may WHAT       train (default); train,admit: it may also admit nodes, invite and renew\n"
     "  --days N         validity in days: 365, or 30 if a node signs, which also renews it\n"
     "  --list FILE      revoke: the list to extend, if not that of this node\n"
     "  --lift           revoke: remove the nodes from the list\n"
     "  --lineage ID     recall: the lineage of the round, if the checkpoint is on another node\n"
     "  --out FILE       sign, recall: write to FILE, for `import` on a node\n"},
    {"reload",
     "thinwire reload\n"
     "\n"
     "The daemon reads its configuration again, as it does on SIGHUP. It applies upload,\n"
     "download, hours, quota, budget, pace and new peers, hours and yield of the worker, and\n"
     "reports them. Other changed keys need a restart and are listed. A file with an error\n"
     "changes nothing; the error is reported with its line.\n"},
    {"limit",
     "thinwire limit [upload|download] [RATE|off]\n"
     "\n"
     "Caps the line of the running daemon: `thinwire limit 2mbit` in both directions,\n"
     "`thinwire limit upload 500kbit` in one; off removes the cap. The cap holds until the\n"
     "daemon restarts; upload and download in the configuration are permanent. The caps of\n"
     "network.hours still apply in their hours. Without a rate, it shows the caps in force.\n"},
    {"unban",
     "thinwire unban NODE\n"
     "\n"
     "A node that breaks the protocol three times within an hour is banned: for an hour, then\n"
     "for twice as long each time, at most for a week. `thinwire peers` lists banned nodes\n"
     "with the time left. Once that machine is repaired, this command lifts the ban and\n"
     "forgets its cause. NODE is its id or the beginning of it. Each node keeps its own bans.\n"},
    {"replay",
     "thinwire replay [LOG]                   repeat every decision, and check it\n"
     "thinwire replay [LOG] --at TIME|#EVENT  the state of the node at a moment\n"
     "thinwire replay LOG --against LOG       the first decision in which two nodes differ\n"
     "\n"
     "A daemon keeps a bounded log of everything that its protocol core hears: STATE_DIR/RUN/\n"
     "recorder, `recorder` in [node] of the configuration. The same core repeats it here, and "
     "must\n"
     "act as it did. LOG is such a folder or one of its files; left out, it is that of the node\n"
     "that --config selects. The daemon may run meanwhile. Like a core dump, a log is only for "
     "the\n"
     "version that wrote it, and a log of somebody that you do not trust is not safe to replay. "
     "It\n"
     "has addresses and ids, and neither keys nor weights.\n"
     "\n"
     "  --at TIME        14:03:22 or 2026-11-27T14:03:22 in UTC, or #NUMBER of an event\n"
     "  --lines N        with --at: lines of events and actions before it (30); -> is an action\n"
     "  --json           for machines; not with --at\n"
     "\n"
     "Exit status 1: the actions are not as recorded, or the two nodes differ.\n"},
    {"rollback",
     "thinwire rollback                       list the generations on disk (--json)\n"
     "thinwire rollback ROUND|FILE [--yes]    go back to one of them\n"
     "\n"
     "For a run whose model was spoilt, by a lie or by a mistake. The daemon must not run. FILE\n"
     "is `pinned`, `a`, `b` or `undone`: `pinned` is from before the newest change of the\n"
     "anchor that this node found wild or harmful. ROUND is the number of a listed round.\n"
     "The work since then is lost; the list says how many steps that is.\n"
     "\n"
     "This node then begins a lineage of its own at that round, and refuses the lineages that\n"
     "it was in: it neither continues nor follows them, however far they are. A node that has\n"
     "not gone back stays there, so the operators of the other nodes do the same. The rolled\n"
     "back nodes find together again by themselves. The newest generation is kept as\n"
     "`undone`. To follow an old lineage again, remove its line from the file `refused` in the\n"
     "folder that the list names.\n"},
    {"doctor",
     "thinwire doctor [--patience SECONDS] [--json]\n"
     "thinwire doctor -         a line of `thinwire invite`, before it is used; it is asked for,\n"
     "                          or read from standard input\n"
     "\n"
     "Checks everything that a node needs and gives the remedy for each fault: configuration,\n"
     "manifest, key files and their modes, space and speed of the disk, clock, memory,\n"
     "processors, kernel settings for links (BBR, buffers, MTU), ports, and every address of\n"
     "`peers` stage by stage: name, TCP, TLS, admission. It may run beside the daemon and\n"
     "changes nothing.\n"
     "\n"
     "OK is good, WARN works but could be better, FAIL will not work; - could not be checked.\n"
     "The exit status is 1 if anything FAILs. --patience is the time limit of a stage (5).\n"},
    {"config",
     "thinwire config check [FILE|NAME]   check the file, every file it names, and every\n"
     "                                    address that it would listen on\n"
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
     "`data prepare` makes a dataset: shards of tokens that any node can check, and an index\n"
     "of them. INPUTs are texts, JSON Lines, JSON arrays, tar archives of texts (one document\n"
     "per member; WebDataset), each plain or packed by gzip or zstd, token shards of llm.c,\n"
     ".idx and .bin of Megatron-LM, and folders with any of these. The content of a file decides\n"
     "how it is read, and the report says it. Files that are no text are refused by name. It\n"
     "shows its progress. If it was stopped, the same command continues.\n"
     "\n"
     "  --tokenizer FILE       a tokenizer.json; else a token is a byte\n"
     "  --eos TOKEN            the token that ends a document, as text or number (default: the\n"
     "                         one of tokenizer_config.json or config.json beside it)\n"
     "  --source NAME=WEIGHT   the INPUTs after it form a source, drawn with this share\n"
     "  --field NAME           field of a JSON object that holds the text: text\n"
     "  --text UNIT            one document of a plain text: passages (cut at blank lines after\n"
     "                         16 KiB), lines, or whole (the file)\n"
     "  --plain                read JSON, CSV, HTML and XML as plain text, with their syntax\n"
     "  --heldout SHARE        documents never trained on, chosen by their hash: 1%\n"
     "  --shard-tokens N       tokens of a shard: 8m\n"
     "  --threads N            threads that tokenise; the shards do not depend on it\n"
     "  --skip-bad             count unusable documents and files, and leave them out\n"
     "  --restart              remove the earlier contents of DIR\n"
     "  --json                 one event per line on standard output\n"
     "\n"
     "`data info` shows the contents of training data: sources, tokens, documents, the\n"
     "held-out part, and the beginning of some documents. PATH is a text; a file of token\n"
     "numbers; shards of llm.c, one or a folder of them (*_train_*.bin, *_val_*.bin); a pair\n"
     "X.idx, X.bin of Megatron-LM; a dataset of ours, or one of its shards. A run trains on\n"
     "any of these.\n"
     "\n"
     "  --verify             read everything, and check the data that have checksums: shards and\n"
     "                       datasets, with their tokenizer; other files have none\n"
     "  --tokenizer FILE     a tokenizer.json for the samples (default: the dataset's own)\n"
     "\n"
     "`data weigh` sets the shares with which a dataset's sources are drawn, such as prose=70%\n"
     "code=30%; `size` draws each in proportion to its tokens. The dataset then has another\n"
     "SHA-256, so it is another dataset for manifests.\n"},
    {"train",
     "thinwire train --run MANIFEST --data TEXT [--out FILE] [--steps N] [--plan]\n"
     "thinwire train --from FILE --data TEXT [...]\n"
     "\n"
     "Trains alone, in the foreground, with the engine of a node. First it prints its plan:\n"
     "model, arithmetic, and every byte of memory. A model that does not fit is refused before\n"
     "anything is allocated. Then one line is updated: loss, gradient norm, learning rate,\n"
     "tokens/s, MFU, time left. MFU is relative to the speed of this machine's matrix\n"
     "products, which is measured at the start. Steps with a gradient that is not finite are\n"
     "skipped and counted.\n"
     "\n"
     "FILE holds parameters, optimizer and manifest (safetensors); generate, eval and export\n"
     "read it directly. It is written at the end, on Ctrl-C, when the terminal is closed, and\n"
     "every ten minutes or --save-every steps. If such a save fails (for example, the disk is\n"
     "full), it is reported and tried again.\n"
     "\n"
     "--from continues a training. On the same kind of machine the result is the same to the\n"
     "bit as without a stop, because FILE records the size and type of passes. If --compute or\n"
     "--micro-batch differs, or the memory is too small, a line says that the curve may differ\n"
     "in rounding. If --run differs from FILE's manifest in any key, a new training begins\n"
     "from FILE's parameters; a line names the key.\n"
     "\n"
     "  --out FILE           RUN.safetensors when left out; existing files are not overwritten\n"
     "  --from FILE|FOLDER   a training to continue, or any model to begin from\n"
     "  --plan               print the plan, and stop\n"
     "  --steps N            stop at step N; the run's token budget when left out\n"
     "  --eval-steps N       steps between measurements on held-out text (200; 0 never)\n"
     "  --save-every N       steps between saves\n"
     "  --device DEVICE      auto, cpu, cuda or cuda:N: see `thinwire help info`\n"
     "  --compute TYPE       auto, fp32 or bf16: activations and products; masters are fp32\n"
     "  --micro-batch N      sequences per pass; auto: as many as help and fit\n"
     "  --recompute on|off   recompute layers in the backward pass to save memory (auto)\n"
     "  --memory SIZE        memory limit, such as 8GB; the free memory when left out\n"
     "  --threads N, --seed N, --part live|anchor (of a checkpoint in --from)\n"
     "  --json               events on standard output: plan, step, validation, saved, unsaved,\n"
     "                       done, interrupted\n"},
    {"info",
     "thinwire info [--device DEVICE] [--json]\n"
     "\n"
     "Devices here that can run a model, and the one that `device = auto` takes: the CPU, and\n"
     "NVIDIA GPUs (compute capability 8.0 and newer) if the program was built with CUDA and a\n"
     "driver is installed; otherwise the reason why there is none. --device checks one: auto,\n"
     "cpu, cuda (the first) or cuda:N; the exit status is not 0 if it is unusable.\n"
     "\n"
     "In node.conf it is `device` in [worker]; train, eval, generate and merge have --device.\n"},
    {"eval",
     "thinwire eval MODEL --data TEXT [--run MANIFEST] [--windows N] [--json]\n"
     "              [--part live|anchor] [--device DEVICE] [--compute TYPE]\n"
     "              [--memory SIZE] [--threads N]\n"
     "\n"
     "Loss on the held-out end of the text in nats per token with its standard error,\n"
     "perplexity, bits per byte if tokens are bytes, and tokens/s. MODEL is a file of\n"
     "`thinwire train`, the state folder of a node (its newest intact checkpoint is used), one\n"
     "checkpoint (with --run), or a Hugging Face folder. --windows uses N evenly spaced\n"
     "windows instead of all.\n"},
    {"generate",
     "thinwire generate MODEL [--run MANIFEST] [--prompt TEXT] [--tokens N] [-n SAMPLES]\n"
     "                  [--temperature T] [--top-k K] [--top-p P] [--repeat-penalty R]\n"
     "                  [--seed N] [--part live|anchor] [--device DEVICE] [--compute TYPE]\n"
     "                  [--threads N] [--eos TOKEN] [--json]\n"
     "\n"
     "Writes text as it is generated, in whole characters; tokens/s at the end go to standard\n"
     "error. MODEL is a file of `thinwire train`, the state folder of a node (its newest\n"
     "intact checkpoint is used, and named), one checkpoint of it (STATE_DIR/RUN_ID/ckpt.a or\n"
     "ckpt.b.safetensors, with --run), or a Hugging Face folder, whose tokenizer.json is read.\n"
     "A model without a tokenizer takes and gives token numbers.\n"
     "\n"
     "  --tokenizer FILE     a tokenizer.json\n"
     "  --eos TOKEN          stop at this token, given as text or number (default: the tokens\n"
     "                       that generation_config.json or config.json names)\n"
     "  --temperature T      0 always takes the likeliest token (0.8)\n"
     "  --top-k K            sample from the K likeliest (40; 0 all)\n"
     "  --top-p P            sample from the fewest tokens that have P of the probability (1:\n"
     "                       all, 0: always the likeliest)\n"
     "  --repeat-penalty R   above 1 makes the last 64 tokens less likely (1)\n"
     "  -n, --samples N      number of texts, with seeds SEED, SEED+1, ...\n"},
    {"import",
     "thinwire import FOLDER --out FILE [--run MANIFEST] [--name NAME] [--context N]\n"
     "                [--dtype f32|bf16|f16] [--json]\n"
     "\n"
     "Makes a weights file of ours from a Hugging Face folder (config.json and safetensors, in\n"
     "one file or several), and with --run a manifest that fits it. Numbers keep their type\n"
     "and their bits. It reads gpt2, llama, mistral, qwen2 and qwen3, with tied and untied\n"
     "heads and Llama 3's scaled rotation. A model that would compute something else here is\n"
     "refused with the reason. Nothing is overwritten. `train --from`, `eval` and `generate`\n"
     "also read such a folder directly.\n"
     "\n"
     "  --run MANIFEST       write it too; its training keys suit further training of a model\n"
     "  --context N          length of a training sequence, if positions are not weights\n"
     "                       (default: the model's own, up to 2048)\n"
     "  --name NAME          name of the run (default: the folder's)\n"
     "\n"
     "The folder's tokenizer.json is for `data prepare`, generate and export (--tokenizer).\n"},
    {"merge",
     "thinwire merge FILE FILE ... [--out FILE] [--data TEXT] [--run MANIFEST] [--weights HOW]\n"
     "               [--ablate] [--part live|anchor] [--json]\n"
     "\n"
     "Averages models of one shape: state folders of the nodes of a `btm` run, files of\n"
     "`train`, imported weights. They fit together only if they began from the same weights\n"
     "(model.seed).\n"
     "\n"
     "  --data TEXT          show the held-out loss of each model and of the merge\n"
     "  --weights equal      the plain mean (default)\n"
     "  --weights loss       exp(-loss / T): one better by T nats counts e times as much;\n"
     "                       --temperature T (default 0.1)\n"
     "  --weights greedy     begin with the best, add each model that makes the mean no worse\n"
     "  --weights 2,1,1      these weights\n"
     "  --ablate             the loss of the mean without each model, which shows the value of\n"
     "                       that model and its data\n"
     "  --windows N          windows of held-out text (default: all)\n"
     "\n"
     "The merge is written completely to --out or not at all; without --out nothing is\n"
     "written. It has the manifest of the run that all models belong to, or the one given by\n"
     "--run.\n"},
    {"export",
     "thinwire export FILE [--run MANIFEST] --out FOLDER [--format hf] [--shard 5GB]\n"
     "                [--dtype f32|bf16|f16] [--part live|anchor] [--json]\n"
     "thinwire export FILE [--run MANIFEST] --out FILE.gguf --format gguf [--dtype ...]\n"
     "\n"
     "Writes a model for other programs. FILE is the state folder of a node (its newest intact\n"
     "checkpoint is used), a file of `train`, one checkpoint (with --run), imported weights,\n"
     "or a Hugging Face folder.\n"
     "\n"
     "  --format hf          a folder for transformers: config.json, safetensors, tokenizer.json\n"
     "                       and files that name the end of a text; files are cut at --shard\n"
     "                       (0: never)\n"
     "  --tokenizer FILE     the tokenizer.json to add (default: for a model on bytes, bytes as\n"
     "                       tokens; else the one in the folder FILE)\n"
     "  --eos TOKEN          the token that ends a text, as text or number (default: the\n"
     "                       ones named by files of the model or beside the tokenizer)\n"
     "  --format gguf        one file for llama.cpp and its relatives, with vocabulary and\n"
     "                       merges\n"
     "  --context N          context length to record (default: the manifest's)\n"
     "\n"
     "For a run of any model (`run new --tensors`) --out is one safetensors file with the names\n"
     "of its tensors.\n"
     "The output appears completely under its name or not at all; nothing is overwritten.\n"},
    {"sim",
     "thinwire sim --seed S --nodes N --hours H [--json]\n"
     "\n"
     "The real protocol core under virtual time with delays, losses, partitions, crashes and\n"
     "slow nodes. The same arguments give the same output.\n"},
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
