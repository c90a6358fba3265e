/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan_options.h"

#include <stdio.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/arguments.h"

static const char *const holds_names[] = {"gathered", "shards", "fsdp", NULL};
static const char *const kind_names[] = {"sglang", "vllm", NULL};
static const char *const scale_names[] = {"fp32", "ue8m0", NULL};
static const char *const assignment_names[] = {"balanced", "lmsys", NULL};

#define FIELD(member) SW_FIELD(struct sw_plan_request, member)
#define RANKS(n, member_, def, help_)                                                              \
    {                                                                                              \
        .name = (n), .type = SW_OPTION_UINT, FIELD(member_), .min = 1, .max = SW_WORLD_MAX,        \
        .number = (def), .help = (help_)                                                           \
    }

static const struct sw_option options[] = {
    {.name = "model",
        .letter = 'm',
        .type = SW_OPTION_PATH,
        FIELD(model),
        .heading = "The model",
        .help = "its config.json"},
    {.name = "layouts",
        .letter = 'l',
        .type = SW_OPTION_PATH,
        FIELD(layouts),
        .text = SW_LAYOUTS_DIR,
        .help = "folder of layout files"},
    {.name = "layout",
        .type = SW_OPTION_STRING,
        FIELD(layout),
        .text = "auto",
        .help = "which of them; auto: the one for the model's architecture"},
    {.name = "draft",
        .type = SW_OPTION_BOOL,
        FIELD(draft),
        .help = "trainers and engines hold the draft (MTP) layers too"},
    {.name = "trainers",
        .type = SW_OPTION_UINT,
        FIELD(trainers),
        .min = 1,
        .max = SW_WORLD_MAX,
        .number = 8,
        .unit = "ranks",
        .heading = "Trainers",
        .help = "trainer ranks, one for each GPU"},
    RANKS("trainer-tp", trainer_tp, 1, "tensor-parallel ranks"),
    RANKS("trainer-pp", trainer_pp, 1, "pipeline stages"),
    RANKS("trainer-ep", trainer_ep, 1, "expert-parallel ranks"),
    {.name = "holds",
        .type = SW_OPTION_ENUM,
        FIELD(holds),
        .names = holds_names,
        .help =
            "what a rank has: all of its pipeline stage, its Megatron shards, or its FSDP rows"},
    {.name = "packed",
        .type = SW_OPTION_BOOL,
        FIELD(packed),
        .help = "experts as Transformers 5 packs them"},
    RANKS("trainer-host", trainer_per_host, 8, "trainer ranks of one host, each with a NIC"),
    {.name = "kind",
        .letter = 'k',
        .type = SW_OPTION_ENUM,
        FIELD(kind),
        .names = kind_names,
        .heading = "Engines",
        .help = "whose parameter names"},
    RANKS("engines", engines, 1, "engines, all alike"),
    RANKS("tp", tp, 1, "tensor-parallel ranks of one engine"),
    RANKS("ep", ep, 1, "expert-parallel ranks"),
    RANKS("pp", pp, 1, "pipeline stages"),
    RANKS("dp", dp, 1, "data-parallel ranks of attention (sglang: within tp; vllm: times tp)"),
    {.name = "mlp-tp",
        .type = SW_OPTION_UINT,
        FIELD(mlp_tp),
        .max = SW_WORLD_MAX,
        .help = "tensor-parallel ranks of dense MLPs; 0: as the engine does by itself"},
    {.name = "head-tp",
        .type = SW_OPTION_UINT,
        FIELD(head_tp),
        .max = SW_WORLD_MAX,
        .help = "of lm_head, likewise"},
    {.name = "fp8",
        .type = SW_OPTION_STRING,
        FIELD(fp8),
        .help = "block size, as 128x128, or no; not given: as config.json says"},
    {.name = "scale",
        .type = SW_OPTION_ENUM,
        FIELD(scale),
        .names = scale_names,
        .help = "scale format of FP8 blocks"},
    {.name = "fused-shared",
        .type = SW_OPTION_BOOL,
        FIELD(fused_shared),
        .help = "the shared expert is one more routed one"},
    RANKS("host", per_host, 8, "engine ranks of one host, each with a NIC"),
    {.name = "engine",
        .letter = 'e',
        .type = SW_OPTION_HOST_PORT,
        FIELD(engine),
        .number = SW_INFERD_PORT,
        .flags = SW_OPTION_NOT_IN_FILE,
        .help = "the engines that this host's inferd has, instead of made up ones"},
    {.name = "secret-file",
        .letter = 'S',
        .type = SW_OPTION_PATH,
        FIELD(secret_file),
        .help = "the group's secret, for --engine"},
    {.name = "group",
        .letter = 'g',
        .type = SW_OPTION_STRING,
        FIELD(group),
        .min = 1,
        .max = SW_LABEL_MAX,
        .text = SW_GROUP_DEFAULT,
        .help = "the group, for --engine"},
    {.name = "assign",
        .type = SW_OPTION_ENUM,
        FIELD(assignment),
        .names = assignment_names,
        .heading = "The plan",
        .help = "which of the ranks that hold a tensor sends it: by bytes, or as the LMSYS post "
                "maps sources to targets"},
    {.name = "replica-limit",
        .type = SW_OPTION_BYTES,
        FIELD(replica_limit),
        .max = SW_BYTES_MAX,
        .help = "memory of one rank's replica; with less than all of it, tensors pass in waves. 0: "
                "no limit"},
    {.name = "host-memory",
        .type = SW_OPTION_BYTES,
        FIELD(host_memory),
        .max = SW_BYTES_MAX,
        .help = "memory of a training host: a warning where both buffers of the replica are more"},
    {.name = "nic",
        .type = SW_OPTION_UINT,
        FIELD(nic_gbit),
        .min = 1,
        .max = 100000,
        .number = 400,
        .unit = "Gbit/s",
        .heading = "The machine that times are predicted for",
        .help = "each NIC"},
    {.name = "pcie",
        .type = SW_OPTION_UINT,
        FIELD(pcie_gb),
        .min = 1,
        .max = 100000,
        .number = 55,
        .unit = "GB/s",
        .help = "into one GPU"},
    {.name = "stage",
        .type = SW_OPTION_UINT,
        FIELD(stage_gb),
        .min = 1,
        .max = 100000,
        .number = 55,
        .unit = "GB/s",
        .help = "out of one GPU into the replica"},
    {.name = "host-read",
        .type = SW_OPTION_UINT,
        FIELD(host_gb),
        .min = 1,
        .max = 1000000,
        .number = 400,
        .unit = "GB/s",
        .help = "memory of one training host"},
    {.name = "json",
        .type = SW_OPTION_BOOL,
        FIELD(json),
        .flags = SW_OPTION_NOT_IN_FILE,
        .heading = "What to print",
        .help = "all of it as JSON"},
    {.name = "explain",
        .letter = 'x',
        .type = SW_OPTION_STRING,
        FIELD(explain),
        .max = SW_NAME_MAX,
        .flags = SW_OPTION_NOT_IN_FILE,
        .help = "one tensor or parameter: from which boxes, through which rule, to which ranks"},
    {.name = "svg",
        .type = SW_OPTION_PATH,
        FIELD(svg),
        .flags = SW_OPTION_NOT_IN_FILE,
        .help = "a picture of who sends what to whom, into this file"},
};

