//! A service on tokio: each request is durable before its answer, and no thread waits for a disk.
//!
//! ```sh
//! cargo run --release --example tokio_service               # in the temporary folder
//! cargo run --release --example tokio_service -- /dev/shm
//! ```
//!
//! 200 clients send 20 requests each, to a service on one thread. A request adds to an account: a
//! memory access. Then its task awaits durability, and answers. The file's background thread makes
//! a durable point for all tasks that wait, so the requests share the barriers of the disk.

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

const ACCOUNTS: u64 = 1000;
const CLIENTS: u64 = 200;
const REQUESTS: u64 = 20;

/// Adds `amount` to an account. The answer is the new balance, once it is durable.
struct Request {
    account: u64,
    amount: u64,
    answer: oneshot::Sender<Result<u64, Error>>,
}

/// Serves one request.
async fn deposit(file: &AtomicMappedFile, account: u64, amount: u64) -> Result<u64, Error> {
    let balance = file.array::<u64>(0, ACCOUNTS)?.slot(account)?.fetch_add(amount)? + amount;
    // The balance survives a process crash by now, and a power loss after this.
    file.flush_async().await?;
    Ok(balance)
}

async fn serve(file: Arc<AtomicMappedFile>, mut requests: mpsc::Receiver<Request>) {
    while let Some(Request { account, amount, answer }) = requests.recv().await {
        let file = Arc::clone(&file);
        tokio::spawn(async move {
            let _the_client_may_be_gone = answer.send(deposit(&file, account, amount).await);
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("accounts");
    let file = Arc::new(AtomicMappedFile::create(&path, ACCOUNTS * 8)?);
    println!("{}: {}, survives {:?}", path.display(), file.medium(), file.survives_after_sync());

    let (send, requests) = mpsc::channel(1000);
    let service = tokio::spawn(serve(Arc::clone(&file), requests));
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(client(n, send.clone()))).collect();
    drop(send);
    for client in clients {
        client.await??;
    }
    service.await?;
    let stats = file.stats();
    let points = stats.journal_points + stats.flush_points;
    println!("{} requests were answered behind {points} durable points", CLIENTS * REQUESTS);

    // Closing waits for the disk, so it belongs to a blocking task.
    let file = Arc::into_inner(file).ok_or("a task still has the file")?;
    tokio::task::spawn_blocking(|| file.close(CloseMode::Spatial)).await??;
    let bytes = std::fs::read(&path)?;
    let balances =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let expected = CLIENTS * (1..=REQUESTS).sum::<u64>();
    if balances.sum::<u64>() != expected {
        return Err("the accounts do not add up".into());
    }
    println!("the accounts add up to {expected}");
    Ok(())
}

/// Sends requests one after the other, and checks that no answer goes back.
async fn client(n: u64, send: mpsc::Sender<Request>) -> Result<(), String> {
    let mut last = 0;
    for amount in 1..=REQUESTS {
        let (answer, answered) = oneshot::channel();
        let request = Request { account: n, amount, answer };
        send.send(request).await.map_err(|_| "the service has ended")?;
        let balance = answered.await.map_err(|error| error.to_string())?;
        let balance = balance.map_err(|error| error.to_string())?;
        if balance != last + amount {
            return Err(format!("account {n} has {balance}, and not {}", last + amount));
        }
        last = balance;
    }
    Ok(())
}
