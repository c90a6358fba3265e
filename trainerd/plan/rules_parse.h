/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of one section. Private to rules*.c. */
#ifndef SW_TRAINERD_PLAN_RULES_PARSE_H
#define SW_TRAINERD_PLAN_RULES_PARSE_H

#include "trainerd/plan/rules.h"
#include "trainerd/plan/rules_file.h"

struct sw_rule_parsing {
    struct sw_rules *rules; /* with the names of all tensors, and their variables */
    const struct sw_rule_section *section;
    const struct sw_rule_entry *entry; /* the one that is parsed, for messages; NULL = none */
    struct sw_error *e;
};

/* Each returns 0 or fills the error, without its context. */
int sw_rule_parse_tensor_head(struct sw_rule_parsing *p, struct sw_rule_tensor *out);
int sw_rule_parse_tensor(struct sw_rule_parsing *p, struct sw_rule_tensor *out);
int sw_rule_parse_parameter(struct sw_rule_parsing *p, struct sw_rule_parameter *out);

/* ---- what both have ---- */

int sw_rule_expected(struct sw_rule_parsing *p, const char *what, const char *found);
void sw_rule_skip_space(const char **text);
/* Takes the word or sign, and white space behind it. */
bool sw_rule_take_word(const char **text, const char *word);
bool sw_rule_take_sign(const char **text, char sign);
int sw_rule_parse_end(struct sw_rule_parsing *p, const char *text);
int sw_rule_parse_value(struct sw_rule_parsing *p, const char **text, struct sw_rule_value *out);
/* A name of letters, digits and '_'; copied. */
int sw_rule_parse_word(
    struct sw_rule_parsing *p, const char **text, const char *what, const char **out);
int sw_rule_parse_range(struct sw_rule_parsing *p, const char **text, struct sw_rule_range *out);
/* `for`, `when`, `dtype`, `draft` of the section. */
int sw_rule_parse_head(struct sw_rule_parsing *p, struct sw_rule_head *out);
/* Sets p->entry; false when the key is not given. */
bool sw_rule_find(struct sw_rule_parsing *p, const char *key);
uint32_t sw_rule_count(const struct sw_rule_parsing *p, const char *key);
int sw_rule_parse_yes(struct sw_rule_parsing *p, const char *key, bool *out);
/* Refuses keys that are not in the list (its end: NULL). */
int sw_rule_check_keys(struct sw_rule_parsing *p, const char *const *keys);
int sw_rule_parse_pattern(struct sw_rule_parsing *p, const char *name,
    const struct sw_rule_head *head, struct sw_pattern *out);
const char *sw_rule_where(struct sw_rule_parsing *p, const char *file, uint32_t line);

#endif
