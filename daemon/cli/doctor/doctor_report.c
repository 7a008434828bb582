/* doctor_report.c - the line of each check: kept for --json, or printed. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli/doctor/doctor.h"

enum { TEXT_BYTES = 512 };

const char *doctor_grade_name(enum doctor_grade grade) {
    switch (grade) {
    case DOCTOR_OK: return "ok";
    case DOCTOR_SKIP: return "skip";
    case DOCTOR_WARN: return "warn";
    case DOCTOR_FAIL: return "fail";
    case DOCTOR_GRADES: break;
    }
    return "unknown";
}

void doctor_say_error(struct doctor *doctor, const char *check, const struct tw_error *err,
                      const char *otherwise) {
    const char *const fix = strrchr(err->message, ';');
    const bool has_fix = fix != NULL && fix[1] == ' ';
    doctor_say(doctor, DOCTOR_FAIL, check, has_fix ? fix + 2 : otherwise, "%.*s",
               has_fix ? (int)(fix - err->message) : (int)sizeof(err->message), err->message);
}

void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *check, const char *fix,
                const char *fmt, ...) {
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    doctor->counts[grade]++;
    json_t *row = json_pack("{s:s,s:s,s:s,s:s?}", "check", check, "grade", doctor_grade_name(grade),
                            "text", text, "fix", fix);
    if (row == NULL) /* text from a file was not valid UTF-8 */
        row = json_pack("{s:s,s:s,s:s}", "check", check, "grade", doctor_grade_name(grade), "text",
                        "(not UTF-8)");
    (void)json_array_append_new(doctor->list, row);
    if (doctor->said != NULL) doctor->said(doctor->user, grade, check, text, fix);
}
