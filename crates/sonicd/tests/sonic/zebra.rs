//! FRR's own zebra, with the FPM module that FRR ships, drives fpmsyncd: static routes down to the chip and back.
//! Where FRR is not installed the test prints that it skips.

use crate::bench::{Bench, eventually};
use crate::fpm::{in_namespace, ip};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FRR: &str = "/usr/lib/frr";

/// A daemon of FRR's, which ends with this.
struct Frr(Child);

impl Drop for Frr {
    fn drop(&mut self) {
        // A kind request: a killed daemon would leave its routes to zebra.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path, daemon: &str, config: &str, more: &[&str]) -> Frr {
    let file = |name: &str| dir.join(format!("{daemon}{name}"));
    std::fs::write(file(".conf"), config).unwrap();
    let child = Command::new(format!("{FRR}/{daemon}"))
        .arg("-f")
        .arg(file(".conf"))
        .arg("-i")
        .arg(file(".pid"))
        .arg("-z")
        .arg(dir.join("zserv.api"))
        .arg("--vty_socket")
        .arg(dir)
        .args(["-A", "127.0.0.1", "-P", "0"])
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Frr(child)
}

fn vtysh(dir: &Path, command: &str) -> String {
    let out = Command::new("vtysh").arg("--vty_socket").arg(dir).args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn frr_drives_the_path() {
    if !Path::new(FRR).join("zebra").exists() {
        println!("skipped: FRR is not installed");
        return;
    }
    in_namespace("zebra::frr_drives_the_path", || {
        for n in [0, 4] {
            assert!(ip(&format!("addr add 10.0.{n}.254/24 dev Ethernet{n}")));
            assert!(ip(&format!("link set Ethernet{n} up")));
        }
        for objects in ["no fpm use-next-hop-groups", "fpm use-next-hop-groups"] {
            let Some(mut bench) = Bench::new() else { return };
            bench.syncd();
            bench.orchagent("");
            bench.ports();
            let (address, _) = bench.fpmsyncd();
            // FRR gives up its privileges and must still write here.
            let dir = tempfile::tempdir().unwrap();
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
            let config = format!("fpm address 127.0.0.1 port {}\n{objects}\n", address.port());
            let more = ["-s", "90000000", "-M", "dplane_fpm_nl", "--asic-offload=notify_on_offload"];
            let _zebra = start(dir.path(), "zebra", &config, &more);
            let routes = "ip route 10.5.0.0/16 10.0.0.1\nip route 10.6.0.0/16 10.0.0.1\n\
                          ip route 10.6.0.0/16 10.0.4.1\nip route 10.7.0.0/16 blackhole\n";
            eventually("zebra to take clients", || dir.path().join("zserv.api").exists().then_some(()));
            let staticd = start(dir.path(), "staticd", routes, &[]);

            bench.forwards("10.5.2.3", &["10.0.0.1"]);
            bench.forwards("10.6.2.3", &["10.0.0.1", "10.0.4.1"]);
            eventually("the blackhole", || {
                (bench.query("lookup 10.7.0.1")["prefix"] == "10.7.0.0/16").then_some(())
            });
            assert_eq!(bench.query("lookup 10.7.0.1")["action"], "drop");
            // Connected routes come from zebra too.
            eventually("the connected route", || {
                (bench.query("lookup 10.0.4.77")["hops"][0]["port"] == "Ethernet4").then_some(())
            });
            // It reads the offload replies. (Stock zebra finds no static route by them: it looks for the distance, which
            // netlink does not carry.)
            eventually("zebra to read replies", || {
                let counters = vtysh(dir.path(), "show fpm counters json");
                let counters: serde_json::Value = serde_json::from_str(&counters).ok()?;
                (counters["bytes-read"].as_u64()? >= 5 * 40).then_some(())
            });
            let row = bench.appl().hash("ROUTE_TABLE:10.5.0.0/16");
            assert!(row.contains("ifname=Ethernet0 nexthop=10.0.0.1 protocol="), "{row}");

            drop(staticd);
            for addr in ["10.5.2.3", "10.6.2.3", "10.7.0.1"] {
                eventually("the static routes to go", || {
                    (bench.query(&format!("lookup {addr}"))["prefix"] == "0.0.0.0/0").then_some(())
                });
            }
            assert_eq!(bench.appl().hash("ROUTE_TABLE:10.5.0.0/16"), "");
        }
    });
}
