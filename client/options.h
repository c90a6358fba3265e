/* SPDX-License-Identifier: Apache-2.0 */
/* What the public option structs have in common. */
#ifndef SW_CLIENT_OPTIONS_H
#define SW_CLIENT_OPTIONS_H

#include <stddef.h>
#include <shardwire/error.h>
#include "common/handshake.h"

/* Nothing that the daemons' own deadlines decide is waited for longer than this: a daemon that was
 * stopped does not keep its own. */
#define SW_CLIENT_BACKSTOP_MS 3600000u

/* Copies a caller's option struct of `given` bytes (its `size` member) into ours of `size` bytes:
 * an older, shorter one leaves the rest zero; a newer, longer one may ask for nothing we don't
 * know. */
int sw_client_options(
    void *ours, size_t size, const void *theirs, size_t given, struct sw_error *e);

/* A group or engine name: NULL becomes `fallback`; 1 to SW_LABEL_MAX bytes of UTF-8. */
int sw_client_label(char out[SW_LABEL_MAX + 1], const char *what, const char *label,
    const char *fallback, struct sw_error *e);

/* Fills `self` for a process with a new instance id; strings are borrowed. */
int sw_client_identity(struct sw_identity *self, enum sw_role role, const char *group,
    char host[SW_LABEL_MAX * 4 + 1], struct sw_error *e);

#endif
