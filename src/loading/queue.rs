//! The loads that run and wait, and the thread that carries them out, one after the other.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::directory;
use super::load::{self, Request};
use super::progress::{Progress, Told};
use super::{Report, load::LoadError};
use crate::metrics;
use crate::redis::thread::Context;
use crate::redis::{allocator, guarded, raw};

/// A load that runs or waits.
pub struct Job {
    pub request: Request,
    pub progress: Progress,
}

/// What is done with the outcome.
pub type Finish = Box<dyn FnOnce(Result<Report, LoadError>) + Send>;

#[derive(Default)]
struct Queue {
    /// In the order in which they came; the first one runs.
    jobs: Vec<Arc<Job>>,
    sender: Option<Sender<(Arc<Job>, Finish)>>,
    /// For the thread, when it starts.
    context: Option<Context>,
}

static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);

fn queue() -> MutexGuard<'static, Option<Queue>> {
    QUEUE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Is called when the module is loaded.
pub fn prepare(ctx: *mut raw::RedisModuleCtx) {
    let context = Some(Context::detached(ctx));
    *queue() = Some(Queue { context, ..Queue::default() });
}

/// Puts a load into the queue; `finish` is called with its outcome, at once if it is refused.
pub fn add(request: Request, finish: Finish) {
    let refused = |finish: Finish, error| finish(Err(error));
    let mut queue = queue();
    let queue = queue.as_mut().expect("the module is loaded");
    if queue.jobs.iter().any(|job| job.request.is_same_table(&request)) {
        return refused(finish, LoadError::Busy);
    }
    if queue.sender.is_none() {
        queue.sender = queue.context.take().and_then(start);
    }
    let Some(sender) = &queue.sender else { return refused(finish, LoadError::NoThread) };
    let job = Arc::new(Job { request, progress: Progress::default() });
    match sender.send((Arc::clone(&job), finish)) {
        Ok(()) => queue.jobs.push(job),
        Err(mpsc::SendError((_, finish))) => refused(finish, LoadError::NoThread),
    }
}

/// Starts the thread.
fn start(context: Context) -> Option<Sender<(Arc<Job>, Finish)>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || work(context, receiver);
    thread::Builder::new().name("card-load".into()).spawn(run).ok().map(|_| sender)
}

fn work(mut context: Context, jobs: mpsc::Receiver<(Arc<Job>, Finish)>) {
    for (job, finish) in jobs {
        let outcome = guarded("a load", || load::run(&job, &mut context)).unwrap_or(Err(LoadError::Internal));
        match &outcome {
            Ok(_) => {
                metrics::LOADS.add(1);
                directory::is_loaded(job.request.database, &job.request.key);
            }
            Err(_) => metrics::FAILED_LOADS.add(1),
        }
        queue().as_mut().expect("the module is loaded").jobs.retain(|other| !Arc::ptr_eq(other, &job));
        guarded("the end of a load", || finish(outcome));
        allocator::give_back();
    }
}

/// The load of a table, if one runs or waits.
fn find(database: i32, key: &[u8]) -> Option<Arc<Job>> {
    let queue = queue();
    let jobs = queue.as_ref().map_or(&[][..], |queue| &queue.jobs);
    jobs.iter().find(|job| job.request.database == database && job.request.key == key).cloned()
}

/// How far the load of a table has come, if one runs or waits.
pub fn progress(database: i32, key: &[u8]) -> Option<Told> {
    find(database, key).map(|job| job.progress.told())
}

/// Has the load of a table stop soon; tells whether there was one.
pub fn cancel(database: i32, key: &[u8]) -> bool {
    find(database, key).map(|job| job.progress.cancel()).is_some()
}

/// All loads that run or wait.
pub fn all() -> Vec<Arc<Job>> {
    queue().as_ref().map_or_else(Vec::new, |queue| queue.jobs.clone())
}
