# cmake -DLIST=names -DMAP=script -P map.cmake
# A version script from a list of exports: one anonymous node, so that the names carry
# no symbol version, as in NCCL (api.md 1.1).
file(STRINGS "${LIST}" names)
set(text "{\n  global:\n")
foreach(name IN LISTS names)
  string(APPEND text "    ${name};\n")
endforeach()
string(APPEND text "  local:\n    *;\n};\n")
file(WRITE "${MAP}" "${text}")
