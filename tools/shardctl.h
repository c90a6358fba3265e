/* SPDX-License-Identifier: Apache-2.0 */
/* shardctl: what its sub-commands share. Each has a file of its own, ctl_<name>.c. */
#ifndef SW_TOOLS_SHARDCTL_H
#define SW_TOOLS_SHARDCTL_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include <shardwire/trainer.h>
#include "tools/share.h"

enum { /* exit status */
    SW_CTL_OK = 0,
    SW_CTL_FAILED = 1,
    SW_CTL_USAGE = 2,
    SW_CTL_PARTIAL = 3, /* some engines hold the version, some do not */
};

struct sw_ctl {
    const char *socket; /* NULL = the default ones */
    const char *host;   /* "HOST:PORT" of a control port; NULL = a UNIX socket */
    const char *secret_file, *group;
    uint32_t timeout_ms; /* 0 = as the command sees fit */
    uint64_t version;    /* 0 = next, or newest */
    unsigned threads;
    bool strict, json;
    const char *folder;            /* the argument of push and stage */
    struct sw_share_options share; /* which part of it */
};

/* Each returns the exit status and has printed what there is to say. */
int sw_ctl_push(const struct sw_ctl *ctl);
int sw_ctl_stage(const struct sw_ctl *ctl);
int sw_ctl_publish(const struct sw_ctl *ctl);
int sw_ctl_status(const struct sw_ctl *ctl);
int sw_ctl_engines(const struct sw_ctl *ctl);
int sw_ctl_live(const struct sw_ctl *ctl);

/* Has options of its own: argv[0] is "plan". */
int sw_ctl_plan(int argc, char **argv);

/* "shardctl: what: text" on standard error; returns SW_CTL_FAILED. */
int sw_ctl_fail(const char *what, const struct sw_error *e);

/* The outcome of a publish, one line for each engine; returns the exit status that it means: OK,
 * PARTIAL, or FAILED when no engine is live. */
int sw_ctl_print_result(const struct sw_publish_result *r);

/* The daemon's status document; the caller owns *document. Falls back to inferd's socket when no
 * socket was named and trainerd does not run. */
int sw_ctl_get_status(const struct sw_ctl *ctl, json_t **document, struct sw_error *e);

/* What the group's coordinator knows of it, within a document of the coordinating trainerd; NULL
 * (*e says whom to ask) in one of another daemon. Borrowed. */
const json_t *sw_ctl_group_state(const json_t *document, struct sw_error *e);

#endif
