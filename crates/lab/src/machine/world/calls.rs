//! System calls.

use super::inode::{Change, Inode, Spans};
use super::{JOURNAL, LeftOut, REFLECTION, STORE, World, writer};
use crate::machine::memory::{Memory, PAGE, PAST_THE_END, Thread};
use crate::machine::units;
use atomic_mmap::testing::machine::FileNumber;
use atomic_mmap::testing::{FileStat, OpenHow};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

impl World {
    fn note(&mut self, change: Change) {
        self.is_new = true;
        self.seq += 1;
        // An attribute changes the time of the inode alone, and no code compares that.
        if let Some(file) = change.file()
            && !matches!(change, Change::Attribute { .. })
        {
            let now = self.seq;
            self.inode(file).changed = now;
        }
        self.journal.push(change);
    }

    pub(in crate::machine) fn open(&mut self, path: &Path, how: OpenHow) -> io::Result<FileNumber> {
        self.alive()?;
        if self.symlinks.contains(path) {
            // ELOOP: the call follows no link.
            return Err(io::Error::from_raw_os_error(40));
        }
        if let Some(file) = self.names.get(path) {
            return if how.create_new { Err(ErrorKind::AlreadyExists.into()) } else { Ok(*file) };
        }
        if !how.create_new {
            return Err(ErrorKind::NotFound.into());
        }
        let file = FileNumber(self.next_file);
        self.next_file += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (is_journal, is_store) = (name.ends_with(JOURNAL), name.contains(STORE));
        let inode = Inode {
            number: file.0,
            born: self.seq + 1,
            links: 1,
            is_mounted_alone: false,
            changed: self.seq + 1,
            is_reflection: name.starts_with(REFLECTION) && !is_journal && !is_store,
            is_journal,
            is_store,
            owner: (self.user, self.user, how.mode),
            memory: Memory::new(file),
            len: 0,
            spans: Spans::default(),
            attributes: BTreeMap::new(),
        };
        self.files.insert(file, inode);
        self.names.insert(path.to_owned(), file);
        self.note(Change::Name { path: path.to_owned(), before: None });
        Ok(file)
    }

    pub(in crate::machine) fn try_lock(&mut self, file: FileNumber) -> io::Result<bool> {
        self.alive()?;
        // Handles of one process share a number here, and a process never locks a file twice.
        self.locked.insert(file);
        Ok(true)
    }

    pub(in crate::machine) fn unlock(&mut self, file: FileNumber) -> io::Result<()> {
        self.locked.remove(&file);
        Ok(())
    }

