/* Tests the sources from which the line of a ticket is read, and that it is not shown elsewhere. */
#include "tests/test.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "daemon/cli/common/ticket_line.h"

static const char LINE[] = "tw1secretline";

TEST(operand_is_overwritten) {
    char argument[] = "tw1secretline", text[TW_TICKET_LINE_BYTES];
    assert_int_equal(cli_ticket_line("join", argument, text), TW_EXIT_OK);
    assert_string_equal(text, LINE);
    for (size_t i = 0; i < sizeof(argument); i++) assert_int_equal(argument[i], 0);
}

TEST(overlong_operand_is_cut) {
    static char argument[5000], text[TW_TICKET_LINE_BYTES];
    memset(argument, 'a', sizeof(argument) - 1);
    assert_int_equal(cli_ticket_line("join", argument, text), TW_EXIT_OK);
    assert_int_equal(strlen(text), TW_TICKET_LINE_BYTES - 1);
}

/* Forks a child that reads the line with `in` as its standard input. The child exits with 0 if
 * the text was LINE and a newline, else with 100 + the status of the call. Returns the child's
 * process id. */
static pid_t read_from(int in, int err, char *line) {
    const pid_t child = fork();
    if (child != 0) return child;
    char text[TW_TICKET_LINE_BYTES];
    (void)dup2(in, STDIN_FILENO);
    (void)dup2(err, STDERR_FILENO);
    const enum tw_exit rc = cli_ticket_line("join", line, text);
    _exit(rc == TW_EXIT_OK && strncmp(text, LINE, strlen(LINE)) == 0 ? 0 : 100 + (int)rc);
}

static int status_of(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(dash_reads_standard_input) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "tw1secretline\n", 14), 14);
    (void)close(ends[1]);
    char dash[] = "-";
    assert_int_equal(status_of(read_from(ends[0], STDERR_FILENO, dash)), 0);
    assert_int_equal(status_of(read_from(ends[0], STDERR_FILENO, NULL)), 100 + TW_EXIT_USAGE);
    (void)close(ends[0]);
}

TEST(a_terminal_is_asked_and_shows_nothing) {
    char seen[512] = "";
    size_t used = 0;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    const pid_t child = read_from(terminal, terminal, NULL);
    while (strstr(seen, "not shown): ") == NULL) {
        const ssize_t got = read(master, seen + used, sizeof(seen) - 1 - used);
        assert_true(got > 0);
        used += (size_t)got;
        seen[used] = 0;
    }
    struct termios mode; /* the prompt is shown before the terminal's echo is off */
    do {
        assert_int_equal(tcgetattr(terminal, &mode), 0);
    } while ((mode.c_lflag & ECHO) != 0);
    assert_int_equal(write(master, "tw1secretline\n", 14), 14);
    assert_int_equal(status_of(child), 0);
    const ssize_t got = read(master, seen, sizeof(seen) - 1);
    assert_true(got > 0);
    seen[got] = 0;
    assert_null(strstr(seen, "secret"));
    assert_int_equal(tcgetattr(terminal, &mode), 0);
    assert_true((mode.c_lflag & ECHO) != 0);
    (void)close(terminal);
    (void)close(master);
}

/* Only the inviter's clock decides, so the sentence blames no ticket. */
TEST(ticket_that_is_late_by_this_clock_is_told_with_the_time) {
    struct tw_ticket ticket = {.expires_s = 1800000000};
    char text[TW_TICKET_AGE_BYTES] = "";
    assert_false(cli_ticket_is_late(&ticket, ticket.expires_s, text));
    assert_string_equal(text, "");
    assert_true(cli_ticket_is_late(&ticket, ticket.expires_s + 2 * 86400, text));
    assert_non_null(strstr(text, "by the clock of this machine"));
    assert_non_null(strstr(text, "expired 2 d 0 h ago"));
    assert_non_null(strstr(text, "the inviter decides by its own clock"));
}
