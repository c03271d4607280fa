//! What the objects say about interfaces, as packets need it. Computed again after a change of an
//! object that is no next hop.

use crate::switch::VirtualSwitch;
use ribtide_prefix::Map;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::{Attr, ObjectType, Oid};

/// The default of `SAI_ROUTER_INTERFACE_ATTR_MTU`.
const DEFAULT_MTU: u32 = 1514;

/// What a router interface lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lower {
    /// A port or a LAG, with the tag of a sub-interface.
    Port(Oid, Option<u16>),
    /// A VLAN, by its number.
    Vlan(u16),
}

/// A router interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rif {
    pub(super) router: Oid,
    pub(super) mac: Mac,
    pub(super) lower: Lower,
    /// The greatest IP packet, in bytes.
    pub(super) mtu: usize,
    pub(super) v4: bool,
    pub(super) v6: bool,
    pub(super) mpls: bool,
}

/// A VLAN.
#[derive(Default, Debug)]
pub(super) struct Vlan {
    pub(super) oid: Oid,
    pub(super) rif: Option<Rif>,
    /// The ports and LAGs in it, and whether their frames have its tag.
    pub(super) members: Vec<(Oid, bool)>,
}

/// The interfaces.
#[derive(Default, Debug)]
pub(super) struct Topology {
    pub(super) rifs: Map<Oid, Rif>,
    /// Router interfaces by port or LAG, and tag.
    on: Map<(Oid, Option<u16>), Oid>,
    /// The LAG of a port, and whether it takes packets from it.
    pub(super) lag_of: Map<Oid, (Oid, bool)>,
    /// The ports through which a LAG sends, by number, whatever their links.
    pub(super) lags: Map<Oid, Vec<Oid>>,
    pub(super) vlans: Map<u16, Vlan>,
    /// The bridge port of a port or LAG in a VLAN.
    pub(super) bridge_ports: Map<(u16, Oid), Oid>,
    /// The VLAN of frames without a tag.
    untagged: Map<Oid, u16>,
    /// Host interfaces by what they belong to.
    pub(super) hosts: Map<Oid, Oid>,
    /// What a host interface belongs to.
    pub(super) host_of: Map<Oid, Oid>,
    /// Seeds of the hashes of ECMP and LAGs.
    pub(super) seeds: [u64; 2],
}

impl Topology {
    pub(super) fn of(switch: &VirtualSwitch) -> Topology {
        let mut topology = Topology { seeds: seeds(switch), ..Topology::default() };
        topology.take_lags(switch);
        topology.take_vlans(switch);
        topology.take_rifs(switch);
        for oid in switch.objects.of_kind(ObjectType::Hostif) {
            let object = switch.objects.find(oid, |attr| match attr {
                Attr::Other(raw) if raw.name() == "SAI_HOSTIF_ATTR_OBJ_ID" => {
                    raw.value().oids().first().copied()
                }
                _ => None,
            });
            if let Some(object) = object {
                topology.hosts.insert(object, oid);
                topology.host_of.insert(oid, object);
            }
        }
        topology
    }

    fn take_lags(&mut self, switch: &VirtualSwitch) {
        let mut members: Vec<Oid> = switch.objects.of_kind(ObjectType::LagMember).collect();
        members.sort_unstable();
        for member in members {
            let is = |attr: &Attr| switch.objects.find(member, |of| (of == attr).then_some(())).is_some();
            let lag = switch
                .objects
                .find(member, |a| if let Attr::LagMemberLag(oid) = a { Some(*oid) } else { None });
            let port = switch
                .objects
                .find(member, |a| if let Attr::LagMemberPort(oid) = a { Some(*oid) } else { None });
            let (Some(lag), Some(port)) = (lag, port) else { continue };
            self.lag_of.insert(port, (lag, !is(&Attr::LagMemberIngressDisable(true))));
            let ports = self.lags.entry(lag).or_default();
            if !is(&Attr::LagMemberEgressDisable(true)) {
                ports.push(port);
            }
        }
    }

