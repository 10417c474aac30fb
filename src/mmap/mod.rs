//! The bounds-checked door to one mapped file: every access to mapped bytes goes through it.
//!
//! Owns: a file, its mapping, and the length of the mapping's part that the file backs. Invariant:
//! every access lies within what the file backs, since beyond the end of the file lies SIGBUS.
//! Every call checks this here. A violation panics with the file and the range, and is a bug of the
//! engine, never of a caller. One check comes a few steps earlier: [`two_sided::Filling`], for a
//! caller with a pinned lane. Avoiding holes is the engine's duty (`pair::space` allocates before
//! first touch). May import `platform`, `primitive` and `units`. With `platform` and
//! `View::as_slice`, the only address of `unsafe` in the crate.
//!
//! Nothing here returns a reference into the mapping: bytes are copied in and out.

mod own_data;
mod rooms;
mod two_sided;

pub use rooms::Rooms;
pub use two_sided::Sides;

use crate::mutant::{planted, unless};
use crate::platform::{Copying, File, FileId, InLine, Mapping, Persistence, Place, Platform};
use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::units::{CHUNK, ChunkIndex, is_in_page};
use own_data::OwnData;
use std::io;
use std::path::{Path, PathBuf};

/// A file of the pair, and its mapping.
pub struct MappedFile {
    platform: Platform,
    mapping: Mapping,
    /// The file's exact length.
    len: AtomicU64,
    /// The file's length, rounded up to the end of its last page.
    backed: AtomicU64,
    file: File,
    id: FileId,
    path: PathBuf,
    /// `true` if the mapping is private to this process: nothing changes the file.
    is_private: bool,
    /// `true` if bytes of a private mapping may differ from the file's.
    is_changed: AtomicBool,
    /// Where they may.
    own: OwnData,
}

impl MappedFile {
    /// Creates the door to `file`, which is `len` bytes long. Bytes past the mapping cannot be
    /// reached.
    pub fn new(
        platform: Platform,
        id: FileId,
        path: PathBuf,
        file: File,
        mapping: Mapping,
        len: u64,
    ) -> Self {
        let (backed, zero) = (AtomicU64::new(0), AtomicU64::new(0));
        let len = len.min(mapping.len() as u64);
        let (is_private, is_changed) = (false, AtomicBool::new(false));
        let own = OwnData::default();
        let mapped = MappedFile {
            platform,
            mapping,
            len: zero,
            backed,
            file,
            id,
            path,
            is_private,
            is_changed,
            own,
        };
        mapped.set_backed(len);
        mapped
    }

    /// Makes this the door to a private mapping. Stores change memory of this process alone, and
    /// every call that would change the file succeeds without a change of it.
    pub fn into_private(self) -> Self {
        MappedFile { is_private: true, ..self }
    }

    /// Returns `true` if nothing changes the file.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Tells a private mapping that its bytes are about to differ from the file's. From here on
    /// reads through the file see the mapping's bytes.
    pub fn begin_private_changes(&self) {
        debug_assert!(self.is_private);
        self.is_changed.store(true, Ordering::Release);
    }

    /// Returns `true` if the bytes are those of the mapping alone.
    fn differs(&self) -> bool {
        self.is_private && self.is_changed.load(Ordering::Acquire)
    }

    /// Returns the file's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file, for calls that are not copies.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file's exact length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that the file backs, and that may therefore be accessed.
    #[inline]
    pub fn backed(&self) -> u64 {
        self.backed.load(Ordering::Acquire)
    }

