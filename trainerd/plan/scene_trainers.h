/* SPDX-License-Identifier: Apache-2.0 */
/* The trainers of a scene. Private to scene.c. */
#ifndef SW_TRAINERD_PLAN_SCENE_TRAINERS_H
#define SW_TRAINERD_PLAN_SCENE_TRAINERS_H

#include "trainerd/plan/scene.h"

/* Fills s->ranks and s->n_ranks. */
int sw_scene_trainers(const struct sw_model *m, const struct sw_trainer_spec *spec,
    struct sw_scene *s, struct sw_error *e);

#endif
