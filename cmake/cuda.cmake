# The CUDA backend: a plug-in that gen opens when it is asked for. gen itself links nothing of CUDA.
#
#   TESSERA_CUDA   libtessera_cuda.so, for the devices in TESSERA_CUDA_ARCHS. AUTO: where nvcc and the headers of cuDNN
#                  and cuBLASLt are found.
#   TESSERA_SIM    libtessera_cuda_sim.so: the same sources over the simulation in tests/cuda_sim, and its tests.
#                  Needs the headers of CUDA and cuDNN, no library of either.
#
# Neither is built where something is missing; tools/check.sh says so by name.
set(TESSERA_CUDA OFF CACHE STRING "the CUDA plug-in: AUTO, ON or OFF")
set(TESSERA_CUDA_ARCHS "75-real;80-real;86-real;89-real;90-real;100-real;120" CACHE STRING
  "devices to build for; without -real or -virtual both, as CMAKE_CUDA_ARCHITECTURES")
option(TESSERA_SIM "the CUDA backend on a simulated device, for tests" OFF)

find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
find_path(CUDA_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
find_path(CUDNN_INCLUDE cudnn_backend.h PATHS /usr/local/cuda/include)

file(GLOB cuda_c CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c)
file(GLOB cuda_cu CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
set(plugin_base kernels/plugin_abi.c base/alloc.c base/err.c base/half.c base/text_util.c)

if(NVCC AND CUDA_INCLUDE AND CUDNN_INCLUDE)
  set(cuda_found ON)
else()
  set(cuda_found OFF)
endif()
if(TESSERA_CUDA STREQUAL "ON" AND NOT cuda_found)
  message(FATAL_ERROR "TESSERA_CUDA needs nvcc, cublasLt.h and cudnn_backend.h")
endif()
if(cuda_found AND NOT TESSERA_CUDA STREQUAL "OFF")
  set(CMAKE_CUDA_COMPILER ${NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHS})
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(tessera_cuda_host OBJECT ${cuda_c} ${plugin_base})
  set_target_properties(tessera_cuda_host PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(tessera_cuda_host SYSTEM PRIVATE ${CUDA_INCLUDE} ${CUDNN_INCLUDE})
  target_link_libraries(tessera_cuda_host PRIVATE tessera_flags)

  add_library(tessera_cuda MODULE ${cuda_cu} $<TARGET_OBJECTS:tessera_cuda_host>)
  set_target_properties(tessera_cuda PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(tessera_cuda PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  target_compile_definitions(tessera_cuda PRIVATE _GNU_SOURCE)
  target_compile_options(tessera_cuda PRIVATE -Xcompiler=-Wall,-Wextra,-fvisibility=hidden -Xptxas=-warn-spills
    $<$<BOOL:${TESSERA_WERROR}>:-Werror=all-warnings>)
  target_include_directories(tessera_cuda SYSTEM PRIVATE ${CUDA_INCLUDE} ${CUDNN_INCLUDE})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDNN_INCLUDE}/../lib ${CUDNN_INCLUDE}/../lib64 REQUIRED)
  target_link_libraries(tessera_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt ${CUDNN_LIBRARY})
  target_link_options(tessera_cuda PRIVATE -Wl,-z,defs)
  # The graphs of the plug-in shown to the real cuDNN, without a device.
  add_executable(check_graphs EXCLUDE_FROM_ALL tests/gpu/check_graphs.c)
  target_sources(check_graphs PRIVATE kernels/cuda/cuda_graph.c kernels/cuda/cuda_conv.c kernels/cuda/cuda_sdpa.c
    kernels/cuda/cuda_pack.c ${plugin_base})
  target_include_directories(check_graphs SYSTEM PRIVATE ${CUDA_INCLUDE} ${CUDNN_INCLUDE})
  target_compile_definitions(check_graphs PRIVATE TSR_CUDA_STUB="${CUDAToolkit_LIBRARY_DIR}/stubs/libcuda.so")
  target_link_libraries(check_graphs PRIVATE tessera_flags CUDA::cudart_static ${CUDNN_LIBRARY} m ${CMAKE_DL_LIBS})
  include(GNUInstallDirs)
  install(TARGETS tessera_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
endif()

if(TESSERA_SIM AND NOT (CUDA_INCLUDE AND CUDNN_INCLUDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64"))
  message(WARNING "TESSERA_SIM is left out: it needs cublasLt.h, cudnn_backend.h and an x86-64 machine")
elseif(TESSERA_SIM)
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)

  # One function for all .cu files: the host's C++ compiler takes them.
  function(tessera_host_cu target)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-O2;-fno-exceptions;-fno-rtti")
    target_sources(${target} PRIVATE ${ARGN})
  endfunction()

  file(GLOB sim_sources CONFIGURE_DEPENDS tests/cuda_sim/sim_*.c)
  add_library(cuda_sim STATIC ${sim_sources})
  set_target_properties(cuda_sim PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(cuda_sim SYSTEM PUBLIC ${CUDA_INCLUDE} ${CUDNN_INCLUDE})
  target_include_directories(cuda_sim PUBLIC ${CMAKE_SOURCE_DIR}/tests/cuda_sim)
  target_compile_options(cuda_sim PRIVATE $<$<NOT:$<BOOL:${TESSERA_SANITIZE}>>:-O3>)
  target_link_libraries(cuda_sim PUBLIC tessera_flags Threads::Threads m)

  add_library(tessera_cuda_sim MODULE ${cuda_c} ${plugin_base})
  tessera_host_cu(tessera_cuda_sim ${cuda_cu})
  target_link_libraries(tessera_cuda_sim PRIVATE cuda_sim)
  target_link_options(tessera_cuda_sim PRIVATE -Wl,-z,defs)
  set_target_properties(tessera_cuda_sim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_custom_command(TARGET tessera_cuda_sim POST_BUILD # where tests/cuda/* look for it (kernels/plugin.c)
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/tests/lib/tessera
    COMMAND ${CMAKE_COMMAND} -E create_symlink ../../../libtessera_cuda_sim.so
            ${CMAKE_BINARY_DIR}/tests/lib/tessera/libtessera_cuda_sim.so)

  if(TESSERA_TESTS)
    # Kernel checks and golden tests a second time, on the simulated device (tests/cuda_sim/wrap_*.c).
    function(tessera_sim_test kind stem name)
      add_executable(${name} tests/${kind}/${stem}.c tests/cuda_sim/open_sim.c ${ARGN})
      set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)
      target_include_directories(${name} SYSTEM PRIVATE ${CUDA_INCLUDE})
      target_link_libraries(${name} PRIVATE test_support ${CMAKE_DL_LIBS})
      add_dependencies(${name} tessera_cuda_sim)
      add_test(NAME cuda/${name} COMMAND ${name})
    endfunction()
    file(GLOB check_sources CONFIGURE_DEPENDS tests/kernels/check_*.c)
    list(FILTER check_sources EXCLUDE REGEX "check_simd")
    foreach(source ${check_sources})
      get_filename_component(stem ${source} NAME_WE)
      tessera_sim_test(kernels ${stem} ${stem}_cuda tests/cuda_sim/wrap_check.c)
      target_link_options(${stem}_cuda PRIVATE -Wl,--wrap=tsr_cpu_backend)
      target_compile_definitions(${stem}_cuda PRIVATE SIM_ENGINES=0)
    endforeach()

    # The same where libraries compute: what they are given is checked by their simulation.
    foreach(stem check_conv2d check_linear check_attention)
      tessera_sim_test(kernels ${stem} ${stem}_library tests/cuda_sim/wrap_check.c)
      target_link_options(${stem}_library PRIVATE -Wl,--wrap=tsr_cpu_backend)
      target_compile_definitions(${stem}_library PRIVATE SIM_ENGINES=1)
    endforeach()

    foreach(test model/golden_unet model/golden_vae model/golden_text unit/test_program memory/budget_streaming)
      get_filename_component(stem ${test} NAME)
      get_filename_component(kind ${test} DIRECTORY)
      tessera_sim_test(${kind} ${stem} ${stem}_cuda tests/cuda_sim/wrap_net.c)
      target_link_options(${stem}_cuda PRIVATE
        -Wl,--wrap=tsr_cpu_backend -Wl,--wrap=tsr_arena_make -Wl,--wrap=tsr_arena_free)
    endforeach()

    # Plans of the full-size networks for cards: nothing is computed.
    tessera_sim_test(memory budget_full_plans budget_full_plans_cuda tests/cuda_sim/wrap_net.c)
    target_compile_definitions(budget_full_plans_cuda PRIVATE TSR_ON_DEVICE)
    target_link_options(budget_full_plans_cuda PRIVATE
      -Wl,--wrap=tsr_cpu_backend -Wl,--wrap=tsr_arena_make -Wl,--wrap=tsr_arena_free)

    # Whole runs: what asks for no backend gets cuda-sim.
    foreach(test fault/fail_overflow memory/budget_run)
      get_filename_component(stem ${test} NAME)
      get_filename_component(kind ${test} DIRECTORY)
      tessera_sim_test(${kind} ${stem} ${stem}_cuda tests/cuda_sim/wrap_run.c)
      target_link_options(${stem}_cuda PRIVATE -Wl,--wrap=tsr_context_make)
      target_compile_definitions(${stem}_cuda PRIVATE TSR_ON_DEVICE)
    endforeach()

    foreach(stem test_device run_sim)
      add_executable(${stem} tests/cuda_sim/${stem}.c tests/cuda_sim/open_sim.c)
      set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)
      target_include_directories(${stem} SYSTEM PRIVATE ${CUDA_INCLUDE})
      target_link_libraries(${stem} PRIVATE test_support ${CMAKE_DL_LIBS})
      add_dependencies(${stem} tessera_cuda_sim gen)
      add_test(NAME cuda/${stem} COMMAND ${stem})
    endforeach()

    add_executable(test_sim tests/cuda_sim/test_sim.c)
    tessera_host_cu(test_sim ${CMAKE_SOURCE_DIR}/tests/cuda_sim/test_kernels.cu)
    set_target_properties(test_sim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)
    target_link_libraries(test_sim PRIVATE test_support cuda_sim)
    add_test(NAME cuda/test_sim COMMAND test_sim)

    add_executable(test_library tests/cuda_sim/test_library.c ${cuda_c} kernels/plugin_abi.c)
    tessera_host_cu(test_library ${cuda_cu})
    set_target_properties(test_library PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)
    target_link_libraries(test_library PRIVATE test_support cuda_sim)
    add_test(NAME cuda/test_library COMMAND test_library)
  endif()
endif()
