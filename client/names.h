/* SPDX-License-Identifier: Apache-2.0 */
/* Name -> index: a hash table over strings that somebody else keeps. Reading it is thread-safe. */
#ifndef SW_CLIENT_NAMES_H
#define SW_CLIENT_NAMES_H

#include <stdint.h>

struct sw_names;

#define SW_NAMES_NONE UINT32_MAX

struct sw_names *sw_names_new(void); /* NULL = no memory */
void sw_names_free(struct sw_names *n);

/* Adds a name (borrowed until the table is freed) that is not there yet. 0, or SW_ERR_NOMEM. */
int sw_names_add(struct sw_names *n, const char *name, uint32_t index);

/* Its index, or SW_NAMES_NONE. */
uint32_t sw_names_find(const struct sw_names *n, const char *name);

#endif
