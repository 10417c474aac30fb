//! Checks a companion before it is used: its kind, its links, its owner, and where it lies.
//!
//! In a folder that other users may write to, a name proves nothing. Another user may have put a
//! link or a file there. Opening neither writes to a refused file nor believes it.
//! `docs/soundness.md` has the table of threats. May import `platform` and below.

use super::Opening;
use crate::error::{Distrust, Error, Result};
use crate::mutant::planted;
use crate::platform::{File, FileStat, Name, OpenHow, Platform, UNMAPPED};
use std::io::ErrorKind;

/// The file under a name in the folder of companions.
pub(super) enum Named {
    Nothing,
    /// Not a regular file: a folder, a device, a pipe.
    Irregular,
    /// A file that must not be used, for this reason.
    Distrusted(Distrust),
    /// An open regular file that may be used.
    Trusted(File, FileStat),
}

impl Opening<'_> {
    /// Opens a companion, if one exists that may be used. Writes nothing.
    pub(super) fn open_trusted(&self, name: &Name, home: &FileStat) -> Result<Named> {
        let io = |call| self.io(call, name.path());
        let Some(named) = self.platform.stat_name(name).map_err(io("look up"))? else {
            return Ok(Named::Nothing);
        };
        if named.is_link && !planted!(LinkFollowed) {
            // Another user's link is like any file of that user: it has to stop nothing.
            let foreign = distrusts(self.platform, &named, home.uid);
            return Ok(Named::Distrusted(foreign.unwrap_or(Distrust::IsLink)));
        }
        if !named.is_regular {
            return Ok(Named::Irregular);
        }
        if let Some(why) = distrusts(self.platform, &named, home.uid) {
            return Ok(Named::Distrusted(why));
        }
        let reads_only = self.options.read_only;
        let how = OpenHow { create_new: false, mode: 0o600, reads_only };
        let file = match self.platform.open(name, how) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Named::Nothing),
            Err(e) if e.kind() == ErrorKind::InvalidInput => return Ok(Named::Irregular),
            other => other.map_err(io("open"))?,
        };
        // Checks the opened file, since the name may belong to another file by now.
        let stat = self.stat(&file, name.path())?;
        if let Some(why) = distrusts(self.platform, &stat, home.uid) {
            return Ok(Named::Distrusted(why));
        }
        let is_alone = self.platform.is_mounted_alone(name.folder(), &file);
        if is_alone.map_err(io("look up"))? {
            return Ok(Named::Distrusted(Distrust::IsMountedAlone));
        }
        Ok(Named::Trusted(file, stat))
    }

    /// Returns the error for a companion that must not be used.
    pub(super) fn distrusted(&self, name: &Name, why: Distrust) -> Error {
        Error::Untrusted { home: self.path.to_owned(), path: name.path().to_owned(), why }
    }
}

/// Returns the reason not to use a file beside a home file of this owner, if another name of the
/// file, or another user, may change it.
pub(crate) fn distrusts(platform: &Platform, stat: &FileStat, home_owner: u32) -> Option<Distrust> {
    if stat.links > 1 && !planted!(HardLinkTaken) {
        return Some(Distrust::HasLinks(stat.links));
    }
    // Every owner without a number in this process's user namespace has the id `UNMAPPED`.
    let is_owners = stat.uid == home_owner && stat.uid != UNMAPPED;
    let is_known = is_owners || stat.uid == platform.user() || planted!(OwnerNotCompared);
    (!is_known).then_some(Distrust::IsOwnedBy { owner: stat.uid, home_owner })
}
