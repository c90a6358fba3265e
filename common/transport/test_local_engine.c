/* SPDX-License-Identifier: Apache-2.0 */
/* What a writer of this host could send to the engine process: descriptors and extents that are
 * wrong. All of it is answered, and nothing is placed. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/error.h"
#include "common/memory.h"
#include "common/transport.h"

#define BYTES 100000u
#define SLOT (1ull << 32)
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static uint8_t region[BYTES];

static struct sw_local_engine *make(void)
{
    static const struct sw_port_region regions[] = {{region, BYTES}};
    static const struct sw_run runs[] = {{0, 0, 60000}, {0, 70000, 30000}};
    const struct sw_port_spec spec = {1, regions, 2, runs, NULL};
    struct sw_local_engine *l = sw_local_engine_new(&spec, 3);

    ck_assert_ptr_nonnull(l);
    memset(region, 0xee, BYTES);
    return l;
}

static int source_memfd(uint8_t fill)
{
    struct sw_error e = {0};
    void *base;
    int fd;

    ck_assert_int_eq(sw_memory_create("source", BYTES, false, 1, &fd, NULL, &e), 0);
    ck_assert_int_eq(sw_memory_map(fd, BYTES, true, SW_FILL_LATER, 1, &base, &e), 0);
    memset(base, fill, BYTES);
    sw_memory_unmap(base, BYTES);
    return fd;
}

/* The outcome of LOCAL_SOURCE; takes fd (-1 = none). */
static int attach(struct sw_local_engine *l, uint64_t number, uint64_t bytes, int fd)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_LOCAL_SOURCE), *reply;
    int code;

    m->fds[0] = fd;
    m->n_fds = fd >= 0;
    m->u.local_source.source = number;
    m->u.local_source.bytes = bytes;
    reply = sw_local_engine_handle(l, m);
    ck_assert_ptr_nonnull(reply);
    ck_assert_int_eq(reply->kind, SW_MSG_LOCAL_MAPPED);
    ck_assert_uint_eq(reply->u.local_mapped.source, number);
    code = reply->u.local_mapped.error.code;
    ck_assert_int_eq(code != 0, reply->u.local_mapped.error.reason[0] != '\0');
    sw_msg_free(reply);
    sw_msg_free(m);
    return code;
}

static int extents_memfd(const struct sw_extent *x, uint64_t n, int seals)
{
    int fd = memfd_create("extents", MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, x, n * sizeof(*x)), (ssize_t)(n * sizeof(*x)));
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* The outcome of LOCAL_COPY; takes fd. */
static int copy(
    struct sw_local_engine *l, uint64_t source, uint64_t n, int fd, enum sw_local_mode mode)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_LOCAL_COPY), *reply;
    int code;

    m->fds[0] = fd;
    m->n_fds = fd >= 0;
    m->u.local_copy.copy = 9;
    m->u.local_copy.source = source;
    m->u.local_copy.mode = mode;
    m->u.local_copy.n = n;
    reply = sw_local_engine_handle(l, m);
    ck_assert_ptr_nonnull(reply);
    ck_assert_int_eq(reply->kind, SW_MSG_LOCAL_DONE);
    ck_assert_uint_eq(reply->u.local_done.copy, 9);
    code = reply->u.local_done.error.code;
    if (code)
        ck_assert_uint_eq(reply->u.local_done.bytes, 0);
    sw_msg_free(reply);
    sw_msg_free(m);
    return code;
}

static int copy_extents(struct sw_local_engine *l, const struct sw_extent *x, uint64_t n)
{
    return copy(l, SLOT | 1, n, extents_memfd(x, n, ALL_SEALS), SW_LOCAL_WRITE);
}

static void check_untouched(void)
{
    size_t i = 0;

    while (i < BYTES && region[i] == 0xee)
        i++;
    ck_assert_uint_eq(i, BYTES);
}

START_TEST(wrong_sources)
{
    struct sw_local_engine *l = make();
    int p[2], fd;

    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, -1), SW_ERR_PROTOCOL);
    ck_assert_int_eq(pipe(p), 0);
    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, p[0]), SW_ERR_INVALID);
    close(p[1]);
    fd = memfd_create("unsealed", MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, BYTES), 0);
    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, fd), SW_ERR_INVALID);
    ck_assert_int_eq(attach(l, SLOT | 1, 2 * BYTES, source_memfd(1)), SW_ERR_INVALID);
    ck_assert_int_eq(attach(l, SLOT | 1, 0, source_memfd(1)), SW_ERR_INVALID);
    sw_local_engine_free(l);
}
END_TEST

