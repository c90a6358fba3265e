/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shardctl.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "common/limits.h"
#include "tools/arguments.h"
#include "tools/jobs.h"

enum { /* which options a command takes, beside socket, group and timeout */
    TAKES_FOLDER = 1,
    TAKES_VERSION = 2,
    TAKES_STAGING = 4, /* threads, strict */
    TAKES_HOST = 8,    /* host, secret-file */
    TAKES_JSON = 16,
};

static const struct {
    const char *name;
    int (*run)(const struct sw_ctl *ctl);
    unsigned takes;
} commands[] = {
    {"push", sw_ctl_push, TAKES_FOLDER | TAKES_VERSION | TAKES_STAGING},
    {"stage", sw_ctl_stage, TAKES_FOLDER | TAKES_VERSION | TAKES_STAGING},
    {"publish", sw_ctl_publish, TAKES_VERSION},
    {"status", sw_ctl_status, TAKES_HOST | TAKES_JSON},
    {"engines", sw_ctl_engines, TAKES_HOST},
    {"live", sw_ctl_live, TAKES_HOST},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char usage[] =
    "Usage: shardctl [OPTION]... COMMAND\n\n"
    "  push DIR     stage the checkpoint in DIR, publish it, and wait until engines are live\n"
    "  stage DIR    stage it only: engines generate on\n"
    "  publish      publish the version staged last (or --version), and wait\n"
    "  status       what the daemon is doing\n"
    "  engines      the engines, their ranks, states and versions\n"
    "  live         the version that each engine serves\n"
    "  plan         who would send what to whom, without trainers or engines: plan --help\n\n"
    "  -s, --socket=PATH       the daemon's UNIX socket (" SW_TRAINERD_SOCKET ";\n"
    "                          status: then " SW_INFERD_SOCKET ")\n"
    "  -H, --host=HOST:PORT    a control port instead: status, engines, live\n"
    "  -S, --secret-file=FILE  the group's secret, for --host\n"
    "  -g, --group=GROUP       (" SW_GROUP_DEFAULT ")\n"
    "  -T, --timeout=SECONDS   give up after this long\n"
    "  -v, --version=N         of push, stage: greater than every one before (the next);\n"
    "                          of publish: (the newest staged)\n"
    "  -t, --threads=N         that copy (one for each processor)\n"
    "      --strict            a tensor that no engine wants is an error, not a warning\n"
    "      --json              status: the document as the daemon gives it\n\n"
    "As one rank of several (push and stage run once for each, at the same time):\n"
    "      --rank=R --world=W  this rank, and how many there are (0 of 1)\n"
    "      --holds=WHAT        gathered: all of its pipeline stage; shards: its Megatron shard;\n"
    "                          fsdp: its rows of every tensor (gathered)\n"
    "      --trainer-tp=N, --trainer-pp=N, --trainer-ep=N  parallel sizes (1)\n"
    "      --layouts=DIR       folder of layout files (" SW_LAYOUTS_DIR ")\n"
    "      --layout=NAME       which of them (auto: the one for the model's architecture)\n"
    "  -h, --help              this text\n\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage; 3 partial: some engines are live at the "
    "version,\n"
    "some are not.\n";

enum { STRICT = 256, JSON, RANK, WORLD, HOLDS, TP, PP, EP, LAYOUTS, LAYOUT };

static const struct option options[] = {
    {"socket", required_argument, NULL, 's'},
    {"host", required_argument, NULL, 'H'},
    {"secret-file", required_argument, NULL, 'S'},
    {"group", required_argument, NULL, 'g'},
    {"timeout", required_argument, NULL, 'T'},
    {"version", required_argument, NULL, 'v'},
    {"threads", required_argument, NULL, 't'},
    {"strict", no_argument, NULL, STRICT},
    {"json", no_argument, NULL, JSON},
    {"rank", required_argument, NULL, RANK},
    {"world", required_argument, NULL, WORLD},
    {"holds", required_argument, NULL, HOLDS},
    {"trainer-tp", required_argument, NULL, TP},
    {"trainer-pp", required_argument, NULL, PP},
    {"trainer-ep", required_argument, NULL, EP},
    {"layouts", required_argument, NULL, LAYOUTS},
    {"layout", required_argument, NULL, LAYOUT},
    {"help", no_argument, NULL, 'h'},
    {0},
};

struct line { /* the command line as it is read */
    struct sw_ctl ctl;
    unsigned given; /* TAKES_* that options asked for */
};

static int wrong(const char *what, const char *value)
{
    fprintf(stderr, "shardctl: %s: \"%s\"; try --help\n", what, value);
    return SW_CTL_USAGE;
}

static int take_number(const char *what, uint64_t min, uint64_t max, uint64_t *out)
{
    return sw_argument_number(optarg, min, max, out) < 0 ? wrong(what, optarg) : 0;
}

static int take_ranks(const char *what, uint64_t min, uint32_t *out)
{
    uint64_t n = 0;
    const int code = take_number(what, min, SW_WORLD_MAX, &n);

    *out = (uint32_t)n;
    return code;
}

static int take_holds(struct sw_trainer_spec *spec)
{
    static const char *const names[] = {"gathered", "shards", "fsdp"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(optarg, names[i]) == 0) {
            spec->holds = (enum sw_trainer_holds)i;
            return 0;
        }
    return wrong("--holds wants gathered, shards or fsdp", optarg);
}

static int take_share(int option, struct line *l)
{
    struct sw_share_options *s = &l->ctl.share;

    l->given |= TAKES_STAGING;
    switch (option) {
    case RANK:
        return take_ranks("--rank wants a number", 0, &s->rank);
    case WORLD:
        return take_ranks("--world wants a number of ranks", 1, &s->spec.world);
    case HOLDS:
        return take_holds(&s->spec);
    case TP:
        return take_ranks("--trainer-tp wants a number of ranks", 1, &s->spec.tp);
    case PP:
        return take_ranks("--trainer-pp wants a number of stages", 1, &s->spec.pp);
    case EP:
        return take_ranks("--trainer-ep wants a number of ranks", 1, &s->spec.ep);
    case LAYOUTS:
        s->layouts = optarg;
        return 0;
    default:
        s->layout = optarg;
        return 0;
    }
}

static int take_option(int option, struct line *l)
{
    uint64_t n = 0;
    int code = 0;

    switch (option) {
    case 's':
        l->ctl.socket = optarg;
        return 0;
    case 'H':
        l->given |= TAKES_HOST;
        l->ctl.host = optarg;
        return 0;
    case 'S':
        l->given |= TAKES_HOST;
        l->ctl.secret_file = optarg;
        return 0;
    case 'g':
        l->ctl.group = optarg;
        return 0;
    case 'T':
        code = take_number("--timeout wants seconds, 1 to 86400", 1, 86400, &n);
        l->ctl.timeout_ms = (uint32_t)n * 1000;
        return code;
    case 'v':
        l->given |= TAKES_VERSION;
        return take_number("--version wants a number from 1 on", 1, INT64_MAX, &l->ctl.version);
    case 't':
        l->given |= TAKES_STAGING;
        code = take_number("--threads wants 1 to 256", 1, 256, &n);
        l->ctl.threads = (unsigned)n;
        return code;
    case STRICT:
        l->given |= TAKES_STAGING;
        l->ctl.strict = true;
        return 0;
    case JSON:
        l->given |= TAKES_JSON;
        l->ctl.json = true;
        return 0;
    default:
        if (option >= RANK)
            return take_share(option, l);
        fputs("Try --help.\n", stderr);
        return SW_CTL_USAGE;
    }
}

static int find_command(const char *name, size_t *found)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) {
            *found = i;
            return 0;
        }
    return wrong("no such command", name);
}

