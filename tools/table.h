/* SPDX-License-Identifier: Apache-2.0 */
/* Text in columns, as wide as they need. */
#ifndef SW_TOOLS_TABLE_H
#define SW_TOOLS_TABLE_H

#include <stddef.h>
#include <stdio.h>

struct sw_table;

/* NULL = no memory; all functions accept NULL. */
struct sw_table *sw_table_new(void);

/* Adds a cell to the last row. The text is copied (NULL = empty); what could confuse a terminal is
 * escaped. */
void sw_table_cell(struct sw_table *t, const char *text);

/* Ends the row. */
void sw_table_row(struct sw_table *t);

/* Prints it, each line after `indent` spaces, and frees it. */
void sw_table_print(struct sw_table *t, unsigned indent, FILE *out);

#endif
