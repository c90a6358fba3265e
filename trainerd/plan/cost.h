/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan costs: who moves how many bytes, how evenly, and how long that would take on a stated
 * machine. Pure. Times are predictions: bytes over bandwidth at the most loaded place, nothing
 * else; protocol, post-processing and engines' draining are not in them.
 */
#ifndef SW_TRAINERD_PLAN_COST_H
#define SW_TRAINERD_PLAN_COST_H

#include "trainerd/plan/plan.h"

struct sw_machine { /* bytes a second */
    double nic;     /* one NIC, each way */
    double pcie;    /* into one engine GPU */
    double stage;   /* out of one trainer GPU into the replica */
    double host;    /* memory of one training host, read or written */
};

struct sw_cost_place { /* a rank, a NIC or a host, of trainers or engines */
    uint32_t host, nic;
    uint64_t replica; /* trainers: memory of the replica, one buffer */
    uint64_t staged;  /* trainers: bytes of tiles; more than the replica when they pass in waves */
    uint64_t moved;   /* bytes sent, or received, in one publish to every target */
    uint32_t pairs;   /* (trainer rank, target) pairs that it is in */
};

enum sw_limit { /* what a predicted time is bound by */
    SW_LIMIT_NOTHING = 0,
    SW_LIMIT_SOURCE_NIC,
    SW_LIMIT_SOURCE_HOST, /* its memory */
    SW_LIMIT_TARGET_PCIE,
    SW_LIMIT_TARGET_NIC,
    SW_LIMIT_STAGE, /* trainer GPU to host */
};

struct sw_cost {
    uint32_t n_ranks, n_targets, n_source_nics, n_target_nics, n_source_hosts, n_target_hosts;
    struct sw_cost_place *ranks, *targets; /* in the order given */
    struct sw_cost_place *source_nics, *target_nics, *source_hosts, *target_hosts;
    uint64_t distinct; /* bytes of all tiles: what is staged */
    uint64_t moved;    /* bytes of all writes */
    uint32_t pairs;
    uint32_t waves;  /* 1 unless the replica is limited */
    uint64_t maxima; /* floats that ranks exchange, all ranks together: shared FP8 blocks */
    /*
     * No assignment can load the busiest source NIC less than this: for a set S of NICs, bytes that
     * only ranks on S hold leave through S, so that some NIC of S sends at least their |S|-th part.
     * The largest such bound over the sets that hold some cell of the plan, and all NICs together.
     */
    uint64_t lower_bound;
    uint64_t busiest; /* bytes of the busiest source NIC */
    double stage_seconds, publish_seconds;
    enum sw_limit stage_limit, publish_limit;
};

/* Ranks and targets as they were planned. Free with sw_cost_clear. */
int sw_cost_make(const struct sw_layout *l, const struct sw_writes *w,
    const struct sw_plan_rank *ranks, uint32_t n_ranks, const struct sw_plan_target *targets,
    uint32_t n_targets, const struct sw_machine *m, struct sw_cost *cost, struct sw_error *e);
void sw_cost_clear(struct sw_cost *c);

/* "the NIC of a source", ... */
const char *sw_limit_name(enum sw_limit limit);

#endif
