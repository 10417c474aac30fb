#!/usr/bin/env python3
"""The C interface by ctypes: nothing to build.

    counter.py LIBRARY FILE      LIBRARY is libatomic_mmap.so.0, or its path

Counts one up in a file, in a transaction, and prints the number.
"""
import ctypes
import os
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("len", c_uint64), ("max_len", c_uint64), ("journal_len", c_uint64),
        ("busy_timeout_ms", c_uint64), ("sync_every_ms", c_uint64), ("reflection_dir", c_char_p),
        ("medium", c_int), ("durability", c_int), ("deploy", c_int), ("on_mismatch", c_int),
        ("create", ctypes.c_uint8), ("read_only", ctypes.c_uint8),
        ("any_file_system", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 5),
    ]


EAGAIN = -11


class AtomicFile:
    """A file whose writes are all or nothing."""

    def __init__(self, library, path, length):
        self.ato = ctypes.CDLL(library)
        self.ato.ato_last_error.restype = c_char_p
        for name, arguments in {
            "ato_open": [c_char_p, POINTER(Options), POINTER(c_void_p)],
            "ato_close": [c_void_p, c_int],
            "ato_sync": [c_void_p, POINTER(c_uint64)],
            "ato_tx_begin": [c_void_p, POINTER(c_void_p)],
            "ato_tx_read": [c_void_p, c_uint64, c_char_p, c_size_t],
            "ato_tx_write": [c_void_p, c_uint64, c_char_p, c_size_t],
            "ato_tx_commit": [c_void_p],
            "ato_tx_rollback": [c_void_p],
        }.items():
            getattr(self.ato, name).argtypes = arguments
        options = Options()
        self.ato.ato_options_init(byref(options), ctypes.sizeof(options))
        options.create, options.len = 1, length
        self.file = c_void_p()
        self.check(self.ato.ato_open(os.fsencode(path), byref(options), byref(self.file)))

    def check(self, code):
        if code < 0:
            raise OSError(-code, self.ato.ato_last_error().decode())

    def transact(self, body):
        """Runs body(read, write) until no other thread changes what it has read meanwhile."""
        while True:
            tx = c_void_p()
            self.check(self.ato.ato_tx_begin(self.file, byref(tx)))
            codes = []

            def read(offset, length):
                buffer = ctypes.create_string_buffer(length)
                codes.append(self.ato.ato_tx_read(tx, offset, buffer, length))
                return buffer.raw

            def write(offset, data):
                codes.append(self.ato.ato_tx_write(tx, offset, data, len(data)))

            try:
                result = body(read, write)
            except BaseException:
                self.ato.ato_tx_rollback(tx)
                raise
            failed = next((code for code in codes if code < 0), 0)
            if failed == 0:
                failed = self.ato.ato_tx_commit(tx)
            else:
                self.ato.ato_tx_rollback(tx)
            if failed != EAGAIN:
                self.check(failed)
                return result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.check(self.ato.ato_sync(self.file, None))
        self.check(self.ato.ato_close(self.file, 0))


def count(read, write):
    number = struct.unpack("<Q", read(0, 8))[0] + 1
    write(0, struct.pack("<Q", number))
    return number


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with AtomicFile(sys.argv[1], sys.argv[2], 4096) as file:
        print(file.transact(count))
