/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/engine_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include "common/limits.h"
#include "tools/arguments.h"

static const char usage[] =
    "Usage: shardwire-engine [OPTION]... DIR\n"
    "Shardwire's reference engine: holds the parameters of one engine rank in host memory, "
    "registers\n"
    "them with this host's inferd and follows updates. They are the tensors of the checkpoint in "
    "DIR\n"
    "(of which it reads names, shapes and dtypes only), or with --layout what an engine's rank has "
    "of\n"
    "the model in DIR/config.json. Prints a line for each event on standard output.\n\n"
    "  -n, --name=NAME        name of the engine; its ranks give the same (engine)\n"
    "  -r, --rank=R           rank of this process (0)\n"
    "  -w, --world=W          ranks of the engine (1)\n"
    "  -s, --socket=PATH      inferd's UNIX socket (" SW_INFERD_SOCKET ")\n"
    "  -g, --group=GROUP      (" SW_GROUP_DEFAULT ")\n"
    "  -t, --threads=N        for local copies and digests (1)\n"
    "  -d, --digests=FILE     where digests go; - is standard output (-)\n"
    "      --region-bytes=SIZE  largest region of memory (1T)\n"
    "  -c, --check-interval=MS  between two checks that the weights are unchanged; 0 = never "
    "(1000)\n"
    "  -h, --help             this text\n\n"
    "With a layout; the world is then what the sizes make:\n"
    "      --layout=NAME      auto: the layout file for the model's architecture; or its name\n"
    "      --layouts=DIR      folder of layout files (" SW_LAYOUTS_DIR ")\n"
    "      --kind=KIND        sglang or vllm: whose parameter names (sglang)\n"
    "      --tp=N, --ep=N, --pp=N, --dp=N, --mlp-tp=N, --head-tp=N  parallel sizes\n"
    "      --fp8=ROWSxCOLUMNS  blocks of FP8 weights, or no (as config.json says)\n"
    "      --scale=FORMAT     of FP8 blocks: fp32 or ue8m0 (fp32)\n"
    "      --draft            the draft model's parameters too\n"
    "      --fused-shared     the shared expert is one more slot of the routed ones\n"
    "      --expert-map=FILE  JSON: {\"version\": N, \"map\": [[expert of each physical slot], "
    "...]},\n"
    "                         a row for each layer, or one for all\n\n"
    "SIGUSR1, or a line `digests` on standard input: a line `SHA256 NAME` for each parameter, "
    "then\n"
    "`end VERSION`. While the engine is paused they wait until it resumes.\n\n"
    "Misbehaviour, at PHASE = pause, prepare, post, activate or resume:\n"
    "      --delay=PHASE=MS        acknowledge so much later\n"
    "      --fail=PHASE=TEXT       acknowledge a failure, every time\n"
    "      --fail-once=PHASE=TEXT  the first time only\n"
    "      --die=PHASE             kill itself\n"
    "or by lines on standard input: `hold PHASE` = the next one waits until the line `go`.\n\n"
    "Exit status: 0 ended by SIGTERM or SIGINT, 1 failed, 2 wrong usage, 3 the weights changed "
    "while\n"
    "the engine was not paused.\n";

enum {
    REGION_BYTES = 256,
    DELAY,
    FAIL,
    FAIL_ONCE,
    DIE,
    LAYOUT,
    LAYOUTS,
    KIND,
    TP,
    EP,
    PP,
    DP,
    MLP_TP,
    HEAD_TP,
    FP8,
    SCALE,
    DRAFT,
    FUSED_SHARED,
    EXPERT_MAP
};

