#!/usr/bin/env bash
# Builds the library, and installs header, shared and static library and pkg-config file.
#
#   install.sh [--prefix DIR] [--libdir DIR] [--destdir DIR] [--debug]
#
#   --prefix DIR    where it is found later (default /usr/local)
#   --libdir DIR    of the libraries (default PREFIX/lib)
#   --destdir DIR   put before each path now: for packagers (default $DESTDIR)
#   --debug         not optimized, and not stripped
#
# Where programs find it must be absolute paths. STRIP names another `strip`, to cross-compile.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local libdir='' destdir=${DESTDIR:-} profile=release
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix wants a folder}; shift ;;
        --libdir) libdir=${2:?--libdir wants a folder}; shift ;;
        --destdir) destdir=${2:?--destdir wants a folder}; shift ;;
        --debug) profile=dev ;;
        *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
: "${libdir:=$prefix/lib}"
case $prefix in /*) ;; *) echo "--prefix $prefix: must be an absolute path" >&2; exit 2 ;; esac
case $libdir in /*) ;; *) echo "--libdir $libdir: must be an absolute path" >&2; exit 2 ;; esac
case $destdir in '' | /*) ;; *) destdir=$PWD/$destdir ;; esac

cd "$here"
cargo build --quiet --profile "$profile" -p atomic-mmap-capi
built=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $profile in dev) built+=/debug ;; *) built+=/release ;; esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

install -d "$destdir$libdir/pkgconfig" "$destdir$prefix/include"
install -m 644 include/atomic_mmap.h "$destdir$prefix/include/"
install -m 755 "$built/libatomic_mmap_c.so" "$destdir$libdir/libatomic_mmap.so.$version"
ln -sf "libatomic_mmap.so.$version" "$destdir$libdir/libatomic_mmap.so.0"
ln -sf libatomic_mmap.so.0 "$destdir$libdir/libatomic_mmap.so"
install -m 644 "$built/libatomic_mmap_c.a" "$destdir$libdir/libatomic_mmap.a"
if [ "$profile" = release ]; then
    # The names that programs link stay.
    ${STRIP:-strip} --strip-unneeded "$destdir$libdir/libatomic_mmap.so.$version"
    ${STRIP:-strip} --strip-debug "$destdir$libdir/libatomic_mmap.a"
fi
cat >"$destdir$libdir/pkgconfig/atomic-mmap.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$prefix/include

Name: atomic-mmap
Description: Memory-mapped files whose writes are all or nothing
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -latomic_mmap
Libs.private: -lpthread -ldl -lm
END
