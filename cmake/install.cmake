# What an installation holds: gen, the library with its header, the manual page, the embedded model.
if(TARGET gen)
  install(TARGETS gen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS tessera ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/tessera.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES docs/gen.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY assets/model DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
