//! What the machine and the configuration show: `show system`, `show configuration`, `show log`, `show nat` and others.

use crate::host::{processes, sensors, version};
use crate::operational::names::Names;
use crate::operational::{Argument, Entry, Flag, entry};
use crate::show_log::Of;
use crate::{
    show_configuration as configuration, show_dhcp, show_firewall, show_log as log, show_machine, show_nat,
    show_qat, system,
};

const QAT: Argument = Argument { name: "DEVICE", about: "The accelerator", names: Names::QatDevices };
const LINES: Argument = Argument { name: "LINES", about: "How many lines", names: Names::Number };
const REVISION: Argument = Argument {
    name: "REVISION",
    about: "Number of the revision, from 0, the newest",
    names: Names::Revisions,
};

const SECRETS: Flag = Flag::new("secrets", "Show secrets, too; they are hidden otherwise");
const MACHINE: &str = "/v1/machine";
const NAT: &str = "/v1/nat";
const FIREWALL: &str = "/v1/firewall";
const DHCP: &str = "/v1/dhcp/client";
const CRYPTO: &str = "/v1/crypto";

pub(super) static ENTRIES: &[Entry] = &[
    entry("show system cpu", "Show the processor, and its instructions for ciphers and packets", |_| {
        Ok(system::cpu())
    }),
    entry("show system cpu info", "The same, in the words of older VyOS", |_| Ok(system::cpu())),
    entry("show hardware cpu", "Show the processor", |_| Ok(system::cpu())),
    entry("show hardware cpu detail", "Show the processor as the kernel describes it", |_| {
        Ok(system::cpu_detail())
    }),
    entry("show cpu-info", "Show the processor as the kernel describes it", |_| Ok(system::cpu_detail())),
    entry("show hardware sensors", "Show temperatures, fans and voltages", |_| Ok(sensors::show())),
    entry("show environment sensors", "Show temperatures, fans and voltages", |_| Ok(sensors::show())),
    entry("show system processes", "Show what uses the processors", |_| Ok(processes::show())),
    entry(
        "show system commit",
        "List the revisions of the configuration, the newest first",
        configuration::revisions,
    ),
    entry("show system commit diff REVISION", "Show what a revision changed", configuration::changes)
        .arguments(&[REVISION]),
    entry("show configuration", "Show what is in force, in braces", configuration::braces)
        .options(&[SECRETS]),
    entry("show configuration commands", "Show what is in force, as lines of set", configuration::commands)
        .options(&[SECRETS]),
    entry("show configuration json", "Show what is in force, as JSON", configuration::as_json)
        .options(&[SECRETS]),
    entry(
        "show configuration canonical",
        "Show what is in force, with the words of newer VyOS in the place of older ones",
        configuration::in_one_dialect,
    )
    .options(&[SECRETS]),
    entry(
        "show system acceleration",
        "List the crypto accelerators with their drivers and algorithms",
        |_| Ok(system::acceleration()),
    ),
    entry("show system acceleration qat", "Show whether there is QuickAssist, and its versions", |_| {
        Ok(show_qat::overview())
    }),
    entry("show system acceleration qat status", "Show the state of each QuickAssist device", |_| {
        Ok(show_qat::status())
    }),
    entry(
        "show system acceleration qat device DEVICE config",
        "Show the configuration of a QuickAssist device, as its driver has it",
        show_qat::configuration,
    )
    .arguments(&[QAT]),
    entry(
        "show system acceleration qat device DEVICE flows",
        "Show what a QuickAssist device has computed",
        show_qat::flows,
    )
    .arguments(&[QAT])
    .asks(CRYPTO),
    entry(
        "show system acceleration qat device DEVICE flows detail",
        "Show the same with the source of each number",
        show_qat::flows_detail,
    )
    .arguments(&[QAT])
    .asks(CRYPTO),
    entry(
        "show system acceleration qat interrupts",
        "Show the interrupts of the QuickAssist devices by processor",
        |_| Ok(show_qat::interrupts()),
    ),
    entry("show log", "Show the log of this machine", |request| log::show(request, Of::Machine)),
    entry("show log tail", "Show the last 10 lines of it", log::tail),
    entry("show log tail LINES", "Show its last lines", log::tail).arguments(&[LINES]),
    entry("show log kernel", "Show the log of the kernel", |request| log::show(request, Of::Kernel)),
    entry("show log ipsec", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log vpn", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log openvpn", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log vpn ipsec", "The same, in the words of VyOS 1.3", |request| {
        log::show(request, Of::Daemon)
    }),
    entry("show version", "Show the version of Postern, of the kernel and of this machine", |_| {
        Ok(version::all())
    }),
    entry("show version kernel", "Show the release of the kernel", |_| Ok(version::kernel())),
    entry("show dhcp client leases", "List what interfaces have got by DHCP", show_dhcp::leases).asks(DHCP),
    entry("show firewall", "List zones and rule sets, with the packets of each rule", show_firewall::all)
        .asks(FIREWALL),
    entry("show firewall zone-policy", "List zones, and the rule sets between them", show_firewall::zones)
        .asks(FIREWALL),
    entry("show nat", "List the rules of NAT, with the connections that each has translated", show_nat::all)
        .asks(NAT),
    entry("show nat source rules", "List the source rules of NAT", show_nat::source).asks(NAT),
    entry("show nat source statistics", "List the source rules of NAT", show_nat::source).asks(NAT),
    entry("show nat destination rules", "List the destination rules of NAT", show_nat::destination).asks(NAT),
    entry("show nat destination statistics", "List the destination rules of NAT", show_nat::destination)
        .asks(NAT),
    entry(
        "show system managed",
        "Show what other programs of the machine do for the configuration, and their files",
        show_machine::managed,
    )
    .asks(MACHINE),
    entry(
        "show system option performance",
        "Show what the profile has set, what it was before, and what could not be set",
        show_machine::performance,
    )
    .asks(MACHINE),
];
