//! The scripts for OpenWrt, run by busybox ash. OpenWrt's own functions are stand-ins of ours: these tests show what the scripts
//! call, and not what procd and netifd do with it. `docs/openwrt.md` says what was tried with those.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NETWORK: &str = "\
config interface 'wg0'
\toption proto 'postern_wireguard'
\toption private_key 'YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM='
\toption listen_port '51820'
\tlist addresses '10.1.0.1/30'
config interface 'lan'
\toption proto 'static'
";
/// Over TCP, so that the ports differ in their protocol.
const OWN: &str = "config daemon 'daemon'\nconfig lines 'tcp'\n\tlist set 'interfaces openvpn vtun0 protocol tcp-passive'\n";
/// The same, as the stand-ins read it.
const SECTIONS: &str = "wg0 interface proto=postern_wireguard\nlan interface proto=static\n\
                        vtun0 interface proto=postern_openvpn auto=0\n";

/// A folder as OpenWrt's root, as far as the scripts look into it.
struct Router {
    root: tempfile::TempDir,
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/openwrt")
}

/// Whether busybox is here; without it the test cannot run.
fn is_here() -> bool {
    let is_here = Command::new("busybox").args(["ash", "-c", "true"]).status().is_ok();
    if !is_here {
        assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set, and busybox is missing");
        // Past the capture of the test harness, which would hide it.
        let _ = std::io::stderr().write_all(b"SKIPPED: needs busybox (make setup)\n");
    }
    is_here
}

/// A server of OpenVPN, as lines in UCI.
fn server() -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/openvpn-server.conf");
    let export = ["export", "uci", "--package", "postern"];
    let done =
        Command::new(env!("CARGO_BIN_EXE_postern")).args(export).arg(example).output().expect("it runs");
    String::from_utf8(done.stdout).expect("text")
}

impl Router {
    fn new(network: &str) -> Self {
        let router = Self { root: tempfile::tempdir().expect("a folder") };
        for folder in ["config", "sections", "links", "net/wg0"] {
            std::fs::create_dir_all(router.path(folder)).expect("a folder");
        }
        router.write("config/network", network);
        router.write("config/postern", &format!("{OWN}{}", server()));
        router.write("sections/network", SECTIONS);
        router.write("sections/postern", "daemon daemon open_from=wan open_from=wan6\n");
        router
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Runs commands behind the stand-ins.
    fn ash(&self, commands: &str) -> Output {
        let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwrt/stand-ins.sh");
        let script = format!(". {}\n{commands}", stand_ins.display());
        let mut command = Command::new("busybox");
        command
            .args(["ash", "-c", &script])
            .env("STAND_INS", self.path("sections"))
            .env("IPKG_INSTROOT", packaging())
            .env("POSTERN", env!("CARGO_BIN_EXE_postern"))
            .env("POSTERN_FUNCTIONS", packaging().join("lib/functions/postern.sh"))
            .env("POSTERN_UCI", self.path("config"))
            .env("POSTERN_CONF", self.path("etc/postern.conf"))
            .env("POSTERN_LAST", self.path("flash/last.conf"))
            .env("POSTERN_LINKS", self.path("links"))
            .env("POSTERN_PATIENCE", "0")
            .env("NET", self.path("net"));
        command.output().expect("it runs")
    }

    /// What commands print.
    fn prints(&self, commands: &str) -> String {
        String::from_utf8(self.ash(commands).stdout).expect("text")
    }
}

/// What closes routes would do it here.
const INIT: &str = ". \"$IPKG_INSTROOT/etc/init.d/postern\"\npostern_close() { echo closed; }\n";
const PROTOCOLS: &str = "INCLUDE_ONLY=1 . \"$IPKG_INSTROOT/lib/netifd/proto/postern.sh\"\n\
    json_get_vars() { link=$LINK zone=vpn auto=$AUTO; }; json_get_var() { eval \"$1=\\$FOUND\"; }; json_load() { FOUND=$AUTOSTART; }\n\
    ubus() { echo '{}'; }; postern_reload_later() { echo reload | tee -a \"$NET/reloads\"; }\n";

#[test]
fn every_script_is_one_for_ash() {
    if !is_here() {
        return;
    }
    let scripts = [
        "etc/init.d/postern",
        "etc/init.d/postern-close",
        "etc/hotplug.d/iface/01-postern",
        "lib/functions/postern.sh",
        "lib/netifd/proto/postern.sh",
        "usr/libexec/postern-link",
        "before-install.sh",
        "after-install.sh",
        "before-remove.sh",
    ];
    for script in scripts {
        let read = Command::new("busybox").args(["ash", "-n"]).arg(packaging().join(script)).output();
        let read = read.expect("it runs");
        assert!(read.status.success(), "{script}: {}", String::from_utf8_lossy(&read.stderr));
    }
}

#[test]
fn the_daemon_starts_with_a_configuration_made_of_uci() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    let said = router.prints(&format!("{INIT}start_service; service_triggers"));
    let conf = router.path("etc/postern.conf");
    assert!(
        said.contains(&format!(
            "procd_set_param command {} run --config {}",
            env!("CARGO_BIN_EXE_postern"),
            conf.display()
        )),
        "{said}"
    );
    assert!(
        said.contains("procd_set_param respawn") && said.contains("procd_add_reload_trigger network postern"),
        "{said}"
    );
    assert!(router.read("etc/postern.conf").contains("set interfaces wireguard wg0 port 51820\n"));
    let mode = std::fs::metadata(&conf).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has keys");
    let others = std::fs::read_dir(router.path("etc")).expect("it is there").flatten();
    assert_eq!(others.count(), 2, "nothing is left behind");
    let right = router.read("etc/postern.conf.right");
    assert_eq!(router.read("flash/last.conf"), right);
    // What netifd holds down is not on flash: after a fault the router must have it.
    assert_eq!(router.read("etc/postern.conf"), format!("{right}set interfaces openvpn vtun0 disable\n"));
    assert!(said.starts_with("closed\n"), "netifd may have opened it: {said}");
}

