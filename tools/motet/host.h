/* SPDX-License-Identifier: Apache-2.0 */
/* What the command says about the machine and this build. In a file of its own because
 * the library's device.h and the public motet.h do not go together. */
#ifndef MOTET_TOOLS_HOST_H
#define MOTET_TOOLS_HOST_H

#include <stddef.h>

/** Name of the CPU, as a device. Returns @p buf. */
const char *host_cpu_name(char *buf, size_t bytes);

/** Name of the i-th kind of device that is built in ("cpu"); NULL after the last. */
const char *host_device_kind(size_t i);

/** Name of the i-th set of CPU kernels that this CPU runs, best first; NULL after the last. */
const char *host_kernel_set(size_t i);

#endif
