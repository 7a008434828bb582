/* thinwire-engine import and export: converts models to and from the formats of other programs. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/page.h"
#include "base/units.h"
#include "proto/run/run_key.h"
#include "worker/cli/engine_verb.h"
#include "worker/files/gguf_write.h"
#include "worker/files/hf_config.h"
#include "worker/files/hf_write.h"
#include "worker/files/model_source.h"
#include "worker/files/train_file.h"
#include "worker/support/out_file.h"
#include "worker/support/progress.h"
#include "worker/support/signals.h"

/* ---- command line ---------------------------------------------------------------------------- */

struct convert {
    const char *from, *run, *out, *name, *context, *format, *dtype, *shard, *part, *tokenizer, *eos,
        *adapter;
    const char *node; /* state folder of the node that `thinwire` means without a file, or NULL */
    bool json;
};

static enum tw_status parse(struct convert *convert, const char *verb, int argc, char **argv,
                            struct tw_error *err) {
    const bool is_import = strcmp(verb, "import") == 0;
    const struct {
        const char *name;
        const char **value;
        bool is_known;
    } OPTIONS[] = {
        {"--run", &convert->run, true},
        {"--out", &convert->out, true},
        {"--dtype", &convert->dtype, true},
        {"--name", &convert->name, is_import},
        {"--context", &convert->context, true},
        {"--format", &convert->format, !is_import},
        {"--shard", &convert->shard, !is_import},
        {"--part", &convert->part, !is_import},
        {"--tokenizer", &convert->tokenizer, !is_import},
        {"--eos", &convert->eos, !is_import},
        {"--adapter", &convert->adapter, !is_import},
        {"--node", &convert->node, !is_import},
    };
    enum { COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };
    for (int i = 2; i < argc; i++) {
        const size_t size = strcspn(argv[i], "=");
        unsigned k = 0;
        while (k < COUNT && !(OPTIONS[k].is_known && strlen(OPTIONS[k].name) == size &&
                              strncmp(OPTIONS[k].name, argv[i], size) == 0)) {
            k++;
        }
        if (k < COUNT && argv[i][size] == '=') {
            *OPTIONS[k].value = argv[i] + size + 1;
        } else if (k < COUNT && i + 1 < argc) {
            *OPTIONS[k].value = argv[++i];
        } else if (k < COUNT) {
            return tw_fail(err, TW_CONFIG, "%s wants a value", argv[i]);
        } else if (strcmp(argv[i], "--json") == 0) {
            convert->json = true;
        } else if (argv[i][0] != '-' && convert->from == NULL) {
            convert->from = argv[i];
        } else {
            const char *names[COUNT];
            unsigned count = 0;
            for (k = 0; k < COUNT; k++) {
                if (OPTIONS[k].is_known) names[count++] = OPTIONS[k].name;
            }
            const char *const near = tw_nearest(argv[i], names, count);
            return tw_fail(err, TW_CONFIG, "%s: `%s` is unknown%s%s; see `thinwire help %s`", verb,
                           argv[i], near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                           verb);
        }
    }
    if (convert->from == NULL) convert->from = convert->node;
    return TW_OK;
}

static enum tw_status parse_dtype(const char *text, enum tw_dtype *dtype, struct tw_error *err) {
    static const struct {
        const char *name;
        enum tw_dtype dtype;
    } DTYPES[] = {{"f32", TW_DTYPE_F32}, {"bf16", TW_DTYPE_BF16}, {"f16", TW_DTYPE_F16}};
    for (unsigned i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, DTYPES[i].name) != 0) continue;
        *dtype = DTYPES[i].dtype;
        return TW_OK;
    }
    return text == NULL ? TW_OK
                        : tw_fail(err, TW_CONFIG, "--dtype %s: it is f32, bf16 or f16", text);
}

static const char *dtype_word(enum tw_dtype dtype) {
    if (dtype == TW_DTYPE_BF16) return "bf16";
    return dtype == TW_DTYPE_F16 ? "f16" : "f32";
}

/* ---- progress -------------------------------------------------------------------------------- */

