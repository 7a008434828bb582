# hardening.cmake - programs of any build: position independent, their relocations read-only before
# main() runs, the stack not executable, its frames guarded and its pages touched one by one, indirect
# jumps and returns checked by processors that can; optimised ones with checked copies.
# tests/deploy/test_hardened.sh reads it off the programs.
include(CheckCCompilerFlag)
set(tw_host $<COMPILE_LANGUAGE:C,CXX>)
set(tw_is_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
add_compile_options($<${tw_host}:-fstack-protector-strong>
                    $<$<AND:${tw_host},${tw_is_program}>:-fPIE>)
# Not every compiler and processor has these; on others the flags are left out.
foreach(flag stack-clash-protection cf-protection)
  check_c_compiler_flag(-f${flag} TW_HAS_${flag})
  if(TW_HAS_${flag})
    add_compile_options($<${tw_host}:-f${flag}>)
  endif()
endforeach()
add_link_options($<${tw_is_program}:-pie> -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)

# Copies are checked where the compiler knows sizes: when it optimises. Sanitizers watch more.
set(TW_FORTIFIED OFF)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$" AND NOT TW_SANITIZE)
  set(TW_FORTIFIED ON)
  set(tw_level 3)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
    set(tw_level 2)
  endif()
  add_compile_options($<${tw_host}:-U_FORTIFY_SOURCE> $<${tw_host}:-D_FORTIFY_SOURCE=${tw_level}>)
endif()
