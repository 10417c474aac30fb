//! POSIX AIO and libaio.
//!
//! A request on a chosen file is served before the call returns. Its result waits where the program
//! looks for it: in the request, or in the queue of the context.

use super::{data, durable, errno, failed, real};
use crate::errno::Errno;
use crate::{log, pair, settings, table};
use libc::{aiocb, c_int, c_long, c_void, iovec, off_t, size_t, ssize_t, timespec};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// glibc's request, with the fields that it keeps for itself.
#[repr(C)]
struct Request {
    fildes: c_int,
    opcode: c_int,
    priority: c_int,
    buffer: *mut c_void,
    len: size_t,
    event: libc::sigevent,
    next: *mut c_void,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    result: ssize_t,
    offset: off_t,
}

const _: () = assert!(
    std::mem::offset_of!(Request, offset) == std::mem::offset_of!(aiocb, aio_offset)
        && std::mem::size_of::<Request>() <= std::mem::size_of::<aiocb>()
);

/// Serves a request at once.
///
/// # Safety
/// As for `aio_read`.
unsafe fn serve(request: *mut aiocb, act: unsafe fn(&Request) -> ssize_t) -> c_int {
    let request = request.cast::<Request>();
    // SAFETY: as the caller promises. glibc's fields lie in these places.
    unsafe {
        let event = &(*request).event;
        if !matches!(event.sigev_notify, libc::SIGEV_NONE | libc::SIGEV_SIGNAL) {
            log::line("a request that notifies by a thread is refused: ENOSYS");
            return failed(Errno(libc::ENOSYS));
        }
        let result = act(&*request);
        (*request).error = if result < 0 { errno() } else { 0 };
        (*request).result = result;
        if event.sigev_notify == libc::SIGEV_SIGNAL {
            libc::sigqueue(libc::getpid(), event.sigev_signo, event.sigev_value);
        }
        0
    }
}

unsafe fn reads(it: &Request) -> ssize_t {
    // SAFETY: the buffer of the request.
    unsafe { data::pread(it.fildes, it.buffer, it.len, it.offset) }
}

unsafe fn writes(it: &Request) -> ssize_t {
    // SAFETY: the buffer of the request.
    unsafe { data::pwrite(it.fildes, it.buffer, it.len, it.offset) }
}

unsafe fn syncs(it: &Request) -> ssize_t {
    // SAFETY: the call has no pointers.
    unsafe { durable::fsync(it.fildes) as ssize_t }
}

fn is_chosen(request: *mut aiocb) -> bool {
    // SAFETY: a request that the program makes, or NULL.
    !request.is_null() && table::is_chosen(unsafe { (*request).aio_fildes })
}

/// Serves a list of requests.
///
/// # Safety
/// As for `lio_listio`.
unsafe fn list(
    mode: c_int,
    all: *const *mut aiocb,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let requests = match usize::try_from(count) {
            Ok(count @ 1..) if !all.is_null() => std::slice::from_raw_parts(all, count),
            _ => &[],
        };
        if !requests.iter().any(|request| is_chosen(*request)) {
            return real::lio_listio64(mode, all, count, event);
        }
        log::line("lio_listio with a chosen file is refused: ENOSYS");
        failed(Errno(libc::ENOSYS))
    }
}