static void show_more(void *user, uint64_t count) {
    struct tw_progress *const progress = user;
    tw_progress_show(progress, progress->done + count, engine_now_s());
}

static struct tw_progress watch(const struct convert *convert, uint64_t params) {
    return (struct tw_progress){.is_shown = isatty(STDERR_FILENO) == 1 && !convert->json,
                                .unit = "parameters",
                                .what = tw_tensor_file_base(convert->out),
                                .all = params,
                                .begin_s = engine_now_s()};
}

static struct tw_model_feed feed_of(const struct tw_run *run, const struct tw_layout *layout,
                                    struct tw_model_source *source, struct tw_progress *progress) {
    return (struct tw_model_feed){.run = run,
                                  .layout = layout,
                                  .source = source,
                                  .is_interrupted = tw_signals_wanted,
                                  .progress = show_more,
                                  .user = progress};
}

/* ---- import ---------------------------------------------------------------------------------- */

/* Sets name to the last component of a path: "models/SmolLM/" gives "SmolLM". */
static void default_name(const char *path, char name[64]) {
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    (void)snprintf(name, 64, "%.*s", (int)(end - begin < 63 ? end - begin : 63), path + begin);
}

static enum tw_status parse_context(const char *text, uint32_t *context, struct tw_error *err) {
    *context = 0;
    if (text == NULL) return TW_OK;
    char *end;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || value < 2 ||
        value > 1u << 20) {
        return tw_fail(err, TW_CONFIG, "--context %s: a whole number from 2 to 1048576", text);
    }
    *context = (uint32_t)value;
    return TW_OK;
}

static enum tw_status write_manifest(const char *path, const struct tw_run *run,
                                     struct tw_error *err) {
    char text[TW_MANIFEST_BYTES_MAX];
    size_t size = 0;
    struct tw_out_file file;
    tw_run_write(run, text, &size);
    TW_TRY(tw_out_open(&file, path, size, err));
    const enum tw_status status = tw_out_write(&file, text, size, err);
    if (status == TW_OK) return tw_out_commit(&file, err);
    tw_out_abort(&file);
    return status;
}

static void tell_import(const struct convert *convert, const struct tw_run *run, uint64_t params,
                        uint64_t bytes, uint32_t known) {
    char count[TW_UNITS_BYTES], size[TW_UNITS_BYTES];
    if (convert->json) {
        (void)printf("{\"name\": \"%s\", \"parameters\": %llu, \"bytes\": %llu, \"context\": %u, "
                     "\"positions\": %u}\n",
                     run->name, (unsigned long long)params, (unsigned long long)bytes,
                     run->model.context, known);
        return;
    }
    (void)printf("%s: %s, %u layer%s, width %u, %s parameters\n", run->name,
                 tw_run_key_word("model.family", run), run->model.layers,
                 tw_units_s(run->model.layers), run->model.width,
                 tw_units_short(count, (double)params));
    (void)printf("weights   %s (%s)\n", convert->out, tw_units_bytes(size, (double)bytes));
    if (convert->run != NULL) (void)printf("manifest  %s\n", convert->run);
    if (run->model.context < known) {
        (void)printf(
            "\nThe model knows %u positions; model.context is %u, the length of a training "
            "sequence:\nchange it in the manifest or give --context. export keeps its positions "
            "with "
            "--tokenizer\nFOLDER/tokenizer.json (beside its config.json).\n",
            known, run->model.context);
    }
    if (run->data.tokenizer == TW_TOKENIZER_IDS && run->model.vocab == 256) {
        (void)printf("\nNo tokenizer.json says that its 256 tokens are bytes. If they are, set "
                     "data.tokenizer = bytes\nin the manifest.\n");
    } else if (run->data.tokenizer == TW_TOKENIZER_IDS) {
        (void)printf("\nIts tokenizer.json stays where it is: `data prepare`, generate and export "
                     "take it with\n--tokenizer.\n");
    }
    if (convert->run == NULL) {
        (void)printf("\nNo manifest was written: --run FILE makes one that fits.\n");
    } else {
        (void)printf("\nThe training keys of the manifest are for continuing a trained model "
                     "(train.lr = %g);\nedit them before the first step.\n",
                     run->train.lr_millionths / 1e6);
    }
}

