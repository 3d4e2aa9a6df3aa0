# cmake -DVENDOR=amd -DTABLE=images_amd.c -DPACK=ON "-DIMAGES=a/motet-gfx906.co;…" -P embed.cmake
# Packs each image and writes the C file that holds them: motet_images_VENDOR of
# src/kernels/images.h. CMake packs by itself (libarchive), so the build needs no zstd
# program; an image that packing makes no smaller is stored as it is.
get_filename_component(folder "${TABLE}" DIRECTORY)
set(bytes "")
set(rows "")
set(index "")
foreach(image IN LISTS IMAGES)
  get_filename_component(target "${image}" NAME_WE)
  get_filename_component(file "${image}" NAME)
  string(REGEX REPLACE "^motet-" "" target "${target}")
  file(SIZE "${image}" raw_size)
  set(data "${image}")
  set(size ${raw_size})
  set(packed "${folder}/${VENDOR}_${target}.zst")
  file(REMOVE "${packed}")
  if(PACK)
    file(ARCHIVE_CREATE OUTPUT "${packed}" PATHS "${image}" FORMAT raw
      COMPRESSION Zstd COMPRESSION_LEVEL 9)
    file(SIZE "${packed}" packed_size)
    if(packed_size LESS raw_size)
      set(data "${packed}")
      set(size ${packed_size})
    else()
      file(REMOVE "${packed}")
    endif()
  endif()
  set(name motet_image_${VENDOR}_${target})
  string(APPEND bytes "HOLD(${name}, \"${data}\")\n")
  string(APPEND rows
    "    { \"${VENDOR}\", \"${target}\", ${name}, ${size}, ${raw_size} },\n")
  string(APPEND index
    "        \"motet image ${file} ${VENDOR} ${target} ${size} ${raw_size}\\n\"\n")
endforeach()

file(WRITE "${TABLE}" "/* Made by cmake/embed.cmake. */
#include \"kernels/images.h\"

#define HOLD(name, file)                                                   \\
    extern const unsigned char name[] __attribute__((visibility(\"hidden\"))); \\
    __asm__(\".pushsection .rodata.motet_images,\\\"a\\\",%progbits\\n\"         \\
            \".balign 16\\n.globl \" #name \"\\n.hidden \" #name \"\\n\" #name       \\
            \":\\n.incbin \\\"\" file \"\\\"\\n.popsection\\n\");

${bytes}
/* The same for whoever looks into the library without loading it: motet version -v. */
__attribute__((used)) static const char motet_images_${VENDOR}_index[] =
        \"\\n\"
${index}        \"\";

const motet_image motet_images_${VENDOR}[] = {
${rows}    { NULL, NULL, NULL, 0, 0 },
};
")
