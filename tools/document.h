/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON document for people: `key: value` lines, sections, and tables where it has lists. */
#ifndef SW_TOOLS_DOCUMENT_H
#define SW_TOOLS_DOCUMENT_H

#include <stdio.h>
#include <jansson.h>

/* Prints an object. Nulls and empty texts and lists are left out; keys that end in `bytes` and
 * `_s` get units. */
void sw_document_print(const json_t *object, FILE *out);

#endif
