# Every tests/<kind>/<stem>.c is one program named <stem>. It exits 0 when nothing failed and ends with
# "N passed, N failed, N skipped". Programs in tests/kernels also bench (--bench).
add_library(test_support INTERFACE)
file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
if(support_sources)
  add_library(test_support_objects STATIC ${support_sources})
  target_link_libraries(test_support_objects PUBLIC tessera)
  target_compile_definitions(test_support_objects PUBLIC TSR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(test_support INTERFACE test_support_objects)
endif()
target_link_libraries(test_support INTERFACE tessera)
if(TARGET tessera_cli)
  target_link_libraries(test_support INTERFACE tessera_cli)
endif()
target_compile_definitions(test_support INTERFACE
  TSR_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
  TSR_BINARY_DIR="${CMAKE_BINARY_DIR}")

foreach(kind unit kernels model memory fault cli threads)
  file(GLOB sources CONFIGURE_DEPENDS tests/${kind}/*.c)
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    add_executable(${stem} ${source})
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${kind})
    target_link_libraries(${stem} PRIVATE test_support)
    add_test(NAME ${kind}/${stem} COMMAND ${stem})
  endforeach()
endforeach()

# Fuzz targets: with clang and -DTESSERA_FUZZ=ON they are libFuzzer programs; otherwise they replay a corpus
# (files or folders given as arguments).
file(GLOB fuzzers CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${fuzzers})
  get_filename_component(stem ${source} NAME_WE)
  if(TESSERA_FUZZ)
    add_executable(${stem} ${source})
    target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${stem} ${source} tests/fuzz/replay_main.c)
    add_test(NAME fuzz/${stem} COMMAND ${stem} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${stem})
  endif()
  set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fuzz)
  target_link_libraries(${stem} PRIVATE test_support)
endforeach()

# The example of the documentation, compiled as a user would and run by tests/cli/run_example.c.
add_executable(example docs/example.c)
target_link_libraries(example PRIVATE tessera)
set_target_properties(example PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/docs)

include(cmake/simd.cmake)