static const struct option options[] = {
    {"name", required_argument, NULL, 'n'},
    {"rank", required_argument, NULL, 'r'},
    {"world", required_argument, NULL, 'w'},
    {"socket", required_argument, NULL, 's'},
    {"group", required_argument, NULL, 'g'},
    {"threads", required_argument, NULL, 't'},
    {"digests", required_argument, NULL, 'd'},
    {"region-bytes", required_argument, NULL, REGION_BYTES},
    {"check-interval", required_argument, NULL, 'c'},
    {"delay", required_argument, NULL, DELAY},
    {"fail", required_argument, NULL, FAIL},
    {"fail-once", required_argument, NULL, FAIL_ONCE},
    {"die", required_argument, NULL, DIE},
    {"layout", required_argument, NULL, LAYOUT},
    {"layouts", required_argument, NULL, LAYOUTS},
    {"kind", required_argument, NULL, KIND},
    {"tp", required_argument, NULL, TP},
    {"ep", required_argument, NULL, EP},
    {"pp", required_argument, NULL, PP},
    {"dp", required_argument, NULL, DP},
    {"mlp-tp", required_argument, NULL, MLP_TP},
    {"head-tp", required_argument, NULL, HEAD_TP},
    {"fp8", required_argument, NULL, FP8},
    {"scale", required_argument, NULL, SCALE},
    {"draft", no_argument, NULL, DRAFT},
    {"fused-shared", no_argument, NULL, FUSED_SHARED},
    {"expert-map", required_argument, NULL, EXPERT_MAP},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char *const event_names[SW_EVENT_KINDS] = {
    "none", "pause", "prepare", "post", "activate", "resume"};

const char *sw_event_name(enum sw_event_kind kind)
{
    return (unsigned)kind < SW_EVENT_KINDS ? event_names[kind] : "?";
}

static int wrong(const char *what, const char *value)
{
    fprintf(stderr, "shardwire-engine: %s: \"%s\"; try --help\n", what, value);
    return 3;
}

static int take_number(const char *what, uint32_t min, uint32_t max, uint32_t *out)
{
    uint64_t n;

    if (sw_argument_number(optarg, min, max, &n) < 0)
        return wrong(what, optarg);
    *out = (uint32_t)n;
    return 0;
}

int sw_event_find(const char *name)
{
    for (int i = SW_EVENT_PAUSE; i < SW_EVENT_KINDS; i++)
        if (strcmp(event_names[i], name) == 0)
            return i;
    return -1;
}

static int take_injection(int option, struct sw_engine_arguments *a)
{
    char *value = option == DIE ? NULL : sw_argument_split(optarg);
    const int phase = sw_event_find(optarg);
    uint64_t n;

    if (phase < 0 || (option != DIE && !value))
        return wrong("PHASE=VALUE is wanted", optarg);
    if (option == DELAY) {
        if (sw_argument_number(value, 0, 86400000, &n) < 0)
            return wrong("--delay wants milliseconds", value);
        a->inject[phase].delay_ms = (uint32_t)n;
    } else if (option == DIE) {
        a->inject[phase].die = true;
    } else {
        a->inject[phase].fail = value;
        a->inject[phase].fail_once = option == FAIL_ONCE;
    }
    return 0;
}

static int take_format(int option, struct sw_engine_arguments *a)
{
    struct sw_engine_spec *s = &a->spec;

    if (option == SCALE) {
        if (strcmp(optarg, "fp32") != 0 && strcmp(optarg, "ue8m0") != 0)
            return wrong("--scale wants fp32 or ue8m0", optarg);
        s->scale = strcmp(optarg, "fp32") == 0 ? SW_SCALE_FP32 : SW_SCALE_UE8M0;
        return 0;
    }
    a->fp8_said = true;
    s->block[0] = s->block[1] = 0;
    if (strcmp(optarg, "no") != 0 && sw_argument_block(optarg, s->block) < 0)
        return wrong("--fp8 wants a block like 128x128, or no", optarg);
    return 0;
}

static int take_kind(struct sw_engine_arguments *a)
{
    const int kind = sw_engine_kind_from_name(optarg);

    if (kind != SW_ENGINE_SGLANG && kind != SW_ENGINE_VLLM)
        return wrong("--kind wants sglang or vllm", optarg);
    a->spec.kind = (enum sw_engine_kind)kind;
    return 0;
}

static int take_size(const char *what, uint32_t *out)
{
    return take_number(what, 1, SW_WORLD_MAX, out);
}

static int take_layout(int option, struct sw_engine_arguments *a)
{
    struct sw_engine_spec *s = &a->spec;

    switch (option) {
    case LAYOUT:
        a->layout = optarg;
        return 0;
    case LAYOUTS:
        a->layouts = optarg;
        return 0;
    case KIND:
        return take_kind(a);
    case TP:
        return take_size("--tp wants a number of ranks", &s->tp);
    case EP:
        return take_size("--ep wants a number of ranks", &s->ep);
    case PP:
        return take_size("--pp wants a number of stages", &s->pp);
    case DP:
        return take_size("--dp wants a number of ranks", &s->dp);
    case MLP_TP:
        return take_size("--mlp-tp wants a number of ranks", &s->mlp_tp);
    case HEAD_TP:
        return take_size("--head-tp wants a number of ranks", &s->head_tp);
    case DRAFT:
        s->draft = true;
        return 0;
    case FUSED_SHARED:
        s->fused_shared_experts = 1;
        return 0;
    case EXPERT_MAP:
        a->expert_map = optarg;
        return 0;
    default:
        return take_format(option, a);
    }
}

static int take_option(int option, struct sw_engine_arguments *a)
{
    if (option >= LAYOUT)
        return take_layout(option, a);
    switch (option) {
    case 'n':
        a->name = optarg;
        return 0;
    case 'r':
        return take_number("--rank wants a number", 0, SW_WORLD_MAX - 1, &a->rank);
    case 'w':
        return take_number("--world wants a number", 1, SW_WORLD_MAX, &a->world);
    case 's':
        a->socket = optarg;
        return 0;
    case 'g':
        a->group = optarg;
        return 0;
    case 't':
        return take_number("--threads wants 1 to 256", 1, 256, &a->threads);
    case 'd':
        a->digests = optarg;
        return 0;
    case REGION_BYTES:
        if (sw_argument_size(optarg, 1, SW_BYTES_MAX, &a->region_bytes) < 0)
            return wrong("--region-bytes wants a size like 64M", optarg);
        return 0;
    case 'c':
        return take_number(
            "--check-interval wants milliseconds", 0, 86400000, &a->check_interval_ms);
    case DELAY:
    case FAIL:
    case FAIL_ONCE:
    case DIE:
        return take_injection(option, a);
    case 'h':
        fputs(usage, stdout);
        return 1;
    default:
        fputs("Try --help.\n", stderr);
        return 3;
    }
}

int sw_engine_arguments_parse(int argc, char **argv, struct sw_engine_arguments *a)
{
    int option, code = 0;

    *a = (struct sw_engine_arguments){.name = "engine",
        .world = 1,
        .threads = 1,
        .region_bytes = 1ull << 40,
        .digests = "-",
        .check_interval_ms = 1000,
        .layout = "identity",
        .layouts = SW_LAYOUTS_DIR,
        .spec = {.kind = SW_ENGINE_SGLANG, .scale = SW_SCALE_FP32}};
    while (!code && (option = getopt_long(argc, argv, "n:r:w:s:g:t:d:c:h", options, NULL)) >= 0)
        code = take_option(option, a);
    if (code)
        return code;
    if (argc - optind != 1) {
        fputs(usage, stderr);
        return 3;
    }
    if (strcmp(a->layout, "identity") != 0) {
        struct sw_error e = {0};

        /* config.json's block may come later; a size that isn't one is no matter here. */
        struct sw_engine_spec sizes = a->spec;

        sizes.scale = SW_SCALE_NONE;
        if (sw_scene_engine_world(&sizes, &a->world, &e)) {
            fprintf(stderr, "shardwire-engine: %s\n", e.text);
            return 3;
        }
    }
    if (a->rank >= a->world) {
        fprintf(stderr, "shardwire-engine: rank %u in a world of %u: ranks count from 0\n", a->rank,
            a->world);
        return 3;
    }
    a->folder = argv[optind];
    return 0;
}
