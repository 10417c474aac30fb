//! Processes: how the lab starts, watches and kills them.
//!
//! Owns: every call to the operating system that concerns processes: fork, wait, the timer that
//! kills, and the pipe for a child's answers.
//!
//! Children are forked and not executed. A fork takes a fraction of a millisecond, and the child
//! knows everything that its parent knows. At a fork, no other thread may hold a lock that the
//! child needs. These are the locks of the crate, of the heap and of the standard streams. So the
//! other threads of a process that runs this part of the lab must be idle. The parent never opens a
//! file itself. Only its children do, so none of them inherits a handle. A crash of the engine ends
//! a child and not the lab.
//!
//! May import: libc and std.

use std::any::Any;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The way in which a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process exited with this code.
    Exited(i32),
    /// A signal with this number killed the process.
    Killed(i32),
}

/// A child process, which dies with its parent.
#[derive(Debug)]
pub struct Child {
    /// The process id.
    pub pid: libc::pid_t,
}

/// Exit code of a child that panicked in its work.
pub const PANICKED: i32 = 101;

/// Runs `work` in a child, which exits with the result as its code.
pub fn fork(work: impl FnOnce() -> i32) -> io::Result<Child> {
    // SAFETY: see the module's comment: the child finds all locks free that it will want.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid > 0 {
        return Ok(Child { pid });
    }
    // SAFETY: asks for a signal at the parent's end; no memory is touched.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
    exit(code)
}

/// Ends this process at once, without dropping or closing anything.
pub fn exit(code: i32) -> ! {
    // SAFETY: no precondition; nothing of this process is run down.
    unsafe { libc::_exit(code) }
}

impl Child {
    /// Waits for the end of the child. Skips the stops of a traced child.
    pub fn wait(self) -> End {
        let mut status = 0;
        loop {
            // SAFETY: our own child, waited for once, and a live local for its status.
            let waited = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
            if waited == self.pid && libc::WIFEXITED(status) {
                return End::Exited(libc::WEXITSTATUS(status));
            }
            if waited == self.pid && libc::WIFSIGNALED(status) {
                return End::Killed(libc::WTERMSIG(status));
            }
            let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            assert!(waited == self.pid || interrupted, "a child cannot be waited for");
        }
    }

    /// Kills the child.
    pub fn kill(&self) {
        // SAFETY: our own child, which has not been waited for: its number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

/// Returns the text of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}

/// Runs `work` in a child and returns its answer. The error says how the child died, or that it did
/// not end within `patience`.
pub fn ask(patience: Duration, work: impl FnOnce() -> String) -> Result<String, String> {
    start(work)?.answer(patience)
}

/// A child that will send an answer.
#[derive(Debug)]
pub struct Asked {
    child: Child,
    reader: io::PipeReader,
}

/// Starts `work` in a child.
pub fn start(work: impl FnOnce() -> String) -> Result<Asked, String> {
    let (reader, mut writer) = io::pipe().map_err(|e| format!("no pipe: {e}"))?;
    let child = fork(|| {
        std::panic::set_hook(Box::new(|_| {}));
        let (sign, text) = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(answer) => (b'+', answer),
            Err(panic) => (b'-', panic_text(&*panic)),
        };
        let said = writer.write_all(&[sign]).and_then(|()| writer.write_all(text.as_bytes()));
        i32::from(said.is_err())
    });
    Ok(Asked { child: child.map_err(|e| format!("no child: {e}"))?, reader })
}

/// The result of a child that was to send an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The child answered.
    Answered(String),
    /// The child panicked, with this text.
    Panicked(String),
    /// The child ended without an answer.
    Ended(End),
    /// The child did not end in time and was killed.
    Hung,
}