    /// Returns the length of the mapping: the file cannot become longer than this.
    pub fn reach(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Returns `true` if a drain makes bytes survive a power loss. Otherwise a sync does.
    pub fn drains_are_durable(&self) -> bool {
        self.platform.persistence() != Persistence::Process
    }

    /// Changes how much the file backs. To grow, the caller changes the file's length first. To
    /// shrink, it changes the file's length afterwards.
    fn set_backed(&self, len: u64) {
        // The page that holds the end of the file is backed to its own end.
        let backed = len.next_multiple_of(crate::units::PAGE as u64);
        assert!(backed <= self.mapping.len() as u64);
        self.len.store(len, Ordering::Release);
        self.backed.store(backed, Ordering::Release);
    }

    #[inline(always)]
    #[track_caller]
    fn place(&self, offset: u64, len: usize) -> Place {
        if !self.backs(offset, len) {
            self.refuse(offset, len);
        }
        self.place_of(offset)
    }

    /// Returns `true` if the file backs all of these bytes.
    #[inline(always)]
    fn backs(&self, offset: u64, len: usize) -> bool {
        let end = offset.checked_add(len as u64);
        end.is_some_and(|end| end <= self.backed.load(Ordering::Relaxed))
    }

    /// Returns the address of `offset`. The caller has checked that `offset` is at most `backed`,
    /// and so at most the mapping's length (`set_backed`). The pointer stays within the one
    /// mapping, or one past its end.
    #[inline(always)]
    fn place_of(&self, offset: u64) -> Place {
        Place { ptr: self.near(offset).cast_mut(), file: self.id, offset }
    }

    #[cold]
    #[track_caller]
    fn refuse(&self, offset: u64, len: usize) -> ! {
        let backed = self.backed.load(Ordering::Relaxed);
        panic!("access to {:?} at {offset}, {len} bytes: the file backs {backed}", self.id);
    }

    #[inline]
    #[track_caller]
    fn word(&self, offset: u64) -> Place {
        assert!(offset.is_multiple_of(8));
        self.place(offset, 8)
    }

    /// Copies `from` to `offset`. `Platform::copy_in` says when the bytes become durable.
    #[inline]
    pub fn copy_in(&self, offset: u64, from: &[u8], how: Copying) {
        // A copy is not one step: under a scheduler another thread may run in the middle of it.
        #[cfg(shuttle)]
        let (offset, from) = {
            let (first, rest) = from.split_at(from.len() / 2);
            self.copy_in_at_once(offset, first, how);
            (offset + first.len() as u64, rest)
        };
        self.copy_in_at_once(offset, from, how);
    }

    /// Stores a line, given as words in registers, to `offset`, as [`Copying::BySize`] does.
    #[inline(always)]
    pub fn store_line(&self, offset: u64, line: [u64; 8]) {
        assert!(offset.is_multiple_of(64));
        // Only recovery reads more of it than a word, so one step is enough under a scheduler.
        let to = self.place(offset, 64);
        // SAFETY: `to` begins 64 mapped and backed bytes (`place`), and is aligned to 64: mappings
        // begin at a page.
        unsafe { self.platform.store_line(to, line) }
    }

    /// Stores `from`, at least one byte, to `offset` within one line by one instruction: see
    /// `Platform::store_in_line`. The caller holds the lock of the page.
    #[inline(always)]
    pub fn store_in_line(&self, how: InLine, offset: u64, from: &[u8]) {
        // Not empty, and not over the line's end.
        let is_in_line = from.len().wrapping_sub(1) < 64 - offset as usize % 64;
        if !is_in_line || offset >= self.backed.load(Ordering::Relaxed) {
            self.refuse(offset, from.len());
        }
        let to = self.place_of(offset);
        // SAFETY:
        // - `to` begins `from.len()` mapped and backed bytes: they lie in one line, and what is
        //   backed ends with a page (`set_backed`);
        // - they lie in one line of the mapping as well: mappings begin at a page;
        // - `from` is the caller's own memory, or a page that a view has pinned. A pinned page
        //   cannot be the page of `to`: the holder of a page lock checks for pins before it stores
        //   to the page;
        // - no other thread stores there: it would need the lock that the caller holds.
        unsafe { self.platform.store_in_line(how, to, from) }
    }

    #[inline]
    fn copy_in_at_once(&self, offset: u64, from: &[u8], how: Copying) {
        let to = self.place(offset, from.len());
        // SAFETY:
        // - `to` begins `from.len()` mapped and backed bytes (`place`);
        // - `from` is the caller's own memory: no safe code can have a reference into the mapping.
        unsafe { self.platform.copy_in(to, from, how) }
    }

    /// Fills `to` from `offset`.
    #[inline]
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        let from = self.place(offset, to.len());
        // SAFETY: `from` begins `to.len()` mapped and backed bytes (`place`).
        unsafe { self.copy_out_from(to, from.ptr) }
    }

    /// Fills `to` from `offset` if the file backs these bytes. Returns `false` if it does not, and
    /// then does nothing.
    #[inline]
    pub fn try_copy_out(&self, to: &mut [u8], offset: u64) -> bool {
        if !self.backs(offset, to.len()) {
            return false;
        }
        let from = self.place_of(offset);
        // SAFETY: `from` begins `to.len()` mapped and backed bytes (`backs`).
        unsafe { self.copy_out_from(to, from.ptr) }
        true
    }

