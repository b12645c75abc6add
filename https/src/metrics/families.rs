//! Families of the gateway as a whole: drops, workers, threads, offloads, engines, configuration, process.

use super::writer::{Family, Histogram, Writer, family};
use gateway::api::model::{
    CryptoEngine, EngineState, Offload, OffloadState, Segments, StageTime, Thread, Worker,
};
use gateway::facts::model::{self as tunnel, Drop, Facts};
use gateway::failover::model::{Group, Member};
use gateway::health::model::{Rule, State};
use std::collections::BTreeMap;
use std::fmt;

const BUILD: Family = family("postern_build", "The version of the daemon");
const REVISION: Family =
    family("postern_config_generation", "The revision of the configuration in force; 0 if none is kept");
const REFUSED: Family =
    family("postern_config_refused_parts", "Parts of the configuration that are not in force");

const CPU: Family = family("process_cpu", "Processor time of the daemon").seconds();
const RESIDENT: Family = family("process_resident_memory", "Resident memory of the daemon").bytes();
const VIRTUAL: Family = family("process_virtual_memory", "Address space of the daemon").bytes();
const OPEN_FILES: Family = family("process_open_fds", "Open file descriptors of the daemon");
const MOST_FILES: Family = family("process_max_fds", "Limit of open file descriptors of the daemon");
const PROCESS_THREADS: Family = family("process_threads", "Threads of the daemon");
const STARTED: Family = family("process_start_time", "Start of the daemon").seconds();

const MEMBER_UP: Family =
    family("postern_failover_member_up", "Whether a tunnel of a group is up, as probes of its path say, too");
const MEMBER_USED: Family =
    family("postern_failover_member_used", "Whether packets of the group take this tunnel");
const SWITCHES: Family = family("postern_failover_switches", "How often a group took another tunnel");

const DROPPED: Family = family("postern_dropped_packets", "Packets dropped, by reason: postern show drops");

const WAKE_UPS: Family = family("postern_worker_wake_ups", "Calls that waited for packets, and have ended");
const RECEIVES: Family = family("postern_worker_receive_calls", "Calls that received");
const EMPTY: Family = family("postern_worker_empty_receive_calls", "Calls that received nothing (EAGAIN)");
const RECEIVED: Family = family("postern_worker_received", "Bytes received by a worker").bytes();
const SENDS: Family = family("postern_worker_send_calls", "Calls that sent");
const SENT: Family = family("postern_worker_sent", "Bytes sent by a worker").bytes();
const BURSTS: Family = family("postern_worker_burst_packets", "Packets received, by the size of their burst");

const STAGE_TIME: Family =
    family("postern_stage", "Time of a stage for the bursts that were timed: one in 64").seconds();
const STAGE_PACKETS: Family = family("postern_stage_packets", "Packets of the bursts that were timed");
const SEGMENTS: Family = family(
    "postern_tcp_sampled_segments",
    "TCP segments with data, of one burst a millisecond and known flows",
);
const RESENT: Family =
    family("postern_tcp_sampled_resent_segments", "Those among them that came again, or out of order");

const THREAD_CPU: Family =
    family("postern_thread_cpu", "Processor time of the threads that carry packets, by name").seconds();
const HANDED_OFF: Family = family("postern_handoff_bursts", "Bursts handed off to crypto threads");
const TAKEN_BACK: Family =
    family("postern_handoff_taken_back_bursts", "Bursts that a worker took back from crypto threads");
const WAITING: Family = family("postern_handoff_waiting_bursts", "Bursts that wait for a crypto thread now");

const OFFLOAD: Family = family("postern_offload_enabled", "Whether an offload of the kernel is in use");
const OFFLOAD_CALLS: Family = family("postern_offload_calls", "Calls that carried more than one packet");
const OFFLOAD_PACKETS: Family = family("postern_offload_packets", "Packets in calls of an offload");
const FALLBACKS: Family =
    family("postern_offload_fallbacks", "Calls that the kernel refused and that were repeated without");

const IN_USE: Family = family("postern_engine_in_use", "Whether a crypto engine is chosen for some packets");
const ENGINE_FAILED: Family =
    family("postern_engine_failed", "Whether a crypto engine has failed, and is tried again later");
const FAILURES: Family = family("postern_engine_failures", "How often a crypto engine has failed");
const ENGINE_PACKETS: Family =
    family("postern_engine_packets", "Packets that an accelerator has encrypted or decrypted");
const ENGINE_BYTES: Family =
    family("postern_engine", "Bytes that an accelerator has encrypted or decrypted").bytes();

