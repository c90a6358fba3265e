/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/checkpoint.h"

static char folder[] = "/tmp/sw-test-checkpoint-XXXXXX";

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    DIR *d = opendir(folder);
    struct dirent *entry;

    while ((entry = readdir(d)))
        unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    rmdir(folder);
    memset(folder + strlen(folder) - 6, 'X', 6);
}

static void put(const char *name, const void *bytes, size_t n)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* A file of U8 vectors "name:bytes" (space separated), each filled with its name's first letter. */
static void put_tensors(const char *file, const char *tensors)
{
    char header[4096] = "{", data[4096], all[8200], list[256], *save = NULL;
    size_t used = 0, n;

    snprintf(list, sizeof(list), "%s", tensors);
    for (char *t = strtok_r(list, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(t, ':');
        const size_t bytes = strtoul(colon + 1, NULL, 10);
        *colon = '\0';
        n = strlen(header);
        snprintf(header + n, sizeof(header) - n,
            "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
            n > 1 ? "," : "", t, bytes, used, used + bytes);
        memset(data + used, t[0], bytes);
        used += bytes;
    }
    n = strlen(header);
    header[n++] = '}';
    memset(all, 0, 8);
    all[0] = (char)(n & 255);
    all[1] = (char)(n >> 8);
    memcpy(all + 8, header, n);
    memcpy(all + 8 + n, data, used);
    put(file, all, 8 + n + used);
}

static struct sw_checkpoint *open_good(enum sw_checkpoint_mode mode)
{
    struct sw_checkpoint *c = NULL;
    struct sw_error e = {0};

    ck_assert_msg(sw_checkpoint_open(folder, mode, &c, &e) == 0, "%s", e.text);
    return c;
}

/* Fails with this code, and `text` is part of the message. */
static void open_bad(int code, const char *text)
{
    for (int mode = SW_CHECKPOINT_HEADERS; mode <= SW_CHECKPOINT_DATA; mode++) {
        struct sw_checkpoint *c = NULL;
        struct sw_error e = {0};
        ck_assert_int_eq(sw_checkpoint_open(folder, (enum sw_checkpoint_mode)mode, &c, &e), code);
        ck_assert_msg(strstr(e.text, text), "\"%s\" has no \"%s\"", e.text, text);
        ck_assert_ptr_null(c);
    }
}

#define MAP(entries) "{\"metadata\":{\"total_size\":9},\"weight_map\":{" entries "}}"
#define INDEX "model.safetensors.index.json"

START_TEST(test_single_file)
{
    const struct sw_checkpoint_tensor *t;
    struct sw_checkpoint *c;
    size_t n;

    put_tensors("model.safetensors", "a:5 empty:0 b:3");
    put_text("config.json", "{\"tie_word_embeddings\": true}");
    c = open_good(SW_CHECKPOINT_DATA);
    t = sw_checkpoint_tensors(c, &n);
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(sw_checkpoint_bytes(c), 8);
    ck_assert_str_eq(t[0].name, "a");
    ck_assert_mem_eq(t[0].data, "aaaaa", 5);
    ck_assert_ptr_null(t[1].data);
    ck_assert_ptr_eq(sw_checkpoint_find(c, "b"), &t[2]);
    ck_assert_mem_eq(t[2].data, "bbb", 3);
    ck_assert_ptr_null(sw_checkpoint_find(c, "c"));
    ck_assert(sw_checkpoint_tied(c));
    ck_assert_ptr_null(sw_checkpoint_warning(c, 0));
    ck_assert_int_eq(sw_checkpoint_intact(c, NULL), 0);
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_headers_only)
{
    const struct sw_checkpoint_tensor *t;
    struct sw_checkpoint *c;
    size_t n;

    put_tensors("weights.safetensors", "a:5 b:3"); /* another name: the only one */
    c = open_good(SW_CHECKPOINT_HEADERS);
    t = sw_checkpoint_tensors(c, &n);
    ck_assert_uint_eq(n, 2);
    ck_assert_ptr_null(t[0].data);
    ck_assert_uint_eq(t[1].bytes, 3);
    ck_assert(!sw_checkpoint_tied(c));
    ck_assert_int_eq(sw_checkpoint_intact(c, NULL), 0);
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_sharded)
{
    const struct sw_checkpoint_tensor *t;
    struct sw_checkpoint *c;
    size_t n;

    put_tensors("s2.safetensors", "d:1 c:2");
    put_tensors("s1.safetensors", "b:3 a:4");
    put_text(INDEX, MAP("\"a\":\"s1.safetensors\",\"d\":\"s2.safetensors\","
                        "\"c\":\"s2.safetensors\",\"b\":\"s1.safetensors\""));
    c = open_good(SW_CHECKPOINT_DATA);
    t = sw_checkpoint_tensors(c, &n);
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(sw_checkpoint_files(c), 2);
    ck_assert_str_eq(sw_checkpoint_file(c, 1), "s2.safetensors");
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(t[i].name[0], "badc"[i]);
        ck_assert_int_eq(((const char *)t[i].data)[0], t[i].name[0]);
    }
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_other_index)
{
    struct sw_checkpoint *c;

    put_tensors("s1.safetensors", "a:1");
    put_text("pytorch.safetensors.index.json", MAP("\"a\":\"s1.safetensors\""));
    c = open_good(SW_CHECKPOINT_HEADERS);
    ck_assert_ptr_nonnull(sw_checkpoint_find(c, "a"));
    sw_checkpoint_close(c);
    put_text("more.safetensors.index.json", MAP("\"a\":\"s1.safetensors\""));
    open_bad(SW_ERR_INVALID, "2 *.safetensors.index.json files");
}
END_TEST