static const struct sw_program program = {.name = "plan",
    .version = "shardctl " SW_VERSION,
    .about = "Plans how a model's weights go from trainers to engines, without either: who sends "
             "what to whom, how much memory the replica takes, how long staging and the pause "
             "would be. Times are predictions from the bandwidths given.",
    .notes = "Exit status: 0 planned; 1 there is no plan, and why; 2 wrong usage.\n",
    .config_dir = SW_CONFIG_DIR,
    .options = options,
    .count = sizeof(options) / sizeof(options[0])};

int sw_plan_request_parse(int argc, char **argv, struct sw_plan_request *request)
{
    struct sw_options_outcome outcome;
    const int code = sw_options_main(&program, argc, argv, request, &outcome);

    if (code >= 0)
        return code;
    sw_options_outcome_clear(&outcome);
    if (!request->model && !request->engine.host) {
        fputs("shardctl: plan wants --model CONFIG.JSON, or --engine HOST; try plan --help\n",
            stderr);
        sw_plan_request_clear(request);
        return 2;
    }
    return -1;
}

void sw_plan_request_clear(struct sw_plan_request *request)
{
    sw_options_free(&program, request);
}

int sw_plan_request_specs(const struct sw_plan_request *r, const uint32_t config_block[2],
    struct sw_trainer_spec *trainer, struct sw_engine_spec *engine, struct sw_error *e)
{
    uint32_t block[2] = {config_block[0], config_block[1]};

    if (r->fp8 && !strcmp(r->fp8, "no"))
        block[0] = block[1] = 0;
    else if (r->fp8 && sw_argument_block(r->fp8, block) < 0)
        return sw_fail(e, SW_ERR_INVALID,
            "--fp8: \"%s\"; rows x columns of a block are expected, as in 128x128, or no", r->fp8);
    *trainer = (struct sw_trainer_spec){.holds = (enum sw_trainer_holds)r->holds,
        .world = r->trainers,
        .tp = r->trainer_tp,
        .pp = r->trainer_pp,
        .ep = r->trainer_ep,
        .per_host = r->trainer_per_host,
        .packed = r->packed,
        .draft = r->draft};
    *engine = (struct sw_engine_spec){.kind = r->kind ? SW_ENGINE_VLLM : SW_ENGINE_SGLANG,
        .engines = r->engines,
        .tp = r->tp,
        .ep = r->ep,
        .pp = r->pp,
        .dp = r->dp,
        .scale = !block[0]  ? SW_SCALE_NONE
                 : r->scale ? SW_SCALE_UE8M0
                            : SW_SCALE_FP32,
        .block = {block[0], block[1]},
        .fused_shared_experts = r->fused_shared,
        .mlp_tp = r->mlp_tp,
        .head_tp = r->head_tp,
        .per_host = r->per_host,
        .draft = r->draft};
    return 0;
}