const HEALTH: Family =
    family("postern_health_rule_state", "What a rule of health says: 0 ok, 1 pending, 2 firing, -1 unknown");
const HEALTH_FAILING: Family = family("postern_health_failing", "Things that a rule of health finds wrong");

pub(super) fn write(writer: &mut Writer<'_>, facts: &Facts) -> fmt::Result {
    writer.infos(BUILD, [[("version", facts.daemon.version.as_str())]])?;
    writer.gauge(REVISION, facts.daemon.revision)?;
    writer.gauge(REFUSED, Some(facts.daemon.refused_parts))?;
    process(writer, facts)?;
    failover(writer, &facts.failover)?;
    drops(writer, &facts.drops)?;
    workers(writer, &facts.workers)?;
    stages(writer, &facts.stages)?;
    segments(writer, &facts.segments)?;
    threads(writer, &facts.threads)?;
    handoffs(writer, facts)?;
    offloads(writer, &facts.offloads)?;
    engines(writer, &facts.engines)?;
    health(writer, &facts.health)
}

/// Rules that are switched off have no state.
fn health(writer: &mut Writer<'_>, rules: &[Rule]) -> fmt::Result {
    let all = || rules.iter().filter(|it| it.state != State::Disabled);
    let labels = |it| {
        let Rule { rule, severity, .. }: &Rule = it;
        [("rule", rule.as_str()), ("severity", severity.name())]
    };
    let value = |state| match state {
        State::Ok | State::Disabled => 0_i64,
        State::Pending => 1,
        State::Firing => 2,
        State::Unknown => -1,
    };
    writer.gauges(HEALTH, all().map(|it| (labels(it), value(it.state))))?;
    writer.gauges(HEALTH_FAILING, all().map(|it| (labels(it), it.failing as u64)))
}

fn failover(writer: &mut Writer<'_>, groups: &[Group]) -> fmt::Result {
    let members = || groups.iter().flat_map(|group| group.members.iter().map(move |member| (group, member)));
    // A group has one tunnel of an interface, and names of peers may be left out.
    let labels = |group, member| {
        let (Group { name, .. }, Member { interface, .. }): (&Group, &Member) = (group, member);
        [("group", name.clone()), ("interface", interface.clone())]
    };
    let is_up = |member: &Member| u64::from(member.state == tunnel::State::Up);
    writer.gauges(MEMBER_UP, members().map(|(group, it)| (labels(group, it), is_up(it))))?;
    writer.gauges(MEMBER_USED, members().map(|(group, it)| (labels(group, it), u64::from(it.is_used))))?;
    writer.counters(SWITCHES, groups.iter().map(|group| ([("group", group.name.as_str())], group.switches)))
}

fn process(writer: &mut Writer<'_>, facts: &Facts) -> fmt::Result {
    let process = &facts.process;
    writer.counter(CPU, process.cpu_seconds)?;
    writer.gauge(RESIDENT, process.resident_bytes)?;
    writer.gauge(VIRTUAL, process.virtual_bytes)?;
    writer.gauge(OPEN_FILES, process.open_files)?;
    writer.gauge(MOST_FILES, process.most_files)?;
    writer.gauge(PROCESS_THREADS, process.threads)?;
    writer.gauge(STARTED, Some(facts.daemon.started))
}

fn drops(writer: &mut Writer<'_>, drops: &[Drop]) -> fmt::Result {
    let samples = drops.iter().flat_map(|drop| {
        let directions =
            [("outbound", drop.outbound), ("inbound", drop.inbound), ("handshake", drop.handshake)];
        directions.map(|(direction, packets)| {
            let labels =
                [("interface", drop.interface.as_str()), ("direction", direction), ("reason", &drop.reason)];
            (labels, packets)
        })
    });
    writer.counters(DROPPED, samples)
}

fn workers(writer: &mut Writer<'_>, workers: &[Worker]) -> fmt::Result {
    let labels = |worker| {
        let Worker { interface, worker, .. }: &Worker = worker;
        [("interface", interface.as_str()), ("worker", worker.as_str())]
    };
    let all = || workers.iter();
    writer.counters(WAKE_UPS, all().map(|it| (labels(it), it.wake_ups)))?;
    writer.counters(RECEIVES, all().map(|it| (labels(it), it.receives)))?;
    writer.counters(EMPTY, all().map(|it| (labels(it), it.empty_receives)))?;
    writer.counters(RECEIVED, all().map(|it| (labels(it), it.received_bytes)))?;
    writer.counters(SENDS, all().map(|it| (labels(it), it.sends)))?;
    writer.counters(SENT, all().map(|it| (labels(it), it.sent_bytes)))?;
    writer.histograms(BURSTS, all().map(|it| (labels(it), bursts(it))))
}

