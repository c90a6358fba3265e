/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a conversation with the coordinator as text. A step is a line that comes in and the
 * lines that must come out, in order, one for each action ('*' stands for anything). Log lines are
 * there from warnings up, as "log 3 ..." and "log 4 ...".
 *
 *   up t1 | up i1 [unnamed]       a trainerd (t...) or inferd (i...) connects and presents itself
 *   down t1 [why]
 *   time MS                       time passes, and a tick comes
 *   open t1 RANK WORLD [PROCESS]  processes are small numbers; of trainers 10 + rank if not given
 *   sources t1 RANK WORLD a:8,b:4 [PROCESS]   names and bytes
 *   part t1 RANK WORLD FIRST TOTAL a:8        one part of a longer manifest
 *   gone t1 RANK [PROCESS]
 *   engine i1 A RANK WORLD PROCESS a:8,b:4|a=lm [VERSION [torn]]   "=": an alias of the one before
 *   half i1 A RANK WORLD PROCESS  an engine rank whose parameters do not come
 *   begin t1 RANK VERSION [BASE] | plan t1 EPOCH [error] | persisted VERSION [error]
 *   end t1 RANK VERSION BYTES [SET:SOURCE:DIGEST,...] | abort t1 RANK VERSION
 *   publish t1 REQUEST VERSION | wait t1 REQUEST VERSION
 *   phase i1 PHASE A RANK PROCESS UPDATE [BYTES|error] | state i1 A RANK PROCESS STATE VERSION
 *   connected t1 UPDATE TARGET [error] | written t1 UPDATE TARGET BYTES [error]
 *   raw t1 KIND                   an empty message of a kind, by name
 */
#ifndef SW_TRAINERD_COORDINATOR_TALK_H
#define SW_TRAINERD_COORDINATOR_TALK_H

#include "trainerd/coordinator/coordinator.h"

struct step {
    const char *in;
    const char *out; /* "" or NULL = nothing */
};

struct talk;

/* Set while the coordinator works (and not the test): for tests that let allocations fail. */
extern bool talk_inside;

struct talk *talk_new(uint64_t last_version);
/* With layout files, which are borrowed. */
struct talk *talk_new_layouts(const struct sw_layouts *layouts);
void talk_free(struct talk *t);

/* Says a line; what came out, one line for each action. */
const char *talk_say(struct talk *t, const char *in);

/* The same with a message (owned) that the language has no words for. */
const char *talk_message(struct talk *t, const char *who, struct sw_msg *m);
/* The instance that the language's process numbers stand for. */
struct sw_id talk_process(unsigned number);

/* Goes through steps up to one whose `in` is NULL; fails the test where they differ. */
void talk_steps(struct talk *t, const struct step *steps);

/* The status document as text (the caller frees). */
char *talk_status(const struct talk *t);

uint64_t talk_deadline(const struct talk *t); /* in ms from now; UINT64_MAX = none */

#endif
