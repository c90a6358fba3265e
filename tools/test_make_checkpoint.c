/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/architecture.h"
#include "tools/arguments.h"
#include "tools/checkpoint.h"
#include "tools/checkpoint_writer.h"
#include "tools/file.h"
#include "tools/model_files.h"
#include "tools/random_values.h"

static void read_model(const char *name, struct sw_model_files *files)
{
    struct sw_error e = {0};

    ck_assert_msg(
        sw_model_files_read(name, LAYOUTS, "auto", SW_ENGINE_SGLANG, files, &e) == 0, "%s", e.text);
}

static void list_model(const struct sw_model_files *files, const struct sw_architecture_options *o,
    struct sw_architecture *out)
{
    struct sw_error e = {0};

    ck_assert_msg(sw_architecture_list(files->model, o, out, &e) == 0, "%s", e.text);
}

static const struct sw_architecture_tensor *find(const struct sw_architecture *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    ck_abort_msg("no tensor %s", name);
}

/* The public totals of the real checkpoint. */
START_TEST(test_qwen3_totals)
{
    const struct sw_architecture_tensor *t;
    struct sw_model_files files;
    struct sw_architecture m;

    read_model(CONFIGS "/Qwen3-0.6B.json", &files);
    list_model(&files, &(struct sw_architecture_options){0}, &m);
    ck_assert_uint_eq(m.n, 311);
    ck_assert_uint_eq(m.bytes, 1503264768);
    t = find(&m, "lm_head.weight");
    ck_assert_str_eq(t->tied_to, "model.embed_tokens.weight");
    t = find(&m, "model.layers.27.self_attn.o_proj.weight");
    ck_assert_uint_eq(t->ndim, 2);
    ck_assert_uint_eq(t->shape[0], 1024);
    ck_assert_uint_eq(t->shape[1], 2048);
    t = find(&m, "model.layers.0.self_attn.q_norm.weight");
    ck_assert_uint_eq(t->ndim, 1);
    ck_assert_uint_eq(t->shape[0], 128);
    sw_architecture_clear(&m);
    list_model(&files, &(struct sw_architecture_options){.no_tied_head = true}, &m);
    ck_assert_uint_eq(m.n, 310);
    ck_assert_uint_eq(m.bytes, 2 * 596049920ull);
    sw_architecture_clear(&m);
    sw_model_files_clear(&files);
}
END_TEST

/* Experts one by one or packed: the same bytes. */
START_TEST(test_packed_experts)
{
    struct sw_model_files files;
    struct sw_architecture split, packed;

    read_model(CONFIGS "/Qwen3-30B-A3B.json", &files);
    list_model(&files, &(struct sw_architecture_options){0}, &split);
    list_model(&files, &(struct sw_architecture_options){.packed = true}, &packed);
    ck_assert_uint_eq(split.bytes, 61064245248);
    ck_assert_uint_eq(packed.bytes, split.bytes);
    ck_assert_uint_eq(split.n - packed.n, 48 * (128 * 3 - 2));
    ck_assert_uint_eq(find(&packed, "model.layers.0.mlp.experts.gate_up_proj")->shape[0], 128);
    sw_architecture_clear(&split);
    sw_architecture_clear(&packed);
    sw_model_files_clear(&files);
}
END_TEST

START_TEST(test_values_are_finite)
{
    uint16_t bf16[1001], f16[1001], again[1001];
    float f32[1001];

    sw_random_fill(bf16, sizeof(bf16), SW_BF16, 1, 2);
    sw_random_fill(f16, sizeof(f16), SW_F16, 1, 2);
    sw_random_fill(f32, sizeof(f32), SW_F32, 1, 2);
    for (int i = 0; i < 1001; i++) {
        const uint32_t bits = (uint32_t)bf16[i] << 16;
        const unsigned exponent = f16[i] >> 10 & 31;
        float x;
        memcpy(&x, &bits, sizeof(x));
        ck_assert(fabsf(x) >= 1.0f / 128 && fabsf(x) < 2);
        ck_assert(fabsf(f32[i]) >= 1.0f / 128 && fabsf(f32[i]) < 2);
        ck_assert(exponent >= 8 && exponent < 16);
    }
    sw_random_fill(again, sizeof(again), SW_BF16, 1, 2);
    ck_assert_mem_eq(again, bf16, sizeof(again));
    sw_random_fill(again, sizeof(again), SW_BF16, 1, 3);
    ck_assert_mem_ne(again, bf16, sizeof(again));
    sw_random_fill(again, sizeof(again), SW_BF16, 2, 2);
    ck_assert_mem_ne(again, bf16, sizeof(again));
}
END_TEST