fn bursts(worker: &Worker) -> Histogram {
    let bound = |most: Option<u64>| most.map_or(f64::INFINITY, |most| most as f64);
    Histogram {
        sum: worker.received_packets,
        buckets: worker.bursts.iter().map(|it| (bound(it.packets), it.bursts)).collect(),
    }
}

fn stages(writer: &mut Writer<'_>, stages: &[StageTime]) -> fmt::Result {
    let labels = |stage| {
        let StageTime { interface, direction, stage, .. }: &StageTime = stage;
        [("interface", interface.as_str()), ("direction", direction.as_str()), ("stage", stage.as_str())]
    };
    let all = || stages.iter();
    writer.counters(STAGE_TIME, all().map(|it| (labels(it), it.nanoseconds as f64 / 1e9)))?;
    writer.counters(STAGE_PACKETS, all().map(|it| (labels(it), it.packets)))
}

fn segments(writer: &mut Writer<'_>, segments: &[Segments]) -> fmt::Result {
    let labels = |segments| {
        let Segments { interface, direction, .. }: &Segments = segments;
        [("interface", interface.as_str()), ("direction", direction.as_str())]
    };
    let all = || segments.iter();
    writer.counters(SEGMENTS, all().map(|it| (labels(it), it.all)))?;
    writer.counters(RESENT, all().map(|it| (labels(it), it.resent)))
}

/// Threads of one name are one: the kernel cuts names, and the number of a thread is another after a restart.
fn threads(writer: &mut Writer<'_>, threads: &[Thread]) -> fmt::Result {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for thread in threads {
        *by_name.entry(&thread.name).or_default() += thread.nanoseconds;
    }
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    writer.counters(THREAD_CPU, by_name.into_iter().map(|(name, it)| ([("thread", name)], seconds(it))))
}

fn handoffs(writer: &mut Writer<'_>, facts: &Facts) -> fmt::Result {
    let all = || facts.handoffs.iter().map(|it| ([("interface", it.interface.as_str())], it));
    writer.counters(HANDED_OFF, all().map(|(labels, it)| (labels, it.handed_off)))?;
    writer.counters(TAKEN_BACK, all().map(|(labels, it)| (labels, it.taken_back)))?;
    writer.gauges(WAITING, all().map(|(labels, it)| (labels, it.waiting)))
}

fn offloads(writer: &mut Writer<'_>, offloads: &[Offload]) -> fmt::Result {
    let labels = |offload| {
        let Offload { interface, offload, .. }: &Offload = offload;
        [("interface", interface.as_str()), ("offload", offload.as_str())]
    };
    let all = || offloads.iter();
    writer.gauges(OFFLOAD, all().map(|it| (labels(it), u32::from(it.state == OffloadState::On))))?;
    writer.counters(OFFLOAD_CALLS, all().map(|it| (labels(it), it.calls)))?;
    writer.counters(OFFLOAD_PACKETS, all().map(|it| (labels(it), it.packets)))?;
    writer.counters(FALLBACKS, all().map(|it| (labels(it), it.fallbacks)))
}

/// Engines that this machine has. Only accelerators count what they carry.
fn engines(writer: &mut Writer<'_>, engines: &[CryptoEngine]) -> fmt::Result {
    let all = || engines.iter().filter(|it| it.state != EngineState::Absent);
    let labels = |engine| {
        let CryptoEngine { name, .. }: &CryptoEngine = engine;
        [("engine", name.as_str())]
    };
    writer.gauges(IN_USE, all().map(|it| (labels(it), u32::from(it.state == EngineState::InUse))))?;
    writer.gauges(ENGINE_FAILED, all().map(|it| (labels(it), u32::from(it.state == EngineState::Failed))))?;
    writer.counters(FAILURES, all().map(|it| (labels(it), it.failures)))?;
    let carried = || {
        all().flat_map(|it| {
            let directions = [("seal", it.sealed), ("open", it.opened)];
            directions.into_iter().filter_map(|(direction, traffic)| {
                Some(([("engine", it.name.as_str()), ("direction", direction)], traffic?))
            })
        })
    };
    writer.counters(ENGINE_PACKETS, carried().map(|(labels, it)| (labels, it.packets)))?;
    writer.counters(ENGINE_BYTES, carried().map(|(labels, it)| (labels, it.bytes)))
}
