# Device code: which compilers are there, and the rules that turn sources into images
# (PTX, cubins, AMD code objects) and images into a table that a library carries. How a
# compiler is called is written in src/kernels/gpu/build.sh alone.
# docs/kernels.md is the user's side of this.
set(MOTET_KERNELS AUTO CACHE STRING "Code for GPUs: AUTO (what can be built) | ON (fail if none can) | OFF")
set(MOTET_NVIDIA_TARGETS ptx sm_75 sm_80 sm_90 sm_100 sm_120 CACHE STRING
  "ptx, and sm_XY for a cubin, which needs ptxas")
set(MOTET_AMDGPU_TARGETS gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1031 gfx1032 gfx1100 gfx1101
  gfx1102 gfx1103 gfx1150 gfx1151 gfx1200 gfx1201 CACHE STRING "AMD GPUs to build code for")
set(MOTET_AMDGPU_CC "" CACHE FILEPATH "A clang for AMD GPUs, such as a vendor's; empty: clang 19")

set(MOTET_IMAGE_DIR ${PROJECT_BINARY_DIR}/images)
set(device_warnings -Wall -Wextra -Wshadow $<$<BOOL:${MOTET_WERROR}>:-Werror>)
set(device_build ${PROJECT_SOURCE_DIR}/src/kernels/gpu/build.sh)
# Generic targets of LLVM 19, and who runs their instructions. Code is generated once for
# each and assembled for each member: the same instructions under the member's own name,
# in the format that runtimes older than the generic targets load.
set(amdgpu_families gfx10-3-generic=gfx103[0-6] "gfx11-generic=gfx11(0[0-3]|5[0-2])"
  gfx12-generic=gfx120[01])

# motet_try(VARIABLE COMMAND...): whether the command succeeds.
function(motet_try result)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# motet_left_out(REASON): what is in `unknown` cannot be built.
macro(motet_left_out reason)
  if(unknown)
    list(JOIN unknown " " unknown)
    list(APPEND missing "${unknown}: ${reason}")
  endif()
endmacro()

