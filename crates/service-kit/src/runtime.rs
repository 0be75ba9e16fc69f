//! The tokio runtime, sized by the flags.

use std::{future::Future, process::ExitCode, thread, time::Duration};

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

use crate::config::ServeArgs;

/// What is left at the end (a hanging name lookup) must not keep the process from exiting.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// Runs `main` to its end on a runtime of `args.workers` threads.
pub fn run<F>(args: &ServeArgs, main: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    use_small_pages();
    let runtime = build(workers(args)).context("the runtime could not be started")?;
    let result = runtime.block_on(main);
    runtime.shutdown_timeout(LEFTOVERS);
    result
}

/// The allocator asks for pages of 2 MiB, and of each it needs a part: that was 15 MiB of an idle service's 34, without
/// a difference in speed that could be measured. Where the kernel refuses, memory is all that it costs.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Ends a program: a failure is said in one line for the person who started it, without a stack trace.
pub fn exit(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workers(args: &ServeArgs) -> usize {
    match args.workers {
        0 => default_workers(available()),
        given => given,
    }
}

/// The CPUs that this process may use; respects the container's quota.
pub fn available() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Two CPUs are busy enough with one thread of ours and the processes beside it (quota-svc, a proxy): a second thread
/// took a third more CPU for each request, for handing over between the two.
fn default_workers(cpus: usize) -> usize {
    if cpus > 2 { cpus } else { 1 }
}

/// How many ready sockets a single thread looks at before it goes on with what they brought. Without this bound all
/// that are ready come first: 64 requests were read before the first of them was charged, and the thread then waited
/// for all of them. In portions, one is read and answered while another is being charged (bench/README.md).
const EVENTS: usize = 32;

fn build(workers: usize) -> std::io::Result<Runtime> {
    match workers {
        // One CPU: without hand-over between threads each request is cheaper.
        1 => Builder::new_current_thread().enable_all().max_io_events_per_tick(EVENTS).build(),
        _ => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Handle, RuntimeFlavor};

    fn flavor(workers: usize) -> RuntimeFlavor {
        let args = ServeArgs { workers, ..ServeArgs::default() };
        let mut flavor = None;
        run(&args, async {
            flavor = Some(Handle::current().runtime_flavor());
            Ok(())
        })
        .expect("main succeeds");
        flavor.expect("main ran")
    }

    #[test]
    fn few_cpus_mean_one_worker() {
        assert_eq!([1, 2, 3, 8].map(default_workers), [1, 1, 3, 8]);
    }

    #[test]
    fn one_worker_means_one_thread() {
        assert_eq!(flavor(1), RuntimeFlavor::CurrentThread);
        assert_eq!(flavor(2), RuntimeFlavor::MultiThread);
    }
}