START_TEST(test_tensor_not_in_index)
{
    struct sw_checkpoint *c;
    size_t n;

    put_tensors("s1.safetensors", "a:1 b:2 c:3 d:4 e:5");
    put_text(INDEX, MAP("\"c\":\"s1.safetensors\""));
    c = open_good(SW_CHECKPOINT_DATA);
    sw_checkpoint_tensors(c, &n);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(sw_checkpoint_bytes(c), 3);
    ck_assert_str_eq(sw_checkpoint_warning(c, 0),
        "4 tensors are in no index and were left out: a in s1.safetensors, b in s1.safetensors, "
        "d in s1.safetensors, ...");
    ck_assert_ptr_null(sw_checkpoint_warning(c, 1));
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_single_before_index)
{
    struct sw_checkpoint *c;

    put_tensors("model.safetensors", "a:1");
    put_text(INDEX, MAP("\"a\":\"gone.safetensors\""));
    c = open_good(SW_CHECKPOINT_DATA);
    ck_assert_ptr_nonnull(strstr(sw_checkpoint_warning(c, 0), "was not used"));
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_bad_folder)
{
    struct sw_checkpoint *c;
    struct sw_error e;

    ck_assert_int_eq(
        sw_checkpoint_open("/nonexistent", SW_CHECKPOINT_DATA, &c, &e), SW_ERR_NOT_FOUND);
    ck_assert_int_eq(sw_checkpoint_open("/dev/null", SW_CHECKPOINT_DATA, &c, &e), SW_ERR_IO);
    open_bad(SW_ERR_NOT_FOUND, "holds no checkpoint");
    put_tensors("a.safetensors", "a:1");
    put_tensors("b.safetensors", "b:1");
    open_bad(SW_ERR_INVALID, "2 *.safetensors files and no index");
}
END_TEST

