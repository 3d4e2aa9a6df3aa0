/* SPDX-License-Identifier: Apache-2.0 */
/* A sentence in each AMD code object that says which sources it was made from: one that
 * was built apart (`motet kernels build`) is taken only if they are the library's own.
 * Compiled last (build.sh), with the other files' code linked in. */
#ifdef __AMDGCN__
__attribute__((used, address_space(4))) const char motet_kernels_stamp[] =
        "motet kernels " MOTET_STAMP;
#endif
