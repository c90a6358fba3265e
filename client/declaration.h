/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer rank declared: its source tensors, checked and copied. */
#ifndef SW_CLIENT_DECLARATION_H
#define SW_CLIENT_DECLARATION_H

#include <stddef.h>
#include <shardwire/error.h>
#include <shardwire/trainer.h>
#include "client/names.h"
#include "common/arena.h"
#include "common/program.h"

struct sw_declaration {
    struct sw_source *sources;
    uint32_t n;
    struct sw_names *names; /* name -> index */
    struct sw_arena arena;
};

int sw_declaration_new(const struct sw_source_tensor *tensors, size_t n,
    struct sw_declaration **declaration, struct sw_error *e);
void sw_declaration_free(struct sw_declaration *d); /* accepts NULL */

/* A tensor or parameter name: 1 to SW_NAME_MAX bytes of UTF-8. `what` is for the message. */
int sw_name_check(const char *what, size_t index, const char *name, struct sw_error *e);

#endif
