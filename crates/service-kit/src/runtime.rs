//! The tokio runtime, sized by the flags, and other settings of the process.

use std::{future::Future, thread, time::Duration};

use anyhow::Context;
use base::huge_pages::set_huge_pages;
use http_server::ServeArgs;
use tokio::runtime::Builder;

/// Maximum time that leftover blocking tasks, such as a hanging DNS lookup, can delay the exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum I/O events per poll of a single-threaded runtime. Without this limit, it read 64 requests before it charged
/// the first, and then was idle until their charges completed. With the limit, it handles some requests while others
/// are being charged (measurements: docs/decisions.md).
const MAX_IO_EVENTS: usize = 32;

/// How long a thread for blocking tasks waits for its next one. Shorter than the intervals of periodic tasks, because
/// mimalloc returns memory that a thread has freed, such as a replaced geo database, to the system when the thread ends.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Runs `main` to completion on a runtime with `args.workers` threads.
pub fn run<F>(args: &ServeArgs, main: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    set_huge_pages(false);
    install_crypto_provider();
    let workers = if args.workers == 0 { default_workers(available_cpus()) } else { args.workers };
    // Requests are cheaper without handoffs between threads.
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if workers == 1 {
        builder.max_io_events_per_tick(MAX_IO_EVENTS);
    }
    let builder = builder.worker_threads(workers).enable_all().thread_keep_alive(BLOCKING_KEEP_ALIVE);
    let runtime = builder.build().context("can't start the runtime")?;
    let result = runtime.block_on(main);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

/// Installs ring as the process-wide crypto provider. Further calls have no effect.
///
/// Without it, building a TLS client can panic: rustls may find no provider, or more than one.
pub fn install_crypto_provider() {
    // An error means that a provider is already installed: this one, since nothing else installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The number of CPUs this process may use. Respects the container's CPU quota.
pub fn available_cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// One worker per CPU, but only one worker on two CPUs: the processes next to this one (quota-svc, a proxy) keep the
/// second CPU busy. With a second worker, a request took a third more CPU time, because of handoffs between threads.
fn default_workers(cpus: usize) -> usize {
    if cpus > 2 { cpus } else { 1 }
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
    fn default_is_one_worker_for_one_or_two_cpus() {
        assert_eq!([1, 2, 3, 8].map(default_workers), [1, 1, 3, 8]);
    }

    #[test]
    fn one_worker_runs_on_the_current_thread() {
        assert_eq!(flavor(1), RuntimeFlavor::CurrentThread);
        assert_eq!(flavor(2), RuntimeFlavor::MultiThread);
    }
}