# Sets nvidia_targets and amdgpu_targets to those of the wanted ones that can be built,
# device_cc and amdgpu_cc to what builds them, missing to why something cannot.
macro(motet_find_device_compilers)
  set(nvidia_targets)
  set(amdgpu_targets)
  set(missing)
  find_program(MOTET_CLANG NAMES clang-19 clang DOC "The compiler for GPUs: clang 19, or 17 and newer")
  find_program(MOTET_PTXAS ptxas PATHS /usr/local/cuda/bin /opt/cuda/bin DOC "NVIDIA's assembler")
  mark_as_advanced(MOTET_CLANG MOTET_PTXAS)
  set(device_cc ${MOTET_CLANG})
  set(amdgpu_cc ${MOTET_AMDGPU_CC})
  if(NOT amdgpu_cc)
    set(amdgpu_cc ${MOTET_CLANG})
  endif()
  set(probe ${MOTET_IMAGE_DIR}/probe)
  file(WRITE ${probe}_nvptx.c "__attribute__((nvptx_kernel)) void probe(int *p) { *p = 1; }\n")
  file(WRITE ${probe}_amdgpu.c "__attribute__((amdgpu_kernel)) void probe(int *p) { *p = 1; }\n")

  set(nvptx FALSE)
  if(MOTET_NVIDIA_TARGETS)
    motet_try(nvptx ${CMAKE_COMMAND} -E env CC=${device_cc}
      sh ${device_build} probe ptx ${probe}_nvptx.c ${probe}.ptx)
  endif()
  set(unknown)
  foreach(target IN LISTS MOTET_NVIDIA_TARGETS)
    if(nvptx AND NOT target STREQUAL "ptx")
      motet_try(fits ${MOTET_PTXAS} -arch=${target} ${probe}.ptx -o ${probe}.cubin)
    endif()
    if(nvptx AND (target STREQUAL "ptx" OR fits))
      list(APPEND nvidia_targets ${target})
    else()
      list(APPEND unknown ${target})
    endif()
  endforeach()
  if(nvptx)
    motet_left_out("no ptxas that knows it (CUDA toolkit)")
  else()
    motet_left_out("no clang that compiles for nvptx64 (package clang-19)")
  endif()

  execute_process(COMMAND ${amdgpu_cc} --target=amdgcn-amd-amdhsa -nogpulib --print-supported-cpus
    OUTPUT_VARIABLE known ERROR_VARIABLE known_too)
  set(unknown ${MOTET_AMDGPU_TARGETS})
  list(FILTER unknown EXCLUDE REGEX "^gfx[0-9a-f]+$")
  motet_left_out("not a plain target, such as gfx1100")
  set(plain ${MOTET_AMDGPU_TARGETS})
  list(FILTER plain INCLUDE REGEX "^gfx[0-9a-f]+$")
  set(unknown)
  foreach(target IN LISTS plain)
    set(fits TRUE)
    if(NOT "${known}${known_too}" MATCHES "[ \t]${target}[ \r\n]")
      motet_try(fits ${CMAKE_COMMAND} -E env CC=${amdgpu_cc}
        sh ${device_build} probe ${target} ${probe}_amdgpu.c ${probe}.co)
    endif()
    if(fits)
      list(APPEND amdgpu_targets ${target})
    else()
      list(APPEND unknown ${target})
    endif()
  endforeach()
  if(MOTET_AMDGPU_CC)
    motet_left_out("${MOTET_AMDGPU_CC} does not compile for it")
  else()
    motet_left_out("no clang that compiles for it (package clang-19, or MOTET_AMDGPU_CC)")
  endif()
  if(amdgpu_targets)
    list(GET amdgpu_targets 0 target)
    motet_try(fits ${CMAKE_COMMAND} -E env CC=${amdgpu_cc}
      sh ${device_build} probe ${target} ${probe}_amdgpu.c ${probe}.co)
    if(NOT fits)
      set(unknown ${amdgpu_targets})
      set(amdgpu_targets)
      motet_left_out("no ld.lld that links for it (package lld-19)")
    endif()
  endif()
endmacro()

# motet_device_module(OUTPUT COMPILER TARGET SOURCES...): assembly of all sources for one
# target, which are compiled one by one.
function(motet_device_module output compiler target)
  set(folder ${MOTET_IMAGE_DIR}/parts/${target})
  set(build ${CMAKE_COMMAND} -E env CC=${compiler} sh ${device_build})
  file(MAKE_DIRECTORY ${folder})
  set(parts)
  foreach(source IN LISTS ARGN)
    get_filename_component(stem ${source} NAME_WE)
    set(part ${folder}/${stem}.bc)
    add_custom_command(OUTPUT ${part}
      COMMAND ${build} compile ${target} ${source} ${part} ${device_warnings}
        -MD -MT ${part} -MF ${part}.d
      DEPENDS ${source} ${device_build} DEPFILE ${part}.d
      COMMENT "Device code ${target}/${stem}" COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND parts ${part})
  endforeach()
  add_custom_command(OUTPUT ${output}
    COMMAND ${build} generate ${target} ${output} ${parts}
    DEPENDS ${parts} ${device_build} ${device_stamp}
    COMMENT "Device code ${target}" VERBATIM)
endfunction()

# motet_nvidia_images(VARIABLE SOURCES...): images of all sources for nvidia_targets; the
# cubins are made from the one PTX.
function(motet_nvidia_images result)
  set(folder ${MOTET_IMAGE_DIR}/nvidia)
  set(module ${MOTET_IMAGE_DIR}/parts/ptx.s)
  set(bound ${PROJECT_SOURCE_DIR}/cmake/bound.cmake)
  set(header ${PROJECT_SOURCE_DIR}/src/kernels/gpu/gpu.h)
  file(MAKE_DIRECTORY ${folder})
  motet_device_module(${module} ${device_cc} ptx ${ARGN})
  add_custom_command(OUTPUT ${folder}/ptx.ptx
    COMMAND ${CMAKE_COMMAND} -DHEADER=${header} -DIN=${module} -DOUT=${folder}/ptx.ptx -P ${bound}
    DEPENDS ${module} ${bound} ${header} COMMENT "Bounding ptx" VERBATIM)
  set(images)
  foreach(target IN LISTS nvidia_targets)
    if(target STREQUAL "ptx")
      list(APPEND images ${folder}/ptx.ptx)
    else()
      set(cubin ${folder}/${target}.cubin)
      add_custom_command(OUTPUT ${cubin}
        COMMAND ${MOTET_PTXAS} -O3 -arch=${target} ${folder}/ptx.ptx -o ${cubin}
        DEPENDS ${folder}/ptx.ptx COMMENT "Assembling ${target}" VERBATIM)
      list(APPEND images ${cubin})
    endif()
  endforeach()
  set(${result} ${images} PARENT_SCOPE)