    /// Fills `to` from `offset` if the bytes lie in one page and the file backs it. Returns `false`
    /// if not, and then does nothing.
    #[inline(always)]
    pub fn copy_out_in_page(&self, to: &mut [u8], offset: u64) -> bool {
        let is_backed = offset < self.backed.load(Ordering::Relaxed);
        if !is_in_page(offset, to.len()) || !is_backed {
            return false;
        }
        let from = self.place_of(offset);
        // SAFETY: `from` begins `to.len()` mapped and backed bytes: they end within their page, and
        // what is backed ends with a page (`set_backed`).
        unsafe { self.copy_out_from(to, from.ptr) }
        true
    }

    /// # Safety
    /// `from` begins `to.len()` mapped and backed bytes.
    #[inline]
    unsafe fn copy_out_from(&self, to: &mut [u8], from: *const u8) {
        // As in `copy_in`: under a scheduler a copy is two steps.
        #[cfg(shuttle)]
        let (to, from) = {
            let (first, rest) = to.split_at_mut(to.len() / 2);
            // SAFETY: the first half of the range that the caller guarantees.
            unsafe { self.copy_out_at_once(first, from) };
            (rest, from.wrapping_add(first.len()))
        };
        // SAFETY: the range that the caller guarantees, or the second half of it.
        unsafe { self.copy_out_at_once(to, from) }
    }

    /// # Safety
    /// As [`copy_out_from`](Self::copy_out_from).
    #[inline]
    unsafe fn copy_out_at_once(&self, to: &mut [u8], from: *const u8) {
        // SAFETY:
        // - the caller guarantees `from`;
        // - `to` is the caller's own memory, so the ranges do not overlap.
        unsafe { self.platform.copy_out(to, from) }
    }

    /// Copies `len` bytes from `from_offset` of another file to `offset` of this one.
    #[inline]
    pub fn copy_across(&self, offset: u64, from: &MappedFile, from_offset: u64, len: usize) {
        assert!(self.id != from.id);
        let to = self.place(offset, len);
        let from = from.place(from_offset, len);
        // SAFETY:
        // - both begin `len` mapped and backed bytes (`place`);
        // - they lie in two mappings, so they do not overlap.
        unsafe { self.platform.copy_across(to, from.ptr, len, Copying::BySize) }
    }

    /// Fills `len` bytes at `offset` with zeroes.
    pub fn fill_zero(&self, offset: u64, len: usize) {
        let to = self.place(offset, len);
        // SAFETY: `to` begins `len` mapped and backed bytes (`place`).
        unsafe { self.platform.fill_zero(to, len) }
    }

