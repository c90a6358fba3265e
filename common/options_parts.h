/* SPDX-License-Identifier: Apache-2.0 */
/* What options.c, options_file.c and options_text.c share. */
#ifndef SW_COMMON_OPTIONS_PARTS_H
#define SW_COMMON_OPTIONS_PARTS_H

#include <stdbool.h>
#include <stdio.h>
#include "common/options.h"

/* By name, dashes and underscores equal; NULL = unknown. */
const struct sw_option *sw_options_find(const struct sw_program *p, const char *name);

/* Reads the INI file `stream` (named `path` in messages) into *config. */
int sw_options_read(
    const struct sw_program *p, FILE *stream, const char *path, void *config, struct sw_error *e);

/* Options that every program has; a row of the table takes their place. */
enum sw_builtin { SW_BUILTIN_CONFIG, SW_BUILTIN_HELP, SW_BUILTIN_VERSION, SW_BUILTIN_DUMP };
#define SW_BUILTIN_COUNT 4
struct sw_builtin_row {
    const char *name;
    char letter;
    const char *metavar; /* NULL = takes no value */
    const char *help;
};
extern const struct sw_builtin_row sw_builtins[SW_BUILTIN_COUNT];
bool sw_builtin_has_name(const struct sw_program *p, enum sw_builtin b);
bool sw_builtin_has_letter(const struct sw_program *p, enum sw_builtin b);

#endif
