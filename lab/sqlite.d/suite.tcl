# Runs the files of tests in the variable FILES over the VFS that the variable VFS names, in the
# folder of SQLite's tests. LIBRARY is the extension that has it.
set argv0 suite.tcl
set argv [list]
set testdir $::env(TESTS)
source $testdir/permutations.test

test_suite "vfs" -description {
  Tests over a VFS of an extension.
} -initialize {
  sqlite3 loader :memory:
  loader enable_load_extension 1
  loader eval "SELECT load_extension('$::env(LIBRARY)')"
  loader close
  set ::G(perm:sqlite3_args) [list -vfs $::env(VFS)]
} -files $::env(FILES)

run_test_suite vfs
finish_test