#[test]
fn a_wrong_configuration_leaves_the_one_before() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    router.ash(&format!("{INIT}start_service"));
    let before = router.read("etc/postern.conf");
    assert!(!before.is_empty());
    for wrong in ["\toption listen_port '99999'\n", "\toption presharedkey 'x'\n", "\tlist addresses 'x'\n"] {
        router.write("config/network", &NETWORK.replacen("\toption listen_port '51820'\n", wrong, 1));
        let done = router.ash(&format!("{INIT}postern_make"));
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success() && log.contains("log: ") && log.contains("it is not used"),
            "{wrong}: {log}"
        );
        assert_eq!(router.read("etc/postern.conf"), before, "{wrong}");
    }
    // An error of syntax has no option, and what is down stays so.
    router.write("config/network", &NETWORK.replacen("'51820'", "'51820", 1));
    let done = router.ash(&format!("{INIT}config_load() {{ CONFIG=/dev/null; return 1; }}; postern_make"));
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(log.matches("log: ").count() > 1, "{log}");
    assert!(before.ends_with("set interfaces openvpn vtun0 disable\n"));
    assert_eq!(router.read("etc/postern.conf"), before);
    // An interface that is taken down meanwhile is.
    router.write("links/wg0", "down\n");
    router.ash(&format!("{INIT}postern_make"));
    assert!(router.read("etc/postern.conf").contains("set interfaces wireguard wg0 disable\n"));
}

#[test]
fn a_router_that_starts_with_a_wrong_configuration_has_the_last_one_that_was_right() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    let wrong = NETWORK.replacen("'51820'", "'99999'", 1);
    router.write("config/network", &wrong);
    let first = router.ash(&format!("{INIT}start_service"));
    let log = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(!first.status.success() && log.contains("nothing is protected"), "{log}");
    router.write("config/network", NETWORK);
    router.ash(&format!("{INIT}start_service"));
    let right = router.read("etc/postern.conf");
    let mode = std::fs::metadata(router.path("flash/last.conf")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has keys");
    // What is in memory is gone.
    std::fs::remove_dir_all(router.path("etc")).expect("it is there");
    router.write("config/network", &wrong);
    let done = router.ash(". \"$IPKG_INSTROOT/etc/init.d/postern-close\"\npostern_make");
    assert!(done.status.success() && router.read("etc/postern.conf") == right, "{done:?}");
    let mode = std::fs::metadata(router.path("etc/postern.conf")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has keys");
    let said = router.prints(&format!("{INIT}start_service"));
    assert!(said.contains("procd_close_instance"), "it starts: {said}");
}

#[test]
fn what_netifd_holds_down_is_disabled() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    router.ash(&format!("{INIT}postern_make"));
    let disabled = |router: &Router| {
        let conf = router.read("etc/postern.conf");
        conf.lines().filter(|line| line.ends_with("0 disable")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(disabled(&router), ["set interfaces openvpn vtun0 disable"], "auto is 0");
    router.write("links/wg0", "down\n");
    router.write("links/vtun0", "up\n");
    router.ash(&format!("{INIT}postern_make"));
    assert_eq!(disabled(&router), ["set interfaces wireguard wg0 disable"]);
}

#[test]
fn fw4_is_told_of_the_ports_that_peers_call() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    router.write("links/vtun0", "up\n");
    let said = router.prints(&format!("{INIT}postern_make; service_data; service_started; service_started"));
    for rule in ["Allow-Postern-tcp-1194", "Allow-Postern-udp-51820"] {
        assert_eq!(
            said.matches(&format!("json_add_string name {rule}\n")).count(),
            2,
            "from two zones: {said}"
        );
    }
    assert!(
        said.contains("json_add_string src wan6\njson_add_string proto udp\njson_add_string dest_port 51820"),
        "{said}"
    );
    assert_eq!(said.matches("procd_set_config_changed firewall").count(), 1, "only when they change: {said}");
    // The ports are the same, and the zones are not.
    router.write("sections/postern", "daemon daemon open_from=vpn\n");
    let said = router.prints(&format!("{INIT}service_data; service_started"));
    assert!(said.contains("src vpn") && !said.contains("src wan"), "{said}");
    assert_eq!(said.matches("procd_set_config_changed firewall").count(), 1, "{said}");
    // A tunnel that is down has no port.
    router.write("links/wg0", "down\n");
    let said = router.prints(&format!("{INIT}postern_make; service_data"));
    assert!(said.contains("proto tcp") && !said.contains("51820"), "{said}");
    for sections in ["daemon daemon\n", "daemon daemon open_from=vpn enabled=0\n"] {
        router.write("sections/postern", sections);
        let said = router.prints(&format!("{INIT}service_data; service_started; service_stopped"));
        assert!(!said.contains("src "), "{said}");
        assert!(said.contains("procd_set_config_changed firewall"), "{said}");
    }
}

#[test]
fn netifd_starts_what_waits_for_the_link() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    let setup = |before: &str, call: &str| router.prints(&format!("{PROTOCOLS}{before}\n{call}"));
    let run = "proto_run_command home /usr/libexec/postern-link home wg3 vpn\n";
    assert_eq!(setup("LINK=wg3", "proto_postern_wireguard_setup home"), run);
    assert_eq!(router.read("links/wg3"), "up\n");
    let wrong = setup("LINK=", "proto_postern_wireguard_setup home");
    assert!(
        wrong.contains("proto_notify_error home NO_LINK_OF_THIS_NAME")
            && wrong.contains("proto_block_restart home"),
        "{wrong}"
    );
    let by_hand = setup("LINK=vtun0 AUTO=0", "proto_postern_openvpn_setup vtun0");
    assert!(by_hand.starts_with("reload\n"), "{by_hand}");
    assert_eq!(setup("LINK=vtun0 AUTO=0", "proto_postern_openvpn_setup vtun0").matches("reload").count(), 0);
}