hook! {
    fn aio_read(request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, reads) } else { real::aio_read64(request) } }
    fn aio_read64(request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, reads) } else { real::aio_read64(request) } }
    fn aio_write(request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, writes) } else { real::aio_write64(request) } }
    fn aio_write64(request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, writes) } else { real::aio_write64(request) } }
    fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, syncs) } else { real::aio_fsync64(operation, request) } }
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int { if is_chosen(request) { serve(request, syncs) } else { real::aio_fsync64(operation, request) } }
    fn lio_listio(mode: c_int, all: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int { list(mode, all, count, event) }
    fn lio_listio64(mode: c_int, all: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int { list(mode, all, count, event) }
}

/// A request of the kernel, `struct iocb`.
#[repr(C)]
struct Control {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    fildes: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    event_flags: u32,
    event_fd: u32,
}

/// A result of the kernel, `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// Results by context. Locked inside the gate of `pair`, so that no fork leaves it locked.
static DONE: Mutex<VecDeque<(usize, Event)>> = Mutex::new(VecDeque::new());
/// Their number. Relaxed: a thread that waits looks again.
static DONE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// How long a thread waits for results of the kernel before it looks at ours.
const SLICE: Duration = Duration::from_millis(2);

/// Runs `body` with the results.
fn with_done<R>(body: impl FnOnce(&mut VecDeque<(usize, Event)>) -> R) -> R {
    pair::unforked(|| {
        let mut done = DONE.lock();
        let result = body(&mut done);
        DONE_COUNT.store(done.len(), Ordering::Relaxed);
        result
    })
}

/// Serves one request, and queues its result.
unsafe fn run(context: usize, it: &Control) {
    let fd = it.fildes as c_int;
    let part = iovec { iov_base: it.buffer as *mut c_void, iov_len: it.len as usize };
    let (parts, count) = (it.buffer as *const iovec, it.len as c_int);
    let (one, flags) = (&raw const part, it.flags as c_int);
    // SAFETY: as the caller of `io_submit` promises. The numbers are those of `linux/aio_abi.h`.
    let result = unsafe {
        match it.opcode {
            0 => data::preadv2(fd, one, 1, it.offset, flags),
            1 => data::pwritev2(fd, one, 1, it.offset, flags),
            2 | 3 => durable::fsync(fd) as ssize_t,
            7 => data::preadv2(fd, parts, count, it.offset, flags),
            8 => data::pwritev2(fd, parts, count, it.offset, flags),
            _ => failed(Errno::INVALID),
        }
    };
    let result = if result < 0 { -i64::from(errno()) } else { result as i64 };
    let event = Event { data: it.data, request: std::ptr::from_ref(it) as u64, result, result2: 0 };
    with_done(|done| done.push_back((context, event)));
    const EVENT_FD: u32 = 1;
    if it.event_flags & EVENT_FD != 0 {
        // SAFETY: the call has no pointers.
        let _told = unsafe { libc::eventfd_write(it.event_fd as c_int, 1) };
    }
}

/// Moves up to `most` results of a context to `to`. Returns their number.
unsafe fn collect(context: usize, most: c_long, to: *mut Event) -> c_long {
    if DONE_COUNT.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    with_done(|done| {
        let mut count = 0;
        while count < most
            && let Some(n) = done.iter().position(|(of, _)| *of == context)
        {
            let Some((_, event)) = done.remove(n) else { break };
            // SAFETY: the caller has room for `most` results.
            unsafe { to.add(count as usize).write(event) };
            count += 1;
        }
        count
    })
}

/// Waits for results, ours and the kernel's.
///
/// # Safety
/// As for `io_getevents`.
unsafe fn wait_for(
    context: usize,
    least: c_long,
    most: c_long,
    to: *mut Event,
    limit: Option<Duration>,
) -> c_int {
    let start = Instant::now();
    let mut count = 0;
    loop {
        // SAFETY: the caller has room for `most` results. The kernel has the rest of the room.
        let more = unsafe {
            count += collect(context, most - count, to.add(count as usize));
            let left = limit.map_or(SLICE, |limit| limit.saturating_sub(start.elapsed()));
            // With enough results at hand the kernel is only asked.
            let left = if count >= least { Duration::ZERO } else { left.min(SLICE) };
            let wait = timespec { tv_sec: 0, tv_nsec: c_long::from(left.subsec_nanos()) };
            told(real::syscall(
                libc::SYS_io_getevents,
                context,
                (least - count).max(0) as usize,
                (most - count) as usize,
                to.add(count as usize) as usize,
                &raw const wait as usize,
                0,
            ))
        };
        if more < 0 {
            return if count > 0 { count as c_int } else { more };
        }
        count += c_long::from(more);
        if count >= least || limit.is_some_and(|limit| start.elapsed() >= limit) {
            return count as c_int;
        }
    }
}

/// Returns what a function of libaio returns: a count, or a negative number of an error.
fn told(result: c_long) -> c_int {
    if result < 0 { -errno() } else { result as c_int }
}

hook! {
    fn io_submit(context: usize, count: c_long, all: *const *mut c_void) -> c_int {
        if !settings::is_on() {
            return told(real::syscall(libc::SYS_io_submit, context, count as usize, all as usize, 0, 0, 0));
        }
        for n in 0..usize::try_from(count).unwrap_or(0) {
            let it = (*all.add(n)).cast::<Control>();
            let result = if table::is_chosen((*it).fildes as c_int) {
                run(context, &*it);
                1
            } else {
                told(real::syscall(libc::SYS_io_submit, context, 1, all.add(n) as usize, 0, 0, 0))
            };
            if result < 1 {
                return if n == 0 { result } else { n as c_int };
            }
        }
        count as c_int
    }
    fn io_getevents(context: usize, least: c_long, most: c_long, to: *mut Event, wait: *mut timespec) -> c_int {
        if !settings::is_on() {
            return told(real::syscall(libc::SYS_io_getevents, context, least as usize, most as usize, to as usize, wait as usize, 0));
        }
        let limit = wait.as_ref().map(|wait| (u64::try_from(wait.tv_sec), u32::try_from(wait.tv_nsec)));
        let limit = match limit {
            None => None,
            Some((Ok(seconds), Ok(part @ ..1_000_000_000))) => Some(Duration::new(seconds, part)),
            Some(_) => return -libc::EINVAL,
        };
        wait_for(context, least, most, to, limit)
    }
    fn io_destroy(context: usize) -> c_int {
        if settings::is_on() {
            with_done(|done| done.retain(|(of, _)| *of != context));
        }
        told(real::syscall(libc::SYS_io_destroy, context, 0, 0, 0, 0, 0))
    }
}
