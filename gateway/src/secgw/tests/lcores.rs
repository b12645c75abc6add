//! Several lcores, each with queues of its own, which share the SAs.

use super::*;
use std::collections::HashSet;

/// Bursts that each worker carries, and packets of a burst.
const BURSTS: usize = 300;
const BURST: usize = 32;
const LCORES: &str = "-l 3,7 --vdev net_tap0 --vdev net_tap1 -- -p 3 -u 2 -w 65536 -f x.cfg --config (0,0,7),(0,1,3),(1,0,3),(1,1,7)";

/// What each worker does in a thread of its own.
fn in_threads<T: Send>(scenes: &mut [Scene], work: impl Fn(&mut Scene) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = scenes.iter_mut().map(|scene| scope.spawn(move || work(scene))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    })
}

#[test]
fn one_sa_in_two_workers_never_repeats_a_number_and_takes_each_packet_once() {
    let plan = plan(&file(), LCORES).unwrap_or_else(|refused| panic!("{refused:?}"));
    let mut scenes = Scene::several(&plan);
    let statistics = Arc::clone(&scenes[0].statistics);
    let frames = vec![ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6])); BURST];
    let control = Control::new(Arc::clone(&statistics), Arc::new(AwsLc), "x.cfg");
    let sent: Vec<Vec<u8>> = std::thread::scope(|scope| {
        // Tables are exchanged meanwhile.
        let reloads = scope.spawn(|| {
            for _ in 0..10 {
                control.replace(&plan).expect("the engine has the cipher");
            }
        });
        let carry = |scene: &mut Scene| -> Vec<Vec<u8>> {
            (0..BURSTS).flat_map(|_| scene.carry(0, &frames)[1].clone()).collect()
        };
        let sent = in_threads(&mut scenes, carry).concat();
        reloads.join().expect("it does not panic");
        sent
    });
    assert_eq!(sent.len(), 2 * BURSTS * BURST, "none is lost: {:?}", scenes[0].dropped());
    let number = |frame: &Vec<u8>| frame.get(38..42).map(<[u8]>::to_vec).expect("ESP has a number");
    let numbers: HashSet<Vec<u8>> = sent.iter().map(number).collect();
    assert_eq!(numbers.len(), sent.len(), "each number is used once");

    // Both workers receive all of it, each a frame at most as often as the other.
    let arrived: Vec<Vec<u8>> = sent.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect();
    let accepted = in_threads(&mut scenes, |scene| {
        arrived.chunks(BURST).map(|burst| scene.carry(1, burst)[0].len()).sum::<usize>()
    });
    assert_eq!(accepted.iter().sum::<usize>(), sent.len(), "each packet is taken once: {accepted:?}");
    assert_eq!(scenes[0].dropped(), [(DropReason::Replayed, sent.len() as u64)]);

    let shown = statistics.show();
    assert_eq!((shown.ports[0].received, shown.ports[0].sent), (sent.len() as u64, sent.len() as u64));
    assert_eq!(shown.rules[0].packets, sent.len() as u64, "policies count for all workers");
    let lcores: Vec<(u32, u64)> = shown.lcores.iter().map(|it| (it.number, it.received)).collect();
    let each = (BURSTS * BURST + sent.len()) as u64;
    assert_eq!(lcores, [(3, each), (7, each)]);
    assert!(statistics.to_string().contains("lcore 7: received "), "{statistics}");
}

#[test]
fn each_queue_has_the_lcore_that_the_words_give_it() {
    let queues = |words: &str| {
        let plan = plan(&file(), words).unwrap_or_else(|refused| panic!("{refused:?}"));
        let receivers: Vec<Vec<usize>> = plan.ports.iter().map(|it| it.queues.receivers.clone()).collect();
        (plan.lcores, receivers, plan.ports[0].queues.first)
    };
    assert_eq!(queues(LCORES), (vec![3, 7], vec![vec![1, 0], vec![0, 1]], 0));
    assert_eq!(queues(WORDS), (vec![0], vec![vec![0], vec![0]], 0));
    let xdp = LCORES.replace("net_tap0", "net_af_xdp0,iface=e0,start_queue=4,queue_count=2");
    let packet = xdp.replace("net_tap1", "net_af_packet1,iface=e1,qpairs=2");
    assert_eq!(queues(&packet), (vec![3, 7], vec![vec![1, 0], vec![0, 1]], 4));
    let only_sends = LCORES.replace("(0,0,7),(0,1,3),", "");
    assert_eq!(queues(&only_sends), (vec![3, 7], vec![vec![], vec![0, 1]], 0));
    let shared = plan(&file(), &xdp.replace("start_queue=4", "shared_umem=1")).expect("it is served");
    assert_eq!([0, 1].map(|port: usize| shared.ports[port].queues.shares_memory), [true, false]);
    for wrong in [xdp.replace("start_queue=4", "shared_umem=2"), packet.replace("qpairs=2", "shared_umem=1")]
    {
        let refused = plan(&file(), &wrong).map(drop).expect_err("it is not served");
        assert!(refused.iter().any(|it| it.text.contains("shared_umem=")), "{refused:?}");
    }
    let few = xdp.replace("queue_count=2", "queue_count=1");
    let refused = plan(&file(), &few).map(drop).expect_err("it has one queue");
    assert_eq!(refused[0].fix, "write queue_count=2");
    assert!(refused[0].text.contains("names queue 1 of port 0"), "{}", refused[0].text);
}
