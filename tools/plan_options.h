/* SPDX-License-Identifier: Apache-2.0 */
/* What `shardctl plan` is asked. From the command line and, with --config, from a file. */
#ifndef SW_TOOLS_PLAN_OPTIONS_H
#define SW_TOOLS_PLAN_OPTIONS_H

#include "common/options.h"
#include "trainerd/plan/scene.h"

struct sw_plan_request {
    /* the model */
    char *model;   /* config.json */
    char *layouts; /* folder of layout files */
    char *layout;  /* "auto" or a file's name */
    bool draft;
    /* trainers */
    uint32_t trainers, trainer_tp, trainer_pp, trainer_ep, trainer_per_host;
    int holds; /* enum sw_trainer_holds */
    bool packed;
    /* engines */
    int kind; /* 0 sglang, 1 vllm */
    uint32_t engines, tp, ep, pp, dp, mlp_tp, head_tp, per_host;
    char *fp8; /* "128x128"; NULL = as config.json says; "no" */
    int scale; /* 0 fp32, 1 ue8m0 */
    bool fused_shared;
    struct sw_host_port engine; /* a live one instead */
    char *secret_file, *group;
    /* the plan */
    int assignment;
    uint64_t replica_limit, host_memory;
    /* the machine, Gbit/s and GB/s (1e9 bytes a second) */
    uint32_t nic_gbit, pcie_gb, stage_gb, host_gb;
    /* what to print */
    bool json;
    char *explain, *svg;
};

/* -1: go on with *request (free with sw_plan_request_clear); else the exit status. */
int sw_plan_request_parse(int argc, char **argv, struct sw_plan_request *request);
void sw_plan_request_clear(struct sw_plan_request *request);

/* What the scene is made of; `config_block` is config.json's FP8 block size ({0, 0}: not FP8).
 * SW_ERR_INVALID quotes what is wrong. */
int sw_plan_request_specs(const struct sw_plan_request *r, const uint32_t config_block[2],
    struct sw_trainer_spec *trainer, struct sw_engine_spec *engine, struct sw_error *e);

#endif
