/* SPDX-License-Identifier: Apache-2.0 */
/* A service manager of our own listens on NOTIFY_SOCKET. Built only with libsystemd. */
#include "common/notify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager = -1;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static char heard[2048];

static void setup(void)
{
    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/sw-notify-%d.sock", (int)getpid());
    unlink(address.sun_path);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(manager, 0);
    ck_assert_int_eq(bind(manager, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

static void teardown(void)
{
    close(manager);
    unlink(address.sun_path);
    unsetenv("NOTIFY_SOCKET");
}

/* What has come; datagrams to a UNIX socket are there when send returns. */
static const char *hear(void)
{
    const ssize_t n = recv(manager, heard, sizeof(heard) - 1, MSG_DONTWAIT);

    heard[n > 0 ? n : 0] = '\0';
    return heard;
}

START_TEST(states)
{
    sw_notify_ready("port 7471");
    ck_assert_str_eq(hear(), "READY=1\nSTATUS=port 7471");
    sw_notify_status("3 engines");
    ck_assert_str_eq(hear(), "STATUS=3 engines");
    sw_notify_watchdog();
    ck_assert_str_eq(hear(), "WATCHDOG=1");
    sw_notify_stopping("SIGTERM");
    ck_assert_str_eq(hear(), "STOPPING=1\nSTATUS=SIGTERM");
    ck_assert_str_eq(hear(), "");
}
END_TEST

START_TEST(status_is_one_line)
{
    sw_notify_status("engine a\nREADY=1\nMAINPID=1");
    ck_assert_str_eq(hear(), "STATUS=engine a\\nREADY=1\\nMAINPID=1");
}
END_TEST

START_TEST(nobody_asked)
{
    unsetenv("NOTIFY_SOCKET");
    sw_notify_ready("x");
    sw_notify_watchdog();
    ck_assert_str_eq(hear(), "");
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    sw_notify_ready("x");
}
END_TEST

START_TEST(watchdog)
{
    char pid[16];

    unsetenv("WATCHDOG_USEC");
    ck_assert_uint_eq(sw_notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "10000000", 1);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(sw_notify_watchdog_ms(), 5000);
    setenv("WATCHDOG_USEC", "10", 1);
    ck_assert_uint_eq(sw_notify_watchdog_ms(), 1);
    setenv("WATCHDOG_PID", "1", 1); /* it is another process that is watched */
    ck_assert_uint_eq(sw_notify_watchdog_ms(), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("notify");
    TCase *t = tcase_create("notify");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, states);
    tcase_add_test(t, status_is_one_line);
    tcase_add_test(t, nobody_asked);
    tcase_add_test(t, watchdog);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
