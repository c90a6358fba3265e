/* SPDX-License-Identifier: Apache-2.0 */
/* shardwire-make-checkpoint: a checkpoint with true names and shapes and random values. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "tools/architecture.h"
#include "tools/arguments.h"
#include "tools/checkpoint_writer.h"
#include "tools/jobs.h"
#include "tools/model_files.h"

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
    "      --packed            experts packed in one tensor a layer, as Transformers 5 does\n"
    "      --draft             draft (MTP) layers too\n"
    "      --layouts=DIR       folder of layout files (" SW_LAYOUTS_DIR ")\n"
    "      --layout=NAME       which of them (auto: the one for the model's architecture)\n"
    "  -n, --dry-run           print the totals, write nothing\n"
    "  -l, --list              with --dry-run: print each tensor too\n"
    "  -h, --help              this text\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

struct arguments {
    struct sw_write_options write;
    struct sw_architecture_options list_options;
    bool dry_run, list;
    const char *config, *folder, *layouts, *layout;
};

enum { PACKED = 256, DRAFT, LAYOUTS, LAYOUT };

static const struct option options[] = {
    {"seed", required_argument, NULL, 's'},
    {"shard-bytes", required_argument, NULL, 'b'},
    {"threads", required_argument, NULL, 't'},
    {"replace", no_argument, NULL, 'r'},
    {"no-tied-head", no_argument, NULL, 'T'},
    {"packed", no_argument, NULL, PACKED},
    {"draft", no_argument, NULL, DRAFT},
    {"layouts", required_argument, NULL, LAYOUTS},
    {"layout", required_argument, NULL, LAYOUT},
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
        a->list_options.no_tied_head = true;
        return 0;
    case PACKED:
        a->list_options.packed = true;
        return 0;
    case DRAFT:
        a->list_options.draft = true;
        return 0;
    case LAYOUTS:
        a->layouts = optarg;
        return 0;
    case LAYOUT:
        a->layout = optarg;
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

static void print_model(const struct sw_architecture *m, const struct arguments *a)
{
    for (size_t i = 0; a->list && i < m->n; i++) {
        const struct sw_architecture_tensor *t = &m->tensors[i];
        printf("%s %s [", t->name, sw_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->ndim; d++)
            printf("%s%llu", d ? ", " : "", LL(t->shape[d]));
        printf("]%s%s\n", t->tied_to ? " = " : "", t->tied_to ? t->tied_to : "");
    }
    printf("%zu tensors, %llu bytes, %zu files\n", m->n, LL(m->bytes),
        sw_checkpoint_shards(m, a->write.shard_bytes));
}

static int make(const struct arguments *a, const struct sw_architecture *m, struct sw_error *e)
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
        .layouts = SW_LAYOUTS_DIR,
        .layout = "auto",
        .write = {.shard_bytes = 400ull << 20, .threads = sw_jobs_processors()},
    };
    struct sw_error e = {0};
    struct sw_model_files files = {0};
    struct sw_architecture model = {0};
    int code = take_arguments(argc, argv, &a);

    if (code)
        return code - 1;
    code = sw_model_files_read(a.config, a.layouts, a.layout, SW_ENGINE_SGLANG, &files, &e);
    if (!code) {
        a.write.config = files.text;
        a.write.config_bytes = files.length;
        code = sw_architecture_list(files.model, &a.list_options, &model, &e);
    }
    if (!code)
        code = make(&a, &model, &e);
    if (code)
        fprintf(stderr, "shardwire-make-checkpoint: %s\n", e.text);
    sw_architecture_clear(&model);
    sw_model_files_clear(&files);
    return code ? 1 : 0;
}
