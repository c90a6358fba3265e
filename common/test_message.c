/* SPDX-License-Identifier: Apache-2.0 */
#include "common/message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/test_messages.h"
#include "common/test_suite.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int some_fd(void)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(descriptors)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_BUFFER);
    const int a = some_fd(), b = some_fd();

    ck_assert_ptr_nonnull(msg);
    ck_assert_int_eq(sw_msg_take_fd(msg, 0), -1);
    msg->fds[0] = a;
    msg->fds[1] = b;
    msg->n_fds = 2;
    ck_assert_int_eq(sw_msg_take_fd(msg, 1), b);
    ck_assert_int_eq(sw_msg_take_fd(msg, 1), -1); /* once */
    ck_assert_int_eq(sw_msg_take_fd(msg, 2), -1);
    ck_assert_int_eq(sw_msg_take_fd(msg, UINT32_MAX), -1);
    sw_msg_free(msg);
    ck_assert(!is_open(a));
    ck_assert(is_open(b));
    close(b);
    sw_msg_free(NULL);
}
END_TEST

START_TEST(copies)
{
    const enum sw_msg_kind kind = (enum sw_msg_kind)_i;
    struct sw_msg *msg = test_message(kind, 7, 5), *same = test_message(kind, 7, 5), *copy;
    char difference[128];

    msg->fds[0] = some_fd();
    msg->n_fds = 1;
    copy = sw_msg_copy(msg);
    ck_assert_ptr_nonnull(copy);
    ck_assert_uint_eq(copy->n_fds, 0);
    ck_assert_int_eq(copy->fds[0], -1);
    sw_msg_free(msg); /* it must not need the original */
    ck_assert_msg(
        test_message_equal(copy, same, difference), "%s: %s", sw_msg_kind_name(kind), difference);
    sw_msg_free(copy);
    sw_msg_free(same);
}
END_TEST

START_TEST(copy_of_nulls)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_HELLO), *copy = sw_msg_copy(msg);

    ck_assert_ptr_null(copy->u.hello.group);
    sw_msg_free(copy);
    sw_msg_free(msg);
}
END_TEST

START_TEST(names)
{
    for (int k = 1; k < SW_MSG_KIND_COUNT; k++)
        ck_assert_str_ne(sw_msg_kind_name((enum sw_msg_kind)k), "unknown");
    ck_assert_str_eq(sw_msg_kind_name(SW_MSG_BEGIN), "BEGIN");
    ck_assert_str_eq(sw_msg_kind_name(SW_MSG_STATUS_TEXT), "STATUS_TEXT");
    ck_assert_str_eq(sw_msg_kind_name(SW_MSG_KIND_COUNT), "unknown");
    ck_assert_str_eq(sw_msg_kind_name((enum sw_msg_kind)0), "unknown");
    ck_assert_str_eq(sw_phase_name(SW_PHASE_PAUSE), "pause");
    ck_assert_str_eq(sw_phase_name(SW_PHASE_ABORT), "abort");
    ck_assert_str_eq(sw_phase_name((enum sw_phase)10), "unknown");
    ck_assert_str_eq(sw_role_name(SW_ROLE_TRAINERD), "trainerd");
    ck_assert_str_eq(sw_role_name((enum sw_role) - 1), "unknown");
    ck_assert_str_eq(sw_rank_state_name(SW_RANK_TORN), "torn");
    ck_assert_str_eq(sw_update_state_name(SW_UPDATE_ABORTED), "aborted");
}
END_TEST

START_TEST(ids)
{
    struct sw_id a = {{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xff}}, b = a;
    char text[17];

    ck_assert_str_eq(sw_id_short(&a, text), "0123456789abcdef");
    ck_assert(sw_id_equal(&a, &b));
    b.bytes[15] = 1;
    ck_assert(!sw_id_equal(&a, &b));
    ck_assert(!sw_id_is_none(&b));
    memset(&b, 0, sizeof(b));
    ck_assert(sw_id_is_none(&b));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("message");
    TCase *t = tcase_create("message");

    tcase_add_test(t, descriptors);
    tcase_add_loop_test(t, copies, 1, SW_MSG_KIND_COUNT);
    tcase_add_test(t, copy_of_nulls);
    tcase_add_test(t, names);
    tcase_add_test(t, ids);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