    /// The VLANs with the members that requests gave them. Those that the chip has from the start do
    /// not count, since SONiC removes them before it uses a port.
    fn take_vlans(&mut self, switch: &VirtualSwitch) {
        for vlan in switch.objects.of_kind(ObjectType::Vlan) {
            if let Some(id) = vlan_id(switch, vlan) {
                self.vlans.entry(id).or_default().oid = vlan;
            }
        }
        let mut members: Vec<Oid> = switch.objects.of_kind(ObjectType::VlanMember).collect();
        members.sort_unstable();
        for member in members {
            let Some(object) = switch.objects.get(member) else { continue };
            let vlan = object
                .attrs
                .iter()
                .find_map(|a| if let Attr::VlanMemberVlan(oid) = a { Some(*oid) } else { None });
            let bridge_port = object
                .attrs
                .iter()
                .find_map(|a| if let Attr::VlanMemberBridgePort(oid) = a { Some(*oid) } else { None });
            let (Some(id), Some(bridge_port)) = (vlan.and_then(|vlan| vlan_id(switch, vlan)), bridge_port)
            else {
                continue;
            };
            let port = switch
                .objects
                .find(bridge_port, |a| if let Attr::BridgePortPort(oid) = a { Some(*oid) } else { None });
            let tagged = object.attrs.iter().any(|attr| {
                attr.name() == "SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE"
                    && attr.value() == "SAI_VLAN_TAGGING_MODE_TAGGED"
            });
            let Some(port) = port else { continue };
            self.vlans.entry(id).or_default().members.push((port, tagged));
            self.bridge_ports.insert((id, port), bridge_port);
            if !tagged {
                self.untagged.insert(port, id);
            }
        }
    }

    fn take_rifs(&mut self, switch: &VirtualSwitch) {
        let own = switch.started.as_ref().map(|own| own.switch);
        let switch_mac = own.and_then(|own| {
            switch.objects.find(own, |a| if let Attr::SwitchSrcMac(mac) = a { Some(*mac) } else { None })
        });
        for oid in switch.objects.of_kind(ObjectType::RouterInterface) {
            let Some(object) = switch.objects.get(oid) else { continue };
            let mut rif = Rif {
                router: Oid::NULL,
                mac: switch_mac.unwrap_or_default(),
                lower: Lower::Vlan(0),
                mtu: DEFAULT_MTU as usize,
                v4: true,
                v6: true,
                mpls: false,
            };
            let (mut on, mut vlan, mut tag) = (None, None, None);
            for attr in &object.attrs {
                match attr {
                    Attr::RifVirtualRouter(router) => rif.router = *router,
                    Attr::RifSrcMac(mac) => rif.mac = *mac,
                    Attr::RifPort(port) => on = Some(*port),
                    Attr::RifVlan(oid) => vlan = vlan_id(switch, *oid),
                    Attr::RifOuterVlan(id) => tag = Some(*id),
                    Attr::RifMtu(mtu) => rif.mtu = *mtu as usize,
                    Attr::RifV4(is) => rif.v4 = *is,
                    Attr::RifV6(is) => rif.v6 = *is,
                    Attr::RifMpls(is) => rif.mpls = *is,
                    _ => {}
                }
            }
            match (on, vlan) {
                (Some(on), _) => {
                    rif.lower = Lower::Port(on, tag);
                    self.on.insert((on, tag), oid);
                }
                (None, Some(id)) => {
                    rif.lower = Lower::Vlan(id);
                    if let Some(vlan) = self.vlans.get_mut(&id) {
                        vlan.rif = Some(rif);
                    }
                }
                // A loopback.
                (None, None) => continue,
            }
            self.rifs.insert(oid, rif);
        }
    }

    /// The router interface of frames of a port or LAG with a tag, or without one.
    pub(super) fn rif_on(&self, lower: Oid, tag: Option<u16>) -> Option<Rif> {
        self.on.get(&(lower, tag)).and_then(|oid| self.rifs.get(oid)).copied()
    }

    /// The VLAN of a frame that came to a port or LAG, if the port is in it. A frame with the tag of
    /// the port's own VLAN is in it too.
    pub(super) fn vlan_on(&self, lower: Oid, tag: Option<u16>) -> Option<u16> {
        let id = tag.or_else(|| self.untagged.get(&lower).copied())?;
        let vlan = self.vlans.get(&id)?;
        vlan.members.iter().any(|(member, _)| *member == lower).then_some(id)
    }
}

fn vlan_id(switch: &VirtualSwitch, vlan: Oid) -> Option<u16> {
    switch.objects.find(vlan, |a| if let Attr::VlanId(id) = a { Some(*id) } else { None })
}

fn seeds(switch: &VirtualSwitch) -> [u64; 2] {
    let names = ["SAI_SWITCH_ATTR_ECMP_DEFAULT_HASH_SEED", "SAI_SWITCH_ATTR_LAG_DEFAULT_HASH_SEED"];
    let own = switch.started.as_ref().map(|own| own.switch);
    let seed = |name| {
        let value =
            own.and_then(|own| switch.objects.find(own, |attr| (attr.name() == name).then(|| attr.value())));
        value.and_then(|value| value.parse().ok()).unwrap_or(0u64)
    };
    // Else a flow's place in a group would decide its place in a LAG.
    [seed(names[0]), seed(names[1]) ^ 0x9e37_79b9_7f4a_7c15]
}