START_TEST(test_bad_files)
{
    char path[256];

    put("model.safetensors", "abc", 3);
    open_bad(SW_ERR_INVALID, "model.safetensors: truncated: 3 bytes");
    put("model.safetensors", "", 0);
    open_bad(SW_ERR_INVALID, "model.safetensors: truncated: 0 bytes");
    put("model.safetensors", "\x30\0\0\0\0\0\0\0{}", 10);
    open_bad(SW_ERR_INVALID, "a header of 48 bytes in a file of 10 bytes");
    put("model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    open_bad(SW_ERR_LIMIT, "the format allows 100000000");
    put("model.safetensors", "\2\0\0\0\0\0\0\0{}x", 11);
    open_bad(SW_ERR_INVALID, "model.safetensors: 1 bytes after the last tensor");
    put_tensors("model.safetensors", "a:100 b:7");
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    {
        struct stat st;
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_int_eq(truncate(path, st.st_size - 8), 0);
    }
    open_bad(SW_ERR_INVALID, "is the file truncated?");
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    open_bad(SW_ERR_INVALID, "is no regular file");
}
END_TEST

START_TEST(test_bad_index)
{
    put_tensors("s1.safetensors", "a:1");
    put_tensors("s2.safetensors", "b:1");
    put_text(INDEX, "nonsense");
    open_bad(SW_ERR_INVALID, INDEX " is no valid JSON");
    put_text(INDEX, "{\"weight_map\":[]}");
    open_bad(SW_ERR_INVALID, "no \"weight_map\" object");
    put_text(INDEX, "[]");
    open_bad(SW_ERR_INVALID, "no \"weight_map\" object");
    put_text(INDEX, MAP(""));
    open_bad(SW_ERR_INVALID, "is empty");
    put_text(INDEX, MAP("\"a\":1"));
    open_bad(SW_ERR_INVALID, "tensor a: its file name is no string");
    put_text(INDEX, MAP("\"a\":\"../s1.safetensors\""));
    open_bad(SW_ERR_INVALID, "no name of a file in the same folder");
    put_text(INDEX, MAP("\"a\":\"s1.safetensors\",\"a\":\"s2.safetensors\""));
    open_bad(SW_ERR_INVALID, "duplicate object key");
    put_text(INDEX, MAP("\"a\":\"s1.safetensors\",\"b\":\"s3.safetensors\""));
    open_bad(SW_ERR_NOT_FOUND, INDEX " names a file that is missing");
    put_text(INDEX, MAP("\"a\":\"s1.safetensors\",\"x\":\"s1.safetensors\""));
    open_bad(SW_ERR_INVALID, "says that tensor x is in s1.safetensors, which lacks it");
    put_text(INDEX, MAP("\"a\":\"s2.safetensors\",\"b\":\"s2.safetensors\""));
    open_bad(SW_ERR_INVALID, "tensor a is in s2.safetensors, which lacks it");
    put_tensors("s2.safetensors", "b:1 a:1");
    put_text(INDEX, MAP("\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\""));
    open_bad(SW_ERR_INVALID,
        "tensor a is in s2.safetensors, and model.safetensors.index.json says that it is in s1");
}
END_TEST

START_TEST(test_bad_config)
{
    put_tensors("model.safetensors", "a:1");
    put_text("config.json", "{");
    open_bad(SW_ERR_INVALID, "config.json is no valid JSON");
}
END_TEST

/* Somebody cuts the file short while it is read: no signal ends the process, and it is reported. */
START_TEST(test_truncated_while_mapped)
{
    const struct sw_checkpoint_tensor *t;
    struct sw_checkpoint *c;
    struct sw_error e = {0};
    const long page = sysconf(_SC_PAGESIZE);
    char path[256], *big = calloc(1, 40 * (size_t)page);
    unsigned sum = 0;
    size_t n;
    int header = snprintf(big + 8, 200,
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[%ld],\"data_offsets\":[0,%ld]}}", 32 * page,
        32 * page);

    big[0] = (char)header;
    memset(big + 8 + header, 1, 32 * (size_t)page);
    put("model.safetensors", big, 8 + (size_t)header + 32 * (size_t)page);
    free(big);
    c = open_good(SW_CHECKPOINT_DATA);
    t = sw_checkpoint_tensors(c, &n);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    ck_assert_int_eq(truncate(path, 4 * page), 0);
    for (long i = 0; i < 32 * page; i += 512)
        sum += ((const unsigned char *)t->data)[i];
    ck_assert_uint_gt(sum, 0);
    ck_assert_uint_lt(sum, (unsigned)(5 * page / 512));
    ck_assert_int_eq(sw_checkpoint_intact(c, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "changed while it was read"));
    sw_checkpoint_close(c);
}
END_TEST

/* The same, but the file has its old size again when somebody asks. */
START_TEST(test_damage_is_remembered)
{
    struct sw_checkpoint *c;
    struct sw_error e = {0};
    struct stat st;
    char path[256];
    size_t n;

    put_tensors("model.safetensors", "a:100");
    c = open_good(SW_CHECKPOINT_DATA);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(((const char *)sw_checkpoint_tensors(c, &n)->data)[0], 0);
    ck_assert_int_eq(truncate(path, st.st_size), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    ck_assert_int_eq(sw_checkpoint_intact(c, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "could not be read"));
    sw_checkpoint_close(c);
}
END_TEST

START_TEST(test_written_while_mapped)
{
    struct sw_checkpoint *c;
    struct sw_error e = {0};
    char path[256];

    put_tensors("model.safetensors", "a:100");
    c = open_good(SW_CHECKPOINT_DATA);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){{5, 0}, {5, 0}}, 0), 0);
    ck_assert_int_eq(sw_checkpoint_intact(c, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "was written to"));
    sw_checkpoint_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *c = tcase_create("folder");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, test_single_file);
    tcase_add_test(c, test_headers_only);
    tcase_add_test(c, test_sharded);
    tcase_add_test(c, test_other_index);
    tcase_add_test(c, test_tensor_not_in_index);
    tcase_add_test(c, test_single_before_index);
    tcase_add_test(c, test_bad_folder);
    tcase_add_test(c, test_bad_files);
    tcase_add_test(c, test_bad_index);
    tcase_add_test(c, test_bad_config);
    tcase_add_test(c, test_truncated_while_mapped);
    tcase_add_test(c, test_damage_is_remembered);
    tcase_add_test(c, test_written_while_mapped);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