    pub(in crate::machine) fn allocate(
        &mut self,
        file: FileNumber,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.alive()?;
        self.has_allocation()?;
        let (start, end) = self.blocks(offset, len);
        let before = self.inode(file).spans.clone();
        let reached = self.take_blocks(file, start, end);
        // The file grows as far as the allocation reached, as on ext4.
        let (inode, longer) = (self.inode(file), reached.min(offset + len));
        let was = inode.len;
        if longer > was && longer > offset {
            inode.len = longer;
            self.show_past_the_end(file, was);
            self.note(Change::Len { file, len: was, cut: None });
        }
        self.note_allocated(file, start, reached, before);
        if reached < end { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Allocates storage for a range without a change of the file's length.
    pub(in crate::machine) fn allocate_past_end(
        &mut self,
        file: FileNumber,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.alive()?;
        self.has_allocation()?;
        let (start, end) = self.blocks(offset, len);
        let before = self.inode(file).spans.clone();
        let reached = self.take_blocks(file, start, end);
        self.note_allocated(file, start, reached, before);
        if reached < end { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn has_allocation(&self) -> io::Result<()> {
        if self.lacks_allocation { Err(ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    fn note_allocated(&mut self, file: FileNumber, start: u64, end: u64, before: Spans) {
        if !before.gaps(start, end).is_empty() {
            self.note(Change::Allocated { file, start, end, before });
        }
    }

    /// Returns the start of the first block of a range, and the end of the last one.
    fn blocks(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset / self.block * self.block, (offset + len).next_multiple_of(self.block))
    }

    /// Gives storage to the holes from `start` on while there are free blocks. Returns the offset
    /// that it reached.
    fn take_blocks(&mut self, file: FileNumber, start: u64, end: u64) -> u64 {
        let (block, mut left) = (self.block, self.left.unwrap_or(u64::MAX));
        let spans = &mut self.inode(file).spans;
        let mut reached = end;
        for (from, to) in spans.gaps(start, end) {
            let missing = (to - from) / block;
            if missing > left {
                reached = from + left * block;
                left = 0;
                break;
            }
            left -= missing;
        }
        if reached > start {
            spans.add(start, reached);
        }
        self.left = self.left.map(|_| left);
        reached
    }

    /// Frees the storage of a range of whole blocks.
    fn give_blocks_back(&mut self, file: FileNumber, start: u64, end: u64) {
        let inode = self.inode(file);
        let before = inode.spans.bytes();
        inode.spans.remove(start, end);
        let given = before - inode.spans.bytes();
        self.left = self.left.map(|left| left + given / self.block);
    }

    pub(in crate::machine) fn punch(
        &mut self,
        file: FileNumber,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.alive()?;
        // The punched bytes are gone at once. Once the hole is durable, no image contains them.
        self.keep();
        let (start, end) = (offset, offset + len);
        let before = self.inode(file).spans.clone();
        let (from, to) = (start.next_multiple_of(self.block), end / self.block * self.block);
        if from < to {
            self.give_blocks_back(file, from, to);
        }
        let bytes = self.inode(file).memory.zero(start, end);
        self.note(Change::Punched { file, start, end, bytes, before });
        Ok(())
    }

    pub(in crate::machine) fn set_len(&mut self, file: FileNumber, len: u64) -> io::Result<()> {
        self.alive()?;
        let inode = self.inode(file);
        let was = inode.len;
        if was == len {
            if self.is_page_cache {
                // Bytes that were stored past the end are gone.
                self.hide_past_the_end(file);
            }
            return Ok(());
        }
        self.keep();
        let inode = self.inode(file);
        inode.len = len;
        let cut = (len < was).then(|| {
            let end = was.next_multiple_of(PAGE);
            (len, end, inode.memory.zero(len, end))
        });
        match &cut {
            Some((from, end, before)) if self.is_page_cache => {
                // Bytes in freed blocks do not return.
                let gone = len.next_multiple_of(self.block.min(PAGE));
                let memory = &mut self.inode(file).memory;
                memory.put_back(*from, *end, before);
                memory.zero(gone, *end);
                self.hide_past_the_end(file);
            }
            Some(_) => {}
            None => self.show_past_the_end(file, was),
        }
        self.note(Change::Len { file, len: was, cut });
        if len < was {
            let before = self.inode(file).spans.clone();
            let (_, start) = self.blocks(0, len);
            let (_, end) = self.blocks(0, was);
            // This also frees storage that was reserved past the end.
            self.give_blocks_back(file, start, u64::MAX / 2);
            self.note(Change::Allocated { file, start, end, before });
        }
        Ok(())
    }

    /// Zeroes the rest of the file's last page for readers. The disk keeps its bytes.
    pub(super) fn hide_past_the_end(&mut self, file: FileNumber) {
        self.zero_rest_of_page(file, self.files[&file].len, PAST_THE_END);
    }

    /// Makes the zeroes from the old end `was` part of the file, so that the next sync writes them
    /// back.
    fn show_past_the_end(&mut self, file: FileNumber, was: u64) {
        if self.is_page_cache {
            self.zero_rest_of_page(file, was, writer(file));
        }
    }

    /// Stores zeroes from `at` to the end of its page, if the page has storage.
    fn zero_rest_of_page(&mut self, file: FileNumber, at: u64, by: Thread) {
        let rest = at.next_multiple_of(PAGE) - at;
        if rest == 0 || !self.files[&file].spans.holds(at) {
            return;
        }
        self.seq += 1;
        let inode = self.files.get_mut(&file).expect("an open file's number");
        let zeroes = vec![0; rest as usize];
        // This store bypasses the cache, so that only a drain of its own thread makes it durable.
        let through = by == PAST_THE_END;
        let nobody_waits = &mut Vec::new();
        inode.memory.store(at, &zeroes, self.seq, by, through, nobody_waits, &mut self.trail);
    }

    pub(in crate::machine) fn sync(&mut self, file: FileNumber) -> io::Result<()> {
        self.sync_bytes(file, 0..u64::MAX / 2)
    }

    /// Syncs only the blocks of some bytes, as a durable write does. Behind a page cache, other
    /// data of the file may stay unsynced.
    pub(in crate::machine) fn sync_bytes(
        &mut self,
        file: FileNumber,
        bytes: Range<u64>,
    ) -> io::Result<()> {
        self.alive()?;
        if self.left_out == Some(LeftOut::Syncs) {
            return Ok(());
        }
        if self.is_page_cache {
            let now = self.seq;
            let inode = self.files.get_mut(&file).expect("an open file's number");
            let pending = self.pending.entry(writer(file)).or_default();
            let (start, end) = (bytes.start / PAGE * PAGE, bytes.end.next_multiple_of(PAGE));
            inode.memory.flush(start, end, now, pending);
        }
        self.settle(writer(file));
        if let Some(last) = self.journal.iter().rposition(|c| c.file() == Some(file)) {
            self.keep();
            self.journal.drain(..=last);
        }
        Ok(())
    }

    pub(in crate::machine) fn sync_dir(&mut self) -> io::Result<()> {
        self.alive()?;
        if self.left_out == Some(LeftOut::Syncs) {
            return Ok(());
        }
        if let Some(last) = self.journal.iter().rposition(|c| c.file().is_none()) {
            self.keep();
            self.journal.drain(..=last);
        }
        Ok(())
    }

    pub(in crate::machine) fn read_at(
        &mut self,
        file: FileNumber,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.alive()?;
        let inode = self.files.get_mut(&file).expect("an open file's number");
        let len = (inode.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        if inode.is_journal && inode.memory.is_open(offset, offset + len as u64) {
            units::tell_headers_apart(&mut inode.memory, &mut self.trail);
            self.tell_records_apart(file);
        }
        let inode = self.files.get_mut(&file).expect("an open file's number");
        if inode.is_reflection && inode.memory.is_open(offset, offset + len as u64) {
            units::tell_apart(&mut inode.memory, offset, offset + len as u64, &mut self.trail);
        }
        if inode.is_store && inode.memory.is_open(offset, offset + len as u64) {
            self.tell_store_apart(file, offset, offset + len as u64);
        }
        let inode = self.files.get_mut(&file).expect("an open file's number");
        inode.memory.read(&mut buf[..len], offset, &mut self.trail);
        Ok(len)
    }

    /// Chooses which of the non-durable tables and keep records in a range are intact.
    fn tell_store_apart(&mut self, store: FileNumber, start: u64, end: u64) {
        // The superblock was read before.
        let reflection = self.files.values_mut().find(|inode| inode.is_reflection);
        let uuid = reflection.and_then(|i| units::uuid_of(&mut i.memory, &mut self.trail));
        if let (Some(uuid), Some(inode)) = (uuid, self.files.get_mut(&store)) {
            units::tell_store_apart(&mut inode.memory, (start, end), &uuid, &mut self.trail);
        }
    }

    /// Chooses which of the non-durable records are intact.
    fn tell_records_apart(&mut self, journal: FileNumber) {
        // The superblock was read before.
        let reflection = self.files.values_mut().find(|inode| inode.is_reflection);
        let seed = reflection.and_then(|i| units::journal_seed(&mut i.memory, &mut self.trail));
        if let (Some(seed), Some(inode)) = (seed, self.files.get_mut(&journal)) {
            units::tell_records_apart(&mut inode.memory, seed, &mut self.trail);
        }
    }

    pub(in crate::machine) fn write_at(
        &mut self,
        file: FileNumber,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.alive()?;
        let (start, end) = self.blocks(offset, buf.len() as u64);
        let reached = self.take_blocks(file, start, end);
        let buf = &buf[..reached.saturating_sub(offset).min(buf.len() as u64) as usize];
        if buf.is_empty() && reached < end {
            return Err(ErrorKind::StorageFull.into());
        }
        let was = self.inode(file).len;
        if offset + buf.len() as u64 > was {
            self.inode(file).len = offset + buf.len() as u64;
            self.show_past_the_end(file, was);
            self.note(Change::Len { file, len: was, cut: None });
        }
        self.store_by(writer(file), file, offset, buf, true);
        let now = self.seq;
        self.inode(file).changed = now;
        Ok(buf.len())
    }

    pub(in crate::machine) fn next_data(
        &mut self,
        file: FileNumber,
        offset: u64,
    ) -> io::Result<Option<u64>> {
        self.alive()?;
        let inode = self.inode(file);
        Ok(inode.spans.next(offset).filter(|at| *at < inode.len))
    }

    pub(in crate::machine) fn next_hole(
        &mut self,
        file: FileNumber,
        offset: u64,
    ) -> io::Result<Option<u64>> {
        self.alive()?;
        let inode = self.inode(file);
        if offset >= inode.len {
            return Ok(None);
        }
        let end = match inode.spans.0.range(..=offset).next_back() {
            Some((_, end)) if *end > offset => *end,
            _ => offset,
        };
        Ok(Some(end.min(inode.len)))
    }

    pub(in crate::machine) fn stat(&mut self, file: FileNumber) -> io::Result<FileStat> {
        self.alive()?;
        let (device, keeps_births) = (self.device, self.keeps_births);
        let inode = self.inode(file);
        Ok(FileStat {
            dev: device,
            ino: inode.number,
            len: inode.len,
            mtime: (inode.changed as i64, 0),
            ctime: (inode.changed as i64, 0),
            btime: keeps_births.then_some((inode.born as i64, 0)),
            is_regular: true,
            is_link: false,
            links: inode.links,
            uid: inode.owner.0,
            gid: inode.owner.1,
            mode: inode.owner.2,
            blocks: inode.spans.0.iter().map(|(start, end)| (end - start) / 512).sum(),
        })
    }

    pub(in crate::machine) fn stat_path(&mut self, path: &Path) -> io::Result<Option<FileStat>> {
        self.alive()?;
        match self.names.get(path).copied() {
            Some(file) => {
                let is_link = self.symlinks.contains(path);
                let stat = self.stat(file)?;
                Ok(Some(FileStat { is_link, is_regular: !is_link, ..stat }))
            }
            None => Ok(None),
        }
    }

    pub(in crate::machine) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?;
        let file = self.names.remove(from).ok_or(ErrorKind::NotFound)?;
        let before = self.names.insert(to.to_owned(), file);
        before.iter().for_each(|gone| self.has_no_name(*gone));
        self.note(Change::Renamed { from: from.to_owned(), to: to.to_owned(), file, before });
        Ok(())
    }

    pub(in crate::machine) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        let file = self.names.remove(path).ok_or(ErrorKind::NotFound)?;
        self.symlinks.remove(path);
        self.has_no_name(file);
        self.note(Change::Name { path: path.to_owned(), before: Some(file) });
        Ok(())
    }

    /// Frees the storage of a file that was removed.
    fn has_no_name(&mut self, file: FileNumber) {
        let bytes = self.files.get(&file).map_or(0, |inode| inode.spans.bytes());
        self.left = self.left.map(|left| left + bytes / self.block);
    }

    pub(in crate::machine) fn list_dir(&mut self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.alive()?;
        Ok(self.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    pub(in crate::machine) fn get_xattr(
        &mut self,
        file: FileNumber,
        name: &str,
    ) -> io::Result<Option<Vec<u8>>> {
        self.alive()?;
        Ok(self.inode(file).attributes.get(name).cloned())
    }

    pub(in crate::machine) fn set_xattr(
        &mut self,
        file: FileNumber,
        name: &str,
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        self.alive()?;
        let attributes = &mut self.inode(file).attributes;
        let before = match value {
            Some(value) => attributes.insert(name.to_owned(), value.to_vec()),
            None => attributes.remove(name),
        };
        if before.as_deref() != value {
            self.note(Change::Attribute { file, name: name.to_owned(), before });
        }
        Ok(())
    }

    pub(in crate::machine) fn own(&mut self, file: FileNumber, like: &FileStat) -> io::Result<()> {
        self.alive()?;
        self.inode(file).owner = (like.uid, like.gid, like.mode);
        Ok(())
    }

    /// Returns the id of the file system of all files, which changes when it is mounted anew.
    pub(in crate::machine) fn volume(&self) -> u64 {
        u64::from(self.mounts) + 1
    }

    pub(in crate::machine) fn boot_id(&self) -> [u8; 16] {
        [self.boot; 16]
    }

    /// Returns the uptime, the time of the machine's start, and the birth time of its devices
    /// folder.
    pub(in crate::machine) fn clocks(&self) -> (u64, i64, u64) {
        const DAY: u64 = 86_400_000_000_000;
        let started = u64::from(self.starts) * DAY;
        (1 + self.seq - self.started_at, started as i64, started + 1)
    }

    pub(in crate::machine) fn new_uuid(&mut self) -> [u8; 16] {
        self.uuids += 1;
        u128::from(self.uuids).to_le_bytes()
    }
}
