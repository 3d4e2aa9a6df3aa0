# cmake -DHEADER=gpu.h -DIN=a.s -DOUT=ptx.ptx -P bound.cmake
# Says in PTX how many threads a block has at most, for which C has no attribute: otherwise
# a driver may give a kernel more registers than such a block can have, and not launch it.
file(STRINGS "${HEADER}" threads REGEX "^#define MOTET_GPU_THREADS +[0-9]+$")
if(NOT threads MATCHES " ([0-9]+)$")
  message(FATAL_ERROR "${HEADER}: where is MOTET_GPU_THREADS?")
endif()
set(threads ${CMAKE_MATCH_1})
file(READ "${IN}" text)
string(REGEX REPLACE "(\\.entry [^{]*)\n\\)[^\n]*\n{" "\\1\n)\n.maxntid ${threads}, 1, 1\n{" text "${text}")
file(WRITE "${OUT}" "${text}")
