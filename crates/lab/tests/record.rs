//! Records in a crate that does not depend on zerocopy, as this one does not.

use atomic_mmap::{AtomicMappedFile, Error, Optional, record};
use std::num::NonZeroU32;

record! {
    /// A tuple struct.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct Pair(pub u32, u32);
}

record! {
    #[derive(Clone, Copy, PartialEq, Debug, Default)]
    struct Vote {
        term: u64,
        candidate: Option<NonZeroU32>,
        history: [u16; 2],
    }
}

record! {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(u8)]
    enum Role {
        Follower = 1,
        Leader,
    }
}

record! {
    #[derive(Clone, Copy, PartialEq, Debug)]
    checked struct Node {
        vote: Vote,
        role: Role,
        is_learner: bool,
        voted_for: Optional<[u8; 5]>,
    }
}

#[test]
fn every_form_of_record_is_stored_and_loaded() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let file = AtomicMappedFile::create(folder.path().join("x"), 4096).expect("open");
    file.store(0, &Pair(1, 2)).expect("store");
    assert_eq!(file.load::<Pair>(0).expect("load"), Pair(1, 2));
    assert_eq!(file.load::<u32>(4).expect("load"), 2, "fields lie in their order");

    let vote = Vote { term: 7, candidate: NonZeroU32::new(3), history: [1, 2] };
    let voted_for = Optional::some(*b"node3");
    let node = Node { vote, role: Role::Leader, is_learner: true, voted_for };
    let slot = file.slot::<Node>(100).expect("slot");
    assert!(matches!(slot.load(), Err(Error::InvalidValue { .. })), "no role is 0");
    slot.store(&Node { role: Role::Follower, ..node }).expect("store");
    slot.update(|node| node.role = Role::Leader).expect("update");
    assert_eq!(slot.load().expect("load"), node);
    assert_eq!(file.load::<Vote>(100).expect("load"), vote);
    let bytes: [u8; 24] = file.load(100).expect("load");
    assert_eq!(&bytes[16..], [2, 1, 1, b'n', b'o', b'd', b'e', b'3'], "no byte lies between");
}