endfunction()

# motet_amdgpu_family(VARIABLE TARGET): the generic target that generates TARGET's code, if
# the compiler knows one, else TARGET itself.
function(motet_amdgpu_family result target)
  set(${result} ${target} PARENT_SCOPE)
  foreach(family IN LISTS amdgpu_families)
    string(REGEX MATCH "^(.*)=(.*)$" family "${family}")
    set(generic ${CMAKE_MATCH_1})
    if(target MATCHES "^${CMAKE_MATCH_2}$" AND "${known}${known_too}" MATCHES "[ \t]${generic}[ \r\n]")
      set(${result} ${generic} PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# motet_amdgpu_images(VARIABLE SOURCES...): a code object for each of amdgpu_targets.
function(motet_amdgpu_images result)
  set(folder ${MOTET_IMAGE_DIR}/amd)
  set(relabel ${PROJECT_SOURCE_DIR}/cmake/relabel.cmake)
  file(MAKE_DIRECTORY ${folder})
  set(images)
  set(modules)
  foreach(target IN LISTS amdgpu_targets)
    motet_amdgpu_family(family ${target})
    set(module ${MOTET_IMAGE_DIR}/parts/${family}.s)
    if(NOT module IN_LIST modules)
      motet_device_module(${module} ${amdgpu_cc} ${family} ${ARGN})
      list(APPEND modules ${module})
    endif()
    set(image ${folder}/motet-${target}.co)
    set(labelled ${MOTET_IMAGE_DIR}/parts/motet-${target}.s)
    add_custom_command(OUTPUT ${image} BYPRODUCTS ${labelled}
      COMMAND ${CMAKE_COMMAND} -DFROM=${family} -DTO=${target} -DIN=${module} -DOUT=${labelled}
        -P ${relabel}
      COMMAND ${CMAKE_COMMAND} -E env CC=${amdgpu_cc}
        sh ${device_build} assemble ${target} ${labelled} ${image}
      DEPENDS ${module} ${relabel} ${device_build} COMMENT "Assembling ${target}" VERBATIM)
    list(APPEND images ${image})
  endforeach()
  set(${result} ${images} PARENT_SCOPE)
endfunction()

# motet_image_table(VENDOR IMAGES...): the object libraries motet_images_VENDOR, with the
# images, and motet_no_images_VENDOR, an empty table. Whoever is linked takes one.
function(motet_image_table vendor)
  set(table ${MOTET_IMAGE_DIR}/images_${vendor}.c)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(OUTPUT ${table}
    COMMAND ${CMAKE_COMMAND} -DVENDOR=${vendor} -DTABLE=${table} -DPACK=${MOTET_PACK}
      "-DIMAGES=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script} COMMENT "Packing images/images_${vendor}.c" VERBATIM)
  add_library(motet_images_${vendor} OBJECT ${table})
  add_library(motet_no_images_${vendor} OBJECT ${PROJECT_SOURCE_DIR}/src/kernels/no_images.c)
  target_compile_definitions(motet_no_images_${vendor} PRIVATE MOTET_NO_IMAGES=motet_images_${vendor})
  target_link_libraries(motet_images_${vendor} PRIVATE motet_options)
  target_link_libraries(motet_no_images_${vendor} PRIVATE motet_options)
endfunction()
