//! Child processes that never outlive the test process, however it ends.

use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, mpsc};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// A child process that is killed when this is dropped, and by the kernel when the test process dies first.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
}

impl ChildGuard {
    /// Starts `program` with what `configure` adds (arguments, environment, redirections).
    ///
    /// # Panics
    /// When the program can't be started.
    pub fn spawn(program: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]);
        configure(&mut command);
        let child = spawn_on_lasting_thread(command)
            .unwrap_or_else(|e| panic!("could not start {program} through setpriv: {e}"));
        Self { child }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The handle itself, to take its pipes or to ask for its exit status.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal; a process that has already ended takes no notice.
    ///
    /// # Panics
    /// When the process exists but may not be signalled.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => panic!("could not send {signal:?} to process {pid:?}: {e}"),
        }
    }

    /// Kills the process at once (also a stopped one) and reaps it.
    pub fn kill(&mut self) {
        // Fails only where it was already reaped, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The kernel sends the parent-death signal when the *thread* that forked ends, and a test's thread ends before
/// a server that several tests share. So one thread that never ends starts all children.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, reply) in queue {
                // The one who asked may have panicked meanwhile; dropping the child unwaited is then all we can do.
                if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                    let _ = orphan.kill();
                }
            }
        });
        Mutex::new(jobs)
    });
    let (reply, answer) = mpsc::channel();
    let jobs = spawner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    jobs.send((command, reply)).expect("the spawning thread never ends");
    answer.recv().expect("the spawning thread answers every job")
}
