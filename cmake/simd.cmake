# The AVX-512 tiers once more, compiled through SIMDe's portable intrinsics, and every kernel check a second time
# against them (tests/simde): so those tiers are tested on any machine. Not built where SIMDe is missing, nor for TSAN,
# under which no kernel check runs.
find_path(SIMDE_INCLUDE simde/x86/avx512.h)
file(GLOB check_sources CONFIGURE_DEPENDS tests/kernels/check_*.c)

# simde_tier(NAME): the tier's sources with its fill function renamed.
function(simde_tier name)
  file(GLOB sources CONFIGURE_DEPENDS kernels/cpu/${name}/*.c)
  add_library(simde_${name} STATIC ${sources})
  target_include_directories(simde_${name} BEFORE PRIVATE tests/simde)
  target_include_directories(simde_${name} SYSTEM PRIVATE ${SIMDE_INCLUDE})
  target_compile_definitions(simde_${name} PRIVATE tsr_cpu_fill_${name}=tsr_cpu_fill_${name}_simde)
  # Instrumented, every portable intrinsic is a page of code: -O3 takes ten times as long to compile as -O1.
  target_compile_options(simde_${name} PRIVATE $<IF:$<BOOL:${TESSERA_SANITIZE}>,-O1,-O3> -Wno-psabi)
  target_link_libraries(simde_${name} PUBLIC tessera)
  target_link_options(simde_${name} INTERFACE -Wl,--wrap=tsr_cpu_backend)
endfunction()

if(NOT SIMDE_INCLUDE)
  message(STATUS "SIMDe (libsimde-dev) is missing: the AVX-512 tiers are tested only where the machine has them")
elseif(check_sources AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT TESSERA_SANITIZE STREQUAL "thread")
  simde_tier(avx512)
  simde_tier(avx512fp16)
  foreach(source ${check_sources})
    get_filename_component(stem ${source} NAME_WE)
    add_executable(${stem}_simde ${source} tests/simde/simde_backend.c)
    set_target_properties(${stem}_simde PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/kernels)
    target_link_libraries(${stem}_simde PRIVATE test_support simde_avx512 simde_avx512fp16)
    add_test(NAME kernels/${stem}_simde COMMAND ${stem}_simde)
  endforeach()
endif()
