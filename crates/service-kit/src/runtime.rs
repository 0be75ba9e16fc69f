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
    let runtime = build(workers(args)).context("the runtime could not be started")?;
    let result = runtime.block_on(main);
    runtime.shutdown_timeout(LEFTOVERS);
    result
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
        // Respects the container's CPU quota.
        0 => thread::available_parallelism().map_or(1, usize::from),
        given => given,
    }
}

fn build(workers: usize) -> std::io::Result<Runtime> {
    match workers {
        // One CPU: without hand-over between threads each request is cheaper.
        1 => Builder::new_current_thread().enable_all().build(),
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
    fn one_worker_means_one_thread() {
        assert_eq!(flavor(1), RuntimeFlavor::CurrentThread);
        assert_eq!(flavor(2), RuntimeFlavor::MultiThread);
    }
}
