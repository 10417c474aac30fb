//! Ways in which a home file and a reflection file do not match.
//!
//! Owns: [`Mismatch`] and its messages.
//!
//! Invariant: each message says what happened, and what the caller can do about it.
//!
//! May import: `shown`, and the version of the format.

use super::shown;
use std::fmt::Display;
use std::path::Path;

/// The way in which a home file and a reflection file do not match.
///
/// `docs/recovery.md` says for each what happened and what to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Mismatch {
    /// The home file's attribute names a reflection file, which does not exist.
    ReflectionGone,
    /// The reflection file belongs to another home file.
    Swapped,
    /// Another file has replaced the home file of the existing reflection file.
    HomeReplaced,
    /// The home file is a copy of one that had a reflection file. The copy may lack the bytes of
    /// that reflection file.
    HomeIsCopy,
    /// The home file says in its bytes that it was in use, and it has no companions here. It is a
    /// copy of the home file alone, or has lost them. It may lack bytes.
    LoneCopy,
    /// The file with the reflection file's name is not a reflection file.
    Foreign,
    /// A newer version of this crate has written the reflection file.
    Newer {
        /// The reflection file's format version.
        version: u32,
    },
    /// The reflection file is damaged: a superblock that is needed is not whole, a word with a
    /// length has a wrong check, or the log has entries that no version of this crate writes.
    Corrupt,
    /// The reflection file is shorter than its superblock requires.
    ReflectionTruncated,
    /// The home file is shorter than the reflection file requires.
    HomeTruncated,
    /// The home file has changed since it was closed.
    HomeChanged,
    /// The machine was restarted while the file was in use without durable points, on a medium that
    /// only survives process crashes. Or the process crashed, and the system cannot tell that the
    /// page cache is still the one it wrote to.
    Restarted,
    /// The file was in use when the process crashed or the machine was restarted, and its journal
    /// is missing.
    JournalGone,
    /// The file was in use when the process crashed or the machine was restarted. The journal with
    /// its name belongs to another pair, or to another time of this pair. Or a record in it is
    /// damaged.
    JournalSwapped,
    /// The reflection file belongs to the home file, but the home file's attribute is missing. A
    /// program has removed the attribute, or an earlier state of the home file was restored.
    MarkGone,
    /// The home file was last opened on another device and by another path, and its companions lie
    /// on another volume. Either its volume is mounted elsewhere now, or this is a snapshot of the
    /// volume, and the reflection file belongs to the original.
    MayBeSnapshot,
    /// The home file and the reflection file lie on different volumes and are of different times,
    /// because one of the volumes was rolled back.
    RolledBack,
}

fn lone_copy_message(home: &impl Display, reflection: &impl Display, discard: &str) -> String {
    format!(
        "{home}: says in its bytes that it was in use, and {reflection} and the files of that name \
         are not here; put them beside it, or copy the file again after a spatial close; \
         {discard} (they may be old, or zeros)"
    )
}

pub(super) fn mismatch_message(home: &Path, reflection: &Path, why: &Mismatch) -> String {
    let (home, reflection) = (shown(home), shown(reflection));
    let discard = "open with OnMismatch::Discard to take the home file's bytes as they are";
    let trust = "or with OnMismatch::Trust to use the reflection file all the same";
    match why {
        Mismatch::ReflectionGone => format!(
            "{home}: its reflection file {reflection} is gone; put it back, or {discard} \
             (writes that were only there are lost)"
        ),
        Mismatch::Swapped => format!(
            "{home}: the reflection file {reflection} belongs to another file; put the right one \
             in its place, or {discard} (that file stays as it is)"
        ),
        Mismatch::HomeReplaced => format!(
            "{home}: took the place of a file that was not closed with CloseMode::Spatial, and \
             its reflection file {reflection} is still there; put the old home file back, or {discard} \
             (that reflection file stays as it is)"
        ),
        Mismatch::HomeIsCopy => format!(
            "{home}: is a copy of a file that was not closed with CloseMode::Spatial; writes that \
             are only in the original's reflection file are missing (this file's would be \
             {reflection}); copy it again after a spatial close, or {discard}"
        ),
        Mismatch::LoneCopy => lone_copy_message(&home, &reflection, discard),
        Mismatch::Foreign => format!(
            "{home}: {reflection} is not a reflection file; move it away (this crate removes \
             nothing that is not its own)"
        ),
        Mismatch::Newer { version } => format!(
            "{home}: the reflection file {reflection} is of format version {version}, newer than \
             this crate's {}; use a newer atomic-mmap",
            crate::format::layout::FORMAT_VERSION
        ),
        Mismatch::Corrupt => format!(
            "{home}: the superblocks, the lengths or the log of the reflection file {reflection} are damaged; \
             restore both files from a backup, or {discard}"
        ),
        Mismatch::ReflectionTruncated => format!(
            "{home}: the reflection file {reflection} was truncated; restore both files from a \
             backup, or {discard}"
        ),
        Mismatch::HomeTruncated => format!(
            "{home}: shorter than its reflection file {reflection} says; restore both files from \
             a backup, or {discard}"
        ),
        Mismatch::HomeChanged => format!(
            "{home}: was changed since it was closed, while {reflection} holds a part of its \
             bytes; {discard}, {trust}"
        ),
        Mismatch::JournalGone => format!(
            "{home}: was in use, and the journal {reflection}.journal of its durable points is gone; \
             put it back, or {discard}"
        ),
        Mismatch::JournalSwapped => format!(
            "{home}: was in use, and {reflection}.journal is a journal of another pair or of another \
             time, or damaged; put the right one in its place, restore all files from a backup, or {discard}"
        ),
        Mismatch::MarkGone => format!(
            "{home}: its attribute is gone, and its reflection file {reflection} says that it had one; if a \
             tool has removed the attribute, open with OnMismatch::Trust; if the home file was \
             restored from a backup, {discard}"
        ),
        Mismatch::MayBeSnapshot => format!(
            "{home}: was last opened on another device and by another path, and {reflection} is its \
             reflection file, or that of the original of this snapshot; if the volume was only \
             mounted elsewhere, mount it where it was or open with OnMismatch::Trust; if this is a \
             snapshot, {discard} (that reflection file stays as it is)"
        ),
        Mismatch::RolledBack => format!(
            "{home}: is of another time than its reflection file {reflection}: the volume of one of \
             them was rolled back; roll the other one back to that time, or {discard} (that \
             reflection file stays as it is)"
        ),
        Mismatch::Restarted => format!(
            "{home}: the machine was restarted while the file was in use, and its medium survives \
             only the death of the process; what the kernel had not written back is lost; restore \
             both files from a backup, or {discard}, {trust} ({reflection})"
        ),
    }
}
