//! Tests of the worker.

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Longer than any step takes here, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Tasks that tell each request when they begin it, and end it when they are told to.
struct Steps {
    begun: Sender<Option<Request>>,
    may_end: Mutex<Receiver<ControlFlow<()>>>,
}

impl Tasks for Steps {
    fn run(&self, request: Request) -> ControlFlow<()> {
        self.begun.send(Some(request)).expect("the test listens");
        self.may_end.lock().recv().expect("a panic, as planned")
    }

    fn on_panic(&self) {
        self.begun.send(None).expect("the test listens");
    }
}

type Handles = (Worker, Receiver<Option<Request>>, Sender<ControlFlow<()>>);

fn worker(timers: Vec<Timer>) -> Handles {
    let ((begun, said), (go, may_end)) = (channel(), channel());
    let steps = Steps { begun, may_end: Mutex::new(may_end) };
    (Worker::new(Box::new(steps), timers, true), said, go)
}

fn next(said: &Receiver<Option<Request>>) -> Option<Request> {
    said.recv_timeout(PATIENCE).expect("the worker goes on")
}

use Request::{Checkpoint, DurablePoint};

#[test]
fn requests_are_served_in_order_and_a_queued_one_is_not_queued_twice() {
    let (worker, said, go) = worker(Vec::new());
    worker.request(Checkpoint);
    assert_eq!(next(&said), Some(Checkpoint));
    // It was taken from the queue: what is requested now is not covered by what is running.
    for request in [DurablePoint, Checkpoint, DurablePoint, Checkpoint] {
        worker.request(request);
    }
    for expected in [DurablePoint, Checkpoint] {
        go.send(ControlFlow::Continue(())).expect("the worker waits");
        assert_eq!(next(&said), Some(expected));
    }
    go.send(ControlFlow::Continue(())).expect("the worker waits");
    worker.stop(false);
    assert!(said.try_recv().is_err(), "nothing was served twice");
}

#[test]
fn stop_waits_for_the_request_that_is_served_and_drops_the_others() {
    let (worker, said, go) = worker(Vec::new());
    worker.request(Checkpoint);
    assert_eq!(next(&said), Some(Checkpoint));
    worker.request(DurablePoint);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| worker.stop(false));
        while !worker.shared.queue.lock().must_stop {
            std::thread::yield_now();
        }
        assert!(!stopping.is_finished(), "the request is not over");
        go.send(ControlFlow::Continue(())).expect("the worker waits");
    });
    worker.request(DurablePoint);
    assert!(worker.thread.lock().is_none(), "a stopped worker does not start again");
    assert!(said.try_recv().is_err());
}

/// Each timer has its own time, and a request that is always there keeps none from its turn.
#[test]
fn timers_are_due_again_and_again_beside_requests() {
    let every = Duration::from_millis(1);
    let (worker, said, go) = worker(vec![(DurablePoint, every)]);
    worker.begin_timers().expect("a thread");
    let mut points = 0;
    while points < 3 {
        points += usize::from(next(&said) == Some(DurablePoint));
        worker.request(Checkpoint);
        go.send(ControlFlow::Continue(())).expect("the worker waits");
    }
    go.send(ControlFlow::Break(())).expect("the worker is there");
    worker.stop(false);
}

#[test]
fn two_timers_share_the_thread_and_one_too_far_away_is_never_due() {
    let every = Duration::from_millis(1);
    let (worker, said, go) = worker(vec![(DurablePoint, Duration::MAX), (Checkpoint, every)]);
    worker.begin_timers().expect("a thread");
    for _ in 0..3 {
        assert_eq!(next(&said), Some(Checkpoint));
        go.send(ControlFlow::Continue(())).expect("the worker waits");
    }
    assert_eq!(next(&said), Some(Checkpoint));
    go.send(ControlFlow::Break(())).expect("the worker waits");
    worker.stop(false);
}

#[test]
fn a_panic_of_a_task_is_told_and_ends_the_thread() {
    let (worker, said, go) = worker(Vec::new());
    worker.request(Checkpoint);
    assert_eq!(next(&said), Some(Checkpoint));
    drop(go);
    assert_eq!(next(&said), None);
    worker.stop(false);
}

#[test]
fn without_a_thread_nothing_is_queued() {
    let (begun, _said) = channel();
    let steps = Steps { begun, may_end: Mutex::new(channel().1) };
    let timers = vec![(DurablePoint, Duration::ZERO)];
    let worker = Worker::new(Box::new(steps), timers, false);
    worker.begin_timers().expect("nothing is started");
    worker.request(Checkpoint);
    assert!(worker.shared.queue.lock().requests.is_empty() && worker.thread.lock().is_none());
    worker.stop(false);
}
