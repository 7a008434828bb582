/* results.c - writes finished cases to the results file, and finds them in it. */
#include "tests/bench/quality/results.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool results_have(const char *path, const struct tw_id *id) {
    char wanted[TW_ID_HEX_BYTES + 16], hex[TW_ID_HEX_BYTES];
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    bool has = false;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    tw_id_hex(id, hex);
    const int length = snprintf(wanted, sizeof(wanted), "{\"id\":\"%s\",", hex);
    while (!has && (size = getline(&line, &room, file)) > 0) {
        has = strncmp(line, wanted, (size_t)length) == 0 && line[size - 1] == '\n' &&
              line[size - 2] == '}';
    }
    free(line);
    (void)fclose(file);
    return has;
}

unsigned results_foreign(const char *path, const struct tw_id *program) {
    char wanted[TW_ID_HEX_BYTES + 16], hex[TW_ID_HEX_BYTES];
    char *line = NULL;
    size_t room = 0;
    unsigned foreign = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    tw_id_hex(program, hex);
    (void)snprintf(wanted, sizeof(wanted), "\"program\":\"%s\"", hex);
    while (getline(&line, &room, file) > 0) foreign += strstr(line, wanted) == NULL;
    free(line);
    (void)fclose(file);
    return foreign;
}

/* JSON has no NaN. */
static void put_real(FILE *to, const char *before, double value) {
    if (isfinite(value)) {
        (void)fprintf(to, "%s%.6g", before, value);
    } else {
        (void)fprintf(to, "%snull", before);
    }
}

/* Writes the manifest's lines `key = value` as members of a JSON object. Numbers are written as
 * JSON numbers, not strings. */
static void put_manifest(FILE *to, const struct setting *setting) {
    char text[TW_MANIFEST_BYTES_MAX];
    const char *between = "";
    char *rest = NULL;
    setting_manifest(setting, text, sizeof(text));
    (void)fputs(",\"manifest\":{", to);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strstr(line, " = ");
        if (equals == NULL) continue;
        *equals = 0;
        (void)fprintf(to, "%s\"%s\":\"%s\"", between, line, equals + 3);
        between = ",";
    }
    (void)fputs("}", to);
}

static void put_traffic(FILE *to, const struct outcome *outcome) {
    const struct traffic *traffic = &outcome->traffic;
    (void)fprintf(to,
                  ",\"bytes\":%llu,\"bytes_contributions\":%llu,\"bytes_results\":%llu,"
                  "\"bytes_states\":%llu,\"bytes_control\":%llu,\"refused\":%llu,\"missed\":%llu",
                  (unsigned long long)traffic_total(traffic),
                  (unsigned long long)traffic->contributions, (unsigned long long)traffic->results,
                  (unsigned long long)traffic->states, (unsigned long long)traffic->control,
                  (unsigned long long)traffic->refused, (unsigned long long)traffic->missed);
    const double bits = 8.0 * (double)traffic->coded / (double)traffic->elements;
    put_real(to, ",\"bits\":", traffic->elements > 0 ? bits : 0);
}

static void put_curve(FILE *to, const struct outcome *outcome) {
    (void)fputs(",\"curve\":[", to);
    for (uint32_t i = 0; i < outcome->count; i++) {
        const struct point *point = &outcome->points[i];
        (void)fprintf(to, "%s[%llu,%llu", i > 0 ? "," : "", (unsigned long long)point->tokens,
                      (unsigned long long)point->bytes);
        put_real(to, ",", point->anchor);
        put_real(to, ",", point->mean);
        put_real(to, ",", point->distance);
        (void)fputs("]", to);
    }
    (void)fputs("]", to);
}

static void put_by_text(FILE *to, const char *name, const struct texts *texts,
                        const double *by_text) {
    (void)fprintf(to, ",\"%s\":{", name);
    for (uint32_t k = 0; k < texts->count; k++) {
        (void)fprintf(to, "%s\"%s\"", k > 0 ? "," : "", texts->names[k]);
        put_real(to, ":", by_text[k]);
    }
    (void)fputs("}", to);
}

/* Losses on each of several texts. */
static void put_texts(FILE *to, const struct setting *setting, const struct texts *texts,
                      const struct outcome *outcome) {
    if (texts->count < 2) return;
    (void)fprintf(to, ",\"mix\":\"%s\"", mix_name(setting->mix));
    put_by_text(to, "by_text", texts, outcome->by_text);
    if (isnan(outcome->own)) return;
    put_by_text(to, "own_by_text", texts, outcome->own_by_text);
    put_real(to, ",\"own_at_home\":", outcome->own_at_home);
}

static void put_case(FILE *to, const struct setting *setting, const struct texts *texts,
                     const struct tw_id *program, const struct outcome *outcome) {
    char hex[TW_ID_HEX_BYTES], by[TW_ID_HEX_BYTES];
    tw_id_hex(&setting->id, hex);
    tw_id_hex(program, by);
    (void)fprintf(to,
                  "{\"id\":\"%s\",\"program\":\"%s\",\"name\":\"%s\",\"varied\":\"%s\",\"kind\":\"%"
                  "s\",\"seed\":%llu,"
                  "\"nodes\":%u,\"steps\":%u,\"exact\":%u,\"params\":%llu,\"rounds\":%llu,"
                  "\"tokens\":%llu,\"skipped\":%llu",
                  hex, by, setting->name, setting->varied, kind_name(setting->kind),
                  (unsigned long long)setting->seed, setting->nodes, setting->steps,
                  setting->is_exact, (unsigned long long)outcome->params,
                  (unsigned long long)outcome->rounds, (unsigned long long)outcome->tokens,
                  (unsigned long long)outcome->skipped);
    if (setting->compute == TW_COMPUTE_BF16) (void)fputs(",\"compute\":\"bf16\"", to);
    put_manifest(to, setting);
    put_traffic(to, outcome);
    put_curve(to, outcome);
    (void)fprintf(to, ",\"heldout\":%llu", (unsigned long long)outcome->anchor.tokens);
    put_real(to, ",\"anchor\":", outcome->anchor.nats);
    put_real(to, ",\"anchor_error\":", outcome->anchor.standard_error);
    put_real(to, ",\"mean\":", outcome->mean.nats);
    put_real(to, ",\"own\":", outcome->own);
    put_texts(to, setting, texts, outcome);
    (void)fputs("}\n", to);
}

/* Writes the whole line at once, so that two programs can share a file and a kill leaves no partial
 * line. */
enum tw_status results_add(const char *path, const struct setting *setting,
                           const struct texts *texts, const struct tw_id *program,
                           const struct outcome *outcome, struct tw_error *err) {
    char *line = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&line, &size);
    if (memory == NULL) return tw_fail(err, TW_NOMEM, "no memory for a result");
    put_case(memory, setting, texts, program, outcome);
    if (fclose(memory) != 0) return tw_fail(err, TW_NOMEM, "no memory for a result");
    FILE *file = fopen(path, "a");
    bool is_good = file != NULL;
    if (is_good) {
        (void)setvbuf(file, NULL, _IOFBF, size + 1);
        is_good = fwrite(line, 1, size, file) == size;
        is_good = fclose(file) == 0 && is_good;
    }
    free(line);
    return is_good ? TW_OK : tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
}
