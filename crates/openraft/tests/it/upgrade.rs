//! Tests that openraft 0.10 reads a group that 0.9 wrote, and 0.9 one that 0.10 wrote.
//!
//! Both have openraft's default types, which encode to equal bytes.

use super::{common, open_as, v0_9, v0_10};

/// Writes a store as one version, and compares what the other one reads.
macro_rules! writes_and_reads {
    ($name:ident, $writer:ident, $reader:ident) => {
        #[test]
        fn $name() {
            let ground = common::ram();
            let scratch = ground.scratch();
            let path = scratch.file("raft.dat");
            {
                use $writer::calls::{append, entry, members, purge, save_committed, save_vote};
                use $writer::log_id;
                let mut store = open_as(&ground, &path);
                save_vote(&mut store, $writer::Vote::new_committed(3, 7));
                let entries = [entry(2, 1, "one"), members(2, 2, [(1, "a:1"), (7, "b:7")])];
                append(&mut store, entries).expect("append");
                append(&mut store, [entry(3, 3, "three")]).expect("append");
                purge(&mut store, log_id(2, 1));
                save_committed(&mut store, Some(log_id(2, 2)));
            }
            use $reader::calls::{committed, ends, entries, entry, members};
            use $reader::log_id;
            let mut store = open_as(&ground, &path);
            let vote = $reader::vote(&mut store).expect("vote");
            assert_eq!(vote, Some($reader::Vote::new_committed(3, 7)));
            assert_eq!(committed(&mut store), Some(log_id(2, 2)));
            assert_eq!(ends(&mut store), (Some(log_id(2, 1)), Some(log_id(3, 3))));
            let expected = [members(2, 2, [(1, "a:1"), (7, "b:7")]), entry(3, 3, "three")];
            assert_eq!(entries(&mut store, ..), expected);
        }
    };
}

writes_and_reads!(openraft_0_10_reads_what_0_9_wrote, v0_9, v0_10);
writes_and_reads!(openraft_0_9_reads_what_0_10_wrote, v0_10, v0_9);
