/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest as the coordinator keeps it: the sources of one trainer rank or the parameters of one
 * engine rank. It arrives in parts, is stored compactly (names once, dimensions packed: little more
 * than the names themselves) and is expanded into plain arrays when a plan is made.
 */
#ifndef SW_TRAINERD_COORDINATOR_MANIFEST_H
#define SW_TRAINERD_COORDINATOR_MANIFEST_H

#include <shardwire/error.h>
#include "common/message.h"

struct sw_manifest;

/* For `total` items; NULL = no memory. */
struct sw_manifest *sw_manifest_new(uint32_t total);
/* Another reference to a whole one: plans point at its names. */
struct sw_manifest *sw_manifest_hold(struct sw_manifest *m);
void sw_manifest_free(struct sw_manifest *m); /* drops a reference; accepts NULL */

/* Adds a part: it must follow the last one and be of the same total. SW_ERR_PROTOCOL, _NOMEM. */
int sw_manifest_add_sources(
    struct sw_manifest *m, const struct sw_sources *part, struct sw_error *e);
int sw_manifest_add_parameters(
    struct sw_manifest *m, const struct sw_parameters *part, struct sw_error *e);

bool sw_manifest_complete(const struct sw_manifest *m);
uint32_t sw_manifest_count(const struct sw_manifest *m);

/* Field by field, in order. */
bool sw_manifest_equal(const struct sw_manifest *a, const struct sw_manifest *b);

/* All items as an array (the caller frees; names point into the manifest). NULL = no memory. */
struct sw_source *sw_manifest_sources(const struct sw_manifest *m);
struct sw_parameter *sw_manifest_parameters(const struct sw_manifest *m);

/* Memory that it takes, in bytes. */
size_t sw_manifest_memory(const struct sw_manifest *m);

#endif