/* Options and arguments that the command has no use for are refused, not ignored. */
static int check_fit(const struct line *l, size_t command, int arguments)
{
    const unsigned takes = commands[command].takes;

    if (l->given & ~takes) {
        fprintf(stderr, "shardctl: an option that %s does not take; try --help\n",
            commands[command].name);
        return SW_CTL_USAGE;
    }
    if (arguments != (takes & TAKES_FOLDER ? 1 : 0)) {
        fprintf(stderr, "shardctl: %s takes %s; try --help\n", commands[command].name,
            takes & TAKES_FOLDER ? "one checkpoint folder" : "no argument");
        return SW_CTL_USAGE;
    }
    if (l->ctl.host && l->ctl.socket) {
        fputs("shardctl: --host or --socket, not both\n", stderr);
        return SW_CTL_USAGE;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct line l = {
        .ctl = {.threads = sw_jobs_processors(),
            .share = {.spec = {.world = 1}, .layouts = SW_LAYOUTS_DIR, .layout = "auto"}}};
    size_t command = 0;
    int option, code = 0;

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && !strcmp(argv[1], "plan"))
        return sw_ctl_plan(argc - 1, argv + 1);
    while (!code && (option = getopt_long(argc, argv, "s:H:S:g:T:v:t:h", options, NULL)) >= 0) {
        if (option == 'h') {
            fputs(usage, stdout);
            return SW_CTL_OK;
        }
        code = take_option(option, &l);
    }
    if (!code && optind == argc) {
        fputs(usage, stderr);
        code = SW_CTL_USAGE;
    }
    if (!code)
        code = find_command(argv[optind], &command);
    if (!code)
        code = check_fit(&l, command, argc - optind - 1);
    if (code)
        return code;
    l.ctl.folder = l.ctl.share.folder = argv[optind + 1];
    code = commands[command].run(&l.ctl);
    if (fflush(stdout) || ferror(stdout)) {
        perror("shardctl: standard output");
        return SW_CTL_FAILED;
    }
    return code;
}

int sw_ctl_fail(const char *what, const struct sw_error *e)
{
    fflush(stdout);
    fprintf(stderr, "shardctl: %s: %s\n", what, e->text);
    return SW_CTL_FAILED;
}
