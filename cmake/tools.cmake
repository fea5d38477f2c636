# Programs that the tests and developers use.
add_executable(hashed_weights tools/hashed_weights.c)
target_link_libraries(hashed_weights PRIVATE tessera)
