//! `recvmsg`: a descriptor of a chosen file may come by a socket.
//!
//! It has an offset of its own here. If another process has its file open, its calls fail.

use super::{errno, process, quietly, real, set_errno};
use crate::{inside, settings};
use libc::{c_int, c_uint, ssize_t, timespec};

/// Takes descriptors of chosen files into the table that came with a message.
///
/// # Safety
/// The kernel has filled the message.
unsafe fn adopt(message: &libc::msghdr) {
    if message.msg_controllen == 0 || !settings::is_on() || inside::is_inside() {
        return;
    }
    let mut all = Vec::new();
    // SAFETY: as the caller promises. The numbers may lie at any address.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = part.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = header.cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(part).cast::<c_int>();
                all.extend((0..bytes / size_of::<c_int>()).map(|n| first.add(n).read_unaligned()));
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
    if !all.is_empty() {
        let before = errno();
        quietly(|| process::adopt(&all));
        set_errno(before);
    }
}

hook! {
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
        let received = real::recvmsg(fd, message, flags);
        if received >= 0 { adopt(&*message) }
        received
    }
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int {
        let received = real::recvmmsg(fd, messages, count, flags, limit);
        for n in 0..usize::try_from(received).unwrap_or(0) {
            adopt(&(*messages.add(n)).msg_hdr);
        }
        received
    }
}
