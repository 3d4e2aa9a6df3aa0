# cmake -DFROM=gfx11-generic -DTO=gfx1100 -DIN=a.s -DOUT=b.s -P relabel.cmake
# Writes AMD assembly again for another target (images.cmake says why). The assembler then
# checks every instruction, and refuses a name that is not its target's.
file(READ "${IN}" text)
string(REPLACE "amdgcn-amd-amdhsa--${FROM}" "amdgcn-amd-amdhsa--${TO}" text "${text}")
string(REPLACE ".amdhsa_code_object_version 6" ".amdhsa_code_object_version 5" text "${text}")
file(WRITE "${OUT}" "${text}")
