/* SPDX-License-Identifier: Apache-2.0 */
/* Write programs as they arrive: targets of a membership epoch, each with the extents of each rank.
 * Counted references: a delivery under way keeps the programs it was published with. */
#ifndef SW_TRAINERD_WRITER_PROGRAM_H
#define SW_TRAINERD_WRITER_PROGRAM_H

#include <shardwire/error.h>
#include "common/message.h"

struct sw_program { /* what one trainer rank writes to one target */
    uint32_t rank;
    uint64_t n, received;
    uint64_t bytes;
    struct sw_extent *extents;
};

struct sw_programs { /* of one target */
    unsigned refs;
    struct sw_target target; /* strings and arrays in `arena` */
    struct sw_arena arena;
    uint32_t n;
    struct sw_program *items;
};

struct sw_programs *sw_programs_hold(struct sw_programs *p);
void sw_programs_release(struct sw_programs *p); /* accepts NULL */

struct sw_program_table { /* of one membership epoch; items sorted by target number */
    uint64_t layout_epoch, membership_epoch;
    uint32_t n, received;
    struct sw_programs **items;
};

void sw_program_table_clear(struct sw_program_table *t);
/* Take parts (borrowed); errors when they do not join, or lack of memory. Extents of a target that
 * a delivery holds are refused: it goes by them. */
int sw_program_table_targets(
    struct sw_program_table *t, const struct sw_targets *part, struct sw_error *e);
int sw_program_table_extents(
    struct sw_program_table *t, const struct sw_write_program *part, struct sw_error *e);
/* NULL = no such target, or its programs are not whole. */
struct sw_programs *sw_program_table_find(
    const struct sw_program_table *t, uint32_t target, struct sw_error *e);

#endif
