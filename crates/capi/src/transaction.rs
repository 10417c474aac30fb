//! Calls on a transaction: several reads and writes as one operation.

use crate::boundary::{Failure, Result, Shared, ato_file, call, end_if_cancelled};
use crate::memory;
use crate::stage::{ato_stage, with_stages};
use atomic_mmap::Transaction;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// An open transaction. One thread at a time may use it.
pub struct ato_tx {
    /// Dropped before `shared`, which it borrows, by the order of the fields.
    open: Transaction<'static>,
    shared: Arc<Shared>,
}

impl ato_tx {
    fn begin(shared: Arc<Shared>) -> ato_tx {
        // SAFETY: the file lies in an `Arc`, so it does not move. `shared` keeps it until the
        // transaction is dropped or committed.
        let open = unsafe { &*std::ptr::from_ref(shared.file()) }.begin();
        ato_tx { open, shared }
    }

    fn commit(self) -> Result<()> {
        let ato_tx { open, shared } = self;
        shared.with(|_| Ok(open.commit()?))
    }

    /// # Safety
    /// That of [`with_stages`].
    unsafe fn commit_with(self, stages: *const *mut ato_stage, count: usize) -> Result<()> {
        let ato_tx { open, shared } = self;
        // SAFETY: the caller names the stages.
        let commit =
            |_: &_| unsafe { with_stages(stages, count, |stages| Ok(open.commit_with(stages)?)) };
        shared.with(commit)
    }
}

/// # Safety
/// `tx` is NULL, or an open transaction that no other thread uses.
unsafe fn on(tx: *mut ato_tx, body: impl FnOnce(&mut Transaction<'static>) -> Result<()>) -> c_int {
    end_if_cancelled();
    call(|| {
        // SAFETY: the caller names a transaction for this call alone.
        let tx = unsafe { tx.as_mut() };
        let tx = tx.ok_or_else(|| Failure::argument("the transaction is NULL"))?;
        let open = &mut tx.open;
        tx.shared.with(|_| body(open))
    })
}

/// Begins a transaction, and stores it. It takes no lock: a commit fails if what the transaction
/// has read was changed meanwhile.
///
/// # Safety
/// `file` is an open handle. `tx` names memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_begin(file: *const ato_file, tx: *mut *mut ato_tx) -> c_int {
    call(|| {
        if tx.is_null() {
            return Err(Failure::argument("there is no place for the transaction"));
        }
        // SAFETY: the caller names a place for a pointer.
        unsafe { memory::put(tx, std::ptr::null_mut()) };
        // SAFETY: the caller names the handle.
        let shared = &unsafe { memory::reference(file, "file") }?.shared;
        let begun = shared.with(|_| Ok(Box::new(ato_tx::begin(Arc::clone(shared)))))?;
        // SAFETY: as above.
        unsafe { memory::put(tx, Box::into_raw(begun)) };
        Ok(())
    })
}

/// Reads bytes as the transaction sees them, with its own writes.
///
/// Returns `-EAGAIN` if something that it has read was changed meanwhile: roll it back, and begin
/// again.
///
/// # Safety
/// `tx` is an open transaction. `buffer` names `len` bytes for this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_read(
    tx: *mut ato_tx,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the transaction and the buffer.
    unsafe { on(tx, |tx| Ok(tx.read_at(memory::bytes_mut(buffer, len)?, offset)?)) }
}

/// Writes bytes at the commit. The transaction keeps a copy of them.
///
/// # Safety
/// `tx` is an open transaction. `buffer` names `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_write(
    tx: *mut ato_tx,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the transaction and the buffer.
    unsafe { on(tx, |tx| Ok(tx.write_at(memory::bytes(buffer, len)?, offset)?)) }
}

/// Changes the length of the file at the commit.
///
/// # Safety
/// `tx` is an open transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_set_len(tx: *mut ato_tx, len: u64) -> c_int {
    // SAFETY: the caller names the transaction.
    unsafe { on(tx, |tx| Ok(tx.set_len(len)?)) }
}

/// Stores the length that the transaction sees.
///
/// # Safety
/// `tx` is an open transaction. `len` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_len(tx: *mut ato_tx, len: *mut u64) -> c_int {
    // SAFETY: the caller names the transaction and the place.
    unsafe {
        on(tx, |tx| {
            memory::put(len, tx.len()?);
            Ok(())
        })
    }
}

/// Commits: all writes of the transaction or none, whatever crashes. The transaction has ended
/// afterwards, also after an error.
///
/// Returns `-EAGAIN` if something that it has read was changed meanwhile. Nothing was written then.
///
/// # Safety
/// `tx` is NULL, or an open transaction that no thread uses again.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_commit(tx: *mut ato_tx) -> c_int {
    call(|| {
        if tx.is_null() {
            return Err(Failure::argument("the transaction is NULL"));
        }
        // SAFETY: `ato_tx_begin` made it by `Box`, and the caller gives it up.
        unsafe { Box::from_raw(tx) }.commit()
    })
}

/// Commits as `ato_tx_commit` does, and with it the filled bytes of stages, as `ato_commit_stages`
/// does: the writes of the transaction and all stages, or nothing. Where they overlap, the stages
/// win. The transaction has ended afterwards, also after an error.
///
/// After an error the file and the stages are as before: begin another transaction after `-EAGAIN`,
/// and commit it with them.
///
/// # Safety
/// `tx` is NULL, or an open transaction that no thread uses again. `stages` names `count` stages
/// that were not dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_commit_with(
    tx: *mut ato_tx,
    stages: *const *mut ato_stage,
    count: usize,
) -> c_int {
    call(|| {
        if tx.is_null() {
            return Err(Failure::argument("the transaction is NULL"));
        }
        // SAFETY: `ato_tx_begin` made it by `Box`, and the caller gives it up. The caller names the
        // stages.
        unsafe { Box::from_raw(tx).commit_with(stages, count) }
    })
}

/// Ends a transaction without writing anything. Does nothing with NULL.
///
/// # Safety
/// `tx` is NULL, or an open transaction that no thread uses again.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_tx_rollback(tx: *mut ato_tx) {
    let _none_can_fail = call(|| {
        if !tx.is_null() {
            // SAFETY: `ato_tx_begin` made it by `Box`, and the caller gives it up.
            drop(unsafe { Box::from_raw(tx) });
        }
        Ok(())
    });
}