struct fixture {
    char base[64], folder[80];
    struct sw_model_files files;
    struct sw_architecture model;
    struct sw_write_options options;
};
static struct fixture f;

static void set_up(void)
{
    strcpy(f.base, "/tmp/sw-test-make-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f.base));
    snprintf(f.folder, sizeof(f.folder), "%s/out/", f.base);
    read_model(CONFIGS "/tiny-qwen3.json", &f.files);
    list_model(&f.files, &(struct sw_architecture_options){0}, &f.model);
    f.options = (struct sw_write_options){.seed = 1,
        .shard_bytes = 100000,
        .threads = 3,
        .config = f.files.text,
        .config_bytes = f.files.length};
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static void tear_down(void)
{
    ck_assert_int_eq(nftw(f.base, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    sw_architecture_clear(&f.model);
    sw_model_files_clear(&f.files);
}

static bool write_good(void)
{
    struct sw_error e = {0};
    bool kept;

    ck_assert_msg(
        sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e) == 0, "%s", e.text);
    return kept;
}

static struct sw_checkpoint *open_good(void)
{
    struct sw_checkpoint *c = NULL;
    struct sw_error e = {0};

    ck_assert_msg(sw_checkpoint_open(f.folder, SW_CHECKPOINT_DATA, &c, &e) == 0, "%s", e.text);
    return c;
}

START_TEST(test_reads_back)
{
    const struct sw_checkpoint_tensor *t, *head;
    struct sw_checkpoint *c;
    size_t n;

    ck_assert(!write_good());
    c = open_good();
    t = sw_checkpoint_tensors(c, &n);
    ck_assert_uint_eq(n, f.model.n);
    ck_assert_uint_eq(sw_checkpoint_bytes(c), f.model.bytes);
    ck_assert_uint_eq(sw_checkpoint_files(c), sw_checkpoint_shards(&f.model, 100000));
    ck_assert_uint_gt(sw_checkpoint_files(c), 2);
    ck_assert(sw_checkpoint_tied(c));
    for (size_t i = 0; i < n; i++) {
        const struct sw_architecture_tensor *m = find(&f.model, t[i].name);
        ck_assert_uint_eq(t[i].ndim, m->ndim);
        ck_assert_mem_eq(t[i].shape, m->shape, sizeof(m->shape));
        ck_assert_int_eq(t[i].dtype, m->dtype);
    }
    head = sw_checkpoint_find(c, "lm_head.weight");
    t = sw_checkpoint_find(c, "model.embed_tokens.weight");
    ck_assert_mem_eq(head->data, t->data, t->bytes);
    sw_checkpoint_close(c);
}
END_TEST

/* Values come from seed and name alone: not from shards, threads or the order of writing. */
START_TEST(test_same_seed_same_values)
{
    struct sw_checkpoint *one, *two, *other;
    const struct sw_checkpoint_tensor *t;
    size_t n;

    write_good();
    one = open_good();
    snprintf(f.folder, sizeof(f.folder), "%s/two", f.base);
    f.options.shard_bytes = 1 << 30;
    f.options.threads = 1;
    write_good();
    two = open_good();
    snprintf(f.folder, sizeof(f.folder), "%s/three", f.base);
    f.options.seed = 2;
    write_good();
    other = open_good();
    ck_assert_uint_eq(sw_checkpoint_files(two), 1);
    t = sw_checkpoint_tensors(one, &n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_mem_eq(t[i].data, sw_checkpoint_find(two, t[i].name)->data, t[i].bytes);
        ck_assert_mem_ne(t[i].data, sw_checkpoint_find(other, t[i].name)->data, t[i].bytes);
    }
    sw_checkpoint_close(one);
    sw_checkpoint_close(two);
    sw_checkpoint_close(other);
}
END_TEST

START_TEST(test_keeps_and_replaces)
{
    struct sw_error e = {0};
    char path[128];
    bool kept;

    ck_assert(!write_good());
    ck_assert(write_good());
    f.options.seed = 5;
    ck_assert_int_eq(sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e), SW_ERR_EXISTS);
    f.options.replace = true;
    ck_assert(!write_good());
    ck_assert(write_good());
    /* damaged: written anew */
    snprintf(path, sizeof(path), "%smodel-00001-of-%05zu.safetensors", f.folder,
        sw_checkpoint_shards(&f.model, 100000));
    ck_assert_int_eq(truncate(path, 1000), 0);
    ck_assert(!write_good());
    sw_checkpoint_close(open_good());
}
END_TEST

START_TEST(test_never_replaces_what_is_not_ours)
{
    struct sw_error e = {0};
    char path[128];
    bool kept;
    int fd;

    ck_assert_int_eq(mkdir(f.folder, 0755), 0);
    f.options.replace = true;
    ck_assert(!write_good()); /* empty: as good as none */
    snprintf(path, sizeof(path), "%s.shardwire-checkpoint", f.folder);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e), SW_ERR_EXISTS);
    ck_assert_ptr_nonnull(strstr(e.text, "was not made by this tool"));
    sw_checkpoint_close(open_good());
    snprintf(f.folder, sizeof(f.folder), "%s/file", f.base);
    fd = open(f.folder, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e), SW_ERR_EXISTS);
}
END_TEST