    /// Writes back every cache line of the range, without waiting.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        let at = self.place(offset, len);
        // SAFETY: `at` begins `len` mapped and backed bytes (`place`).
        unsafe { self.platform.flush(at, len) }
    }

    /// Writes back the cache line of a word, without waiting.
    #[inline(always)]
    pub fn flush_word(&self, offset: u64) {
        let at = self.word(offset);
        // SAFETY: `at` is a mapped, backed and aligned word (`word`).
        unsafe { self.platform.flush_word(at) }
    }

    /// Prefetches the line at `offset` for a store. Any `offset` is allowed: a line that has been
    /// truncated meanwhile, or never existed, is not prefetched.
    #[inline]
    pub fn prefetch_write(&self, offset: u64) {
        if let Some(at) = self.hint(offset) {
            // SAFETY: `at` is in the mapping; a prefetch changes nothing and never faults.
            unsafe { self.platform.prefetch_write(at) }
        }
    }

    /// Prefetches the line at `offset` for a store, without a check of where `offset` lies.
    #[inline(always)]
    pub fn prefetch_store(&self, offset: u64) {
        // SAFETY: a prefetch changes nothing and never faults, whatever the address.
        unsafe { self.platform.prefetch_write(self.near(offset)) }
    }

    /// Prefetches the line at `offset` for a load. Any `offset` is allowed and none is checked,
    /// since every read begins with this. A hole stays a hole.
    #[inline]
    pub fn prefetch_read(&self, offset: u64) {
        // SAFETY: a prefetch changes nothing and never faults, whatever the address.
        unsafe { self.platform.prefetch_read(self.near(offset)) }
    }

    /// Returns the address of `offset`, wherever that is. For hints, and for callers that have
    /// checked that the file backs it.
    #[inline(always)]
    fn near(&self, offset: u64) -> *const u8 {
        self.mapping.base().wrapping_add(offset as usize).cast_const()
    }

    /// Returns the address of `offset` if it lies in the mapping. For hints only: without a lock
    /// the file may stop backing the address at any time.
    #[inline]
    fn hint(&self, offset: u64) -> Option<*const u8> {
        (offset < self.mapping.len() as u64).then_some(self.near(offset))
    }

    /// Returns the word at `offset`.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        let at = self.word(offset);
        // SAFETY: `at` is a mapped, backed and aligned word (`word`).
        unsafe { self.platform.load_word(at.ptr) }
    }

    /// Stores a word and starts its write-back without waiting.
    #[inline]
    pub fn store_word_through(&self, offset: u64, value: u64) {
        let at = self.word(offset);
        // SAFETY: `at` is a mapped, backed and aligned word (`word`).
        unsafe { self.platform.store_word_through(at, value) }
    }

    /// Stores a word through the cache, and does not flush it.
    #[inline(always)]
    pub fn store_word(&self, offset: u64, value: u64) {
        let at = self.word(offset);
        // SAFETY: `at` is a mapped, backed and aligned word (`word`).
        unsafe { self.platform.store_word(at, value) }
    }

    /// Replaces a word by `new` if it is `old`, in one atomic step. Starts the write-back of its
    /// line without waiting, whether the word was replaced or not.
    pub fn replace_word_through(&self, offset: u64, old: u64, new: u64) {
        let at = self.word(offset);
        // SAFETY: `at` is a mapped, backed and aligned word (`word`).
        let found = unsafe { self.platform.compare_exchange_word(at, old, new) };
        if planted!(ClearFlushedIfDone) && found.is_err() {
            return;
        }
        unless!(ClearNotFlushed, self.flush_word(offset));
    }

    /// Returns the address of `len` bytes at `offset`. Reading through it is the caller's `unsafe`.
    pub fn address(&self, offset: u64, len: usize) -> *const u8 {
        self.place(offset, len).ptr
    }

    /// Reads through the file and not through the mapping. A hole reads as zeroes and stays
    /// unallocated, so the read cannot cause a SIGBUS on a full file system.
    pub fn read_file(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        if self.differs() {
            let there = self.backed().saturating_sub(offset).min(to.len() as u64) as usize;
            let (there, past) = to.split_at_mut(there);
            self.copy_out(there, offset);
            past.fill(0);
            return Ok(());
        }
        self.platform.read_at(&self.file, self.id, to, offset)
    }

    /// Writes through the file and not through the mapping. This costs no page fault, and a full
    /// file system is an error. Durable with the next sync. After an error any part may have been
    /// written.
    pub fn write_file(&self, from: &[u8], offset: u64) -> io::Result<()> {
        if self.is_private {
            self.own.note(offset, offset + from.len() as u64);
            self.copy_in(offset, from, Copying::Cached);
            return Ok(());
        }
        self.platform.write_at(&self.file, self.id, from, offset)
    }

    /// Allocates every page that the range touches, so that no store to the range can fail. Does
    /// not make the file longer.
    ///
    /// A page fault asks the file system for all blocks of the page. Blocks may be smaller than a
    /// page, so allocating only the range's bytes would leave out some of its blocks. With 1 KiB
    /// blocks that could be three quarters of a page.
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if planted!(BytesAllocated) {
            return self.allocate_to_end(offset, offset + len);
        }
        let page = self.platform.page_size();
        let end = (offset + len).next_multiple_of(page);
        self.allocate_to_end(offset - offset % page, end)
    }

    /// Allocates the pages from `old` to `end`, after the file has grown. `old` was its end before.
    /// The page that contains `old` may be in use: bytes before `old` are left alone, even where
    /// the file system has no allocation call.
    pub fn allocate_growth(&self, old: u64, end: u64) -> io::Result<()> {
        self.allocate_to_end(old, end.next_multiple_of(self.platform.page_size()))
    }

    /// Returns `true` if a page of the mapping is longer than the crate's pages.
    pub fn has_long_pages(&self) -> bool {
        self.platform.page_size() > crate::units::PAGE as u64
    }

    /// Allocates the rest of the mapping's page that the file's end cuts in two, up to `end`. The
    /// file must never reach over bytes without storage. A page fault asks for all blocks up to the
    /// file's end, and another thread may store to that page meanwhile.
    pub fn allocate_past_end(&self, end: u64) -> io::Result<()> {
        let len = self.len();
        let end = end.min(len.next_multiple_of(self.platform.page_size()));
        if len == end || self.is_private {
            return Ok(());
        }
        self.platform.allocate_past_end(&self.file, self.id, len, end - len)
    }

    fn allocate_to_end(&self, start: u64, end: u64) -> io::Result<()> {
        if self.is_private {
            self.own.note(start, end);
            return Ok(());
        }
        // In the last page, what lies past the file's end is never written back and needs no space.
        let len = end.min(self.len.load(Ordering::Acquire)).saturating_sub(start);
        self.platform.allocate(&self.file, self.id, None, start, len)
    }

    /// Allocates the first `len` bytes of the chunk at `offset`. A whole chunk of a file in memory
    /// becomes one huge page if the system has one.
    pub fn allocate_chunk(&self, offset: u64, len: u64) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(CHUNK as u64) && len <= CHUNK as u64);
        if self.is_private || len < CHUNK as u64 || offset + len > self.len.load(Ordering::Acquire)
        {
            return self.allocate(offset, len);
        }
        self.platform.allocate(&self.file, self.id, Some(&self.mapping), offset, len)
    }

    /// Asks for one huge page for the chunk at `offset`, of which the file has `len` bytes, if the
    /// file lies in memory: a hint. Holes may become allocated, and no byte changes. Returns `true`
    /// if the chunk is one page of the processor.
    pub fn take_huge_page(&self, offset: u64, len: u64) -> bool {
        let is_whole = len >= CHUNK as u64 && offset + len <= self.len.load(Ordering::Acquire);
        is_whole
            && !self.is_private
            && self.platform.take_huge_page(&self.file, &self.mapping, offset)
    }

    /// Brings the pages of the range into the mapping, as a store to each would: a hint. The range
    /// is allocated.
    pub fn bring_in(&self, offset: u64, len: u64) {
        if !self.is_private {
            self.platform.bring_in(&self.file, &self.mapping, offset, len);
        }
    }

    /// Drops clean pages of the range from the page cache, in whole folios: a hint. A folio is at
    /// most as large as a chunk, and aligned to its own size.
    pub fn forget_folios(&self, offset: u64, len: u64) {
        if self.is_private {
            return;
        }
        let chunk = CHUNK as u64;
        let end = (offset + len).next_multiple_of(chunk).min(self.len());
        let start = offset / chunk * chunk;
        self.platform.forget_cached(&self.file, &self.mapping, start, end.saturating_sub(start));
    }

    /// Lets the page cache keep single pages of the file from here on: a hint. The first store to a
    /// large folio beside a hole needs storage for all of it.
    pub fn expect_random(&self) {
        self.platform.expect_random(&self.file, &self.mapping);
    }

    /// Gives the range back to the file system, so that it reads as zeroes. Returns `false` if that
    /// is not supported.
    pub fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        if self.is_private {
            return Ok(false);
        }
        self.platform.punch(&self.file, self.id, offset, len)
    }

    /// Changes the file's length, and with it the range that may be accessed.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if len < self.len.load(Ordering::Acquire) {
            self.set_backed(len);
        }
        if !self.is_private {
            self.platform.set_file_len(&self.file, self.id, len)?;
        }
        self.set_backed(len);
        Ok(())
    }

    /// Returns the next offset, from `offset` on, that lies in a hole, as far as the file system
    /// tells. The end of the file counts as a hole.
    pub fn next_hole(&self, offset: u64) -> io::Result<u64> {
        let hole = self.platform.next_hole(&self.file, offset)?;
        // A chunk of a private mapping that recovery has stored to counts as data.
        Ok(if self.own.next(hole) == Some(hole) { ChunkIndex::of(hole).end() } else { hole })
    }

    /// Returns the next offset, from `offset` on, where the file is not a hole.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let own = self.own.next(offset).filter(|own| *own < self.len());
        let data = self.platform.next_data(&self.file, offset)?;
        Ok(data.into_iter().chain(own).min())
    }

    /// Returns the bytes of storage that the file has, as the file system counts them. `None` if
    /// that is unknown.
    pub fn storage(&self) -> Option<u64> {
        let told = self.platform.stat(&self.file).ok()?;
        (!self.is_private && self.platform.counts_storage()).then(|| told.blocks * 512)
    }

    /// Starts reading ahead bytes that are about to be read in order.
    pub fn will_need(&self, offset: u64, len: u64) {
        self.platform.will_need(&self.file, &self.mapping, offset, len);
    }

    /// As [`will_need`](Self::will_need), for the parts of the range that are no holes.
    pub fn will_need_data(&self, offset: u64, len: u64) {
        self.platform.will_need_data(&self.file, &self.mapping, offset, len);
    }

    /// Makes the file's bytes durable.
    pub fn sync_data(&self) -> io::Result<()> {
        if self.is_private { Ok(()) } else { self.platform.sync_data(&self.file, self.id) }
    }

    /// Makes the file's bytes and its inode durable.
    pub fn sync_all(&self) -> io::Result<()> {
        if self.is_private { Ok(()) } else { self.platform.sync_all(&self.file, self.id) }
    }
}
