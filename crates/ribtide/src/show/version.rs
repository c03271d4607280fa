//! The version of the router.

use crate::text::{duration, fold};
use ribtide_model::Version;

/// `own`: the version of this command.
pub(super) fn version(router: &Version, own: &str) -> String {
    let commit = router.commit.as_ref().map_or(String::new(), |commit| format!(", commit {commit}"));
    let Version { version, build, target, pid, uptime_seconds, kernel, kernel_features, .. } = router;
    let mut out = format!("ribtide {version}{commit}, {build} build for {target}\n");
    out.push_str(&format!("Running for {} as process {pid}\n", duration(*uptime_seconds)));
    let features = [
        ("next-hop objects", kernel_features.next_hop_objects),
        ("VRFs", kernel_features.vrf),
        ("TCP-MD5", kernel_features.tcp_md5),
        ("TCP-AO", kernel_features.tcp_ao),
    ];
    let named = |has| -> Vec<&str> {
        features.iter().filter(|(_, found)| *found == has).map(|(name, _)| *name).collect()
    };
    out.push_str(&format!("Kernel {kernel}"));
    for (title, has) in [("with", Some(true)), ("without", Some(false)), ("does not say of", None)] {
        let names = named(has);
        if !names.is_empty() {
            out.push_str(&format!("; {title} {}", names.join(", ")));
        }
    }
    out.push('\n');
    if own != version {
        out.push_str(&format!("This command is ribtide {own}: another version than the router\n"));
    }
    fold(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::KernelFeatures;

    #[test]
    fn version_names_what_the_kernel_has_and_lacks() {
        let router = Version {
            version: "0.2.0".into(),
            commit: Some("0123456789ab".into()),
            build: "release".into(),
            target: "x86_64-linux".into(),
            pid: 7,
            uptime_seconds: 7500,
            kernel: "6.1.0".into(),
            kernel_features: KernelFeatures {
                next_hop_objects: Some(true),
                vrf: None,
                tcp_md5: Some(true),
                tcp_ao: Some(false),
            },
        };
        assert_eq!(
            version(&router, "0.2.0"),
            "ribtide 0.2.0, commit 0123456789ab, release build for x86_64-linux\n\
             Running for 2h05m as process 7\n\
             Kernel 6.1.0; with next-hop objects, TCP-MD5; without TCP-AO;\n    does not say of VRFs\n"
        );
        assert!(version(&router, "0.1.0").ends_with("another version than the router\n"));
    }
}