static enum tw_status do_import(const struct convert *convert, struct tw_model_source *source,
                                struct tw_error *err) {
    static struct tw_run run;
    static struct tw_layout layout;
    char name[64];
    uint32_t context = 0, known = 0;
    uint64_t bytes = 0;
    enum tw_dtype dtype = (enum tw_dtype)TW_FEED_KEEP;
    TW_TRY(parse_dtype(convert->dtype, &dtype, err));
    TW_TRY(parse_context(convert->context, &context, err));
    TW_TRY(tw_out_is_free(convert->out, err));
    if (convert->run != NULL) TW_TRY(tw_out_is_free(convert->run, err));
    if (convert->run != NULL && strcmp(convert->run, convert->out) == 0) {
        return tw_fail(err, TW_CONFIG,
                       "--run and --out name one file, %s: weights and manifest "
                       "are two",
                       convert->out);
    }
    TW_TRY(tw_model_source_open(source, convert->from, err));
    default_name(convert->from, name);
    TW_TRY(tw_engine_manifest_make(source, convert->name != NULL ? convert->name : name, context,
                                   &run, &known, err));
    TW_TRY(tw_layout_init(&layout, &run, err));
    TW_TRY(tw_model_source_bind(source, &layout, "live", err));
    struct tw_progress progress = watch(convert, layout.params);
    const struct tw_model_feed feed = feed_of(&run, &layout, source, &progress);
    const enum tw_status written = tw_hf_write_file(convert->out, &feed, dtype, &bytes, err);
    tw_progress_end(&progress);
    TW_TRY(written);
    if (convert->run != NULL) {
        const enum tw_status status = write_manifest(convert->run, &run, err);
        if (status != TW_OK) (void)unlink(convert->out); /* leaves both files or none */
        TW_TRY(status);
    }
    tell_import(convert, &run, layout.params, bytes, known);
    return TW_OK;
}

/* ---- export ---------------------------------------------------------------------------------- */

static void tell_export(const struct convert *convert, const char *format,
                        const struct tw_hf_folder *folder, uint64_t params, bool has_words) {
    const uint32_t files = folder->files_count;
    char count[TW_UNITS_BYTES], size[TW_UNITS_BYTES];
    if (convert->json) {
        (void)printf("{\"format\": \"%s\", \"dtype\": \"%s\", \"parameters\": %llu, \"bytes\": "
                     "%llu, \"files\": %u, \"vocabulary\": %s}\n",
                     format, dtype_word(folder->dtype), (unsigned long long)params,
                     (unsigned long long)folder->bytes, files, has_words ? "true" : "false");
        return;
    }
    (void)printf("%s: %s parameters as %s, %s in %u file%s\n", convert->out,
                 tw_units_short(count, (double)params), dtype_word(folder->dtype),
                 tw_units_bytes(size, (double)folder->bytes), files, files == 1 ? "" : "s");
}

/* If --from is a node's state folder, selects the checkpoint to export. */
static enum tw_status take_state(struct convert *convert, struct tw_error *err) {
    static struct tw_state_found found;
    return engine_take_state(&convert->from, &convert->run, convert->part, &found, err);
}

/* The files of the model as its makers gave them, which an export keeps. */
struct own_files {
    char folder[PATH_MAX]; /* "": none are known */
    char *config;          /* (config_bytes) text of config.json; owned if is_read */
    size_t config_bytes;
    uint32_t positions; /* number of positions that config.json gives the model */
    bool is_read;
};

/* Finds the files beside the tokenizer.json that the user named, if their config.json is of this
 * very model. */
