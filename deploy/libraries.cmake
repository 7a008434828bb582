# libraries.cmake - the libraries of a build, looked for in one place: each one that is missing is one
# line that names its packages on Debian and Ubuntu, Fedora, Arch. deploy/packages reads the table too.

set(tw_missing 0)
function(tw_say_missing what debian fedora arch)
  message(NOTICE "missing: ${what} (Debian, Ubuntu: ${debian}; Fedora: ${fedora}; Arch: ${arch})")
  math(EXPR count "${tw_missing} + 1")
  set(tw_missing ${count} PARENT_SCOPE)
endfunction()

# tw_library(NAME MODULE DEBIAN FEDORA ARCH): MODULE as pkg-config knows it, with the least version. Of
# a library that pkg-config does not know, MODULE is its header, and its target is Library::NAME.
macro(tw_library name module debian fedora arch)
  if("${module}" MATCHES "^(.+)[.]h$")
    find_path(${name}_HEADERS "${module}")
    find_library(${name}_FILE "${CMAKE_MATCH_1}")
    mark_as_advanced(${name}_HEADERS ${name}_FILE)
    if(${name}_HEADERS AND ${name}_FILE)
      set(${name}_FOUND TRUE)
      add_library(Library::${name} UNKNOWN IMPORTED)
      set_target_properties(Library::${name} PROPERTIES IMPORTED_LOCATION "${${name}_FILE}"
                            INTERFACE_INCLUDE_DIRECTORIES "${${name}_HEADERS}")
    endif()
  else()
    pkg_check_modules(${name} QUIET IMPORTED_TARGET "${module}")
  endif()
  if(NOT ${name}_FOUND)
    tw_say_missing("${module}" ${debian} ${fedora} ${arch})
  endif()
endmacro()

find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
  tw_say_missing(pkg-config pkg-config pkgconf-pkg-config pkgconf)
  message(FATAL_ERROR "without pkg-config no other library can be looked for")
endif()

# The wheel takes libraries from their archives, but for two whose archives need many others. The
# variables are those of pkg_check_modules.
if(TW_WHEEL)
  find_library(pkgcfg_lib_MICROHTTPD_microhttpd microhttpd)
  find_library(pkgcfg_lib_CURL_curl curl)
  find_library(pkgcfg_lib_UV_uv NAMES libuv_a.a)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a ${CMAKE_FIND_LIBRARY_SUFFIXES})
endif()

# -- libraries. Ubuntu 22.04 has PCRE2 10.39, which lacks properties of characters that most tokenizers name:
# there such a tokenizer is refused, and tokens are bytes.
tw_library(UV         libuv>=1.40          libuv1-dev            libuv-devel         libuv)
tw_library(OPENSSL    openssl>=3.0         libssl-dev            openssl-devel       openssl)
tw_library(ZSTD       libzstd>=1.4         libzstd-dev           libzstd-devel       zstd)
tw_library(PROTOBUF_C libprotobuf-c>=1.3   libprotobuf-c-dev     protobuf-c-devel    protobuf-c)
tw_library(XXHASH     libxxhash>=0.8       libxxhash-dev         xxhash-devel        xxhash)
tw_library(MICROHTTPD libmicrohttpd>=0.9.70 libmicrohttpd-dev    libmicrohttpd-devel libmicrohttpd)
tw_library(JANSSON    jansson>=2.13        libjansson-dev        jansson-devel       jansson)
tw_library(INIH       inih>=53             libinih-dev           inih-devel          libinih)
tw_library(CURL       libcurl>=7.81        libcurl4-openssl-dev  libcurl-devel       curl)
tw_library(TEXT_PCRE2 libpcre2-8>=10.39    libpcre2-dev          pcre2-devel         pcre2)
tw_library(TEXT_UTF8PROC libutf8proc>=2.5  libutf8proc-dev       utf8proc-devel      libutf8proc)
tw_library(TEXT_ZLIB  zlib>=1.2.11         zlib1g-dev            zlib-devel          zlib)
tw_library(MINIUPNPC  miniupnpc>=2.1       libminiupnpc-dev      miniupnpc-devel     miniupnpc)
tw_library(NATPMP     natpmp.h             libnatpmp-dev         libnatpmp-devel     libnatpmp)
if(TW_TESTS)
  tw_library(CMOCKA   cmocka>=1.1.5        libcmocka-dev         libcmocka-devel     cmocka)
endif()

# -- programs
find_program(PROTOC_C protoc-c)
if(NOT PROTOC_C)
  tw_say_missing("the program protoc-c" protobuf-c-compiler protobuf-c-compiler protobuf-c)
endif()
if(TW_TESTS)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND)
    tw_say_missing("python3, for tests" python3 python3 python)
  endif()
endif()

if(tw_missing GREATER 0)
  message(FATAL_ERROR "${tw_missing} missing, one a line above. Debian, Ubuntu: deploy/packages build (or test) installs them.")
endif()
