/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainerd/layouts.h"

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/sw-test-layouts-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void tear_down(void)
{
    ck_assert_int_eq(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    fclose(f);
}

#define NORM                                                                                       \
    "[tensor norm]\nstored = model.norm.weight\nshape = hidden_size\n"                             \
    "[parameter model.norm.weight]\npart = norm\n"

static void write_pair(void)
{
    write_file("part.inc", NORM);
    write_file("b.layout", "[layout]\narchitectures = B OtherB\ninclude = part.inc\n");
    write_file("a.layout", "[layout]\narchitectures = A\n" NORM);
    write_file("README", "not a layout");
    write_file(".hidden.layout", "nor this");
}

static struct sw_config *config_of(const char *json)
{
    struct sw_config *c = NULL;
    struct sw_error e = {0};

    ck_assert_msg(sw_config_parse(json, strlen(json), &c, &e) == 0, "%s", e.text);
    return c;
}

START_TEST(test_reads_and_finds)
{
    struct sw_config *c = config_of("{\"architectures\":[\"OtherB\"],\"hidden_size\":8}");
    const struct sw_rules *rules, *by_name;
    struct sw_layouts *l = NULL;
    struct sw_error e = {0};

    write_pair();
    ck_assert_msg(sw_layouts_read(folder, &l, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(sw_layouts_count(l), 2);
    ck_assert_str_eq(sw_layouts_name(l, 0), "a");
    ck_assert_str_eq(sw_layouts_name(l, 1), "b");
    ck_assert_ptr_null(sw_layouts_name(l, 2));
    ck_assert_int_eq(sw_layouts_find(l, "auto", c, &rules, &e), 0);
    ck_assert_int_eq(sw_layouts_find(l, "b", c, &by_name, &e), 0);
    ck_assert_ptr_eq(rules, by_name);
    ck_assert_int_eq(sw_layouts_find(l, "c", c, &rules, &e), SW_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "there is no layout c; there are: a, b"));
    sw_layouts_free(l);
    sw_config_free(c);
}
END_TEST

START_TEST(test_unknown_architecture)
{
    struct sw_config *c = config_of("{\"architectures\":[\"Nobody\"]}"), *none = config_of("{}");
    const struct sw_rules *rules;
    struct sw_layouts *l = NULL;
    struct sw_error e = {0};

    write_pair();
    ck_assert_int_eq(sw_layouts_read(folder, &l, &e), 0);
    ck_assert_int_eq(sw_layouts_find(l, "auto", c, &rules, &e), SW_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "Nobody"));
    ck_assert_ptr_nonnull(strstr(e.text, "a, b"));
    ck_assert_int_eq(sw_layouts_find(l, "auto", none, &rules, &e), SW_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "names none"));
    sw_layouts_free(l);
    sw_config_free(c);
    sw_config_free(none);
}
END_TEST

START_TEST(test_an_empty_folder_is_none)
{
    struct sw_layouts *l = NULL;
    struct sw_error e = {0};

    ck_assert_int_eq(sw_layouts_read(folder, &l, &e), 0);
    ck_assert_uint_eq(sw_layouts_count(l), 0);
    sw_layouts_free(l);
    sw_layouts_free(NULL);
}
END_TEST

static void refused(int code, const char *text)
{
    struct sw_layouts *l = NULL;
    struct sw_error e = {0};
    const int rc = sw_layouts_read(folder, &l, &e);

    ck_assert_msg(rc == code, "%d, not %d: %s", rc, code, e.text);
    ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" is not in: %s", text, e.text);
    ck_assert_ptr_null(l);
}

START_TEST(test_a_broken_file_names_file_and_line)
{
    write_pair();
    write_file("c.layout", "[layout]\narchitectures = C\nwhat = 1\n");
    refused(SW_ERR_INVALID, "c.layout:3");
}
END_TEST

START_TEST(test_two_files_for_one_architecture)
{
    write_pair();
    write_file("c.layout", "[layout]\narchitectures = A\n" NORM);
    refused(SW_ERR_INVALID, "both for A");
}
END_TEST

START_TEST(test_includes_stay_in_the_folder)
{
    write_file("c.layout", "[layout]\narchitectures = C\ninclude = ../part.inc\n");
    refused(SW_ERR_INVALID, "same folder");
    write_file("c.layout", "[layout]\narchitectures = C\ninclude = gone.inc\n");
    refused(SW_ERR_IO, "gone.inc");
}
END_TEST

START_TEST(test_odd_files)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/pipe.layout", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody ever writes to it */
    refused(SW_ERR_INVALID, "no regular file");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    refused(SW_ERR_INVALID, "no regular file");
    ck_assert_int_eq(rmdir(path), 0);
    write_file("long.layout", "");
    snprintf(path, sizeof(path), "%s/long.layout", folder);
    ck_assert_int_eq(truncate(path, SW_RULE_FILE_MAX + 1), 0);
    refused(SW_ERR_INVALID, "at most");
}
END_TEST

START_TEST(test_no_folder)
{
    struct sw_layouts *l = NULL;
    struct sw_error e = {0};

    ck_assert_int_eq(sw_layouts_read("/nowhere/layouts", &l, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "/nowhere/layouts"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout-folder");
    TCase *c = tcase_create("folder");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, test_reads_and_finds);
    tcase_add_test(c, test_unknown_architecture);
    tcase_add_test(c, test_an_empty_folder_is_none);
    tcase_add_test(c, test_a_broken_file_names_file_and_line);
    tcase_add_test(c, test_two_files_for_one_architecture);
    tcase_add_test(c, test_includes_stay_in_the_folder);
    tcase_add_test(c, test_odd_files);
    tcase_add_test(c, test_no_folder);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
