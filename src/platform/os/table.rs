//! A table of values that are found by their index, and take memory only where they are made.
//!
//! Owns: on Linux one reservation of address space, private to this process, with a bit and a place
//! for each value. So a value is found by arithmetic, with no pointer to load. Places become
//! writable in steps of [`STEP`], and the system backs only what is used. On other systems, and in
//! models, each value is a box.
//!
//! Invariants:
//! - a value is made once, never moves, and lives as long as the table;
//! - a value is found only after it was made completely.
//!
//! May import: `sys`, std, and the atomics and locks of `primitive`.

pub use imp::Table;

/// The values that become available together.
pub const STEP: u64 = 4096;

#[cfg(all(target_os = "linux", not(any(atomic_mmap_portable, miri, loom, shuttle))))]
mod imp {
    use super::STEP;
    use crate::platform::os::sys::Reservation;
    use crate::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};
    use std::cell::UnsafeCell;
    use std::io;
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    /// The largest page of any Linux system.
    const PAGE: usize = 64 << 10;
    const WORD: usize = size_of::<AtomicU64>();

    /// A table of values that are found by their index.
    #[derive(Debug)]
    pub struct Table<T> {
        /// Bit `n % 64` of word `n / 64` is set once value `n` is made. Invariant: these words and
        /// the places lie in `memory`, with a word and 64 places for each 64 values of `count`.
        made: NonNull<AtomicU64>,
        /// The place of value 0. Invariant: steps of places follow, which hold `count` in all.
        first: NonNull<T>,
        count: u64,
        /// The steps that are writable. A step never stops to be.
        open: Box<[AtomicBool]>,
        /// Taken to open a step and to make a value.
        making: Mutex<()>,
        /// Where the places begin in `memory`, in bytes.
        places_at: usize,
        memory: Reservation,
        /// Owns values that are moved in by shared access, so the type has no other lifetime.
        _owns: PhantomData<UnsafeCell<T>>,
    }

    // SAFETY: the table owns its values, and moves with them.
    unsafe impl<T: Send> Send for Table<T> {}
    // SAFETY: shared access gives shared access to the values, and lets a thread move a value in.
    unsafe impl<T: Send + Sync> Sync for Table<T> {}

    impl<T> Table<T> {
        /// Reserves room for `count` values.
        ///
        /// # Errors
        /// `OutOfMemory` if the process may not reserve as many addresses.
        pub fn new(count: u64) -> io::Result<Self> {
            const {
                assert!((STEP as usize * size_of::<T>()).is_multiple_of(PAGE), "whole pages");
                assert!(align_of::<T>() <= 4096, "a reservation begins with a page");
            }
            let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
            let step = STEP as usize * size_of::<T>();
            let steps = usize::try_from(count.div_ceil(STEP)).map_err(|_| too_much())?;
            let words = (steps * (STEP as usize / 64 * WORD)).next_multiple_of(PAGE);
            let places = steps.checked_mul(step).ok_or_else(too_much)?;
            let memory = Reservation::new(words.checked_add(places).ok_or_else(too_much)?)?;
            memory.make_writable(0..words)?;
            Ok(Table {
                made: memory.start().cast(),
                // SAFETY: the places begin within the reservation, or at its end if there are none.
                first: unsafe { memory.start().add(words) }.cast(),
                count,
                open: (0..steps).map(|_| AtomicBool::new(false)).collect(),
                making: Mutex::new(()),
                places_at: words,
                memory,
                _owns: PhantomData,
            })
        }

        /// Returns the word with the bit of value `n`, which is below `count`.
        #[inline(always)]
        fn word(&self, n: u64) -> &AtomicU64 {
            debug_assert!(n < self.count);
            // SAFETY: there is a word for each 64 values (invariant). It is writable, aligned since
            // a reservation begins with a page, and only ever used as an atomic.
            unsafe { self.made.add((n / 64) as usize).as_ref() }
        }

        /// Returns value `n`, if it was made.
        #[inline(always)]
        pub fn get(&self, n: u64) -> Option<&T> {
            // Acquire: the value was made before its bit was set.
            let is_made =
                n < self.count && self.word(n).load(Ordering::Acquire) >> (n % 64) & 1 == 1;
            // SAFETY: the bit of a value is set once the value is made at its place
            // (`get_or_insert`). It lives there as long as the table.
            is_made.then(|| unsafe { self.first.add(n as usize).as_ref() })
        }

        /// Returns value `n`. Makes it from `value` unless another thread has made it first.
        ///
        /// # Errors
        /// The system's error if it has no memory for the value.
        ///
        /// # Panics
        /// If the table has no place for value `n`.
        #[cold]
        pub fn get_or_insert(&self, n: u64, value: T) -> io::Result<&T> {
            assert!(n < self.count, "value {n} of {}", self.count);
            let _one_at_a_time = self.making.lock();
            if let Some(made) = self.get(n) {
                return Ok(made);
            }
            let step = (n / STEP) as usize;
            // Relaxed: changed by holders of the mutex only.
            if !self.open[step].load(Ordering::Relaxed) {
                let bytes = STEP as usize * size_of::<T>();
                let at = self.places_at + step * bytes;
                self.memory.make_writable(at..at + bytes)?;
                // Release: a thread that iterates finds the words of an open step.
                self.open[step].store(true, Ordering::Release);
            }
            // SAFETY: the place is within the reservation (`n < count`), and aligned because the
            // reservation begins with a page and a type's size is a multiple of its alignment. Its
            // step is writable. No value is there yet, and the mutex keeps other makers away.
            let made = unsafe {
                let place = self.first.add(n as usize);
                place.write(value);
                place.as_ref()
            };
            // Release: the value comes before its bit.
            self.word(n).fetch_or(1 << (n % 64), Ordering::Release);
            Ok(made)
        }

        /// Iterates over all values that were made, with their indices, in ascending order.
        pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
            self.indices().filter_map(|n| Some((n, self.get(n)?)))
        }

        /// Iterates over the indices of the values that were made. Visits the words of open steps
        /// only.
        fn indices(&self) -> impl Iterator<Item = u64> {
            let open = self.open.iter().enumerate();
            let steps = open.filter(|(_, open)| open.load(Ordering::Acquire));
            let firsts =
                steps.flat_map(|(n, _)| (n as u64 * STEP..(n as u64 + 1) * STEP).step_by(64));
            firsts.filter(|first| *first < self.count).flat_map(|first| {
                let made = self.word(first).load(Ordering::Acquire);
                (0..64).filter(move |n| made >> n & 1 == 1).map(move |n| first + n)
            })
        }
    }

    impl<T> Drop for Table<T> {
        fn drop(&mut self) {
            if std::mem::needs_drop::<T>() {
                for n in self.indices() {
                    // SAFETY: the value was made, it is visited once, and no reference to it is
                    // left, since the table is dropped.
                    unsafe { self.first.add(n as usize).drop_in_place() };
                }
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(atomic_mmap_portable, miri, loom, shuttle)))))]
mod imp {
    use super::STEP;
    use crate::primitive::{OnceBox, many};
    use std::io;

