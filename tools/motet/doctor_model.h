/* SPDX-License-Identifier: Apache-2.0 */
/* What the user says of a model: `motet doctor --model`. */
#ifndef MOTET_TOOLS_DOCTOR_MODEL_H
#define MOTET_TOOLS_DOCTOR_MODEL_H

#include "doctor.h"

/** Read "hidden=4096,layers=32,batch=1,dtype=bf16", or the config.json that @p text is the
 *  path of; false and a sentence in @p why. */
bool doctor_model(const char *text, struct dr_model *out, char *why, size_t why_bytes);

#endif
