//! A future that is polled only after it was woken.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Wraps a future that rarely completes, in a task that is often woken for other reasons.
pub(super) struct Woken<F> {
    /// `None` when it has completed.
    future: Option<Pin<Box<F>>>,
    signal: Arc<Signal>,
    /// The waker of the future, and that of the task which it wakes.
    wakers: Option<(Waker, Waker)>,
}

struct Signal {
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<F: Future<Output = ()>> Woken<F> {
    pub(super) fn new(future: F) -> Woken<F> {
        let signal = Arc::new(Signal { is_woken: AtomicBool::new(true), task: Mutex::default() });
        Woken { future: Some(Box::pin(future)), signal, wakers: None }
    }

    /// Whether the future has completed. Otherwise the task is woken when it does.
    pub(super) fn is_complete(&mut self, context: &Context<'_>) -> bool {
        let Some(future) = &mut self.future else { return true };
        let is_same_task = matches!(&self.wakers, Some((_, task)) if task.will_wake(context.waker()));
        if is_same_task && !self.signal.is_woken.load(Ordering::Acquire) {
            return false;
        }
        if !is_same_task {
            *self.signal.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            self.wakers = Some((Waker::from(Arc::clone(&self.signal)), context.waker().clone()));
        }
        let Some((own, _)) = &self.wakers else { return false };
        // Before the poll: a wake during the poll must cause another one.
        self.signal.is_woken.store(false, Ordering::Release);
        if future.as_mut().poll(&mut Context::from_waker(own)) == Poll::Ready(()) {
            self.future = None;
        }
        self.future.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn future_is_polled_once_until_it_is_woken() {
        let (polls, notify) = (AtomicUsize::new(0), Notify::new());
        let mut notified = Box::pin(notify.notified());
        let mut watched = Woken::new(std::future::poll_fn(|context| {
            polls.fetch_add(1, Ordering::SeqCst);
            notified.as_mut().poll(context)
        }));
        let mut wait = std::pin::pin!(std::future::poll_fn(|context| match watched.is_complete(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        for _ in 0..3 {
            tokio::select! {
                biased;
                () = &mut wait => panic!("nothing was notified"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        notify.notify_one();
        wait.await;
        assert_eq!(polls.load(Ordering::SeqCst), 2);
    }
}
