use atomic_mmap::testing::Raw;
use atomic_mmap::*;
use std::time::Instant;
fn main() {
    let d = "/dev/shm/ratio";
    let _ = std::fs::remove_dir_all(d);
    std::fs::create_dir_all(d).unwrap();
    let n = 1u64 << 30;
    let med: Medium = std::env::args().nth(1).unwrap_or("dax".into()).parse().unwrap();
    let f = AtomicMappedFile::options()
        .create(true)
        .len(n)
        .medium(med)
        .deploy(DeployPolicy::Manual)
        .open(format!("{d}/a"))
        .unwrap();
    let r =
        AtomicMappedFile::options().create(true).len(n).medium(med).open(format!("{d}/b")).unwrap();
    Raw(&r).allocate().unwrap();
    let big = vec![7u8; 1 << 20];
    for rep in 0..2 {
        for i in 0..1024 {
            f.write_at(&big[..], i << 20).unwrap();
            if rep == 0 {
                Raw(&r).copy_two_drains(&big, i << 20);
            }
        }
    }
    let mut x = 88172645463325252u64;
    let mut rnd = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut y = 88172645463325252u64;
    let mut rnd2 = move || {
        y ^= y << 13;
        y ^= y >> 7;
        y ^= y << 17;
        y
    };
    let data = vec![1u8; 2 << 20];
    println!(
        "{:>10} {:>9} {:>9} {:>9} {:>6} {:>6}",
        "bytes", "1 drain", "2 drains", "write", "w/1", "w/2"
    );
    let mut bench = |it: usize, g: &mut dyn FnMut(u64)| {
        let mut v = vec![];
        for _ in 0..7 {
            let t = Instant::now();
            for _ in 0..it {
                g(rnd())
            }
            v.push(t.elapsed().as_nanos() as f64 / it as f64);
        }
        v.sort_by(|a, b| a.total_cmp(b));
        v[3]
    };
    let only = std::env::args().nth(2);
    if only.is_some() {
        let mut buf = [0u8; 64];
        let t = Instant::now();
        for _ in 0..20_000_000u64 {
            let k = rnd2();
            if only.as_deref() == Some("r") {
                f.read_at(&mut buf, k % (n / 4096) * 4096).unwrap();
            } else {
                f.write_at(&buf, k % (n / 4096) * 4096).unwrap();
            }
        }
        println!("{}", t.elapsed().as_nanos() / 20_000_000);
        return;
    }
    for s in [8usize, 64, 256, 512, 1024, 4096, 16384, 65536, 1 << 20] {
        let it = (20_000_000 / (s + 500)).max(30);
        let step = s.max(4096) as u64;
        let a = bench(it, &mut |k| Raw(&r).copy_one_drain(&data[..s], k % (n / step) * step));
        let b = bench(it, &mut |k| Raw(&r).copy_two_drains(&data[..s], k % (n / step) * step));
        let w = bench(it, &mut |k| f.write_at(&data[..s], k % (n / step) * step).unwrap());
        let mut buf = vec![0u8; s];
        let rr = bench(it, &mut |k| Raw(&r).copy_out(&mut buf, k % (n / step) * step));
        let fr = bench(it, &mut |k| f.read_at(&mut buf, k % (n / step) * step).unwrap());
        println!(
            "{s:>10} {a:>9.0} {b:>9.0} {w:>9.0} {:>6.2} {:>6.2}   read raw {rr:>7.0} ours {fr:>7.0} {:>5.2}",
            w / a,
            w / b,
            fr / rr
        );
    }
    let w = bench(2000, &mut |k| {
        f.write_at(&data[..16384], k % (n / 16384 - 2) * 16384 + 100).unwrap()
    });
    let b = bench(2000, &mut |k| {
        Raw(&r).copy_two_drains(&data[..16384], k % (n / 16384 - 2) * 16384 + 100)
    });
    println!("16K unaligned {w:.0} vs {b:.0} {:.2}", w / b);
    let w = bench(20000, &mut |k| {
        f.update(k % (n / 64) * 64, |v: &mut u64| *v += 1).unwrap();
    });
    println!("update {w:.0}");
    let w = bench(5000, &mut |k| {
        let mut t = f.begin();
        for i in 0..8 {
            t.write_at(&data[..64], (k.wrapping_mul(i * 7 + 1)) % (n / 4096) * 4096).unwrap();
        }
        t.commit().unwrap();
    });
    println!("tx 8x64 {w:.0}");
    println!("{:?}", f.stats());
    drop(f);
    drop(r);
    std::fs::remove_dir_all(d).unwrap();
}
