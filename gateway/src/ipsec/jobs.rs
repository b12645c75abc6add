//! The job threads of IKE: they compute key exchanges and signatures, while the IKE thread continues.

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tunnel::ikev2::{Finished, Job};

/// The maximum number of threads: more would only contend for idle CPU time.
const MOST: usize = 8;

/// The threads: one for each processor except that of the IKE thread. On a single processor there are none.
pub struct Jobs {
    queues: Option<Queues<Sender<Job>>>,
    waiting: Queues<Receiver<Job>>,
    finished: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
}

/// Two queues: urgent jobs, and those of unauthenticated sources.
#[derive(Clone)]
struct Queues<T> {
    urgent: T,
    others: T,
}

impl Queues<Receiver<Job>> {
    /// Waits for the next job, the urgent ones first; `None` at the end.
    fn next(&self) -> Option<Job> {
        select_biased! {
            recv(self.urgent) -> job => job.ok(),
            recv(self.others) -> job => job.ok(),
        }
    }
}

impl Jobs {
    /// Starts the threads, with the rights and the priority of the calling thread; fewer if the system refuses more.
    pub fn start(name: &str) -> Self {
        let count = thread::available_parallelism().map_or(0, |processors| processors.get() - 1);
        Self::start_threads(name, count.min(MOST))
    }

    fn start_threads(name: &str, count: usize) -> Self {
        // IKE bounds the jobs of unauthenticated sources; the configuration bounds the others.
        let ((urgent, urgent_out), (others, others_out)) = (unbounded(), unbounded());
        let queues = Queues { urgent, others };
        let waiting = Queues { urgent: urgent_out, others: others_out };
        let (done, finished) = unbounded();
        let mut threads = Vec::new();
        for _ in 0..count {
            let (waiting, done) = (waiting.clone(), done.clone());
            let work = move || {
                while let Some(job) = waiting.next() {
                    // The IKE thread may have ended.
                    let _ = done.send(job.run());
                }
            };
            match thread::Builder::new().name(format!("{name} jobs")).spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::warn!("{} threads make the keys of IKE: {error}", threads.len()),
            }
        }
        Self { queues: (!threads.is_empty()).then_some(queues), waiting, finished, threads }
    }

    /// Queues a job. Without threads it is run at once, and its result returned.
    pub fn give(&self, job: Job) -> Option<Finished> {
        let Some(queues) = &self.queues else { return Some(job.run()) };
        let queue = if job.is_urgent() { &queues.urgent } else { &queues.others };
        queue.send(job).err().map(|unsent| unsent.0.run())
    }

    /// Runs one queued job if more jobs wait than there are threads. The IKE thread calls it when it is idle.
    pub fn help(&self) -> Option<Finished> {
        let waiting = self.waiting.urgent.len() + self.waiting.others.len();
        if waiting <= self.threads.len() {
            return None;
        }
        let job = self.waiting.urgent.try_recv().or_else(|_| self.waiting.others.try_recv());
        job.ok().map(Job::run)
    }

    /// Ends the threads once they have run the urgent jobs, for so long at most; returns what is done by then. Other queued jobs
    /// are dropped, and later ones are run at once.
    pub fn end(&mut self, longest: Duration) -> Vec<Finished> {
        self.queues = None;
        self.waiting.others.try_iter().for_each(drop);
        let deadline = Instant::now() + longest;
        // Each thread has a sender: the last one that ends disconnects the receiver.
        std::iter::from_fn(|| self.finished.recv_deadline(deadline).ok()).collect()
    }

    /// The results of finished jobs.
    pub fn finished(&self) -> &Receiver<Finished> {
        &self.finished
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.queues = None;
        // Queued jobs are dropped.
        for queue in [&self.waiting.urgent, &self.waiting.others] {
            queue.try_iter().for_each(drop);
        }
        for thread in self.threads.drain(..) {
            // The panic of a thread was reported already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::exchange::Group;
    use crypto::prf::Prf;
    use crypto::{Cipher, SecretBytes, random};
    use tunnel::ikev2::proposal::{Encryption, IkeOffer};
    use tunnel::ikev2::{Action, Authentication, Connection, Endpoint, Identity, Outbox, Start, WhenLost};
    use tunnel::{Now, Time};

    const NOW: Now = Now { monotonic: Time::from_nanoseconds(1), wall: Duration::from_secs(1 << 30) };

    /// An endpoint that is to call, and its first job: to make its public value.
    fn calling() -> (Endpoint, Job) {
        let mut endpoint = Endpoint::new(Box::new(random::System::default()));
        let [local, remote] = [1, 2].map(|number| Some([192, 0, 2, number].into()));
        let ike = IkeOffer {
            encryption: vec![Encryption::Aead(Cipher::Aes128Gcm, 16)],
            integrity: Vec::new(),
            prf: vec![Prf::HmacSha256],
            groups: vec![Group::X25519],
        };
        let id = endpoint.add_connection(
            NOW,
            Connection {
                name: "peer".to_owned(),
                local,
                remote,
                local_identity: Identity::Fqdn("here".to_owned()),
                remote_identity: None,
                authentication: Authentication::SharedKey(SecretBytes::new(b"secret".to_vec())),
                further: Vec::new(),
                ike: vec![ike],
                children: Vec::new(),
                lifetime: Duration::from_secs(1000),
                reauthenticate: false,
                dead_peer_detection: None,
                start: Start::Respond,
                when_lost: WhenLost::Clear,
                force_encapsulation: false,
            },
        );
        let mut out = Outbox::new();
        endpoint.initiate(NOW, id, &mut out).expect("addresses are known");
        let job = out.into_iter().find_map(|action| match action {
            Action::Work(job) => Some(job),
            _ => None,
        });
        (endpoint, job.expect("a key is to be made"))
    }

    #[test]
    fn jobs_come_back_with_and_without_threads() {
        for count in [0, 3] {
            let jobs = Jobs::start_threads("test", count);
            let (mut endpoint, job) = calling();
            let at_once = jobs.give(job);
            assert_eq!(at_once.is_some(), count == 0);
            let patience = Duration::from_secs(20);
            let finished =
                at_once.unwrap_or_else(|| jobs.finished().recv_timeout(patience).expect("it is done"));
            let mut out = Outbox::new();
            endpoint.handle_finished(NOW, finished, &mut out);
            assert!(out.iter().any(|action| matches!(action, Action::Send { .. })), "{out:?}");
        }
    }

    #[test]
    fn urgent_jobs_come_back_before_the_end_and_later_ones_are_run_at_once() {
        let mut jobs = Jobs::start_threads("test", 1);
        let mut given = 0;
        for _ in 0..20 {
            let (_, job) = calling();
            assert!(job.is_urgent());
            given += usize::from(jobs.give(job).is_none());
        }
        let finished = jobs.end(Duration::from_secs(20));
        assert_eq!((given, finished.len()), (20, 20));
        assert!(jobs.give(calling().1).is_some());
    }
}
