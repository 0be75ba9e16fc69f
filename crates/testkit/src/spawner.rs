//! Child processes that never outlive the test process, even if it crashes.

use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, mpsc};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// A child process. It is killed when this value is dropped, or by the kernel if the test process dies first.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
}

impl ChildGuard {
    /// Starts `program`. `configure` adds arguments, environment and redirections.
    pub fn spawn(program: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]);
        configure(&mut command);
        let child = spawn_on_permanent_thread(command)
            .unwrap_or_else(|e| panic!("could not start {program} through setpriv: {e}"));
        Self { child }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes and exit status.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal. Does nothing if the process has already exited.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => panic!("could not send {signal:?} to process {pid:?}: {e}"),
        }
    }

    /// Kills the process with SIGKILL, which also works on a suspended process, and reaps it.
    pub fn kill(&mut self) {
        // Fails only if the process was already reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The kernel sends the parent-death signal when the *thread* that forked exits. The thread that starts a
/// server may exit while the server is still needed, so one permanent thread starts all children.
fn spawn_on_permanent_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, reply) in queue {
                // The requesting test may have panicked in the meantime: then kill the child here.
                if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                    let _ = orphan.kill();
                }
            }
        });
        Mutex::new(jobs)
    });
    let (reply, result) = mpsc::channel();
    let jobs = spawner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    jobs.send((command, reply)).expect("spawner thread is running");
    result.recv().expect("spawner thread replies to every job")
}