static void find_beside(struct own_files *own, const char *tokenizer, const struct tw_run *run) {
    static struct tw_run found;
    char path[PATH_MAX];
    struct tw_error why;
    const char *const slash = strrchr(tokenizer, '/');
    const int n =
        snprintf(own->folder, sizeof(own->folder), "%.*s",
                 slash != NULL ? (int)(slash - tokenizer) : 1, slash != NULL ? tokenizer : ".");
    const int m = snprintf(path, sizeof(path), "%s/config.json", own->folder);
    const bool is_there = n < PATH_MAX && m < PATH_MAX && access(path, R_OK) == 0;
    own->is_read = is_there && tw_in_read_whole(path, TW_HF_CONFIG_BYTES_MAX, &own->config,
                                                &own->config_bytes, &why) == TW_OK;
    tw_run_defaults(&found);
    if (own->is_read && tw_hf_config_parse(&found, own->config, own->config_bytes, &why) == TW_OK &&
        tw_model_same(&found, run, &why) == TW_OK) {
        own->positions = found.model.context;
        return;
    }
    if (own->is_read) free(own->config);
    *own = (struct own_files){.folder = ""};
}

static void find_own(struct own_files *own, const struct convert *convert,
                     const struct tw_model_source *source, const struct tw_run *run) {
    if (source->is_folder && source->config != NULL) {
        const int n = snprintf(own->folder, sizeof(own->folder), "%s", convert->from);
        if (n >= (int)sizeof(own->folder)) own->folder[0] = 0;
        own->config = source->config;
        own->config_bytes = source->config_bytes;
        own->positions = run->model.context;
    } else if (convert->tokenizer != NULL && run->model.family != TW_FAMILY_TENSORS) {
        find_beside(own, convert->tokenizer, run);
    }
}

/* Opens the model and finds its manifest: the one named by --run, else the one in a training file,
 * else one made from the folder's config.json. */
static enum tw_status open_trained(const struct convert *convert, struct tw_model_source *source,
                                   struct tw_run *run, struct tw_layout *layout,
                                   struct tw_error *err) {
    uint32_t known = 0;
    char name[64];
    if (convert->run != NULL) {
        TW_TRY(tw_engine_manifest_read(convert->run, run, layout, err));
        return tw_engine_source_open(source, convert->from, run, layout, convert->part, err);
    }
    bool is_trained = false;
    TW_TRY(tw_train_file_run(convert->from, &is_trained, run, err));
    if (is_trained) {
        TW_TRY(tw_layout_init(layout, run, err));
        return tw_engine_source_open(source, convert->from, run, layout, convert->part, err);
    }
    TW_TRY(tw_model_source_open(source, convert->from, err));
    if (source->config == NULL) {
        return tw_fail(err, TW_CONFIG,
                       "%s does not describe its model: name its manifest with "
                       "--run",
                       convert->from);
    }
    default_name(convert->from, name);
    TW_TRY(tw_engine_manifest_make(source, name, 0, run, &known, err));
    run->model.context = known; /* The file is only converted, not trained: use the model's full
                                   context. */
    TW_TRY(tw_layout_init(layout, run, err));
    return tw_model_source_bind(source, layout, convert->part, err);
}

/* Sets folder to the one that holds the files of the model's tokenizer. */
static void folder_of_words(const struct convert *convert, const struct convert_words *words,
                            bool is_folder, char folder[PATH_MAX]) {
    const char *const slash = strrchr(words->path, '/');
    if (slash != NULL) {
        (void)snprintf(folder, PATH_MAX, "%.*s", (int)(slash - words->path), words->path);
    } else {
        (void)snprintf(folder, PATH_MAX, "%s",
                       is_folder && words->path[0] == 0 ? convert->from : ".");
    }
}

