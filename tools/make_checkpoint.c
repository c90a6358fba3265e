/* SPDX-License-Identifier: Apache-2.0 */
/* shardwire-make-checkpoint: a checkpoint with true names and shapes and random values. */
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "tools/architecture.h"
#include "tools/arguments.h"
#include "tools/checkpoint_writer.h"
#include "tools/file.h"
#include "tools/jobs.h"

#define CONFIG_BYTES_MAX (64u << 20)
#define LL(x) ((unsigned long long)(x))

static const char usage[] =
    "Usage: shardwire-make-checkpoint [OPTION]... CONFIG.json DIR\n"
    "       shardwire-make-checkpoint --dry-run [OPTION]... CONFIG.json\n"
    "Writes a Hugging Face checkpoint (sharded safetensors and their index) with the tensors of "
    "the\n"
    "model that CONFIG.json describes and random values. A DIR that holds the same checkpoint\n"
    "already is kept.\n\n"
    "  -s, --seed=N            another seed gives other values (0)\n"
    "  -b, --shard-bytes=SIZE  size of one file, e.g. 500M (400M)\n"
    "  -t, --threads=N         (one for each processor)\n"
    "  -r, --replace           replace another checkpoint that this tool wrote\n"
    "      --no-tied-head      leave out an lm_head.weight that is tied to the embedding\n"
    "  -n, --dry-run           print the totals, write nothing\n"
    "  -l, --list              with --dry-run: print each tensor too\n"
    "  -h, --help              this text\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

struct arguments {
    struct sw_write_options write;
    enum sw_tied_head tied;
    bool dry_run, list;
    const char *config, *folder;
};

static const struct option options[] = {
    {"seed", required_argument, NULL, 's'},
    {"shard-bytes", required_argument, NULL, 'b'},
    {"threads", required_argument, NULL, 't'},
    {"replace", no_argument, NULL, 'r'},
    {"no-tied-head", no_argument, NULL, 'T'},
    {"dry-run", no_argument, NULL, 'n'},
    {"list", no_argument, NULL, 'l'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int wrong(const char *what, const char *value)
{
    fprintf(stderr, "shardwire-make-checkpoint: %s: \"%s\"; try --help\n", what, value);
    return 2;
}

/* 0 = go on; else the exit status plus 1. */
static int take_option(int option, struct arguments *a)
{
    uint64_t n;

    switch (option) {
    case 's':
        return sw_argument_number(optarg, 0, UINT64_MAX, &a->write.seed) < 0
                   ? 1 + wrong("--seed wants a number", optarg)
                   : 0;
    case 'b':
        return sw_argument_size(optarg, 1, UINT64_MAX, &a->write.shard_bytes) < 0
                   ? 1 + wrong("--shard-bytes wants a size like 500M", optarg)
                   : 0;
    case 't':
        if (sw_argument_number(optarg, 1, 256, &n) < 0)
            return 1 + wrong("--threads wants 1 to 256", optarg);
        a->write.threads = (unsigned)n;
        return 0;
    case 'r':
        a->write.replace = true;
        return 0;
    case 'T':
        a->tied = SW_TIED_HEAD_LEFT_OUT;
        return 0;
    case 'n':
        a->dry_run = true;
        return 0;
    case 'l':
        a->list = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        return 1;
    default:
        fputs("Try --help.\n", stderr);
        return 3;
    }
}

static int take_arguments(int argc, char **argv, struct arguments *a)
{
    int option, code = 0;

    while (!code && (option = getopt_long(argc, argv, "s:b:t:rnlh", options, NULL)) >= 0)
        code = take_option(option, a);
    if (code)
        return code;
    if (argc - optind != (a->dry_run ? 1 : 2)) {
        fputs(usage, stderr);
        return 3;
    }
    a->config = argv[optind];
    a->folder = a->dry_run ? NULL : argv[optind + 1];
    return 0;
}

static void print_model(const struct sw_model *m, const struct arguments *a)
{
    for (size_t i = 0; a->list && i < m->n; i++) {
        const struct sw_model_tensor *t = &m->tensors[i];
        printf("%s %s [", t->name, sw_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->ndim; d++)
            printf("%s%llu", d ? ", " : "", LL(t->shape[d]));
        printf("]%s%s\n", t->tied_to ? " = " : "", t->tied_to ? t->tied_to : "");
    }
    printf("%zu tensors, %llu bytes, %zu files\n", m->n, LL(m->bytes),
        sw_checkpoint_shards(m, a->write.shard_bytes));
}

static int make(const struct arguments *a, const struct sw_model *m, struct sw_error *e)
{
    bool kept;
    int code;

    if (a->dry_run) {
        print_model(m, a);
        return 0;
    }
    code = sw_checkpoint_write(a->folder, m, &a->write, &kept, e);
    if (!code)
        printf("%s: %s, %zu tensors, %llu bytes, %zu files\n", a->folder,
            kept ? "there already" : "written", m->n, LL(m->bytes),
            sw_checkpoint_shards(m, a->write.shard_bytes));
    return code;
}

int main(int argc, char **argv)
{
    struct arguments a = {
        .tied = SW_TIED_HEAD_SAVED,
        .write = {.shard_bytes = 400ull << 20, .threads = sw_jobs_processors()},
    };
    struct sw_error e = {0};
    struct sw_model model = {0};
    size_t length = 0;
    char *text = NULL;
    int code = take_arguments(argc, argv, &a);

    if (code)
        return code - 1;
    code = sw_file_read(AT_FDCWD, ".", a.config, CONFIG_BYTES_MAX, &text, &length, &e);
    if (!code) {
        a.write.config = text;
        a.write.config_bytes = length;
        code = sw_model_read(text, length, a.tied, &model, &e);
        if (code)
            sw_error_context(&e, code, "%s", a.config);
    }
    if (!code)
        code = make(&a, &model, &e);
    if (code)
        fprintf(stderr, "shardwire-make-checkpoint: %s\n", e.text);
    sw_model_clear(&model);
    free(text);
    return code ? 1 : 0;
}