#[test]
fn ifdown_disables_a_tunnel_and_a_restart_of_netifd_does_not() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    let teardown = |before: &str| {
        let _ = std::fs::remove_file(router.path("net/reloads"));
        let done = router.prints(&format!("{PROTOCOLS}json_get_var() {{ case $2 in link) link=wg0 ;; *) autostart=$FOUND ;; esac; }}\n{before}\nproto_postern_wireguard_teardown wg0\nwait"));
        assert!(done.starts_with("proto_kill_command wg0\n"), "{done}");
        router.path("net/reloads").exists()
    };
    assert!(!teardown("AUTOSTART=1") && router.read("links/wg0").is_empty());
    // When netifd has ended meanwhile, it was not ifdown.
    assert!(!teardown("AUTOSTART=0 PPID=4999999") && router.read("links/wg0").is_empty());
    assert!(teardown("AUTOSTART=0"));
    assert_eq!(router.read("links/wg0"), "down\n");
    assert!(!teardown("AUTOSTART=0"), "it is down");
    let up = router.prints(&format!("{PROTOCOLS}LINK=wg0\nproto_postern_wireguard_setup wg0"));
    assert!(up.starts_with("reload\n"), "{up}");
}

#[test]
fn netifd_is_told_of_addresses_and_routes() {
    if !is_here() {
        return;
    }
    let router = Router::new(NETWORK);
    router.write("net/wg0/flags", "0x1091\n");
    router.write("net/wg0/ifindex", "7\n");
    router.write(
        "functions.sh",
        &format!(
            ". {}\n",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwrt/stand-ins.sh").display()
        ),
    );
    // Lines as busybox prints them; at the second turn another index, as of a link that was made again.
    router.write(
        "netifd-proto.sh",
        "ip() {\ncase \"$*\" in\n*addr*) echo '7: wg0    inet 10.1.0.1/30 scope global wg0'; echo '7: wg0    inet6 fd00:1::1/64 scope global '; ;;\n\
         '-4 '*) echo '10.1.0.0/30 scope link  src 10.1.0.1 '; echo '10.20.0.0/16 scope link '; echo '192.0.2.9 scope link '; echo '10.20.0.0/16 scope link  metric 2147483647 ' ;;\n\
         '-6 '*) echo 'fd00:1::/64  metric 256 '; echo 'fd00:2::/48  metric 1024 '; echo 'default  metric 1024 ' ;;\nesac\n}\nsleep() { echo 8 > \"$NET/wg0/ifindex\"; }\n",
    );
    let link = packaging().join("usr/libexec/postern-link");
    let run = Command::new("busybox")
        .arg("ash")
        .arg(link)
        .args(["home", "wg0", "vpn"])
        .env("NET", router.path("net"))
        .env("FUNCTIONS", router.path("functions.sh"))
        .env("NETIFD_MAIN_DIR", router.root.path())
        .env("STAND_INS", router.path("sections"))
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let expected = "proto_init_update wg0 1 1\nproto_add_ipv4_address 10.1.0.1 30\nproto_add_ipv6_address fd00:1::1 64\n\
                    proto_add_ipv4_route 10.20.0.0 16   2147483647\nproto_add_ipv4_route 192.0.2.9 32   2147483647\n\
                    proto_add_ipv6_route fd00:2:: 48  2147483647\n\
                    proto_add_data\njson_add_string zone vpn\nproto_close_data\nproto_send_update home\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), expected);
}
