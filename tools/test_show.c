/* SPDX-License-Identifier: Apache-2.0 */
/* What shardctl shows, and how it reads an address. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tools/control.h"
#include "tools/document.h"
#include "tools/progress.h"
#include "tools/table.h"

START_TEST(test_formats)
{
    char out[32];

    ck_assert_str_eq(sw_format_bytes(0, out), "0 B");
    ck_assert_str_eq(sw_format_bytes(999, out), "999 B");
    ck_assert_str_eq(sw_format_bytes(1000, out), "1.00 kB");
    ck_assert_str_eq(sw_format_bytes(999999, out), "1.00 MB");
    ck_assert_str_eq(sw_format_bytes(1503264768, out), "1.50 GB");
    ck_assert_str_eq(sw_format_bytes(99960000000, out), "100 GB");
    ck_assert_str_eq(sw_format_bytes(UINT64_MAX, out), "18.4 EB");
    ck_assert_str_eq(sw_format_rate(1503264768, 250000000, out), "6.01 GB/s");
    ck_assert_str_eq(sw_format_rate(1, 0, out), "-");
    ck_assert_str_eq(sw_format_rate(0, 5, out), "-");
    ck_assert_str_eq(sw_format_time(1234567, out), "1.23 ms");
    ck_assert_str_eq(sw_format_time(71234567, out), "71.2 ms");
    ck_assert_str_eq(sw_format_time(12345678901, out), "12.35 s");
}
END_TEST

static char *shown(const char *json)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    json_t *document = json_loads(json, 0, NULL);

    ck_assert_ptr_nonnull(document);
    sw_document_print(document, f);
    json_decref(document);
    fclose(f);
    return text;
}

static const struct {
    const char *json, *text;
} documents[] = {
    {"{}", ""},
    {"{\"nothing\":null,\"empty\":\"\",\"none\":[],\"no\":{}}", ""},
    {"{\"section\":{\"x\":true},\"last_version\":7}", "last version: 7\nsection:\n  x: yes\n"},
    {"{\"replica_bytes\":1503264768,\"pause_s\":0.0123,\"ratio\":0.5}",
        "replica bytes: 1503264768 (1.50 GB)\npause s: 12.3 ms\nratio: 0.5\n"},
    {"{\"ranks\":[{\"a\":\"x\",\"n\":null,\"b\":1},{\"a\":\"longer\",\"c\":false}]}",
        "ranks:\n  a       b  c\n  x       1\n  longer     no\n"},
    {"{\"deep\":[{\"a\":1,\"in\":[{\"b\":2}]},[3]]}",
        "deep:\n  -\n    a: 1\n    in:\n      b\n      2\n  -\n    - 3\n"},
    {"{\"bad\":\"x\\u001b[2Jy\\nz\"}", "bad: x\\x1b[2Jy\\nz\n"},
};

START_TEST(test_documents)
{
    char *text = shown(documents[_i].json);

    ck_assert_str_eq(text, documents[_i].text);
    free(text);
}
END_TEST

/* A hostile document costs neither the stack nor the terminal. */
START_TEST(test_deep_document)
{
    char *text;

    text =
        shown("{\"k\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"
              "]]]]]]]]]]]]}");
    ck_assert_ptr_null(strchr(text, '1'));
    free(text);
}
END_TEST

START_TEST(test_table)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct sw_table *t = sw_table_new();

    for (int row = 0; row < 40; row++) {
        sw_table_cell(t, row ? "x" : "Größe");
        sw_table_cell(t, NULL);
        sw_table_cell(t, row == 39 ? "\r" : "y");
        sw_table_row(t);
    }
    sw_table_print(t, 1, f);
    sw_table_print(NULL, 1, f);
    sw_table_cell(NULL, "x");
    sw_table_row(NULL);
    fclose(f);
    ck_assert_mem_eq(text, " Größe    y\n x        y\n", 24);
    ck_assert_ptr_nonnull(strstr(text, "\\r"));
    free(text);
}
END_TEST

static const struct {
    const char *text, *host, *port; /* host NULL = refused */
} hosts[] = {
    {"a:1", "a", "1"},
    {"10.0.0.1:7470", "10.0.0.1", "7470"},
    {"[::1]:65535", "::1", "65535"},
    {"", NULL, NULL},
    {"a", NULL, NULL},
    {":1", NULL, NULL},
    {"[]:1", NULL, NULL},
    {"a:", NULL, NULL},
    {"a:0", NULL, NULL},
    {"a:65536", NULL, NULL},
    {"a:1x", NULL, NULL},
    {"::1:7470", NULL, NULL},
};

START_TEST(test_hosts)
{
    char host[256] = "?", port[6] = "?";
    struct sw_error e = {0};
    const int code = sw_control_split_host(hosts[_i].text, host, port, &e);

    ck_assert_int_eq(code, hosts[_i].host ? 0 : SW_ERR_INVALID);
    ck_assert_str_eq(host, hosts[_i].host ? hosts[_i].host : "?");
    ck_assert_str_eq(port, hosts[_i].host ? hosts[_i].port : "?");
}
END_TEST

START_TEST(test_long_host)
{
    char text[400], host[256], port[6];

    memset(text, 'a', sizeof(text));
    memcpy(text + 256, ":1", 3);
    ck_assert_int_eq(sw_control_split_host(text, host, port, NULL), SW_ERR_INVALID);
    memcpy(text + 255, ":1", 3);
    ck_assert_int_eq(sw_control_split_host(text, host, port, NULL), 0);
}
END_TEST

START_TEST(test_progress)
{
    struct sw_progress *p = sw_progress_start("testing", 10);

    sw_progress_add(p, 5);
    sw_progress_add(NULL, 5);
    ck_assert(sw_progress_end(p) >= 0);
    ck_assert(sw_progress_end(NULL) >= 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("show");
    TCase *c = tcase_create("show");
    SRunner *runner;
    int failed;

    tcase_add_test(c, test_formats);
    tcase_add_loop_test(c, test_documents, 0, sizeof(documents) / sizeof(documents[0]));
    tcase_add_test(c, test_deep_document);
    tcase_add_test(c, test_table);
    tcase_add_loop_test(c, test_hosts, 0, sizeof(hosts) / sizeof(hosts[0]));
    tcase_add_test(c, test_long_host);
    tcase_add_test(c, test_progress);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