START_TEST(wrong_extents)
{
    static const struct sw_extent bad[] = {
        {BYTES - 1, 0, 2, 0, 0},
        {UINT64_MAX, 0, 2, 0, 0},
        {0, 0, 0, 0, 0},
        {0, 59999, 2, 0, 0},
        {0, 65000, 1, 0, 0},
        {0, BYTES - 1, 2, 0, 0},
        {0, UINT64_MAX - 1, 2, 0, 0},
        {0, 0, 1ull << 63, 0, 0},
        {0, 0, UINT64_MAX, 0, 0},
        {0, 0, 1, 1, 0},
        {0, 0, 1, UINT32_MAX, 0},
    };
    struct sw_local_engine *l = make();

    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, source_memfd(7)), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct sw_extent x[] = {{0, 0, 100, 0, 0}, bad[i], {0, 70000, 100, 0, 0}};

        ck_assert_int_eq(copy_extents(l, x, 3), SW_ERR_INVALID);
        check_untouched(); /* not even the good ones */
    }
    sw_local_engine_free(l);
}
END_TEST

START_TEST(wrong_descriptors)
{
    const struct sw_extent x = {0, 0, 100, 0, 0};
    struct sw_local_engine *l = make();
    int p[2];

    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, source_memfd(7)), 0);
    ck_assert_int_eq(copy(l, SLOT | 1, 1, -1, SW_LOCAL_WRITE), SW_ERR_PROTOCOL);
    ck_assert_int_eq(pipe(p), 0);
    ck_assert_int_eq(copy(l, SLOT | 1, 1, p[0], SW_LOCAL_WRITE), SW_ERR_INVALID);
    close(p[1]);
    /* It could still be written after the check. */
    ck_assert_int_eq(
        copy(l, SLOT | 1, 1, extents_memfd(&x, 1, F_SEAL_SHRINK), SW_LOCAL_WRITE), SW_ERR_INVALID);
    ck_assert_int_eq(
        copy(l, SLOT | 1, 1, extents_memfd(&x, 1, F_SEAL_WRITE), SW_LOCAL_WRITE), SW_ERR_INVALID);
    ck_assert_int_eq(
        copy(l, SLOT | 1, 2, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), SW_ERR_INVALID);
    ck_assert_int_eq(
        copy(l, SLOT | 1, UINT64_MAX / 16, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE),
        SW_ERR_LIMIT);
    ck_assert_int_eq(
        copy(l, SLOT | 2, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), SW_ERR_STATE);
    check_untouched();
    ck_assert_int_eq(copy_extents(l, &x, 1), 0);
    ck_assert_uint_eq(region[99], 7);
    ck_assert_uint_eq(region[100], 0xee);
    sw_local_engine_free(l);
}
END_TEST

/* A writer's new memory replaces its old one and nobody else's; 0 bytes unmap. */
START_TEST(sources_by_writer)
{
    const struct sw_extent x = {0, 0, 100, 0, 0};
    struct sw_local_engine *l = make();
    const uint64_t other = SLOT * 2 | 1;

    ck_assert_int_eq(attach(l, SLOT | 1, BYTES, source_memfd(1)), 0);
    ck_assert_int_eq(attach(l, other, BYTES, source_memfd(2)), 0);
    ck_assert_int_eq(attach(l, SLOT | 2, BYTES, source_memfd(3)), 0);
    ck_assert_int_eq(
        copy(l, SLOT | 1, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), SW_ERR_STATE);
    ck_assert_int_eq(copy(l, SLOT | 2, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), 0);
    ck_assert_uint_eq(region[0], 3);
    ck_assert_int_eq(attach(l, SLOT, 0, -1), 0);
    ck_assert_int_eq(
        copy(l, SLOT | 2, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), SW_ERR_STATE);
    ck_assert_int_eq(
        copy(l, other, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_VERIFY), SW_ERR_IO);
    ck_assert_int_eq(copy(l, other, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_WRITE), 0);
    ck_assert_int_eq(copy(l, other, 1, extents_memfd(&x, 1, ALL_SEALS), SW_LOCAL_VERIFY), 0);
    ck_assert_uint_eq(region[0], 2);
    sw_local_engine_free(l);
    sw_local_engine_free(NULL);
}
END_TEST

START_TEST(another_message)
{
    struct sw_local_engine *l = make();
    struct sw_msg *m = sw_msg_new(SW_MSG_STATUS), *reply = sw_local_engine_handle(l, m);

    ck_assert_int_eq(reply->kind, SW_MSG_LOCAL_MAPPED);
    ck_assert_int_eq(reply->u.local_mapped.error.code, SW_ERR_PROTOCOL);
    sw_msg_free(reply);
    sw_msg_free(m);
    sw_local_engine_free(l);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local_engine");
    TCase *tc = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, wrong_sources);
    tcase_add_test(tc, wrong_extents);
    tcase_add_test(tc, wrong_descriptors);
    tcase_add_test(tc, sources_by_writer);
    tcase_add_test(tc, another_message);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