    type Step<T> = [OnceBox<T>; STEP as usize];

    /// A table of values that are found by their index.
    #[derive(Debug)]
    pub struct Table<T>(Box<[OnceBox<Step<T>>]>);

    impl<T> Table<T> {
        /// Makes a table with room for `count` values.
        ///
        /// # Errors
        /// None here.
        pub fn new(count: u64) -> io::Result<Self> {
            Ok(Table((0..count.div_ceil(STEP)).map(|_| OnceBox::new()).collect()))
        }

        /// Returns value `n`, if it was made.
        #[inline(always)]
        pub fn get(&self, n: u64) -> Option<&T> {
            self.0.get((n / STEP) as usize)?.get()?[(n % STEP) as usize].get()
        }

        /// Returns value `n`. Makes it from `value` unless another thread has made it first.
        ///
        /// # Errors
        /// None here.
        pub fn get_or_insert(&self, n: u64, value: T) -> io::Result<&T> {
            let step = self.0[(n / STEP) as usize].get_or_init(|| many(OnceBox::new));
            Ok(step[(n % STEP) as usize].get_or_init(|| Box::new(value)))
        }

        /// Iterates over all values that were made, with their indices, in ascending order.
        pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
            let steps = self.0.iter().enumerate().filter_map(|(n, step)| Some((n, step.get()?)));
            steps.flat_map(|(n, step)| {
                let made = step.iter().enumerate();
                made.filter_map(move |(m, value)| Some((n as u64 * STEP + m as u64, value.get()?)))
            })
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts how often values are dropped.
    #[repr(align(64))]
    struct Counted<'a>(u64, &'a AtomicU64);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_value_is_made_once_and_dropped_once() {
        let dropped = AtomicU64::new(0);
        let table = Table::new(3 * STEP).expect("a table");
        let places = [0, 1, 63, 64, STEP - 1, 2 * STEP, 3 * STEP - 1];
        assert!((0..3 * STEP).all(|n| table.get(n).is_none()));
        for n in places {
            let made = table.get_or_insert(n, Counted(n, &dropped)).expect("memory");
            assert_eq!(made.0, n);
            assert!(std::ptr::eq(made, table.get(n).expect("it was made")));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        let kept = table.get_or_insert(64, Counted(7, &dropped)).expect("memory");
        assert_eq!((kept.0, dropped.load(Ordering::Relaxed)), (64, 1), "the first one stays");
        assert!(table.iter().map(|(n, value)| (n, value.0)).eq(places.map(|n| (n, n))));
        drop(table);
        assert_eq!(dropped.load(Ordering::Relaxed), 1 + places.len() as u64);
    }

    #[test]
    fn threads_that_make_one_value_get_one() {
        let dropped = AtomicU64::new(0);
        let table = Table::new(STEP).expect("a table");
        let made: Vec<u64> = std::thread::scope(|scope| {
            let make = |n| table.get_or_insert(5, Counted(n, &dropped)).expect("memory").0;
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || make(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(made.iter().all(|n| *n == made[0]));
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_table_that_is_too_large_is_refused_or_costs_nothing() {
        assert!(Table::<Counted<'_>>::new(0).expect("nothing").get(0).is_none());
        #[cfg(all(target_os = "linux", not(any(atomic_mmap_portable, miri))))]
        assert!(Table::<Counted<'_>>::new(u64::MAX / 2).is_err());
    }
}
