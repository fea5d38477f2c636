# The CUDA backend: a plug-in that gen opens when it is asked for. gen itself links nothing of CUDA.
#
#   TESSERA_SIM    libtessera_cuda_sim.so: the plug-in's sources over the simulation in tests/cuda_sim, and its tests.
#                  Needs the headers of CUDA and cuDNN, no library of either.
#
# Neither is built where something is missing; tools/check.sh says so by name.
option(TESSERA_SIM "the CUDA backend on a simulated device, for tests" OFF)

find_path(CUDA_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
find_path(CUDNN_INCLUDE cudnn_backend.h PATHS /usr/local/cuda/include)

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
  target_link_libraries(cuda_sim PUBLIC tessera_flags Threads::Threads m)

  if(TESSERA_TESTS)
    add_executable(test_sim tests/cuda_sim/test_sim.c)
    tessera_host_cu(test_sim ${CMAKE_SOURCE_DIR}/tests/cuda_sim/test_kernels.cu)
    set_target_properties(test_sim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)
    target_link_libraries(test_sim PRIVATE test_support cuda_sim)
    add_test(NAME cuda/test_sim COMMAND test_sim)
  endif()
endif()
