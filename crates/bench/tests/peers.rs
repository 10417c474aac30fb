//! Tests each peer against a vector of bytes, also after it is opened again.

use bench::peers;
use bench::scratch::Scratch;
use bench::subject::Subject;

const LEN: u64 = 1 << 20;

struct Model {
    subject: Box<dyn Subject>,
    bytes: Vec<u8>,
}

impl Model {
    fn write(&mut self, data: &[u8], offset: u64) {
        self.subject.write(data, offset);
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
    }

    fn check(&self, what: &str) {
        let mut found = vec![0xEE; LEN as usize];
        self.subject.read(&mut found, 0);
        assert!(found == self.bytes, "{what}: not what was written");
    }
}

#[test]
fn each_peer_against_a_vector_of_bytes() {
    for kind in peers::ALL {
        let scratch = Scratch::new(None).expect("a folder");
        let open = || (kind.open)(scratch.path(), LEN);
        let subject = match open() {
            Ok(subject) => subject,
            Err(missing) => {
                println!("skipped {}: {missing}", kind.name);
                continue;
            }
        };
        let mut model = Model { subject, bytes: vec![0; LEN as usize] };
        model.check(kind.name);
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..4 {
            for _ in 0..60 {
                let longest = if rng.bool() { 300 } else { 40_000 };
                let mut data = vec![0; rng.usize(1..longest)];
                rng.fill(&mut data);
                let offset = rng.u64(0..LEN - data.len() as u64);
                model.write(&data, offset);
                if rng.u8(..) < 100 {
                    model.subject.sync();
                }
                let mut found = vec![0; rng.usize(1..10_000)];
                let at = rng.usize(0..LEN as usize - found.len());
                model.subject.read(&mut found, at as u64);
                assert!(found == model.bytes[at..][..found.len()], "{}", kind.name);
            }
            let pieces: Vec<Vec<u8>> = (0..8).map(|n| vec![rng.u8(..); 1 + 700 * n]).collect();
            let parts: Vec<(u64, &[u8])> = (0..)
                .zip(&pieces)
                .map(|(n, piece)| (n * 100_000 + rng.u64(0..90_000), &piece[..]))
                .collect();
            if model.subject.transact(&parts) {
                for (offset, data) in &parts {
                    model.bytes[*offset as usize..][..data.len()].copy_from_slice(data);
                }
            }
            model.check(kind.name);
            model.subject.sync();
            drop(model.subject);
            model.subject = open().expect("opens again");
            model.check(&format!("{}, opened again in round {round}", kind.name));
        }
        println!("{}: as a vector of bytes", kind.name);
    }
}
