/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainerd/replica/replica.h"

static struct sw_replica *replica;
static struct sw_error e;
static uint64_t generation;

static void setup(void)
{
    replica = sw_replica_new();
    ck_assert_ptr_nonnull(replica);
}

static void teardown(void)
{
    sw_replica_free(replica);
}

static struct sw_replica_buffer *make(uint32_t rank, uint32_t index, uint64_t bytes)
{
    const struct sw_replica_buffer_spec spec = {.rank = rank,
        .index = index,
        .generation = generation + 1,
        .bytes = bytes,
        .counter_bytes = 4096,
        .threads = 2};
    struct sw_replica_buffer *b = NULL;

    generation++;
    ck_assert_msg(sw_replica_buffer_create(&spec, &b, &e) == 0, "%s", e.text);
    return b;
}

static json_int_t status(const char *name)
{
    json_t *s = sw_replica_status(replica);
    const json_int_t n = json_integer_value(json_object_get(s, name));

    json_decref(s);
    return n;
}

/* As the loop of trainerd does: there, a buffer that nobody holds is gone when it is replaced. */
static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

START_TEST(test_places)
{
    const int before = open_descriptors();
    struct sw_replica_buffer *b;

    ck_assert_ptr_null(sw_replica_get(replica, 3, 0));
    for (uint32_t rank = 0; rank < 20; rank++)
        ck_assert_int_eq(sw_replica_put(replica, make(rank, rank % 2, 8192), &e), 0);
    b = sw_replica_get(replica, 7, 1);
    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(sw_replica_buffer_spec_of(b)->rank, 7);
    ck_assert_uint_eq(sw_replica_buffer_memory(b)->bytes, 8192);
    ck_assert_uint_eq(sw_replica_buffer_memory(b)->id, sw_replica_buffer_spec_of(b)->generation);
    ck_assert_ptr_null(sw_replica_get(replica, 7, 0));
    ck_assert_ptr_null(sw_replica_get(replica, 7, 2));
    ck_assert_int_eq(status("buffers"), 20);
    ck_assert_int_eq(status("bytes"), 20 * 8192);
    for (uint32_t rank = 0; rank < 20; rank++)
        sw_replica_drop(replica, rank, rank % 2);
    sw_replica_drop(replica, 99, 0);
    ck_assert_int_eq(status("buffers"), 0);
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(test_replaced_while_read)
{
    struct sw_replica_buffer *old = make(0, 0, 8192), *new = make(0, 0, 4096);
    const uint8_t *bytes = sw_replica_buffer_memory(old)->base;

    ck_assert(sw_replica_buffer_busy(old)); /* in nobody's place yet: its maker holds it */
    ck_assert_int_eq(sw_replica_put(replica, old, &e), 0);
    ck_assert(!sw_replica_buffer_busy(old));
    memset((void *)(uintptr_t)bytes, 7, 8192);
    sw_replica_buffer_hold(old);
    ck_assert(sw_replica_buffer_busy(old));
    ck_assert_int_eq(status("held_by_readers"), 0);
    ck_assert_int_eq(sw_replica_put(replica, new, &e), 0);
    ck_assert_ptr_eq(sw_replica_get(replica, 0, 0), new);
    ck_assert(sw_replica_buffer_busy(old));
    ck_assert_int_eq(status("held_by_readers"), 1);
    ck_assert_int_eq(status("held_by_readers_bytes"), 8192);
    ck_assert_int_eq(status("bytes"), 4096);
    sw_replica_buffer_hold(old);
    sw_replica_buffer_release(old);
    ck_assert_uint_eq(bytes[8191], 7);
    sw_replica_buffer_release(old);
    ck_assert_int_eq(status("held_by_readers"), 0);
    ck_assert_int_eq(status("held_by_readers_bytes"), 0);
    sw_replica_buffer_release(NULL);
}
END_TEST

START_TEST(test_spoiled)
{
    struct sw_replica_buffer *b = make(0, 0, 4096);

    ck_assert_int_eq(sw_replica_put(replica, b, &e), 0);
    sw_replica_buffer_spoil(b);
    ck_assert(sw_replica_buffer_busy(b));
    ck_assert_int_eq(sw_replica_put(replica, make(0, 0, 4096), &e), 0);
    ck_assert(!sw_replica_buffer_busy(sw_replica_get(replica, 0, 0)));
}
END_TEST

START_TEST(test_copy)
{
    struct sw_replica_buffer *from = make(0, 0, 8192), *to = make(0, 1, 12288);
    uint8_t *a = (void *)(uintptr_t)sw_replica_buffer_memory(from)->base;
    const uint8_t *b = sw_replica_buffer_memory(to)->base;

    for (int i = 0; i < 8192; i++)
        a[i] = (uint8_t)(i * 7);
    sw_replica_buffer_copy(to, from);
    ck_assert_mem_eq(a, b, 8192);
    ck_assert_uint_eq(b[8192], 0);
    sw_replica_buffer_release(from);
    sw_replica_buffer_release(to);
}
END_TEST

/* What a trainer gets can be written and neither shrunk nor grown; what an engine gets can't be
 * made writable. */
START_TEST(test_descriptors)
{
    struct sw_replica_buffer *b = make(0, 0, 8192);
    const int ro = sw_replica_buffer_memory(b)->fd;
    struct stat st;
    uint64_t *counters;
    uint8_t *data;
    void *base;
    uint32_t n;
    int fds[3];

    ck_assert_int_eq(sw_replica_buffer_descriptors(b, fds, &n, &e), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(fstat(fds[0], &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(st.st_size, 8192);
    ck_assert_int_ne(ftruncate(fds[0], 4096), 0);
    ck_assert_int_ne(ftruncate(fds[1], 1 << 20), 0);
    ck_assert_int_ne(fcntl(fds[0], F_ADD_SEALS, F_SEAL_WRITE), 0);
    ck_assert(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    data = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    ck_assert_ptr_ne(counters, MAP_FAILED);
    data[100] = 42;
    counters[3] = 9;
    ck_assert_uint_eq(((const uint8_t *)sw_replica_buffer_memory(b)->base)[100], 42);
    ck_assert_uint_eq(sw_replica_buffer_counters(b)[3], 9);

    ck_assert_int_eq(fcntl(ro, F_GETFL) & O_ACCMODE, O_RDONLY);
    ck_assert_ptr_eq(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0), MAP_FAILED);
    ck_assert_int_eq(errno, EACCES);
    base = mmap(NULL, 8192, PROT_READ, MAP_SHARED, ro, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    ck_assert_int_ne(mprotect(base, 8192, PROT_READ | PROT_WRITE), 0);
    ck_assert_uint_eq(((const uint8_t *)base)[100], 42);
    ck_assert_int_ne(pwrite(ro, "x", 1, 0), 1);

    munmap(base, 8192);
    munmap(data, 8192);
    munmap(counters, 4096);
    close(fds[0]);
    close(fds[1]);
    sw_replica_buffer_release(b);
}
END_TEST

START_TEST(test_maxima)
{
    const struct sw_replica_buffer_spec spec = {
        .generation = 1, .bytes = 4096, .counter_bytes = 4096, .maxima_bytes = 8192, .threads = 1};
    const int before = open_descriptors();
    struct sw_replica_buffer *b = make(0, 0, 4096);
    struct stat st;
    float *maxima;
    uint32_t n;
    int fds[3];

    ck_assert_ptr_null(sw_replica_buffer_maxima(b));
    sw_replica_buffer_release(b);
    ck_assert_int_eq(sw_replica_buffer_create(&spec, &b, &e), 0);
    ck_assert_int_eq(sw_replica_buffer_descriptors(b, fds, &n, &e), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_int_eq(fstat(fds[2], &st), 0);
    ck_assert_int_eq(st.st_size, 8192);
    maxima = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
    ck_assert_ptr_ne(maxima, MAP_FAILED);
    maxima[2047] = 1.5f;
    ck_assert(sw_replica_buffer_maxima(b)[2047] == 1.5f);
    munmap(maxima, 8192);
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    sw_replica_buffer_release(b);
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(test_no_memory)
{
    const struct sw_replica_buffer_spec spec = {.rank = 3,
        .index = 1,
        .generation = 1,
        .bytes = 1ull << 45,
        .counter_bytes = 4096,
        .threads = 1};
    struct sw_replica_buffer *b = NULL;
    const int before = open_descriptors();

    ck_assert_int_eq(sw_replica_buffer_create(&spec, &b, &e), SW_ERR_NOMEM);
    ck_assert_ptr_null(b);
    ck_assert_ptr_nonnull(strstr(e.text, "replica buffer 1 of trainer rank 3"));
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("replica");
    TCase *c = tcase_create("buffers");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, test_places);
    tcase_add_test(c, test_replaced_while_read);
    tcase_add_test(c, test_spoiled);
    tcase_add_test(c, test_copy);
    tcase_add_test(c, test_descriptors);
    tcase_add_test(c, test_maxima);
    tcase_add_test(c, test_no_memory);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