/* Writes the Hugging Face folder. */
static enum tw_status export_folder(const struct convert *convert, const struct tw_model_feed *feed,
                                    const struct convert_words *words, struct tw_hf_folder *folder,
                                    struct tw_error *err) {
    const struct tw_end_ids *const said = &words->ends.config;
    const struct tw_model_ids ids = {said->eos, said->eos_count, said->bos, said->pad};
    const struct tw_hf_texts_source source = {.model = folder->own,
                                              .tokenizer_path =
                                                  words->path[0] != 0 ? words->path : NULL,
                                              .tokenizer_text = words->text,
                                              .tokenizer_bytes = words->bytes,
                                              .tokenizer = words->tokenizer,
                                              .ends = &words->ends,
                                              .is_eos_chosen = convert->eos != NULL};
    struct tw_hf_texts texts = {.count = 0};
    enum tw_status status = tw_hf_texts_make(&texts, feed->run, &source, err);
    folder->texts = &texts;
    folder->ids = &ids;
    folder->is_eos_chosen = convert->eos != NULL;
    if (status == TW_OK) status = tw_hf_write_folder(convert->out, feed, folder, err);
    tw_hf_texts_free(&texts);
    folder->texts = NULL;
    folder->ids = NULL;
    return status;
}

static enum tw_status export_gguf(const struct convert *convert, const struct tw_model_feed *feed,
                                  const struct convert_words *words, struct tw_hf_folder *folder,
                                  struct tw_error *err) {
    struct tw_gguf_options options = {.dtype = folder->dtype,
                                      .tokenizer = words->text != NULL ? words->tokenizer : NULL,
                                      .ends = &words->ends};
    if (words->text != NULL && words->tokenizer == NULL) {
        if (convert->tokenizer != NULL) {
            return tw_fail(err, words->why.status, "tokenizer %.80s: %.160s", convert->tokenizer,
                           words->why.message);
        }
        /* The tokenizer was only found beside the model, so the export continues without it. */
        tw_page_say("exported without a vocabulary: tokenizer.json: %s", words->why.message);
    }
    char beside[PATH_MAX], *template = NULL;
    folder_of_words(convert, words, feed->source->is_folder, beside);
    if (options.tokenizer != NULL) TW_TRY(tw_hf_chat_template(beside, &template, err));
    options.chat_template = template;
    const enum tw_status status = tw_gguf_write(convert->out, feed, &options, &folder->bytes, err);
    free(template);
    return status;
}

/* Writes the model in the chosen format. Sets *has_words if the export includes a vocabulary. */
static enum tw_status write_model(const struct convert *convert, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *folder, bool *has_words,
                                  struct tw_error *err) {
    static struct convert_words words;
    const bool is_gguf = convert->format != NULL && strcmp(convert->format, "gguf") == 0;
    const struct convert_words_source source = {.from = convert->from,
                                                .is_folder = feed->source->is_folder,
                                                .tokenizer = convert->tokenizer,
                                                .eos = convert->eos};
    enum tw_status status = tw_engine_words_read(&words, feed->run, &source, err);
    if (status == TW_OK) {
        engine_warn_ends(&words.ends, words.tokenizer, feed->run->model.vocab);
        status = is_gguf ? export_gguf(convert, feed, &words, folder, err)
                         : export_folder(convert, feed, &words, folder, err);
    }
    *has_words = words.tokenizer != NULL || (!is_gguf && words.text != NULL);
    tw_engine_words_free(&words);
    return status;
}

/* Writes the tensors of a run of the family `tensors` (any model) under their own names, as one
 * safetensors file. */
static enum tw_status export_tensors(const struct convert *convert,
                                     const struct tw_model_feed *feed, struct tw_hf_folder *folder,
                                     struct tw_error *err) {
    const char *const odd = convert->format != NULL      ? "--format"
                            : convert->tokenizer != NULL ? "--tokenizer"
                            : convert->eos != NULL       ? "--eos"
                            : convert->adapter != NULL   ? "--adapter"
                            : convert->context != NULL   ? "--context"
                                                         : NULL;
    if (odd != NULL)
        return tw_fail(err, TW_CONFIG,
                       "%s says nothing of a run of any model (model.family = tensors): its export "
                       "is one safetensors file",
                       odd);
    return tw_hf_write_file(convert->out, feed, folder->dtype, &folder->bytes, err);
}

