/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/journal.h"

static char captured[1 << 20];

/* Runs `what` with stderr at `write_end` and reads what came at `read_end` (both are closed). */
static void capture(int read_end, int write_end, void (*what)(void))
{
    const int saved = dup(STDERR_FILENO);
    size_t n = 0;
    ssize_t got;

    ck_assert_int_ge(saved, 0);
    fcntl(write_end, F_SETPIPE_SZ, (int)sizeof(captured)); /* so that writers never wait for us */
    ck_assert_int_ge(dup2(write_end, STDERR_FILENO), 0);
    what();
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(saved);
    close(write_end);
    while ((got = read(read_end, captured + n, sizeof(captured) - 1 - n)) > 0)
        n += (size_t)got;
    captured[n] = '\0';
    close(read_end);
}

static void capture_pipe(void (*what)(void))
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    capture(ends[0], ends[1], what);
}

static void expect_match(const char *pattern)
{
    regex_t re;

    ck_assert_int_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ck_assert_msg(
        regexec(&re, captured, 0, NULL, 0) == 0, "'%s' is not like %s", captured, pattern);
    regfree(&re);
}

static void setup(void)
{
    unsetenv("JOURNAL_STREAM");
}

#define STAMP "^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "

static void log_plain(void)
{
    sw_log_open("inferd", SW_LOG_INFO);
    errno = EBADF;
    sw_log(SW_LOG_WARNING, "engine %s is %d", "a", 7);
    ck_assert_int_eq(errno, EBADF);
}

START_TEST(plain)
{
    capture_pipe(log_plain);
    expect_match(STAMP "inferd\\[[0-9]+\\] warning: engine a is 7\n$");
}
END_TEST

static void log_escaped(void)
{
    sw_log_open("inferd", SW_LOG_INFO);
    sw_log(SW_LOG_ERROR, "name '%s'", "a\n<3>forged\033[2J\xff");
}

START_TEST(escaped)
{
    capture_pipe(log_escaped);
    ck_assert_ptr_nonnull(strstr(captured, "error: name 'a\\n<3>forged\\x1b[2J\\xff'\n"));
    ck_assert_ptr_eq(strchr(captured, '\n'), captured + strlen(captured) - 1);
}
END_TEST

static void log_levels(void)
{
    sw_log_open("inferd", SW_LOG_NOTICE);
    ck_assert(sw_log_enabled(SW_LOG_NOTICE) && !sw_log_enabled(SW_LOG_INFO));
    sw_log(SW_LOG_INFO, "not this");
    sw_log(SW_LOG_NOTICE, "but this");
    sw_log_set_level(SW_LOG_ERROR);
    sw_log(SW_LOG_WARNING, "nor this");
    sw_log_set_level(SW_LOG_DEBUG);
    sw_log(SW_LOG_DEBUG, "and that");
}

START_TEST(levels)
{
    capture_pipe(log_levels);
    ck_assert_ptr_null(strstr(captured, "not this"));
    ck_assert_ptr_null(strstr(captured, "nor this"));
    ck_assert_ptr_nonnull(strstr(captured, "notice: but this\n"));
    ck_assert_ptr_nonnull(strstr(captured, "debug: and that\n"));
}
END_TEST

static void log_long(void)
{
    char name[5000];

    memset(name, '\001', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    sw_log_open("inferd", SW_LOG_INFO);
    sw_log(SW_LOG_INFO, "%s", name);
    memset(name, 'x', sizeof(name) - 1);
    sw_log(SW_LOG_INFO, "%s", name);
}

START_TEST(long_text)
{
    const char *second;

    capture_pipe(log_long);
    second = strchr(captured, '\n');
    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(strncmp(second - 7, "\\x01...", 7), 0);
    ck_assert_uint_gt(strlen(second), 2000);
    ck_assert_uint_lt(strlen(second), 2200);
    ck_assert_str_eq(captured + strlen(captured) - 5, "x...\n");
}
END_TEST

static void log_terminal(void)
{
    sw_log_open("inferd", SW_LOG_INFO);
    sw_log(SW_LOG_ERROR, "bad");
    sw_log(SW_LOG_INFO, "good");
}

/* stderr is a terminal of our own. */
static void capture_terminal(void)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    int slave;

    ck_assert_int_ge(master, 0);
    ck_assert_int_eq(grantpt(master) | unlockpt(master), 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    capture(master, slave, log_terminal);
}

#define CLOCK "^[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} "

START_TEST(terminal)
{
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    capture_terminal();
    expect_match(CLOCK "\033\\[1;31merror   bad\033\\[0m\r\n");
    expect_match("\n[0-9:.]+ info    good\r\n$");
    setenv("NO_COLOR", "1", 1);
    capture_terminal();
    expect_match(CLOCK "error   bad\r\n");
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    capture_terminal();
    expect_match(CLOCK "error   bad\r\n");
}
END_TEST

static void log_fields(void)
{
    const struct sw_log_field fields[] = {{"VERSION", "7"}, {"ENGINE", NULL}, {"GROUP", "g"}};
    struct stat st;
    char stream[64];

    /* What systemd does for a service: the journal's socket is named by device and inode. */
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
        (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    sw_log_open("inferd", SW_LOG_INFO);
    sw_log_fields(SW_LOG_ERROR, fields, 3, "torn at %d", 7);
}

/* With a journal that listens, the entry has gone there. */
START_TEST(journal_stream)
{
    capture_pipe(log_fields);
    ck_assert_str_eq(captured, sw_journal_available() ? "" : "<3>torn at 7\n");
}
END_TEST

static void log_foreign_stream(void)
{
    struct stat st;
    char stream[64];

    /* The right device, another inode: stderr was redirected after the service had started. */
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
        (unsigned long long)st.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    log_plain();
    setenv("JOURNAL_STREAM", "nonsense", 1);
    log_plain();
}

START_TEST(foreign_journal_stream)
{
    capture_pipe(log_foreign_stream);
    expect_match(
        STAMP "inferd\\[[0-9]+\\] warning: engine a is 7\n.*\\] warning: engine a is 7\n$");
}
END_TEST

static void *log_many(void *arg)
{
    char name[200];

    memset(name, *(const char *)arg, sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (int i = 0; i < 200; i++)
        sw_log(SW_LOG_INFO, "%s", name);
    return NULL;
}

static void log_threads(void)
{
    static const char letters[] = "abcd";
    pthread_t threads[4];

    sw_log_open("inferd", SW_LOG_INFO);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)&letters[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(threads)
{
    int lines = 0;
    char *save = NULL;

    capture_pipe(log_threads);
    for (char *l = strtok_r(captured, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        const char *name = strstr(l, "info: ") + 6;

        ck_assert_uint_eq(strlen(name), 199);
        ck_assert_uint_eq(strspn(name, (char[2]){name[0], '\0'}), 199);
        lines++;
    }
    ck_assert_int_eq(lines, 800);
}
END_TEST

static void log_closed(void)
{
    close(STDERR_FILENO);
    sw_log(SW_LOG_ERROR, "nobody hears this");
}

START_TEST(no_stderr)
{
    capture_pipe(log_closed);
    ck_assert_str_eq(captured, "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("log");
    TCase *t = tcase_create("log");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, plain);
    tcase_add_test(t, escaped);
    tcase_add_test(t, levels);
    tcase_add_test(t, long_text);
    tcase_add_test(t, terminal);
    tcase_add_test(t, journal_stream);
    tcase_add_test(t, foreign_journal_stream);
    tcase_add_test(t, threads);
    tcase_add_test(t, no_stderr);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