impl Asked {
    /// Waits for the result of the child.
    pub fn outcome(mut self, patience: Duration) -> Outcome {
        let mut said = Vec::new();
        let until = Instant::now() + patience;
        let mut hangs = false;
        let mut buffer = [0; 4096];
        loop {
            if !is_readable(&self.reader, until.saturating_duration_since(Instant::now())) {
                hangs = true;
                break;
            }
            match self.reader.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(got) => said.extend_from_slice(&buffer[..got]),
            }
        }
        if hangs {
            self.child.kill();
        }
        let end = self.child.wait();
        let text = || String::from_utf8_lossy(&said[1..]).into_owned();
        match (end, said.first()) {
            _ if hangs => Outcome::Hung,
            (End::Exited(0), Some(b'+')) => Outcome::Answered(text()),
            (End::Exited(0), Some(b'-')) => Outcome::Panicked(text()),
            (end, _) => Outcome::Ended(end),
        }
    }

    /// Returns the answer. The error says how the child died, or that it did not end within
    /// `patience`.
    pub fn answer(self, patience: Duration) -> Result<String, String> {
        match self.outcome(patience) {
            Outcome::Answered(text) => Ok(text),
            Outcome::Panicked(text) => Err(text),
            Outcome::Ended(end) => Err(format!("a child died: {end:?}")),
            Outcome::Hung => Err(format!("a child hangs: no answer for {patience:?}")),
        }
    }
}

fn is_readable(pipe: &io::PipeReader, within: Duration) -> bool {
    let millis = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
    let mut waiting = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live local, and an open descriptor.
    unsafe { libc::poll(&raw mut waiting, 1, millis) > 0 }
}

/// Makes reads of an empty pipe return at once, and gives the pipe room for `bytes`.
pub fn make_roomy(pipe: &io::PipeReader, bytes: i32) {
    // SAFETY: settings of an open descriptor.
    unsafe {
        let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        // If the kernel refuses the size, writers wait a little more often.
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes);
    }
}

/// A kernel timer that sends SIGKILL to this process.
///
/// It expires in the clock interrupt while the process runs, exact to microseconds. A parent that
/// sleeps and then sends the signal is late by its wake-up time. It could not hit an operation of a
/// microsecond.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(libc::timer_t);

// SAFETY: a timer's number, which any thread may use.
unsafe impl Send for Deadline {}
// SAFETY: the system serialises calls about one timer.
unsafe impl Sync for Deadline {}

impl Deadline {
    /// Creates a timer that is not set. A child does not inherit it.
    pub fn new() -> io::Result<Deadline> {
        // SAFETY: all-zero is a valid value of the plain struct.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = std::ptr::null_mut();
        // SAFETY: two live locals.
        let refused =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if refused == 0 { Ok(Deadline(timer)) } else { Err(io::Error::last_os_error()) }
    }

    /// Kills the process after this time, unless another call sets the timer again.
    pub fn set(self, after: Duration) {
        let value = libc::timespec {
            tv_sec: after.as_secs() as libc::time_t,
            // 0 would disarm the timer.
            tv_nsec: libc::c_long::from(after.subsec_nanos().max(1)),
        };
        let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let times = libc::itimerspec { it_interval: interval, it_value: value };
        // SAFETY: a timer of this process, and a live local.
        let refused = unsafe { libc::timer_settime(self.0, 0, &times, std::ptr::null_mut()) };
        assert_eq!(refused, 0, "the timer cannot be set");
    }
}

/// Binds this process and its children to one processor until it is dropped. Two processes that
/// take turns then need no wake-ups across processors.
#[derive(Debug)]
pub struct OnOneProcessor(libc::cpu_set_t);

impl OnOneProcessor {
    /// Binds the process to its current processor. Returns `None` if that is not permitted; nothing
    /// has changed then.
    pub fn new() -> Option<OnOneProcessor> {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: all-zero is a valid value of the plain struct; the calls get live locals of its
        // size.
        unsafe {
            let mut before: libc::cpu_set_t = std::mem::zeroed();
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            let here = usize::try_from(libc::sched_getcpu()).ok()?;
            libc::CPU_SET(here, &mut one);
            let done = libc::sched_getaffinity(0, size, &raw mut before) == 0
                && libc::sched_setaffinity(0, size, &raw const one) == 0;
            done.then_some(OnOneProcessor(before))
        }
    }
}

impl Drop for OnOneProcessor {
    fn drop(&mut self) {
        // SAFETY: a live value of the size that is said.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
    }
}