static enum tw_status do_export(const struct convert *convert, struct tw_model_source *source,
                                struct own_files *own, struct tw_error *err) {
    static struct tw_run run;
    static struct tw_layout layout;
    const bool is_gguf = convert->format != NULL && strcmp(convert->format, "gguf") == 0;
    struct tw_hf_folder folder = {.dtype = TW_DTYPE_F32, .files_count = 1};
    if (convert->format != NULL && !is_gguf && strcmp(convert->format, "hf") != 0) {
        return tw_fail(err, TW_CONFIG, "--format %s: it is hf or gguf", convert->format);
    }
    if (strcmp(convert->part, "live") != 0 && strcmp(convert->part, "anchor") != 0) {
        return tw_fail(err, TW_CONFIG, "--part %s: it is live or anchor", convert->part);
    }
    uint32_t context = 0;
    TW_TRY(parse_dtype(convert->dtype, &folder.dtype, err));
    TW_TRY(parse_context(convert->context, &context, err));
    if (!tw_units_parse_bytes(convert->shard, &folder.shard_bytes)) {
        return tw_fail(err, TW_CONFIG, "--shard %s: a size such as 5GB or 500MB, 0 for one file",
                       convert->shard);
    }
    TW_TRY(tw_out_is_free(convert->out, err));
    TW_TRY(open_trained(convert, source, &run, &layout, err));
    if (context != 0 && context != run.model.context && run.model.family == TW_FAMILY_GPT2) {
        return tw_fail(err, TW_CONFIG,
                       "--context %u: the positions of this model are weights, "
                       "%u of them",
                       context, run.model.context);
    }
    find_own(own, convert, source, &run);
    if (context != 0 || own->positions != 0) {
        run.model.context = context != 0 ? context : own->positions;
    }
    folder.own = own->folder[0] != 0 ? own->folder : NULL;
    folder.config = own->config;
    folder.config_bytes = own->config_bytes;
    folder.context = context;
    if (convert->adapter != NULL) {
        TW_TRY(tw_model_source_adapt(source, convert->adapter, &run, err));
    }
    struct tw_progress progress = watch(convert, layout.params);
    const struct tw_model_feed feed = feed_of(&run, &layout, source, &progress);
    const bool is_list = run.model.family == TW_FAMILY_TENSORS;
    bool has_words = false;
    const enum tw_status written = is_list ? export_tensors(convert, &feed, &folder, err)
                                           : write_model(convert, &feed, &folder, &has_words, err);
    tw_progress_end(&progress);
    TW_TRY(written);
    if (!has_words && !is_list) {
        tw_page_say("without --tokenizer FILE the %s has no vocabulary: it takes and "
                    "gives token numbers",
                    is_gguf ? "file" : "folder");
    }
    tell_export(convert,
                is_list   ? "safetensors"
                : is_gguf ? "gguf"
                          : "hf",
                &folder, layout.params, has_words);
    return TW_OK;
}

/* ---- entry point -------------------------------------------------------------------------------
 */

enum tw_exit engine_convert(int argc, char **argv) {
    const char *const verb = argv[1];
    const bool is_import = strcmp(verb, "import") == 0;
    struct convert convert = {.part = "live", .shard = "5GB"};
    struct tw_model_source source = {0};
    struct tw_error err;
    if (parse(&convert, verb, argc, argv, &err) != TW_OK) return engine_fail(&err);
    if (convert.from == NULL || convert.out == NULL || convert.out[0] == 0) {
        tw_page_say("usage: thinwire %s; `thinwire help %s` tells more",
                    is_import ? "import FOLDER --out FILE [--run MANIFEST]"
                              : "export [FILE, or --config NAME for a node here] [--run MANIFEST] "
                                "--out FOLDER [--format hf|gguf]",
                    verb);
        return TW_EXIT_USAGE;
    }
    tw_signals_catch(true);
    const enum tw_status taken = is_import ? TW_OK : take_state(&convert, &err);
    if (taken != TW_OK) return engine_fail(&err);
    static struct own_files own;
    const enum tw_status status =
        is_import ? do_import(&convert, &source, &err) : do_export(&convert, &source, &own, &err);
    if (own.is_read) free(own.config);
    tw_model_source_close(&source);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}
