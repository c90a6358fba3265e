/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/copy.h"
#include "common/error.h"
#include "common/memory.h"

#define MIB (1ull << 20)

static int make(uint64_t bytes)
{
    struct sw_error e = {0};
    int fd = -1;

    ck_assert_msg(sw_memory_create("test", bytes, false, 2, &fd, NULL, &e) == 0, "%s", e.text);
    return fd;
}

START_TEST(created_whole_and_sealed)
{
    struct sw_memory_info info = {.huge = true};
    struct sw_error e = {0};
    struct stat st;
    void *base;
    int fd;

    ck_assert_int_eq(sw_memory_create("test", 70 * MIB + 1, false, 3, &fd, &info, &e), 0);
    ck_assert(!info.huge);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(st.st_size, 70 * MIB + 4096);
    ck_assert_uint_eq((uint64_t)st.st_blocks * 512, (uint64_t)st.st_size); /* all pages are there */
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    ck_assert_int_ne(ftruncate(fd, 4096), 0);
    ck_assert_int_ne(ftruncate(fd, 71 * MIB), 0);
    ck_assert_int_ne(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(sw_memory_map(fd, 70 * MIB + 1, true, SW_FILL_NEW, 3, &base, &e), 0);
    ((uint8_t *)base)[70 * MIB] = 1;
    sw_memory_unmap(base, 70 * MIB + 1);
    close(fd);
}
END_TEST

/* With huge pages or without: the same memory, and unmapping works for odd lengths. */
START_TEST(huge_or_not)
{
    struct sw_memory_info info;
    struct sw_error e = {0};
    uint64_t bytes;
    void *base;
    int fd;

    ck_assert_msg(
        sw_memory_create("test", 2 * MIB + 5, true, 2, &fd, &info, &e) == 0, "%s", e.text);
    ck_assert_int_eq(sw_memory_check(fd, 2 * MIB + 5, true, &bytes, &e), 0);
    ck_assert_uint_eq(bytes, info.huge ? 4 * MIB : 2 * MIB + 4096);
    ck_assert_int_eq(sw_memory_map(fd, 2 * MIB + 5, true, SW_FILL_USED, 2, &base, &e), 0);
    memset(base, 7, 2 * MIB + 5);
    sw_memory_unmap(base, 2 * MIB + 5);
    ck_assert_int_ne(madvise(base, 4096, MADV_NORMAL), 0); /* nothing is mapped there any more */
    close(fd);
}
END_TEST

START_TEST(no_memory_is_an_error)
{
    struct sw_error e = {0};
    int fd = -5;

    ck_assert_int_eq(
        sw_memory_create("replica", 1ull << 50, false, 4, &fd, NULL, &e), SW_ERR_NOMEM);
    ck_assert_ptr_nonnull(strstr(e.text, "1125899906842624"));
    ck_assert_ptr_nonnull(strstr(e.text, "available"));
    ck_assert_int_eq(sw_memory_create("replica", 1ull << 50, true, 4, &fd, NULL, &e), SW_ERR_NOMEM);
    ck_assert_int_eq(sw_memory_create("replica", UINT64_MAX, true, 4, &fd, NULL, &e), SW_ERR_NOMEM);
    ck_assert_int_eq(sw_memory_create("replica", 0, true, 4, &fd, NULL, &e), SW_ERR_INVALID);
    ck_assert_int_eq(fd, -5);
}
END_TEST

START_TEST(read_only_stays_so)
{
    struct sw_error e = {0};
    int fd = make(MIB), ro = -1;
    void *base;

    ck_assert_int_eq(sw_memory_reopen_readonly(fd, &ro, &e), 0);
    ck_assert_int_eq(sw_memory_check(ro, MIB, false, NULL, &e), 0);
    ck_assert_int_eq(sw_memory_check(ro, MIB, true, NULL, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "open for writing"));
    ck_assert_int_ne(sw_memory_map(ro, MIB, true, SW_FILL_LATER, 1, &base, &e), 0);
    ck_assert_int_eq(sw_memory_map(ro, MIB, false, SW_FILL_NEW, 1, &base, &e), 0);
    ck_assert_int_ne(mprotect(base, MIB, PROT_READ | PROT_WRITE), 0);
    sw_memory_unmap(base, MIB);
    close(ro);
    close(fd);
}
END_TEST

static void check_refused(int fd, uint64_t bytes, bool writable, const char *why)
{
    struct sw_error e = {0};
    uint64_t size = 77;

    ck_assert_int_eq(sw_memory_check(fd, bytes, writable, &size, &e), SW_ERR_INVALID);
    ck_assert_msg(strstr(e.text, why) != NULL, "%s", e.text);
    ck_assert_uint_eq(size, 77);
    if (fd >= 0)
        close(fd);
}

START_TEST(wrong_descriptors)
{
    char path[] = "/tmp/sw-memory-XXXXXX";
    int p[2], fd;

    ck_assert_int_eq(pipe(p), 0);
    check_refused(p[0], 0, false, "no memfd");
    check_refused(p[1], 0, false, "no memfd");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    check_refused(fd, 4096, false, "memfd"); /* on tmpfs it is one that is not sealed */
    fd = memfd_create("x", MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    check_refused(fd, 4096, false, "not sealed against shrinking");
    fd = memfd_create("x", MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    check_refused(fd, 4096, true, "sealed against writing");
    check_refused(make(4096), 4097, false, "has 4096 bytes, 4097 are needed");
    check_refused(open("/dev/zero", O_RDWR), 0, false, "no memfd");
    check_refused(open("/", O_RDONLY | O_DIRECTORY), 0, false, "no memfd");
    check_refused(-1, 0, false, "descriptor -1");
}
END_TEST

START_TEST(copies_everything)
{
    static const size_t sizes[] = {0, 1, 4095, 4097, 3 * 1024 * 1024 + 1, 9 * 1024 * 1024};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned threads = 0; threads < 6; threads++) {
            uint8_t *a = malloc(sizes[i] + 2), *b = calloc(1, sizes[i] + 2);

            ck_assert(a && b);
            for (size_t k = 0; k < sizes[i]; k++)
                a[k] = (uint8_t)(k * 31 + k / 4096);
            sw_memory_copy(b + 1, a, sizes[i], threads);
            ck_assert_int_eq(memcmp(a, b + 1, sizes[i]), 0);
            ck_assert(b[0] == 0 && b[sizes[i] + 1] == 0);
            free(a);
            free(b);
        }
    }
}
END_TEST

START_TEST(copies_wherever_it_lies)
{
    enum { MOST = 200 << 10 };
    uint8_t *a = malloc(MOST + 200), *b = malloc(MOST + 200);

    ck_assert(a && b);
    for (size_t k = 0; k < MOST + 200; k++)
        a[k] = (uint8_t)(k * 31 + k / 4096);
    for (size_t to = 1; to < 130; to += 7) {
        const size_t from = (to * 13) % 64, n = to % 3 ? MOST - to : (64u << 10) - 2 + to % 5;

        memset(b, 0xee, MOST + 200);
        sw_copy(b + to, a + from, n);
        ck_assert_int_eq(memcmp(b + to, a + from, n), 0);
        ck_assert(b[to - 1] == 0xee && b[to + n] == 0xee);
    }
    free(a);
    free(b);
}
END_TEST

static void count_part(unsigned i, unsigned n, void *arg)
{
    unsigned *seen = arg;

    ck_assert_uint_lt(i, n);
    seen[i]++;
}

START_TEST(parts_run_once)
{
    unsigned seen[65] = {0};

    sw_memory_parallel(0, count_part, seen);
    ck_assert_uint_eq(seen[0], 1);
    sw_memory_parallel(1000, count_part, seen);
    ck_assert_uint_eq(seen[0], 2);
    for (int i = 1; i < 64; i++)
        ck_assert_uint_eq(seen[i], 1);
    ck_assert_uint_eq(seen[64], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tc = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, created_whole_and_sealed);
    tcase_add_test(tc, huge_or_not);
    tcase_add_test(tc, no_memory_is_an_error);
    tcase_add_test(tc, read_only_stays_so);
    tcase_add_test(tc, wrong_descriptors);
    tcase_add_test(tc, copies_everything);
    tcase_add_test(tc, copies_wherever_it_lies);
    tcase_add_test(tc, parts_run_once);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
