//! Calls on a stage: a range that is filled first, and becomes the file's in one operation.
//!
//! Invariant: an operation takes a stage out of its handle. So no two threads use one stage at
//! once, and a commit never has a stage twice.

use crate::boundary::{Failure, Result, Shared, ato_file, call};
use crate::file::{self, range};
use crate::memory;
use crate::stream::borrowed;
use atomic_mmap::{Error, Stage};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

/// A range of a file that is filled first, and becomes the file's by `ato_commit_stages` or
/// `ato_tx_commit_with`. Made by `ato_stage_begin`, and freed by `ato_stage_drop`.
///
/// Any thread may use it, one at a time. A call fails with `-EBUSY` while another thread is in a
/// call on it, and with `-EINVAL` after its commit.
pub struct ato_stage {
    /// Dropped before `shared`, which it borrows, by the order of the fields. `None` after the
    /// commit, and during it.
    open: Mutex<Option<Stage<'static>>>,
    shared: Arc<Shared>,
}

// A thread may use the stage of another one.
const _: () = {
    const fn must_be_send<T: Send>() {}
    must_be_send::<Stage<'static>>();
};

impl ato_stage {
    fn begin(shared: &Arc<Shared>, range: Range<u64>) -> Result<ato_stage> {
        let open = shared.with(|file| {
            // SAFETY: the file lies in an `Arc`, so it does not move. The stage's own `shared`
            // keeps it until the stage is dropped.
            Ok(unsafe { &*std::ptr::from_ref(file) }.stage(range)?)
        })?;
        Ok(ato_stage { open: Mutex::new(Some(open)), shared: Arc::clone(shared) })
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Stage<'static>>>> {
        let text = "another thread uses the stage";
        self.open.try_lock().ok_or_else(|| Failure::new(libc::EBUSY, text))
    }

    fn take(&self) -> Result<Stage<'static>> {
        self.lock()?.take().ok_or_else(has_ended)
    }
}

fn has_ended() -> Failure {
    Failure::argument("the stage is committed, or it is named twice; drop it and begin another one")
}

/// # Safety
/// `stage` is NULL, or a stage that was not dropped.
unsafe fn on(
    stage: *const ato_stage,
    body: impl FnOnce(&mut Stage<'static>) -> Result<()>,
) -> c_int {
    call(|| {
        // SAFETY: the caller names a stage.
        let stage = unsafe { memory::reference(stage, "stage") }?;
        let mut open = stage.lock()?;
        let open = open.as_mut().ok_or_else(has_ended)?;
        stage.shared.with(|_| body(open))
    })
}

/// Runs an operation with the stages that a program names. They have ended if it succeeds, and are
/// as before otherwise.
///
/// # Safety
/// `stages` is NULL, or names `count` pointers: each is NULL, or a stage that was not dropped.
pub(crate) unsafe fn with_stages(
    stages: *const *mut ato_stage,
    count: usize,
    body: impl FnOnce(&mut [Stage<'static>]) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller names the pointers.
    let handles = unsafe { memory::list(stages, count, "stages") }?;
    let handles = handles
        .iter()
        // SAFETY: the caller names the stages.
        .map(|stage| unsafe { memory::reference(*stage, "stage") });
    let handles: Vec<&ato_stage> = handles.collect::<Result<_>>()?;
    let mut taken = Vec::with_capacity(handles.len());
    let all = handles.iter().try_for_each(|handle| {
        taken.push(handle.take()?);
        Ok(())
    });
    let done = all.and_then(|()| body(&mut taken));
    if done.is_err() {
        for (handle, stage) in handles.iter().zip(taken) {
            *handle.open.lock() = Some(stage);
        }
    }
    done
}

/// Begins a stage of a range, in bytes, and stores it. Allocates storage for all of it, so that no
/// fill lacks space. Changes no byte of the file: until the commit no reader sees what the stage
/// holds, and a crash forgets it.
///
/// Use it for data that arrives piece by piece and counts as a whole. Other threads read and write
/// the range meanwhile, and stages may overlap. The last commit wins.
///
/// Each stage is freed by `ato_stage_drop`, also after its commit. The file cannot be closed before
/// (`-EBUSY`). `ato_set_len` is `-EBUSY` if it would cut off what a stage has lent.
///
/// Returns `-ERANGE` if the bytes do not all lie within the file, `-ENOSPC` if the disk is full.
///
/// # Safety
/// `file` is an open handle. `stage` names memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_begin(
    file: *const ato_file,
    offset: u64,
    len: u64,
    stage: *mut *mut ato_stage,
) -> c_int {
    call(|| {
        if stage.is_null() {
            return Err(Failure::argument("there is no place for the stage"));
        }
        // SAFETY: the caller names a place for a pointer.
        unsafe { memory::put(stage, std::ptr::null_mut()) };
        // SAFETY: the caller names the handle.
        let shared = &unsafe { memory::reference(file, "file") }?.shared;
        let begun = Box::new(ato_stage::begin(shared, range(offset, len)?)?);
        // SAFETY: as above.
        unsafe { memory::put(stage, Box::into_raw(begun)) };
        Ok(())
    })
}

/// Fills bytes of a stage. `offset` counts from the beginning of the stage.
///
/// Returns `-ERANGE` if they do not all lie within the stage. Nothing is filled then.
///
/// # Safety
/// `stage` was not dropped. `buffer` names `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_write(
    stage: *mut ato_stage,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the stage and the buffer.
    unsafe { on(stage, |stage| Ok(stage.write_at(memory::bytes(buffer, len)?, offset)?)) }
}

/// Fills bytes of a stage with zeroes. `offset` counts from the beginning of the stage.
///
/// Returns `-ERANGE` if they do not all lie within the stage. Nothing is filled then.
///
/// # Safety
/// `stage` was not dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_zero(
    stage: *mut ato_stage,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: the caller names the stage.
    unsafe { on(stage, |stage| Ok(stage.zero(range(offset, len)?)?)) }
}

