//! Tests that each version of openraft goes on with a log and a file that the other one wrote.
//!
//! Both have openraft's default types, which encode to equal bytes.

use super::{common, open_as, v0_9, v0_10};
use openraft_atomic_mmap::file::Command;

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

/// Writes a replicated file as one version, and goes on with it as the other one. Nodes of the
/// first one then take the snapshots of that: the changes, and the whole.
macro_rules! goes_on_with_the_file {
    ($name:ident, $writer:ident, $reader:ident) => {
        #[test]
        fn $name() {
            use $reader::file::{self as reader, on_runtime};
            use $reader::openraft::storage::RaftStateMachine as _;
            use $writer::file as writer;
            use $writer::openraft::storage::RaftStateMachine as _;
            on_runtime(async {
                let (mut old, mut behind) = (writer::Node::new(), writer::Node::new());
                for node in [&mut old, &mut behind] {
                    node.run(Command::SetLen(writer::LEN)).await;
                    node.members(&[1, 3]).await;
                    node.write(1000, &[5; 70_000]).await;
                }
                let base = old.seal().await;
                assert_eq!(behind.seal().await, base);
                old.write(200_000, &[6; 100]).await;
                let (bytes, next) = (old.bytes(), old.next);

                let mut node = reader::Node::start(old.end(), next);
                assert_eq!(node.bytes(), bytes);
                let (applied, members) = node.machine.applied_state().await.expect("the state");
                assert_eq!(applied, Some($reader::log_id(1, 4)));
                assert_eq!(*members.log_id(), Some($reader::log_id(1, 2)));
                assert_eq!(members.membership().voter_ids().collect::<Vec<_>>(), [1, 3]);
                let newest = node.machine.get_current_snapshot().await.expect("read");
                let newest = newest.expect("that of the other version");
                assert_eq!(reader::name(&newest), base);
                assert_eq!(newest.meta.last_log_id, Some($reader::log_id(1, 3)));

                node.write(250_000, &[7; 100]).await;
                let sent = node.snapshot().await;
                let mut changes = Vec::new();
                assert!(sent.snapshot.write_to(Some(&base), &mut changes).expect("changes"));
                assert!(changes.len() < 20_000, "{}", changes.len());
                let mut whole = Vec::new();
                sent.snapshot.write_to(None, &mut whole).expect("the whole");
                // As a network between both versions sends it.
                let meta = postcard::to_stdvec(&sent.meta).expect("encode");
                for (mut to, stream) in [(behind, changes), (writer::Node::new(), whole)] {
                    let meta = postcard::from_bytes(&meta).expect("decode");
                    let received = to.receive(&stream).await;
                    let installed = to.machine.install_snapshot(&meta, received.into()).await;
                    installed.expect("installed");
                    assert_eq!(to.bytes(), node.bytes());
                    let (applied, _) = to.machine.applied_state().await.expect("the state");
                    assert_eq!(applied, Some($writer::log_id(1, 5)));
                    let again = to.seal().await;
                    assert_eq!(again, reader::name(&sent));
                }
            });
        }
    };
}

goes_on_with_the_file!(openraft_0_10_goes_on_with_the_file_of_0_9, v0_9, v0_10);
goes_on_with_the_file!(openraft_0_9_goes_on_with_the_file_of_0_10, v0_10, v0_9);

/// Returns the file that a version makes of some commands.
macro_rules! file_of {
    ($version:ident) => {
        $version::file::on_runtime(async {
            let mut node = $version::file::Node::new();
            node.run(Command::SetLen(100)).await;
            node.members(&[7]).await;
            node.write(10, b"bytes").await;
            node.bytes()
        })
    };
}

#[test]
fn equal_logs_make_equal_files_as_the_documentation_has_them() {
    let bytes = file_of!(v0_9);
    assert_eq!(bytes, file_of!(v0_10));
    assert_eq!(bytes[..24], *b"atomic-mmap raft\x01\0\0\0\0\0\0\0");
    // A cell: checksum, length, value. Entry 3, of the first term's leader 1.
    assert_eq!(bytes[68..80], *b"\x05\0\0\0\x03\x03\x01\x01\x03\0\0\0");
    // Entry 2 and its membership: one configuration, of node 7; and one node with its address.
    assert_eq!(bytes[196..219], *b"\x10\0\0\0\x01\x01\x01\x02\x01\x01\x07\x01\x07\x06node 7\0\0\0");
    for cell in [64..192, 192..16_384] {
        let (sum, rest) = bytes[cell].split_first_chunk().expect("a cell");
        assert_eq!(u32::from_le_bytes(*sum), crc32c::crc32c(rest));
    }
    assert_eq!(bytes[16_384 + 10..][..5], *b"bytes");
    assert_eq!(bytes.len(), 16_384 + 100);
}
