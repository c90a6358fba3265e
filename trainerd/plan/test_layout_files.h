/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a model from the project's own layout files and a config.json. */
#ifndef SW_TRAINERD_PLAN_TEST_LAYOUT_FILES_H
#define SW_TRAINERD_PLAN_TEST_LAYOUT_FILES_H

#include "trainerd/plan/model.h"

/* layouts/`layout`.layout for tests/data/configs/`config`.json; fails the test with the message. */
struct sw_model *open_model(const char *layout, const char *config, enum sw_engine_kind kind);

/* The same for the text of a config.json. */
struct sw_model *make_model(const char *layout, const char *json, enum sw_engine_kind kind);

uint64_t volume(uint32_t ndim, const uint64_t *shape);

#endif