/// Fills bytes of a stage from a descriptor, until all of them have arrived or the input ends.
/// `offset` counts from the beginning of the stage. The rest of the bytes is then not filled, even
/// if it was before.
///
/// Stores the number of bytes that have arrived and are filled, also after an error. `received` may
/// be NULL. A signal does not end the call.
///
/// Returns `-ERANGE` if the bytes do not all lie within the stage, and a negative `errno` if the
/// descriptor fails: `-EAGAIN` if it does not block and has no more bytes.
///
/// # Safety
/// `stage` was not dropped. `fd` stays open during the call. `received` is NULL, or names memory
/// for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_fill_from(
    stage: *mut ato_stage,
    offset: u64,
    len: u64,
    fd: c_int,
    received: *mut u64,
) -> c_int {
    // SAFETY: the caller names the stage, the descriptor and the place.
    unsafe {
        memory::put(received, 0);
        on(stage, |stage| {
            let (range, from) = (range(offset, len)?, borrowed(fd)?);
            let filled = stage.fill_from(&mut &*from, range.clone());
            let arrived = match &filled {
                Ok(arrived) => *arrived,
                Err(Error::Io { .. }) => filled_from_start(stage, &range),
                // The fill has not begun. What is filled is older.
                Err(_) => 0,
            };
            memory::put(received, arrived);
            Ok(filled.map(|_| ())?)
        })
    }
}

/// Returns the number of filled bytes from the start of a range on, after a read that failed.
fn filled_from_start(stage: &Stage<'_>, range: &Range<u64>) -> u64 {
    let first = stage.filled().find(|filled| filled.contains(&range.start));
    first.map_or(0, |filled| filled.end.min(range.end) - range.start)
}

/// Fills bytes of a stage as `ato_stage_fill_from` does, but by one `read`, and at most 64 KiB:
/// what there is. Stores the number of bytes that have arrived. 0 is the end of the input, or a
/// `len` of 0. `received` may be NULL.
///
/// Returns also `-EINTR` after a signal.
///
/// # Safety
/// `stage` was not dropped. `fd` stays open during the call. `received` is NULL, or names memory
/// for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_read_from(
    stage: *mut ato_stage,
    offset: u64,
    len: u64,
    fd: c_int,
    received: *mut u64,
) -> c_int {
    // SAFETY: the caller names the stage, the descriptor and the place.
    unsafe {
        memory::put(received, 0);
        on(stage, |stage| {
            let (range, from) = (range(offset, len)?, borrowed(fd)?);
            memory::put(received, stage.read_from(&mut &*from, range)?);
            Ok(())
        })
    }
}

/// Stores the number of bytes of a stage that its commit does not copy, if they are filled: they
/// lie in the file's own memory. 0 on page cache, and with `ATO_DURABLE_ATOMIC_SYNC`.
///
/// # Safety
/// `stage` was not dropped. `bytes` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_lent(stage: *mut ato_stage, bytes: *mut u64) -> c_int {
    // SAFETY: the caller names the stage and the place.
    unsafe {
        on(stage, |stage| {
            memory::put(bytes, stage.lent());
            Ok(())
        })
    }
}

/// Makes the filled bytes of stages the file's, in one operation: all or none of them, whatever
/// crashes. Where stages overlap, the later one wins. Bytes that were not filled keep their value.
///
/// If it succeeds, all that is left to do with the stages is `ato_stage_drop`. After an error the
/// file and the stages are as before, and another attempt may follow.
///
/// Returns `-EINVAL` if a stage is NULL, is named twice, is committed already, or belongs to
/// another file, `-EBUSY` if another thread uses one, and the errors of `ato_write`.
///
/// # Safety
/// `file` is an open handle. `stages` names `count` stages that were not dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_commit_stages(
    file: *const ato_file,
    stages: *const *mut ato_stage,
    count: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the stages.
    unsafe {
        file::on(file, |file| with_stages(stages, count, |stages| Ok(file.commit_stages(stages)?)))
    }
}

/// Frees a stage. What it holds is forgotten, unless it was committed. Does nothing with NULL.
///
/// # Safety
/// `stage` is NULL, or a stage that no thread uses again.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_stage_drop(stage: *mut ato_stage) {
    let _none_can_fail = call(|| {
        if !stage.is_null() {
            // SAFETY: `ato_stage_begin` made it by `Box`, and the caller gives it up.
            drop(unsafe { Box::from_raw(stage) });
        }
        Ok(())
    });
}
