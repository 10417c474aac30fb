//! Words that start as zero and take memory only where they are used.
//!
//! Owns: one anonymous mapping, private to this process, which is read and written by atomics only.
//! On Unix the system backs only the used parts of the mapping with memory, so all requested words
//! exist. On other systems, or where the system refuses, no word exists, and [`ZeroedWords::get`]
//! returns `None`.
//!
//! May import: std, memmap2, and the atomics of `primitive`.

pub use imp::ZeroedWords;

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use crate::primitive::AtomicU64;
    use std::ptr::NonNull;

    /// Either all requested words or none.
    #[derive(Debug)]
    pub struct ZeroedWords {
        words: NonNull<AtomicU64>,
        /// Invariant: `count` words follow `words`; they lie in `_memory`, or there are none.
        count: u64,
        _memory: Option<memmap2::MmapMut>,
    }

    // SAFETY: what is shared are atomics, in memory that lives as long as this value does and that
    // nothing else uses.
    unsafe impl Send for ZeroedWords {}
    // SAFETY: as above.
    unsafe impl Sync for ZeroedWords {}

    impl ZeroedWords {
        /// Creates `count` words if the system supports that, and none otherwise.
        pub fn new(count: u64) -> Self {
            let memory = usize::try_from(count)
                .ok()
                .and_then(|count| count.checked_mul(size_of::<AtomicU64>()))
                .filter(|len| *len > 0 && cfg!(all(unix, not(miri))))
                .and_then(|len| {
                    // Not reserved: unused parts take no memory. They count for RLIMIT_DATA, and as
                    // used memory on systems that never overcommit.
                    memmap2::MmapOptions::new().len(len).no_reserve_swap().map_anon().ok()
                });
            let Some(mut memory) = memory else {
                return ZeroedWords { words: NonNull::dangling(), count: 0, _memory: None };
            };
            // A system that gives huge pages unasked would take 2 MiB for the first word that is
            // used. A kernel without huge pages refuses the advice, and needs none.
            #[cfg(target_os = "linux")]
            let _refused = memory.advise(memmap2::Advice::NoHugePage);
            let words = NonNull::from(&mut memory[..]).cast();
            ZeroedWords { words, count, _memory: Some(memory) }
        }

        /// Returns the word with this number, if it exists.
        #[inline(always)]
        pub fn get(&self, n: u64) -> Option<&AtomicU64> {
            // SAFETY:
            // - `count` words follow `words` (invariant), and `n` is one of them;
            // - a mapping begins with a page, so they are aligned, and its bytes are zero or what
            //   these atomics stored: all of them are valid;
            // - they live as long as `self`, and nothing else refers to them: the mapping is kept,
            //   and never touched.
            (n < self.count).then(|| unsafe { self.words.add(n as usize).as_ref() })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::atomic::Ordering;

        #[test]
        fn words_are_zero_and_as_many_as_were_asked_for() {
            for count in [0, 1, 511, 513, 1 << 18] {
                let words = ZeroedWords::new(count);
                if !cfg!(unix) || cfg!(miri) {
                    assert!(words.get(0).is_none());
                    continue;
                }
                assert!(words.get(count).is_none() && words.get(u64::MAX).is_none());
                if let Some(last) = count.checked_sub(1) {
                    let word = words.get(last).expect("the last one");
                    assert_eq!(word.swap(7, Ordering::Relaxed), 0);
                    assert_eq!(words.get(last).expect("the same").load(Ordering::Relaxed), 7);
                    assert_eq!(
                        words.get(0).is_some_and(|w| w.load(Ordering::Relaxed) == 7),
                        last == 0
                    );
                }
            }
            assert!(ZeroedWords::new(u64::MAX).get(0).is_none(), "more than there can be");
        }
    }
}

/// The words of models, which are separate objects: a few, or none.
#[cfg(any(loom, shuttle))]
mod imp {
    use crate::primitive::AtomicU64;

    const MOST: u64 = if cfg!(loom) { 0 } else { 256 };

    /// The first few of the requested words.
    #[derive(Debug)]
    pub struct ZeroedWords(Box<[AtomicU64]>);

    impl ZeroedWords {
        /// Creates `count` words, but at most the number that a model needs.
        pub fn new(count: u64) -> Self {
            ZeroedWords((0..count.min(MOST)).map(|_| AtomicU64::new(0)).collect())
        }

        /// Returns the word with this number, if it exists.
        pub fn get(&self, n: u64) -> Option<&AtomicU64> {
            self.0.get(usize::try_from(n).ok()?)
        }
    }
}
