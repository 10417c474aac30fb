# Runs one file of SQLite's tests over the VFS that the variable VFS names. The extension LIBRARY has
# that VFS, and TESTS is the folder of the tests. Without FILE, lists the files that can be run so.
set argv0 $::env(TESTS)/suite.tcl
set argv [list]
source $::env(TESTS)/permutations.test

# Of this suite SQLite's tests know that journals are not on the disk.
set name inmemory_journal
if {![info exists ::env(FILE)]} {
  array set options $::testspec($name)
  foreach file [lsort $options(-files)] { puts "FILE [file tail $file]" }
  exit 0
}
foreach file $::alltests {
  if {[file tail $file] eq $::env(FILE)} { set found $file }
}
run_tests $name -initialize {
  sqlite3 loader :memory:
  loader enable_load_extension 1
  loader eval "SELECT load_extension('$::env(LIBRARY)')"
  loader close
  set ::G(perm:sqlite3_args) [list -vfs $::env(VFS)]
} -files [list $found]
finish_test
