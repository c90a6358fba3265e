/* SPDX-License-Identifier: Apache-2.0 */
/* A rule file as sections of keys and values, with what it includes. Private to rules*.c. */
#ifndef SW_TRAINERD_PLAN_RULES_FILE_H
#define SW_TRAINERD_PLAN_RULES_FILE_H

#include "common/arena.h"
#include "trainerd/plan/model.h"

#define SW_RULE_SECTIONS_MAX 2048
#define SW_RULE_ENTRIES_MAX 65536 /* lines with a value, of all files together */
#define SW_RULE_SECTION_MAX 4096  /* of them in one section */
#define SW_RULE_FILES_MAX 16

enum sw_section_kind {
    SW_SECTION_LAYOUT,
    SW_SECTION_DEFINE,
    SW_SECTION_TENSOR,
    SW_SECTION_PARAMETER,
    SW_SECTION_SKIP,
    SW_SECTION_DERIVED,
};

struct sw_rule_entry {
    const char *key, *value;
    const char *file; /* definitions of several files come together */
    uint32_t line;
};

struct sw_rule_section {
    enum sw_section_kind kind;
    const char *header; /* "tensor gate" */
    const char *name;   /* "gate", or "" */
    const char *file;
    uint32_t line;
    bool fresh; /* of the file that is being put into those that it includes */
    uint32_t n, size;
    struct sw_rule_entry *entries; /* in the arena */
};

struct sw_rule_file {
    uint32_t n;
    struct sw_rule_section *sections[SW_RULE_SECTIONS_MAX];
};

struct sw_rule_reading { /* all files together */
    struct sw_arena *arena;
    sw_rules_read *read;
    void *arg;
    uint32_t n_files, n_entries;
    const char *files[SW_RULE_FILES_MAX];
    struct sw_error *e;
};

/*
 * The sections of one file, without what it includes; each header once, but for parameters. Values
 * of one key on several lines are one entry each where the key can be given several times, else
 * joined.
 */
int sw_rule_file_read(struct sw_rule_reading *r, const char *file, const char *text, size_t length,
    struct sw_rule_file *out);

/* The entry of a key; NULL = not given. */
const struct sw_rule_entry *sw_rule_section_get(const struct sw_rule_section *s, const char *key);

int sw_rule_section_add(
    struct sw_rule_reading *r, struct sw_rule_section *s, struct sw_rule_entry x);

/* "FILE:LINE: [section] key: " in front of the error. */
int sw_rule_context(struct sw_error *e, int code, const struct sw_rule_section *s,
    const struct sw_rule_entry *entry);

#endif
