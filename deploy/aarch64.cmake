# aarch64.cmake - a build for 64-bit ARM on another Debian or Ubuntu, whose programs run by qemu-user:
#   cmake --preset release -B build/aarch64 --toolchain deploy/aarch64.cmake
# It wants gcc-aarch64-linux-gnu, qemu-user and, after `dpkg --add-architecture arm64`, the libraries of
# deploy/packages as PACKAGE:arm64; see tests/portability.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(TW_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(TW_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TW_QEMU})
endif()