/* However it ends, the folder beside which it was written holds nothing else. */
START_TEST(test_nothing_is_left_behind)
{
    struct sw_error e = {0};
    struct rlimit limit;
    unsigned entries = 0;
    bool kept;
    DIR *d;

    write_good();
    f.options.seed = 9;
    ck_assert_int_eq(sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e), SW_ERR_EXISTS);
    f.options.replace = true;
    write_good();
    f.options.seed = 10;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){70000, limit.rlim_max}); /* fails in the middle */
    ck_assert_int_eq(sw_checkpoint_write(f.folder, &f.model, &f.options, &kept, &e), SW_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &limit);
    sw_checkpoint_close(open_good());
    d = opendir(f.base);
    while (readdir(d))
        entries++;
    closedir(d);
    ck_assert_uint_eq(entries, 3); /* ".", ".." and "out" */
}
END_TEST

START_TEST(test_arguments)
{
    char pair[] = "pause=5=6", none[] = "pause", empty[] = "=5";
    uint64_t n = 7;

    ck_assert_int_eq(sw_argument_number("12", 1, 20, &n), 0);
    ck_assert_uint_eq(n, 12);
    ck_assert_int_eq(sw_argument_number("21", 1, 20, &n), -1);
    ck_assert_int_eq(sw_argument_number("0", 1, 20, &n), -1);
    ck_assert_int_eq(sw_argument_number("-1", 0, UINT64_MAX, &n), -1);
    ck_assert_int_eq(sw_argument_number(" 1", 0, 20, &n), -1);
    ck_assert_int_eq(sw_argument_number("1x", 0, 20, &n), -1);
    ck_assert_int_eq(sw_argument_number("", 0, 20, &n), -1);
    ck_assert_int_eq(sw_argument_number("99999999999999999999", 0, UINT64_MAX, &n), -1);
    ck_assert_int_eq(sw_argument_size("3M", 1, UINT64_MAX, &n), 0);
    ck_assert_uint_eq(n, 3 << 20);
    ck_assert_int_eq(sw_argument_size("2KiB", 1, UINT64_MAX, &n), 0);
    ck_assert_uint_eq(n, 2048);
    ck_assert_int_eq(sw_argument_size("2Kx", 1, UINT64_MAX, &n), -1);
    ck_assert_int_eq(sw_argument_size("2P", 1, UINT64_MAX, &n), -1);
    ck_assert_int_eq(sw_argument_size("18446744073709551615k", 1, UINT64_MAX, &n), -1);
    ck_assert_str_eq(sw_argument_split(pair), "5=6");
    ck_assert_str_eq(pair, "pause");
    ck_assert_ptr_null(sw_argument_split(none));
    ck_assert_ptr_null(sw_argument_split(empty));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("make_checkpoint");
    TCase *model = tcase_create("model"), *folder = tcase_create("folder");
    SRunner *runner;
    int failed;

    tcase_add_test(model, test_qwen3_totals);
    tcase_add_test(model, test_packed_experts);
    tcase_add_test(model, test_values_are_finite);
    tcase_add_test(model, test_arguments);
    tcase_add_checked_fixture(folder, set_up, tear_down);
    tcase_add_test(folder, test_reads_back);
    tcase_add_test(folder, test_same_seed_same_values);
    tcase_add_test(folder, test_keeps_and_replaces);
    tcase_add_test(folder, test_never_replaces_what_is_not_ours);
    tcase_add_test(folder, test_nothing_is_left_behind);
    suite_add_tcase(suite, model);
    suite_add_tcase(suite, folder);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
